"""Manifest files: list, read and encode them.

Layout: index section, transaction section and manifest, each after its length in four bytes, then a
footer of 16 bytes with the position of the manifest. In tables of file version 0.1 the values of
dictionaries come first.

Transaction files: one Transaction message each, without a frame.

Source: docs/format/table-format.md, sections 1.2, 1.4, 2.1 and 8.1.
"""

from __future__ import annotations

import dataclasses
import itertools
import struct
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pyspark_lance.errors import (
    CorruptFileError,
    LanceError,
    StorageError,
    TableNotFoundError,
    VersionNotFoundError,
)
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.index_metadata import (
    IndexMetadata,
    indices_from_section,
    section_of_indices,
)
from pyspark_lance.format.manifest import DETACHED_BIT, Manifest, ManifestSections
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.generator_pool import GeneratorPool
from pyspark_lance.metafile.paths import (
    TRANSACTIONS,
    VERSIONS,
    ManifestName,
    NamingScheme,
    check_one_scheme,
    manifest_path,
    names_in_history,
    parse_manifest_name,
    transaction_path,
)
from pyspark_lance.store.local_store import MAPPED_PAGES, LocalStore
from pyspark_lance.store.object_store import Buffer, ObjectStore, missing

MAX_INLINE_TRANSACTION: Final = 1 << 20
"""Maximum bytes of the copy of the transaction in a manifest; longer ones are in their file only.
"""
_TAIL_BYTES: Final = 64 * 1024
# Listed manifests up to this size are read whole, which is cheaper than a second request.
_WHOLE_BYTES: Final = 4 << 20
# Limits of prefetching when manifests are read in sequence: number and bytes.
_MAX_FETCHES: Final = 16
_MAX_FETCHED_BYTES: Final = 8 << 20
# Number of other objects that may be listed before the newest manifest.
_NO_MANIFESTS: Final = 14
# Attempts; each fails if versions were committed and cleaned up since the listing.
_MAX_ATTEMPTS: Final = 100
# Maximum age of a listing whose newest version may be reused.
_SEEN_S: Final = 2.0
_MAX_SEEN: Final = 64
# Versions after a known one that are looked up by name.
_MAX_PROBES: Final = 16
_LENGTH: Final = struct.Struct("<I")
# Position of the manifest's length, major and minor version, magic.
_FOOTER: Final = struct.Struct("<qHH4s")
_MAGIC: Final = b"LANC"
_MAJOR, _MINOR = 0, 2

_T = TypeVar("_T")

# By root and server of a table: start of the last listing in this process, and its newest version.
_seen: dict[tuple[str, Hashable], tuple[float, ManifestLocation]] = {}


@dataclass(frozen=True, slots=True)
class ManifestLocation:
    """Location of the manifest of a version."""

    path: str  # Relative to the table root.
    version: int
    scheme: NamingScheme
    size: int | None = None  # Length in bytes; None if unknown.
    # Identifies the content of a manifest among those of the same name; '' if unknown.
    identity: str = field(default="", compare=False)
    # Modification time in the listing; 0 if unknown.
    modified_ns: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A manifest with its sections."""

    location: ManifestLocation
    manifest: Manifest
    indices: tuple[IndexMetadata, ...] = ()  # Index entries; empty if not requested.
    _bytes: _FileBytes | None = field(default=None, repr=False, compare=False)

    def drop_buffers(self) -> ManifestFile:
        """Return a copy without the file's bytes, for caches; it has no transaction."""
        return dataclasses.replace(self, _bytes=None)

    @property
    def transaction_bytes(self) -> bytes | None:
        """Return the inline copy of the transaction; None if there is none.

        Read on demand, since the transaction of a large overwrite is as large as the manifest.
        """
        return None if self._bytes is None else self._bytes.transaction_bytes(self.manifest)

    def transaction(self) -> Transaction | None:
        """Return the transaction of this version from the inline copy; None if there is none."""
        return None if self._bytes is None else self._bytes.transaction(self.manifest)


def list_versions(store: ObjectStore) -> list[ManifestLocation]:
    """Return the manifests of the table by ascending version, without detached ones."""
    if store.lists_names_only:
        return _newest_by_name(store)[::-1]
    locations = sorted(_locations(store), key=lambda location: location.version)
    check_one_scheme(store, locations)
    return locations


def latest_version(store: ObjectStore) -> ManifestLocation | None:
    """Return the manifest with the highest version; None if there is no table."""
    return next(iter(newest_versions(store, 1)), None)


def newest_versions(store: ObjectStore, count: int) -> list[ManifestLocation]:
    """Return the manifests with the highest versions, newest first; one request."""
    if store.lists_names_only:
        return _newest_by_name(store, count)
    began = time.monotonic()
    locations = _locations(store, first=count + _NO_MANIFESTS)
    manifests = list(itertools.islice(locations, count))
    # Names of scheme V2 sort newest first, so one page of the listing suffices.
    if manifests and not (store.lists_in_order and manifests[0].scheme is NamingScheme.V2):
        manifests += locations
        check_one_scheme(store, manifests)
        manifests.sort(key=lambda location: location.version, reverse=True)
    if manifests and store.cache_key is not None:
        _remember(store, began, manifests[0])
    return manifests[:count]


def _newest_by_name(store: ObjectStore, count: int | None = None) -> list[ManifestLocation]:
    """Return the newest versions of a local table, where each file's attributes cost a call.

    Other writers may commit and clean up between listing and ``stat``.  A cleanup never removes the
    newest version: if the highest listed name is missing, there is a higher one, and the listing is
    outdated.

    ``count``: number of versions; None for all.
    """

    def look() -> list[ManifestLocation]:
        began = time.monotonic()
        names = names_in_history(store, store.list_names(VERSIONS))
        # Older versions removed since the listing are replaced by the next ones.
        located = (_stat(store, name.version, name.scheme) for name in names)
        first = [_there(store, one) for one in itertools.islice(located, 1)]
        if first:
            _remember(store, began, first[0])
        rest = (one for one in located if one is not None)
        return first + list(itertools.islice(rest, None if count is None else count - 1))

    return retry_if_removed(store, look)


def recently_listed_version(
    store: ObjectStore, *, put_follows: bool = False
) -> ManifestLocation | None:
    """Return the newest version of a recent listing of this process, if it may still be the newest.

    That costs two calls in a local folder, while listing thousands of versions takes milliseconds.
    The result is only as good as the earlier listing: newer versions may exist, even if the next
    number is free.  So it is for callers that list again afterwards, such as a commit.

    ``put_follows``: the next version is put at once, which detects whether it exists; then an
    object store is not queried.
    """
    seen = _seen.get((store.uri, store.cache_key))
    if seen is None or time.monotonic() - seen[0] > _SEEN_S:
        return None
    location = seen[1]
    if not store.lists_names_only:
        return location if put_follows else None
    now = _stat(store, location.version, location.scheme)
    if now is None or now.identity != location.identity:
        return None
    return None if _stat(store, location.version + 1, location.scheme) else location


def newest_since(store: ObjectStore, known: ManifestLocation) -> ManifestLocation | None:
    """Return the last version that follows ``known`` without a gap, by name.

    Only for local tables, and for callers that list again, as ``recently_listed_version``: after
    a gap that a cleanup left there may be more.

    Returns None for other tables, if ``known`` was removed, or if so many follow that a listing is
    cheaper.
    """
    if not store.lists_names_only:
        return None
    newest = _stat(store, known.version, known.scheme)
    if newest is None or newest.identity != known.identity:
        return None
    for _ in range(_MAX_PROBES):
        following = _stat(store, newest.version + 1, newest.scheme)
        if following is None:
            return newest
        newest = following
    return None


def _remember(store: ObjectStore, began: float, newest: ManifestLocation) -> None:
    if len(_seen) >= _MAX_SEEN:
        _seen.clear()
    _seen[store.uri, store.cache_key] = began, newest


def _there(store: ObjectStore, location: ManifestLocation | None) -> ManifestLocation:
    if location is None:
        raise missing(store.uri, VERSIONS)
    return location


def retry_if_removed(store: ObjectStore, look: Callable[[], _T]) -> _T:
    """List and read; repeat both as long as a listed file is missing when it is read.

    Missing files that were listed only prove that versions were committed and cleaned up, not that
    the table is gone.

    ``store``: for the message. ``look``: lists and reads; raises ``FileNotFoundError`` if a file is
    gone.
    """
    for _ in range(_MAX_ATTEMPTS):
        try:
            return look()
        except FileNotFoundError as error:
            if isinstance(error, LanceError):
                raise
            removed = error
    raise StorageError(
        f"versions were removed faster than they could be read, {_MAX_ATTEMPTS} times",
        where=store.uri,
        hint="clean up less often",
    ) from removed


def versions_not_listed(store: ObjectStore, newest: ManifestLocation) -> list[ManifestLocation]:
    """Return the versions after the newest listed one, for stores with stale listings.

    Costs one request more than there are such versions.
    """
    versions: list[ManifestLocation] = []
    while location := _stat(store, newest.version + len(versions) + 1, newest.scheme):
        versions.append(location)
    return versions


def find_version(store: ObjectStore, version: int) -> ManifestLocation:
    """Return the manifest of ``version``, which may be a detached one."""
    if 0 < version < 2**64:
        schemes = (NamingScheme.V2,) if version & DETACHED_BIT else tuple(NamingScheme)[::-1]
        for scheme in schemes:
            if location := _stat(store, version, scheme):
                return location
    there = list_versions(store)
    if not there:
        raise TableNotFoundError(
            "there is no Lance table here", where=store.uri, hint="check the path"
        )
    first, last = there[0].version, there[-1].version
    every = f"it has {len(there)} versions, from {first} to {last}"
    raise VersionNotFoundError(
        f"the table has no version {version}",
        where=store.uri,
        hint=f"its only version is {first}" if first == last else every,
    )


def _stat(store: ObjectStore, version: int, scheme: NamingScheme) -> ManifestLocation | None:
    """Return the manifest of a version by its name, without a listing."""
    path = manifest_path(version, scheme)
    try:
        info = store.stat(path)
    except FileNotFoundError:
        return None
    return ManifestLocation(path, version, scheme, info.size, info.identity, info.modified_ns)


def read_manifest(
    store: ObjectStore,
    location: ManifestLocation,
    *,
    with_indices: bool = True,
    known: Fragments | None = None,
) -> ManifestFile:
    """Read and check one manifest.

    ``known``: fragments of another version that need not be checked again; None for none.
    """
    return _manifest_of(location, _open(store, location), with_indices, known)


def _manifest_of(
    location: ManifestLocation, file: _FileBytes, with_indices: bool, known: Fragments | None
) -> ManifestFile:
    position, end = file.manifest_range()

    def load() -> bytes:
        return MAPPED_PAGES.copied(file.read(position, end), position)

    manifest = Manifest.load(load, file.where(position, end), known)
    return _parse_checked(location, file, manifest, with_indices=with_indices)


def reusable_fragments(file: ManifestFile) -> Fragments | None:
    """Return the fragments that adjacent versions need not check again; None if they must.

    Unknown fields are searched for in each manifest.
    """
    return None if file.manifest.has_unknown_fields else file.manifest.fragments


def _open(store: ObjectStore, location: ManifestLocation) -> _FileBytes:
    is_small = (location.size or 0) <= _WHOLE_BYTES
    return _FileBytes.open(store, location.path, location.size if is_small else None)


def read_consecutive_manifests(
    store: ObjectStore,
    locations: Sequence[ManifestLocation],
    *,
    with_indices: bool = False,
    skip_removed: bool = False,
    known: Fragments | None = None,
) -> Iterator[ManifestFile]:
    """Read and check the manifests of adjacent versions.

    Of each, only the difference from the previous one is parsed; the next ones are prefetched.

    ``locations``: ascending or descending; ``with_indices``: whether index entries are read;
    ``skip_removed``: whether those that are removed meanwhile are left out, or an error; ``known``:
    fragments of another version that need not be checked again.
    """
    for location, file in _prefetch(store, locations, skip_removed=skip_removed):
        found = _manifest_of(location, file, with_indices, known)
        known = reusable_fragments(found)
        yield found


def read_transactions(
    store: ObjectStore, locations: Sequence[ManifestLocation], *, skip_removed: bool = False
) -> Iterator[tuple[int, Transaction | None]]:
    """Yield each version with its transaction; None if that is missing or corrupt.

    Nothing else is read, so the cost depends on the changes and not on the size of the table.
    """
    for location, file in _prefetch(store, locations, skip_removed=skip_removed):
        position, end = file.manifest_range()
        where = file.where(position, end)
        sections = ManifestSections.from_bytes(file.read(position, end), where)
        _check_version(sections.version, location, where)
        inline = file.transaction(sections)
        yield location.version, inline or find_transaction_file(store, sections.transaction_file)


def _check_version(version: int, location: ManifestLocation, where: str) -> None:
    if version != location.version:
        raise CorruptFileError(
            f"the manifest says it is version {version}, its name says {location.version}", where
        )


def _prefetch(
    store: ObjectStore, locations: Sequence[ManifestLocation], *, skip_removed: bool
) -> Iterator[tuple[ManifestLocation, _FileBytes]]:
    """Yield the files in order, and prefetch the next ones."""

    def whole(location: ManifestLocation) -> tuple[ManifestLocation, _FileBytes] | None:
        try:
            return location, _FileBytes.open(store, location.path, location.size)
        except FileNotFoundError:
            if skip_removed:
                return None
            raise

    def in_order() -> Iterator[tuple[ManifestLocation, _FileBytes] | None]:
        if isinstance(store, LocalStore) or len(locations) < 3:
            yield from map(whole, locations)
            return
        largest = max(location.size or _TAIL_BYTES for location in locations)
        ahead = max(1, min(_MAX_FETCHES, _MAX_FETCHED_BYTES // largest))
        with GeneratorPool(max_workers=ahead) as executor:
            waiting: deque[Future[tuple[ManifestLocation, _FileBytes] | None]] = deque()
            for location in locations:
                waiting.append(executor.submit(whole, location))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    return (found for found in in_order() if found is not None)


def _parse_checked(
    location: ManifestLocation, file: _FileBytes, manifest: Manifest, *, with_indices: bool
) -> ManifestFile:
    """Return the manifest with the other sections of its file."""
    position, end = file.manifest_range()
    where = file.where(position, end)
    _check_version(manifest.version, location, where)
    if manifest.has_dictionary_values:
        end = _end_of_dictionaries(manifest, position - _LENGTH.size)
        values = bytes(file.read(0, end))
        manifest = dataclasses.replace(manifest, dictionary_values=values)
    indices: tuple[IndexMetadata, ...] = ()
    if with_indices and manifest.index_section is not None:
        section = file.section(manifest.index_section, manifest)
        try:
            indices = indices_from_section(section)
        except CorruptFileError as error:
            where = f"{file.name}, index section at byte {manifest.index_section}"
            raise CorruptFileError(error.what, where, error.hint) from error
    return ManifestFile(location, manifest, indices, file.drop_large_manifest())


def encode_manifest(
    manifest: Manifest, indices: Sequence[IndexMetadata], transaction: Transaction | None
) -> bytes:
    """Return the bytes of a manifest file; see ``manifest_pieces``."""
    return b"".join(manifest_pieces(manifest, indices, transaction))


def manifest_pieces(
    manifest: Manifest, indices: Sequence[IndexMetadata], transaction: Transaction | None
) -> list[Buffer]:
    """Return the bytes of a manifest file in pieces; those of fragments are not copied.

    The section offsets of ``manifest`` are replaced.

    ``transaction``: to be copied into the file, unless it is long and in a file of its own; None
    for no copy.
    """
    # Fields refer to dictionary values by position, so these stay at the start of the file.
    values = manifest.dictionary_values if manifest.has_dictionary_values else b""
    pieces: list[Buffer] = [values]
    position = len(values)

    def add(*section: Buffer) -> int:
        nonlocal position
        start, size = position, sum(map(len, section))
        pieces.extend((_LENGTH.pack(size), *section))
        position += _LENGTH.size + size
        return start

    index_section = add(section_of_indices(indices)) if indices else None
    copy = transaction.to_bytes() if transaction is not None else None
    if copy is not None and manifest.transaction_file and len(copy) > MAX_INLINE_TRANSACTION:
        copy = None
    transaction_section = add(copy) if copy is not None else None
    manifest = dataclasses.replace(
        manifest, index_section=index_section, transaction_section=transaction_section
    )
    manifest_position = add(*manifest.pieces())
    pieces.append(_FOOTER.pack(manifest_position, _MAJOR, _MINOR, _MAGIC))
    return pieces


def _end_of_dictionaries(manifest: Manifest, manifest_position: int) -> int:
    """Return the end of the values of all dictionaries."""
    sections = (manifest.index_section, manifest.transaction_section)
    known = [section for section in sections if section is not None]
    first = min([*known, manifest_position])
    last = max(f.dictionary[0] for f in manifest.schema.walk() if f.dictionary and f.dictionary[1])
    # Lance writes the values first; other orders are possible.
    return first if 0 <= last < first else manifest_position


@dataclass(frozen=True, slots=True)
class _FileBytes:
    """A manifest file of which the last bytes are loaded."""

    store: ObjectStore
    path: str
    size: int
    tail: Buffer
    # Range of the manifest message, if its bytes are not kept.
    dropped: tuple[int, int] | None = None

    @classmethod
    def open(cls, store: ObjectStore, path: str, length: int | None = None) -> _FileBytes:
        """Read at least the tail that contains the manifest message.

        ``length``: size of the first request; None for that of most manifests.
        """
        length = max(length or 0, _TAIL_BYTES)
        if isinstance(store, LocalStore):  # mapped, so the whole file costs no more than the tail
            length = _TAIL_BYTES
        tail, size = store.get_tail(path, length)
        file = cls(store, path, size, bytes(tail))
        first = size - len(file.tail)
        position = file.footer_position()
        if isinstance(store, LocalStore) or not 0 <= position < first:
            return file
        # The sections before the manifest may be as large and are rarely needed.
        before = store.get_range(path, position, first)
        return cls(store, path, size, bytes(before) + file.tail)

    @property
    def name(self) -> str:
        """Return the path of the file, for errors."""
        return f"{self.store.uri}/{self.path}"

    def where(self, start: int, end: int) -> str:
        """Return the name of a byte range of this file for messages."""
        return f"{self.name} bytes {start}..{end}"

    def read(self, start: int, end: int) -> Buffer:
        """Return the bytes of [start, end), which the caller has checked to be inside the file."""
        first = self.size - len(self.tail)
        if start >= first:
            return memoryview(self.tail)[start - first : end - first]
        return self.store.get_range(self.path, start, end)

    def drop_large_manifest(self) -> _FileBytes:
        """Return the file without the bytes of a large manifest, of which values were made."""
        if len(self.tail) <= _WHOLE_BYTES:
            return self
        return dataclasses.replace(self, tail=b"", dropped=self.manifest_range())

    def footer_position(self) -> int:
        """Return the position of the manifest according to the footer; not checked."""
        footer_start = self.size - _FOOTER.size
        if footer_start < _LENGTH.size:
            raise CorruptFileError(
                f"a file of {self.size} bytes is too short for a manifest", where=self.name
            )
        position, _, _, magic = _FOOTER.unpack(self.read(footer_start, self.size))
        if magic != _MAGIC:
            where = f"{self.name} bytes {footer_start}..{self.size}"
            raise CorruptFileError(f"the footer magic is {magic!r}, not {_MAGIC!r}", where)
        return int(position)

    def manifest_range(self) -> tuple[int, int]:
        """Return the range of the manifest message according to the footer."""
        if self.dropped is not None:
            return self.dropped
        position = self.footer_position()
        footer_start = self.size - _FOOTER.size
        where = f"{self.name} bytes {footer_start}..{self.size}"
        start = position + _LENGTH.size
        if position < 0 or start > footer_start:
            raise CorruptFileError(
                f"the footer puts the manifest at byte {position} of {self.size}", where
            )
        (length,) = _LENGTH.unpack(self.read(position, start))
        if start + length != footer_start:
            raise CorruptFileError(
                f"a manifest of {length} bytes at byte {position} does not end at the footer", where
            )
        return start, footer_start

    def transaction_bytes(self, manifest: Manifest | ManifestSections) -> bytes | None:
        """Return the inline copy of the transaction; None if there is none."""
        section = manifest.transaction_section
        return None if section is None else self.section(section, manifest)

    def transaction(self, manifest: Manifest | ManifestSections) -> Transaction | None:
        """Return the parsed inline transaction."""
        data = self.transaction_bytes(manifest)
        if data is None:
            return None
        where = f"{self.name}, transaction section at byte {manifest.transaction_section}"
        return Transaction.from_bytes(data, where)

    def section(self, position: int, manifest: Manifest | ManifestSections) -> bytes:
        """Return the section whose length is at ``position``; one request at most."""
        manifest_position = self.manifest_range()[0] - _LENGTH.size
        starts = (manifest.index_section, manifest.transaction_section, manifest_position)
        limit = min(
            (start for start in starts if start is not None and start > position), default=0
        )
        where = f"{self.name} bytes {position}..{limit}"
        start = position + _LENGTH.size
        if not start <= limit <= manifest_position:
            raise CorruptFileError(f"no section can begin at byte {position}", where)
        content = self.read(position, limit)
        (length,) = _LENGTH.unpack(content[: _LENGTH.size])
        if start + length > limit:
            raise CorruptFileError(
                f"a section of {length} bytes at byte {position} runs into byte {limit}", where
            )
        return bytes(content[_LENGTH.size : _LENGTH.size + length])


def _locations(store: ObjectStore, first: int | None = None) -> Iterator[ManifestLocation]:
    """Return the manifests in the order of the listing, without detached ones.

    ``first``: expected number of objects to be used; None for all.
    """
    for info in store.list(VERSIONS, first=first):
        name = _name_in_history(info.path)
        if name is not None:
            yield ManifestLocation(
                info.path, name.version, name.scheme, info.size, info.identity, info.modified_ns
            )


def _name_in_history(path: str) -> ManifestName | None:
    """Parse the path of an object if it is a manifest, and not a detached one."""
    name = parse_manifest_name(path.removeprefix(f"{VERSIONS}/"))
    return None if name is None or name.is_detached else name


def transaction_name(transaction: Transaction) -> str:
    """Return the file name of a transaction, as in the manifest."""
    path = transaction_path(transaction.read_version, transaction.uuid)
    return path.removeprefix(f"{TRANSACTIONS}/")


def write_transaction(store: ObjectStore, transaction: Transaction) -> str:
    """Write the file of ``transaction``, replacing the file of an earlier attempt."""
    name = transaction_name(transaction)
    store.put(f"{TRANSACTIONS}/{name}", transaction.to_bytes())
    return name


def read_transaction(store: ObjectStore, name: str) -> Transaction:
    """Read the transaction file with this name."""
    path = f"{TRANSACTIONS}/{name}"
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise CorruptFileError(f"{name!r} is not the name of a transaction file", where=store.uri)
    return Transaction.from_bytes(store.get(path), f"{store.uri}/{path}")


def load_transaction(store: ObjectStore, file: ManifestFile) -> Transaction | None:
    """Return the transaction of a version: inline, else from its file; None if both are missing.

    Raises:
        CorruptFileError: The transaction is damaged.
    """
    inline, name = file.transaction(), file.manifest.transaction_file
    if inline is not None or not name:
        return inline
    try:
        return read_transaction(store, name)
    except FileNotFoundError:
        return None


def find_transaction(store: ObjectStore, file: ManifestFile) -> Transaction | None:
    """Return the transaction of a version, inline or from its file; None if missing or corrupt."""
    return file.transaction() or find_transaction_file(store, file.manifest.transaction_file)


def find_transaction_file(store: ObjectStore, name: str) -> Transaction | None:
    """Read the transaction file ``name``; None if it is empty, missing or corrupt."""
    if not name:
        return None
    try:
        return read_transaction(store, name)
    except (FileNotFoundError, CorruptFileError):
        return None
