"""ChangeWindow: the versions that a change feed covers, and its contents."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark_lance.errors import InvalidInputError, TableNotFoundError, VersionNotFoundError
from pyspark_lance.metafile.manifest_file import (
    ManifestLocation,
    list_versions,
    read_manifest,
    retry_if_removed,
)
from pyspark_lance.metafile.refs_file import Branch, read_branch
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.version.snapshot import newest_at, version_at
from pyspark_lance.table.version.table import Table, main_branch_of


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a window: a version or a time; neither means as far as there is.

    ``timestamp_ns``: UTC nanoseconds since 1970, inclusive; ``is_exclusive``: whether the version
    itself is left out.
    """

    version: int | None = None
    timestamp_ns: int | None = None
    is_exclusive: bool = False

    def __post_init__(self) -> None:
        """Reject contradicting arguments and negative versions."""
        if self.version is not None and self.timestamp_ns is not None:
            raise InvalidInputError(
                "a version and a timestamp both bound the change feed on the same side",
                hint="give only one of them",
            )
        if self.version is not None and self.version < 0:
            raise InvalidInputError(f"a change feed has no version {self.version}")

    @property
    def is_open(self) -> bool:
        """Whether it is unbounded."""
        return self.version is None and self.timestamp_ns is None

    @property
    def first_version(self) -> int | None:
        """The first version of a window that starts here; None unless a version bounds it."""
        return None if self.version is None else max(1, self.version + self.is_exclusive)


OPEN = Bound()


@dataclass(frozen=True, slots=True)
class ChangeWindow:
    """The versions of the requested changes, both inclusive."""

    start: int  # 1 for the beginning, whether version 1 is still there or not.
    # A version that is there, of which the columns are; the one before ``start`` if no version is
    # in the window.
    end: int

    @property
    def is_empty(self) -> bool:
        """Whether it contains no version."""
        return self.start > self.end


def resolve_window(
    table: Table, starting: Bound, ending: Bound, *, pinned_end: int | None = None
) -> ChangeWindow:
    """The window between two bounds in a table or branch.

    Nothing is in a window that begins where all is known already: after the version that it ends
    with, after the newest version, or after the time when that was committed.

    ``starting``: first version, or the first one committed at or after a time. Version 0 or 1 is
    the beginning. ``ending``: last version, or the last one committed at or before a time; open is
    the newest. ``pinned_end``: the end of the window, if resolved before: what happened
    since does not count.
    """
    if starting.is_open:
        raise InvalidInputError(
            "a change feed needs a start",
            where=table.uri,
            hint="give startingVersion or startingTimestamp; startingVersion 0 is the beginning",
        )

    def look() -> ChangeWindow:
        return _resolve_window(table, starting, ending, pinned_end)

    return retry_if_removed(table.store(), look)


def _resolve_window(
    table: Table, starting: Bound, ending: Bound, pinned_end: int | None
) -> ChangeWindow:
    store = table.store()
    locations = list_versions(store)
    if not locations:
        raise TableNotFoundError(
            "there is no Lance table here", where=store.uri, hint="check the path"
        )
    if pinned_end is None:
        end = _end(store, locations, ending)
        _check_order(store, locations, starting, ending, end)
    else:
        end = pinned_end if ending.version is None else ending.version - ending.is_exclusive
    start = _start(store, locations, starting)
    if start > end:
        is_there = any(location.version == end for location in locations)
        known = pinned_end or (end if is_there else locations[-1].version)
        return ChangeWindow(known + 1, known)
    if starting.version is not None:  # which versions a time comes before is unknown
        start = _start_left(table, locations, start)
    _check_there(table, locations, start, end)
    return ChangeWindow(start, end)


def check_start(uri: str, first: int, newest: int) -> None:
    """Reject a start behind the version of the next commit."""
    if first > newest + 1:
        raise InvalidInputError(
            f"the changes would start at version {first}, but the newest is {newest}",
            where=uri,
            hint=f"begin at version {newest + 1} to follow the table from now on; if later "
            "versions have been read here before, the table has been replaced",
        )


def _check_order(
    store: ObjectStore,
    locations: Sequence[ManifestLocation],
    starting: Bound,
    ending: Bound,
    end: int,
) -> None:
    """Raise for a start after the end, except right after it: the next version may follow."""
    if starting.version is None:
        return
    first = starting.version + starting.is_exclusive
    if ending.is_open:
        check_start(store.uri, first, locations[-1].version)
    if ending.version is not None and starting.version > ending.version:
        raise InvalidInputError(
            f"the change feed would start at version {first}, after its end {end}", where=store.uri
        )


def _end(store: ObjectStore, locations: Sequence[ManifestLocation], ending: Bound) -> int:
    newest = locations[-1].version
    if ending.timestamp_ns is not None:
        return version_at(store, ending.timestamp_ns, locations).version
    if ending.version is None:
        return newest
    end = ending.version - ending.is_exclusive
    if end > newest:
        raise InvalidInputError(
            f"the change feed would end at version {end}, but the newest is {newest}",
            where=store.uri,
        )
    return end


def _start(store: ObjectStore, locations: Sequence[ManifestLocation], starting: Bound) -> int:
    if starting.first_version is not None:
        return starting.first_version
    assert starting.timestamp_ns is not None
    before = newest_at(store, starting.timestamp_ns - 1, locations)
    index = 0 if before is None else before + 1
    return locations[index].version if index < len(locations) else locations[-1].version + 1


def _start_left(table: Table, locations: Sequence[ManifestLocation], start: int) -> int:
    """The start, or a later one if the version before was removed and nothing changed since."""
    needed = start - 1
    later = next((location for location in locations if location.version >= needed), None)
    if needed == 0 or later is None or later.version == needed:
        return start
    # Options of every read are parsed with this module, which few reads need.
    from pyspark_lance.table.cdf.unchanged_rows import has_rows_of  # noqa: PLC0415

    return later.version + 1 if has_rows_of(table, needed, None, later) else start


def _check_there(table: Table, locations: Sequence[ManifestLocation], start: int, end: int) -> None:
    """Reject windows that need a version that was removed."""
    there = {location.version for location in locations}
    for needed in (start - 1, end):
        if needed == 0 or needed in there:
            continue
        branch = _branch_of(table, locations)
        why, elsewhere = "which is not there any more", ""
        if branch is not None and needed < branch.parentVersion:
            why = f"but the branch {branch.name!r} begins with version {branch.parentVersion}"
            elsewhere = f"; {branch.parentBranch or 'main'} has the changes before"
        usable = min((v + 1 for v in there if v >= needed and v + 1 <= end), default=None)
        hint = "startingVersion 0 gives what is left from the beginning"
        if usable is not None:
            hint = (
                f"startingVersion can be {usable} or later, or 0 for what is left from the "
                "beginning"
            )
        raise VersionNotFoundError(
            f"the changes of versions {start} to {end} need version {needed}, {why}",
            where=table.uri,
            hint=hint + elsewhere,
        )


def _branch_of(table: Table, locations: Sequence[ManifestLocation]) -> Branch | None:
    """The branch whose versions these are; None for main, or if that is not known."""
    name = read_manifest(table.store(), locations[-1], with_indices=False).manifest.branch
    if name is None:
        return None
    try:
        return read_branch(main_branch_of(table, name).store(), name)
    except VersionNotFoundError:
        return None


class Deduplication(enum.StrEnum):
    """Rows that a change feed omits.

    ``DROP_CARRYOVERS``: rows that a commit rewrote without changing a value. ``NONE``: none that
    are updated by their lineage. ``NET_CHANGES``: all but the net change of each row.
    """

    DROP_CARRYOVERS = "dropCarryovers"
    NONE = "none"
    NET_CHANGES = "netChanges"


class Layout(enum.StrEnum):
    """The form of a change feed.

    ``ROWS``: the columns of the table and of the change, two rows for an update. ``DEBEZIUM``: the
    row before the change and the one after it, as two columns.
    """

    ROWS = "rows"
    DEBEZIUM = "debezium"
