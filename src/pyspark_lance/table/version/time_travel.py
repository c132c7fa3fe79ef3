"""Resolve a version number, tag or timestamp to a manifest.

Source: docs/format/table-format.md, sections 1.4, 12.1 to 12.3.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from numbers import Integral

from pyspark_lance.errors import InvalidInputError, TableNotFoundError, VersionNotFoundError
from pyspark_lance.metafile.manifest_file import (
    ManifestLocation,
    find_version,
    latest_version,
    list_versions,
    read_manifest,
)
from pyspark_lance.metafile.refs_file import read_branch, read_tag
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.version.table import MAIN, Table


@dataclass(frozen=True, slots=True)
class VersionSpec:
    """Version by at most one of ``version``, ``timestamp_ns`` and ``tag``; none: the latest."""

    version: int | None = None  # Version number.
    # UTC nanoseconds since 1970; the newest version committed at or before it.
    timestamp_ns: int | None = None
    tag: str | None = None  # Name of a tag, which may point into a branch.

    def __post_init__(self) -> None:
        """Reject contradicting requests."""
        every = {"version": self.version, "timestamp": self.timestamp_ns, "tag": self.tag}
        given = [name for name, value in every.items() if value is not None]
        if len(given) > 1:
            raise InvalidInputError(
                f"{given[0]} and {given[1]} both choose a version", hint="give only one of them"
            )
        if self.version is not None and not _is_number(self.version):
            raise InvalidInputError(f"version {self.version!r} is not a positive whole number")


def _is_number(version: object) -> bool:
    return isinstance(version, Integral) and int(version) > 0


LATEST = VersionSpec()

_OUT_OF_ORDER = 8


def resolve_tag(table: Table, spec: VersionSpec) -> tuple[Table, VersionSpec]:
    """Resolve the tag of a request to a branch and a version."""
    if spec.tag is None and table.branch is None:
        return table, spec
    main_store = table.on_branch(None).store()
    if spec.tag is None:
        assert table.branch is not None
        read_branch(main_store, table.branch)
        return table, spec
    tag = read_tag(main_store, spec.tag)
    if table.branch not in (None, tag.branch):
        raise VersionNotFoundError(
            f"the tag {spec.tag!r} belongs to branch {tag.branch or MAIN!r}, not {table.branch!r}",
            where=table.root,
        )
    return table.on_branch(tag.branch), VersionSpec(version=tag.version)


def resolve_version(store: ObjectStore, spec: VersionSpec) -> ManifestLocation:
    """Return the manifest of ``spec`` (without a tag) in the table or branch of ``store``."""
    if spec.version is not None:
        return find_version(store, spec.version)
    if spec.timestamp_ns is not None:
        return version_at(store, spec.timestamp_ns)
    location = latest_version(store)
    if location is None:
        raise TableNotFoundError(
            "there is no Lance table here", where=store.uri, hint="check the path"
        )
    return location


def version_at(
    store: ObjectStore, timestamp_ns: int, versions: Sequence[ManifestLocation] | None = None
) -> ManifestLocation:
    """Return the newest version whose commit time is at or before ``timestamp_ns``.

    ``timestamp_ns``: UTC nanoseconds since 1970. ``versions``: all of them, ascending; None to list
    them.
    """
    versions = list_versions(store) if versions is None else versions
    if not versions:
        raise TableNotFoundError("there is no Lance table here", where=store.uri)
    index = newest_at(store, timestamp_ns, versions)
    if index is not None:
        return versions[index]
    # Microsecond timestamps are passed as the end of the microsecond.
    given_ns = timestamp_ns - (1000 if timestamp_ns % 1000 else 0)
    asked, first = (_shown(ns) for ns in (given_ns, _committed_ns(store, versions[0])))
    raise VersionNotFoundError(
        f"no version was committed at or before {asked}",
        where=store.uri,
        hint=f"the oldest one left, version {versions[0].version}, was committed at {first}",
    )


def newest_at(
    store: ObjectStore, timestamp_ns: int, versions: Sequence[ManifestLocation]
) -> int | None:
    """Return the index of the newest of ``versions``, ascending, at or before a time, or None.

    Commit times increase with version numbers, so binary search applies. Clocks of writers may
    differ: of two versions out of order, the newer one is used, if they are at most
    ``_OUT_OF_ORDER`` versions apart.
    """
    known: dict[int, int] = {}

    def is_old(number: int) -> bool:
        if number not in known:
            known[number] = _committed_ns(store, versions[number])
        return known[number] <= timestamp_ns

    end = bisect_left(range(len(versions)), True, key=lambda number: not is_old(number))
    while True:
        near = range(end, min(end + _OUT_OF_ORDER, len(versions)))
        later = next((number for number in reversed(near) if is_old(number)), None)
        if later is None:
            break
        end = later + 1
    return end - 1 if end else None


def _committed_ns(store: ObjectStore, location: ManifestLocation) -> int:
    return read_manifest(store, location, with_indices=False).manifest.timestamp_ns


def _shown(timestamp_ns: int) -> str:
    """Format an ISO time with microseconds by integer arithmetic; a double is too imprecise."""
    moment = datetime.fromtimestamp(timestamp_ns // 10**9, UTC)
    return moment.replace(microsecond=timestamp_ns % 10**9 // 1000).isoformat()
