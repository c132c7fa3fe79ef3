"""Verify a table: its manifest, referenced files, tags, branches and orphan files.

Verification is read-only. Unreadable files are findings; only failures of the store are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from pyspark_lance.datafile.file_metadata import MAGIC
from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    LanceError,
    StorageError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.column_names import CREATED_AT, LAST_UPDATED_AT
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.feature_flags import MANAGED_BLOBS
from pyspark_lance.format.fragment import DataFile, Fragment
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.logical_view import logical_field
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.operation import Clone
from pyspark_lance.metafile.cleanup_marks import SAFE_AGE_S
from pyspark_lance.metafile.manifest_file import (
    ManifestFile,
    ManifestLocation,
    find_transaction,
    find_version,
    list_versions,
    read_manifest,
    read_transaction,
    retry_if_removed,
)
from pyspark_lance.metafile.paths import (
    BLOBS,
    BRANCHES,
    DATA,
    DELETIONS,
    INDICES,
    TAGS,
    deletion_path,
    parse_reference_name,
    transaction_path,
)
from pyspark_lance.metafile.refs_file import read_branch, read_tag
from pyspark_lance.store.object_store import ObjectStore, missing
from pyspark_lance.table.cleanup.cleanup import find_orphan_files
from pyspark_lance.table.rows.convert_parts import holds_json
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.rows.lineage import FragmentLineage
from pyspark_lance.table.verify.verify_indices import check_contents
from pyspark_lance.table.verify.verify_manifest import (
    Finding,
    LiveRowIds,
    VerifyResult,
    check_lineage,
    check_manifest,
    check_unique,
    finding,
    live_row_ids,
    location_of,
)
from pyspark_lance.table.version.deletion_vectors import load_deletion_vector
from pyspark_lance.table.version.removable_files import blob_objects
from pyspark_lance.table.version.row_counts import with_row_counts
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table, main_branch_of
from pyspark_lance.table.version.table_files import TableFiles, roots_outside

Found = Iterator[Finding]

_R = TypeVar("_R")

_PARALLEL = 16
_BATCH_ROWS, _BATCH_BYTES = 1 << 16, 16 << 20


def verify(table: Table, version: int | None = None, *, read_data: bool = False) -> VerifyResult:
    """Verify a version and everything it depends on.

    ``version``: the version; None for the newest. ``read_data``: also decode every value, which
    reads the whole table.
    """
    return retry_if_removed(
        table.store(), lambda: _verify_once(table, version, read_data=read_data)
    )


def _verify_once(table: Table, version: int | None, *, read_data: bool) -> VerifyResult:
    """Verify once.

    Raises FileNotFoundError: the version may have been removed concurrently.
    """
    store = table.store()
    findings: list[Finding] = []
    try:
        locations = list_versions(store)
    except UnsupportedFeatureError as error:
        return VerifyResult(0, (finding("naming_schemes", error.what, store.uri),))
    location = _find_location(store, locations, version)
    try:
        file = read_manifest(store, location)
    except (CorruptFileError, UnsupportedFeatureError) as error:
        bad = finding("bad_manifest", error.what, f"{store.uri}/{location.path}")
        return VerifyResult(location.version, (bad,))
    manifest = _with_row_counts(table, file)
    findings += check_manifest(manifest, file.indices)
    files = _Files(table, manifest, _sizes(store), read_data)
    with ThreadPoolExecutor(_PARALLEL) as pool:
        checked = list(pool.map(files.check, manifest.fragments))
    findings += [problem for result in checked for problem in result.findings]
    live = [result.live for result in checked if result.live is not None]
    findings += check_unique(manifest, live)
    findings += _check_index_folders(file, files.sizes)
    findings += _check_index_files(store, file, files.sizes)
    findings += list(_check_index_contents(table, location.version, findings, read_data))
    findings += _check_transaction(store, file)
    findings += _check_times(store, locations, location)
    if findings and not store.exists(location.path):
        raise missing(store.uri, location.path)
    findings += _confirm_findings(lambda: _check_references(main_branch_of(table, manifest.branch)))
    findings += _check_orphans(table)
    return VerifyResult(
        version=manifest.version,
        findings=tuple(findings),
        numFragments=len(manifest.fragments),
        numFiles=sum(result.num_files for result in checked),
        numRows=manifest.fragments.num_rows,
        basePaths=roots_outside(table, manifest),
    )


def _find_location(
    store: ObjectStore, locations: list[ManifestLocation], version: int | None
) -> ManifestLocation:
    for location in reversed(locations):
        if version in (None, location.version):
            return location
    if version is None:
        raise TableNotFoundError(
            "there is no Lance table here", where=store.uri, hint="check the path"
        )
    return find_version(store, version)


def _with_row_counts(table: Table, file: ManifestFile) -> Manifest:
    """Return the manifest with repaired row counts, as far as possible."""
    try:
        return with_row_counts(file, TableFiles(table, file.manifest.base_paths)).manifest
    except (CorruptFileError, UnsupportedFeatureError):
        return file.manifest


def _sizes(store: ObjectStore) -> dict[str, int]:
    """Return path -> bytes of all data, blob, deletion and index files."""
    return {
        info.path: info.size
        for folder in (DATA, BLOBS, DELETIONS, INDICES)
        for info in store.list(folder)
    }


# Files of fragments ------------------------------------------------------------------------


@dataclass(slots=True)
class _Checked:
    """Verification results of a fragment."""

    findings: list[Finding] = field(default_factory=list)
    live: LiveRowIds | None = None
    num_files: int = 0


class _Files:
    """Verification of the files of fragments; thread-safe.

    ``sizes``: path -> bytes of files below the table root; ``read_data``: whether to decode every
    value.
    """

    def __init__(
        self, table: Table, manifest: Manifest, sizes: Mapping[str, int], read_data: bool
    ) -> None:
        self.sizes = sizes
        self._manifest = manifest
        self._files = TableFiles(table, manifest.base_paths)
        self._read_data = read_data

    def check(self, fragment: Fragment) -> _Checked:
        result = _Checked()
        add = result.findings.extend
        sound = True
        for file in fragment.files:
            opened, problems = self._check_file(fragment, file)
            result.num_files += opened
            sound = sound and not problems
            add(problems)
        deleted, problems = self._deletions(fragment)
        add(problems)
        sound = sound and not problems
        if self._manifest.uses_stable_row_ids:
            result.live, problems = self._lineage(fragment, deleted)
            add(problems)
        if sound and self._manifest.reader_flags & MANAGED_BLOBS:
            add(self._blobs(fragment, deleted))
        if self._read_data and sound:
            add(self._read_all(fragment, deleted))
        return result

    def _location(self, fragment: Fragment) -> str:
        return location_of(self._manifest, fragment)

    def _check_file(self, fragment: Fragment, file: DataFile) -> tuple[bool, list[Finding]]:
        where = self._location(fragment)
        try:
            store, path = self._files.locate(file)
        except CorruptFileError:
            return False, []  # the unknown base is already a finding
        except UnsupportedFeatureError as error:  # not an allowed location
            return False, [finding("bad_data_file", f"{file.path}: {error.what}", where)]
        not_there = finding("missing_data_file", f"{store.uri}/{path} is not there", where)
        if file.base_id is None:
            size = self.sizes.get(path)
            if size is None:
                return False, [not_there]
            if file.size_bytes and size != file.size_bytes:
                what = f"{path} has {size} bytes, not {file.size_bytes}"
                return False, [finding("file_size", what, where)]
        try:
            reader = DataFileReader.open(
                store, path, size_bytes=file.size_bytes or None, external=self._files
            )
        except FileNotFoundError:
            return False, [not_there]
        except StorageError:
            raise
        except LanceError as error:
            return False, [finding("bad_data_file", f"{path}: {error.what}", where)]
        return True, list(_check_reader(fragment, file, reader, where))

    def _deletions(self, fragment: Fragment) -> tuple[DeletionVector | None, list[Finding]]:
        deletions, where = fragment.deletion_file, self._location(fragment)
        if deletions is None:
            return None, []
        path = deletion_path(fragment.id, deletions)
        if deletions.base_id is None and path not in self.sizes:
            return None, [finding("missing_deletion_file", f"{path} is not there", where)]
        stable = self._manifest.uses_stable_row_ids
        try:
            deleted = load_deletion_vector(
                self._files, fragment, stable_row_ids=stable, may_be_known=False
            )
            assert deleted is not None  # there is a file
            if fragment.num_deleted_rows <= len(deleted):
                return deleted, []
            what = (
                f"{path} names {fragment.num_deleted_rows} rows, of which the fragment has "
                f"{len(deleted)}: row ids instead of offsets, as releases around 0.30 wrote them"
            )
            return deleted, [finding("deletions_elsewhere", what, where)]
        except StorageError:
            raise
        except LanceError as error:
            return None, [finding("bad_deletion_file", f"{path}: {error.what}", where)]

    def _lineage(
        self, fragment: Fragment, deleted: DeletionVector | None
    ) -> tuple[LiveRowIds | None, list[Finding]]:
        where = self._location(fragment)
        lineage = FragmentReader(self._files, fragment, stable_row_ids=True).lineage
        assert isinstance(lineage, FragmentLineage)
        try:
            row_ids = lineage.row_ids()
        except StorageError:
            raise
        except (LanceError, InvalidInputError) as error:
            return None, [finding("bad_row_ids", error.what, where)]
        try:
            created, updated = lineage.versions(CREATED_AT), lineage.versions(LAST_UPDATED_AT)
        except LanceError as error:
            return None, [finding("bad_versions", error.what, where)]
        findings = list(check_lineage(self._manifest, fragment, row_ids, created, updated))
        return live_row_ids(fragment, row_ids, deleted), findings

    def _blobs(self, fragment: Fragment, deleted: DeletionVector | None) -> Found:
        where = self._location(fragment)
        try:
            objects = blob_objects(self._files, self._manifest, fragment, deleted)
            for one, end in sorted(objects.items(), key=lambda item: item[0].path):
                store = self._files.store_of(one.base_id)
                size = self.sizes.get(one.path) if one.base_id is None else _size(store, one.path)
                if size is None:
                    what = f"{store.uri}/{one.path}, which holds blobs, is not there"
                    yield finding("missing_blobs", what, where)
                elif size < end:
                    what = f"{store.uri}/{one.path} has {size} bytes of {end} that blobs are in"
                    yield finding("missing_blobs", what, where)
        except StorageError:
            raise
        except LanceError as error:
            yield finding("unreadable_rows", f"where blobs are: {error.what}", where)

    def _read_all(self, fragment: Fragment, deleted: DeletionVector | None) -> Found:
        stable = self._manifest.uses_stable_row_ids
        reader = FragmentReader(self._files, fragment, stable_row_ids=stable, checks_text=True)
        for column in self._manifest.schema.fields:
            # Convert JSON to text, which validates it.
            column = logical_field(column) if holds_json(column) else column
            # Blobs of deleted rows may be missing.
            skipped = deleted if any(part.is_blob_v2 for part in column.walk()) else None
            try:
                for rows in _live_ranges(fragment, skipped):
                    for _ in reader.stream(
                        [column], (), rows, batch_rows=_BATCH_ROWS, batch_bytes=_BATCH_BYTES
                    ):
                        pass
            except StorageError:
                raise
            except LanceError as error:
                what = f"column {column.name!r}: {error.what}"
                yield finding("unreadable_rows", what, self._location(fragment))


def _size(store: ObjectStore, path: str) -> int | None:
    """Return the size of an object; None if it does not exist."""
    try:
        return store.size(path)
    except FileNotFoundError:
        return None


def _live_ranges(fragment: Fragment, deleted: DeletionVector | None) -> Iterator[tuple[int, int]]:
    """Yield the ranges of live rows."""
    offsets = [] if deleted is None else deleted.to_array().tolist()
    for before, after in pairwise([-1, *offsets, fragment.physical_rows]):
        if before + 1 < after:
            yield before + 1, after


def _check_reader(fragment: Fragment, file: DataFile, reader: DataFileReader, where: str) -> Found:
    if fragment.physical_rows and reader.num_rows != fragment.physical_rows:
        what = f"{file.path} has {reader.num_rows} rows, not {fragment.physical_rows}"
        yield finding("file_rows", what, where)
    # Releases of Lance before 0.17 called newer files 0.1.
    if reader.version != file.file_version and file.file_version != "0.1":
        what = f"{file.path} is of version {reader.version}, not {file.file_version}"
        yield finding("file_version", what, where)
    if file.column_indices and max(file.column_indices) >= reader.num_columns > 0:
        what = f"{file.path} has {reader.num_columns} columns, and column "
        yield finding("file_columns", f"{what}{max(file.column_indices)} is wanted", where)


_LANCE_FILES = (".lance", ".idx")


def _check_index_folders(file: ManifestFile, sizes: Mapping[str, int]) -> Found:
    folders = {path.split("/")[1] for path in sizes if path.startswith(f"{INDICES}/")}
    for index in file.indices:
        if index.base_id is None and index.fields and str(index.uuid) not in folders:
            covers_nothing = index.fragment_bitmap is not None and not index.fragment_bitmap
            if not covers_nothing:
                what = f"the index {index.name!r} has no files ({index.uuid})"
                yield finding("missing_index", what, location_of(file.manifest))


def _check_index_files(store: ObjectStore, file: ManifestFile, sizes: Mapping[str, int]) -> Found:
    """Find missing or truncated index files, by size or by the magic bytes at the end."""
    by_folder: dict[str, dict[str, int]] = {}
    for path, size in sizes.items():
        folder, _, name = path.removeprefix(f"{INDICES}/").partition("/")
        if path.startswith(f"{INDICES}/"):
            by_folder.setdefault(folder, {})[name] = size
    for index in file.indices:
        there = by_folder.get(str(index.uuid), {})
        if index.base_id is not None or not there:
            continue
        for name in sorted({*there, *index.file_sizes}):
            wrong = _check_index_file(store, index, name, there.get(name))
            if wrong:
                what = f"{INDICES}/{index.uuid}/{name} of the index {index.name!r} {wrong}"
                yield finding("bad_index_file", what, location_of(file.manifest))


def _check_index_file(store: ObjectStore, index: IndexMetadata, name: str, size: int | None) -> str:
    """Return the defects of an index file; empty if there are none."""
    recorded_size = index.file_sizes.get(name)
    if size is None:
        return "is not there"
    if recorded_size:
        return "" if recorded_size == size else f"has {size} bytes, not {recorded_size}"
    if not name.endswith(_LANCE_FILES):
        return ""
    end, _ = store.get_tail(f"{INDICES}/{index.uuid}/{name}", len(MAGIC))
    return "" if bytes(end) == MAGIC else "does not end like a Lance file"


def _check_index_contents(
    table: Table, version: int, known: Sequence[Finding], read_data: bool
) -> Found:
    try:
        snapshot = Snapshot.open(table, VersionSpec(version=version))
    except LanceError:
        return  # Unreadable, which is already a finding.
    yield from check_contents(snapshot, known, read_data=read_data)


# Around the version ------------------------------------------------------------------------


def _check_transaction(store: ObjectStore, file: ManifestFile) -> Found:
    """I15."""
    where = location_of(file.manifest)
    try:
        inline = file.transaction()
        transaction = find_transaction(store, file)
    except LanceError as error:
        yield finding("transaction_differs", error.what, where)
        return
    if transaction is None:
        if file.manifest.transaction_file:
            what = f"the transaction {file.manifest.transaction_file} is not there"
            yield finding("missing_transaction", what, where)
        return
    is_first_of_branch = isinstance(transaction.operation, Clone)
    if transaction.read_version >= file.manifest.version and not is_first_of_branch:
        what = f"the version was made of version {transaction.read_version}"
        yield finding("transaction_differs", what, where)
    name = transaction_path(transaction.read_version, transaction.uuid).rpartition("/")[2]
    if inline is None or name != file.manifest.transaction_file:
        return
    try:
        if read_transaction(store, name) != inline:
            what = f"{name} and the copy in the manifest differ"
            yield finding("transaction_differs", what, where)
    except FileNotFoundError:
        pass  # the copy is enough
    except LanceError as error:
        yield finding("transaction_differs", f"{name}: {error.what}", where)


def _check_times(
    store: ObjectStore, locations: list[ManifestLocation], location: ManifestLocation
) -> Found:
    """Check I14 for the version and its predecessor."""
    for before, after in pairwise(locations):
        if after.version != location.version:
            continue
        try:
            times = [
                read_manifest(store, neighbour, with_indices=False).manifest.timestamp_ns
                for neighbour in (before, after)
            ]
        except (LanceError, FileNotFoundError):
            return
        if times[1] < times[0]:
            what = f"committed {(times[0] - times[1]) / 1e9:.3f} s before version {before.version}"
            yield finding("time_runs_back", what, f"version {after.version}")


def _confirm_findings(check: Callable[[], Found]) -> list[Finding]:
    """Run a check again if it fails: a tag may move while its version is removed."""
    found = list(check())
    return [one for one in check() if one in found] if found else []


def _check_references(main: Table) -> Found:
    """Check that tags and branches refer to existing versions."""
    store = main.store()
    versions: dict[str | None, set[int]] = {}

    def has_version(branch: str | None, version: int) -> bool:
        if branch not in versions:
            locations = _list_locations(main.on_branch(branch).store())
            versions[branch] = {location.version for location in locations}
        return version in versions[branch]

    for name, where in _reference_names(store, TAGS):
        tag = _read(read_tag, store, name, where)
        if isinstance(tag, Finding):
            yield tag
        elif not has_version(tag.branch, tag.version):
            line = tag.branch or "main"
            what = f"the tag {name!r} stands on version {tag.version} of {line}, which is gone"
            yield finding("dangling_tag", what, where)
    for name, where in _reference_names(store, BRANCHES):
        branch = _read(read_branch, store, name, where)
        if isinstance(branch, Finding):
            yield branch
        elif not _list_locations(main.on_branch(name).store()):
            yield finding("dangling_branch", f"the branch {name!r} has no version", where)
        elif not has_version(branch.parentBranch, branch.parentVersion):
            what = f"version {branch.parentVersion}, which {name!r} was forked from, is gone"
            yield finding("dangling_branch", what, where)


def _list_locations(store: ObjectStore) -> list[ManifestLocation]:
    try:
        return list_versions(store)
    except UnsupportedFeatureError:
        return []


def _reference_names(store: ObjectStore, folder: str) -> Iterator[tuple[str, str]]:
    for info in store.list(folder):
        name = parse_reference_name(info.path.removeprefix(f"{folder}/"))
        if name is not None:
            yield name, f"{store.uri}/{info.path}"


def _read(
    read: Callable[[ObjectStore, str], _R], store: ObjectStore, name: str, where: str
) -> _R | Finding:
    try:
        return read(store, name)
    except LanceError as error:
        return finding("bad_reference", error.what, where)


def _check_orphans(table: Table) -> Found:
    """Find orphan files that are too old to belong to a write in progress."""
    try:
        left = find_orphan_files(table, older_than_s=SAFE_AGE_S)
        if left:  # a concurrent cleanup may be removing them
            again = {file.path for file in find_orphan_files(table, older_than_s=SAFE_AGE_S)}
            left = [file for file in left if file.path in again]
    except (CorruptFileError, UnsupportedFeatureError) as error:
        yield finding("bad_manifest", error.what, error.where)
        return
    if left:
        size = sum(file.size for file in left)
        what = f"{len(left)} files of {size} bytes belong to no version, such as {left[0].path}"
        yield finding("orphans", what, table.uri)
