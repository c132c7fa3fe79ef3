"""One version of a table, ready to plan reads: the entry point of every read and write.

A version number, tag or timestamp is resolved to a manifest. A snapshot never changes.  Snapshots
are cached per process, because Spark plans each query of a session in the same few worker
processes; the cache key is the identity of its manifest file (path, size, ETag), so a table that
was recreated at the same path is never confused with the old one.

Source: docs/format/table-format.md, sections 1.4, 12.1 to 12.3.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from numbers import Integral
from typing import TypeVar

from pyspark_lance.errors import (
    InvalidInputError,
    LanceError,
    TableNotFoundError,
    VersionNotFoundError,
)
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.metafile.manifest_file import (
    ManifestFile,
    ManifestLocation,
    find_version,
    latest_version,
    list_versions,
    read_consecutive_manifests,
    read_manifest,
    recently_listed_version,
    reusable_fragments,
)
from pyspark_lance.metafile.refs_file import read_branch, read_tag
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.version.deletion_vectors import load_deletion_vector
from pyspark_lance.table.version.row_counts import with_row_counts
from pyspark_lance.table.version.table import MAIN, Table, TableKey
from pyspark_lance.table.version.table_files import TableFiles
from pyspark_lance.table.version.table_identity import PinnedVersion, TableIdentity


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
    requested, first = (_format_time(ns) for ns in (given_ns, _committed_ns(store, versions[0])))
    raise VersionNotFoundError(
        f"no version was committed at or before {requested}",
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


def _format_time(timestamp_ns: int) -> str:
    """Format an ISO time with microseconds by integer arithmetic; a double is too imprecise."""
    moment = datetime.fromtimestamp(timestamp_ns // 10**9, UTC)
    return moment.replace(microsecond=timestamp_ns % 10**9 // 1000).isoformat()


_K = TypeVar("_K")
_V = TypeVar("_V")

_CACHE_SIZE = 8
# Of all cached versions, unless there is only one; a fragment takes some 200 bytes.
_MAX_CACHED_FRAGMENTS = 1 << 20
_ATTEMPTS = 10
_cache: OrderedDict[tuple[object, ...], Snapshot] = OrderedDict()
# By table, the fragments of the last version, to be reused by the next one.
_fragments: OrderedDict[TableKey, Fragments | None] = OrderedDict()
_cache_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a table."""

    table: Table  # The table or branch.
    store: ObjectStore = field(repr=False)  # The store at its root.
    # The manifest file, with index entries and repaired row counts.
    file: ManifestFile = field(repr=False)
    files: TableFiles = field(
        repr=False
    )  # Locations of the data and deletion files of this version.
    # Values derived from the manifest, cached for the lifetime of the snapshot.
    memo: dict[object, object] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(cls, table: Table, at: VersionSpec = LATEST) -> Snapshot:
        """Open the version of the table that ``at`` specifies."""
        line, spec = resolve_tag(table, at)
        for _ in range(_ATTEMPTS):
            store = line.store()
            try:
                return cls.load(line, store, resolve_version(store, spec))
            except VersionNotFoundError:
                # A tag that was moved after it was read no longer protects the version.
                before, (line, spec) = spec, resolve_tag(table, at)
                if spec == before:
                    raise
            except LanceError:
                raise
            except FileNotFoundError:
                pass  # removed concurrently: the next attempt finds a newer version, or none
        raise VersionNotFoundError(
            f"versions were removed faster than they could be read, {_ATTEMPTS} times",
            where=table.uri,
        )

    @classmethod
    def load(cls, table: Table, store: ObjectStore, location: ManifestLocation) -> Snapshot:
        """Load the snapshot of the manifest at ``location``, from the cache if possible."""
        identity = location.identity or store.stat(location.path).identity
        location = replace(location, identity=identity)
        own = table.key(store)
        key = (own, location.path, identity)
        with _cache_lock:
            cached = _cache.get(key)
            if cached is not None:
                _cache.move_to_end(key)
                # The store of the cached one may have credentials that have ended.
                return replace(cached, store=store) if "://" in store.uri else cached
        snapshot = cls.of_file(table, store, _read(own, store, location))
        with _cache_lock:
            _cache[key] = snapshot
            _evict(_cache, lambda one: len(one.manifest.fragments))
        return snapshot

    @classmethod
    def of_file(cls, table: Table, store: ObjectStore, file: ManifestFile) -> Snapshot:
        """Return the snapshot of a loaded manifest."""
        files = TableFiles(table, file.manifest.base_paths)
        return cls(table, store, with_row_counts(file, files), files)

    @property
    def uri(self) -> str:
        """Root of the table or branch."""
        return self.table.uri

    @property
    def manifest(self) -> Manifest:
        """The manifest of this version."""
        return self.file.manifest

    @property
    def indices(self) -> tuple[IndexMetadata, ...]:
        """The index entries of this version."""
        return self.file.indices

    @property
    def version(self) -> int:
        """The version number."""
        return self.file.manifest.version

    @property
    def identity(self) -> TableIdentity:
        """Return the identity of the table at this version."""
        return TableIdentity.of(self.file.manifest)

    @property
    def pinned(self) -> PinnedVersion:
        """Return a reference to this version for a query that reads it later."""
        return PinnedVersion(self.uri, self.version, self.identity.stamp)

    @property
    def schema(self) -> LanceSchema:
        """The schema of this version."""
        return self.file.manifest.schema

    @property
    def uses_stable_row_ids(self) -> bool:
        """Whether rows keep their id when they move."""
        return self.file.manifest.uses_stable_row_ids

    def deletion_vector(self, fragment: Fragment) -> DeletionVector | None:
        """Return the deleted offsets of ``fragment``; None without any."""
        files = self.files.opened(self.store)
        return load_deletion_vector(files, fragment, stable_row_ids=self.uses_stable_row_ids)

    def num_rows(self) -> int:
        """Live rows, from the manifest alone."""
        return self.manifest.fragments.num_rows


def open_existing(table: Table) -> Snapshot | None:
    """Open the newest snapshot; None if there is no table."""
    try:
        return Snapshot.open(table)
    except VersionNotFoundError:
        raise
    except TableNotFoundError:
        return None


def open_pinned(table: Table, pinned: PinnedVersion, hint: str = "") -> Snapshot:
    """Open a version of ``table`` that was opened before.

    ``hint``: what the user can do about a replaced table.

    Raises TableReplacedError: the table was replaced by another one.
    """
    known = TableIdentity(pinned.version, pinned.stamp)
    try:
        snapshot = Snapshot.open(table, VersionSpec(version=pinned.version))
    except VersionNotFoundError:
        newest = latest_version(table.store())
        if pinned.stamp and newest is not None:
            known.check_newest(newest.version, table.uri, hint)
        raise
    known.check(snapshot.manifest, table.uri, hint)
    return snapshot


def open_to_write(table: Table) -> Snapshot | None:
    """Open a version like ``open_existing``, for operations that always commit.

    After a commit of this process, its version is used without listing the versions again: there
    may be tens of thousands, and the commit lists them anyway to detect concurrent ones.
    """
    line, _ = resolve_tag(table, LATEST)
    store = line.store()
    seen = recently_listed_version(store)
    if seen is not None:
        with contextlib.suppress(FileNotFoundError):
            return Snapshot.load(line, store, seen)
    return open_existing(table)


def read_adjacent_snapshots(
    table: Table, store: ObjectStore, locations: Sequence[ManifestLocation]
) -> Iterator[Snapshot]:
    """Yield the snapshots of adjacent versions, without index entries; they are not cached."""
    key = table.key(store)
    for file in read_consecutive_manifests(store, locations, known=_known_fragments(key)):
        _keep_fragments(key, file)
        yield Snapshot.of_file(table, store, file)


def _read(key: TableKey, store: ObjectStore, location: ManifestLocation) -> ManifestFile:
    """Read a manifest, reusing fragments of the previous one."""
    file = read_manifest(store, location, known=_known_fragments(key))
    _keep_fragments(key, file)
    return file


def _known_fragments(key: TableKey) -> Fragments | None:
    with _cache_lock:
        return _fragments.get(key)


def _keep_fragments(key: TableKey, file: ManifestFile) -> None:
    with _cache_lock:
        _fragments[key] = reusable_fragments(file)
        _fragments.move_to_end(key)
        _evict(_fragments, lambda one: 0 if one is None else len(one))


def _evict(cache: OrderedDict[_K, _V], size: Callable[[_V], int]) -> None:
    """Remove the values used least recently; the last one stays, however large it is."""
    total = sum(map(size, cache.values()))
    while len(cache) > _CACHE_SIZE or (total > _MAX_CACHED_FRAGMENTS and len(cache) > 1):
        total -= size(cache.popitem(last=False)[1])


def cached_manifest_reader(table: Table) -> Callable[[ObjectStore, ManifestLocation], ManifestFile]:
    """Return a reader of manifests that uses the cache of this process."""
    return lambda store, location: Snapshot.load(table, store, location).file


OWN_PREFIX = "pyspark_lance."
"""Keys of this package, which are not user properties."""


def properties_of(snapshot: Snapshot) -> dict[str, str]:
    """Return the properties of a table, by key."""
    manifest = snapshot.manifest
    own = {key: value for key, value in manifest.config.items() if not key.startswith(OWN_PREFIX)}
    return dict(sorted({**manifest.table_metadata, **own}.items()))
