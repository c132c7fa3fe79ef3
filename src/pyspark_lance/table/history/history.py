"""The history and details of a table, from manifests alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark_lance.commit.fragment_changes import operation_metrics
from pyspark_lance.commit.index_rules import MEM_WAL_INDEX
from pyspark_lance.errors import InvalidInputError, LanceError
from pyspark_lance.format.clustering import ClusterBy
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.operation import UnknownOperation
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.schema import primary_key
from pyspark_lance.format.transaction import APPLICATION_PROPERTY, MESSAGE_PROPERTY, Transaction
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.metafile.manifest_file import (
    ManifestFile,
    ManifestLocation,
    find_transaction,
    list_versions,
    read_consecutive_manifests,
    retry_if_removed,
)
from pyspark_lance.metafile.refs_file import list_tags
from pyspark_lance.store.object_store import ObjectStore, missing
from pyspark_lance.table.compaction.clustering import choose_order
from pyspark_lance.table.compaction.compaction_plan import (
    CompactionOptions,
    CompactionRequest,
    plan_bins,
)
from pyspark_lance.table.refs import Consumer, consumers_of
from pyspark_lance.table.version.snapshot import LATEST, Snapshot, VersionSpec, properties_of
from pyspark_lance.table.version.table import Table, main_branch_of
from pyspark_lance.table.version.table_files import roots_outside

_MANY_VERSIONS = 100


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One version."""

    version: int
    timestamp: datetime  # When it was committed, UTC.
    operation: str  # Such as ``Append``; '' if unknown.
    metrics: Mapping[str, int] = field(default_factory=dict)  # Counts of the operation, by name.
    user_metadata: str | None = None
    application_id: str | None = None
    writer: str | None = None
    num_rows: int = 0
    num_fragments: int = 0
    num_bytes: int = 0  # Sizes of its data files, as far as they are known.
    manifest_bytes: int = 0
    tags: tuple[str, ...] = ()


def history(table: Table, limit: int | None = None) -> list[HistoryEntry]:
    """Return the existing versions, newest first.

    ``limit``: maximum versions; None for all.
    """
    if limit is not None and limit < 0:
        raise InvalidInputError(
            f"the limit of a history must not be negative, as {limit} is", table.uri
        )
    return retry_if_removed(table.store(), lambda: _history(table, limit))


def _history(table: Table, limit: int | None) -> list[HistoryEntry]:
    newest = Snapshot.open(table)
    store, branch = newest.store, newest.manifest.branch
    tags: dict[int, list[str]] = {}
    for tag in list_tags(main_branch_of(newest.table, branch).store()):
        if tag.branch == branch:
            tags.setdefault(tag.version, []).append(tag.name)
    locations = list_versions(store)[::-1][:limit]
    entries = history_entries(store, locations, tags)
    return entries_left(store, locations, entries)


def history_entries(
    store: ObjectStore,
    locations: Sequence[ManifestLocation],
    tags: Mapping[int, Sequence[str]] | None = None,
) -> list[HistoryEntry]:
    """Return the entries of adjacent versions, without those that were removed.

    ``tags``: names by version.
    """
    files = read_consecutive_manifests(store, locations, skip_removed=True)
    return [_entry_of(store, file, (tags or {}).get(file.manifest.version, ())) for file in files]


def entries_left(
    store: ObjectStore, locations: Sequence[ManifestLocation], entries: list[HistoryEntry]
) -> list[HistoryEntry]:
    """Return ``entries``; the newest of ``locations``, which is the first, must be among them."""
    if locations and (not entries or entries[0].version != locations[0].version):
        raise missing(store.uri, locations[0].path)
    return entries


def _entry_of(store: ObjectStore, file: ManifestFile, tags: Sequence[str]) -> HistoryEntry:
    transaction = find_transaction(store, file)
    properties = transaction.properties if transaction is not None else {}
    manifest = file.manifest
    writer = manifest.writer_version
    return HistoryEntry(
        version=manifest.version,
        timestamp=moment(manifest.timestamp_ns),
        operation=operation_name(transaction),
        metrics={} if transaction is None else operation_metrics(transaction.operation),
        user_metadata=properties.get(MESSAGE_PROPERTY),
        application_id=properties.get(APPLICATION_PROPERTY),
        writer=None if writer is None else f"{writer.library} {writer.version}",
        num_rows=manifest.fragments.num_rows,
        num_fragments=len(manifest.fragments),
        num_bytes=int(manifest.fragments.columns.num_bytes.sum()),
        manifest_bytes=_size_of(store, file),
        tags=tuple(sorted(tags)),
    )


def operation_name(transaction: Transaction | None) -> str:
    """Return the operation name of a transaction; '' if missing or unknown."""
    if transaction is None or isinstance(transaction.operation, UnknownOperation):
        return ""
    return type(transaction.operation).__name__


def moment(nanoseconds: int) -> datetime:
    """Convert nanoseconds to a UTC time, truncated to microseconds."""
    whole = datetime.fromtimestamp(nanoseconds // 10**9, UTC)
    return whole.replace(microsecond=nanoseconds % 10**9 // 1000)


def _size_of(store: ObjectStore, file: ManifestFile) -> int:
    size = file.location.size
    return store.size(file.location.path) if size is None else size


# Current state
# --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableDetail:
    """The details of a table version."""

    location: str
    version: int
    branch: str | None  # Branch name; None for main.
    last_modified: datetime  # When it was committed, UTC.
    num_rows: int
    num_deleted_rows: int  # Deleted rows that are still in files.
    num_fragments: int
    num_files: int
    num_bytes: int  # Their sizes, as far as they are known.
    manifest_bytes: int
    num_versions: int
    oldest_version: int
    file_version: str
    stable_row_ids: bool  # Whether rows keep their ids when they move.
    primary_key: tuple[str, ...]
    clustering_columns: tuple[str, ...]  # Columns that compactions sort rows by.
    indices: tuple[str, ...]
    properties: Mapping[str, str]
    base_paths: tuple[str, ...]  # Locations outside of the table with files of the version.
    consumers: tuple[Consumer, ...]  # Registered consumers and their positions.
    advice: tuple[str, ...]  # Recommended maintenance, if any.


def detail(table: Table, at: VersionSpec = LATEST) -> TableDetail:
    """Return the details of a version, with recommended maintenance."""
    snapshot = Snapshot.open(table, at)
    manifest = snapshot.manifest
    versions = list_versions(snapshot.store)
    by = ClusterBy.of(manifest.config)
    return TableDetail(
        location=snapshot.uri,
        version=snapshot.version,
        branch=manifest.branch,
        last_modified=moment(manifest.timestamp_ns),
        num_rows=snapshot.num_rows(),
        num_deleted_rows=int(manifest.fragments.columns.num_deleted_rows.sum()),
        num_fragments=len(manifest.fragments),
        num_files=sum(len(fragment.files) for fragment in manifest.fragments),
        num_bytes=int(manifest.fragments.columns.num_bytes.sum()),
        manifest_bytes=_size_of(snapshot.store, snapshot.file),
        num_versions=len(versions),
        oldest_version=versions[0].version if versions else snapshot.version,
        file_version=manifest.file_version,
        stable_row_ids=snapshot.uses_stable_row_ids,
        primary_key=primary_key(snapshot.schema),
        clustering_columns=() if by is None else by.columns,
        indices=tuple(sorted({index.name for index in snapshot.indices if index.fields})),
        properties=properties_of(snapshot),
        base_paths=roots_outside(table, manifest),
        consumers=consumers_of(table),
        advice=tuple(_advice(snapshot, len(versions))),
    )


def _advice(snapshot: Snapshot, num_versions: int) -> Iterator[str]:
    if any(index.name == MEM_WAL_INDEX for index in snapshot.indices):
        yield (
            "merge the write-ahead log with Lance: the table has one (MemWAL), rows in it are not "
            "read, and changes are refused"
        )
        return
    yield from _advice_of_compaction(snapshot)
    if num_versions > _MANY_VERSIONS:
        yield f"clean up: {num_versions} versions are kept"


def _advice_of_compaction(snapshot: Snapshot) -> Iterator[str]:
    fragments = snapshot.manifest.fragments
    options = CompactionOptions.of(snapshot.manifest.config, CompactionRequest())
    if options.cluster_by:
        columns = ", ".join(options.cluster_by)
        try:
            _, bins = choose_order(snapshot, options)
        except LanceError as error:
            yield f"choose other columns to cluster by than {columns}: {error.what}"
            return
        if bins:
            yield (
                f"compact: {sum(map(len, bins))} of {len(fragments)} fragments are to be sorted by "
                f"{columns}"
            )
        return
    bins = plan_bins(fragments, snapshot.indices, options)
    if bins:
        small = sum(map(len, bins))
        yield (
            f"compact: {small} of {len(fragments)} fragments are small or have many "
            f"deleted rows; {len(bins)} would do"
        )


@dataclass(frozen=True, slots=True)
class FragmentDetail:
    """One fragment of a version."""

    fragment_id: int  # The fragment id, the high bits of row addresses.
    num_rows: int
    physical_rows: int  # Rows in its files, including deleted ones.
    num_bytes: int  # Sizes of its data files, as far as they are known.
    files: tuple[str, ...]
    # Smallest stable row id; None if rows have none, or they are not inline.
    first_row_id: int | None = None
    last_row_id: int | None = None
    # Version that created its oldest row; None if not recorded.
    min_created_at: int | None = None
    max_created_at: int | None = None
    min_last_updated_at: int | None = None  # Oldest last-updated version of a row.
    max_last_updated_at: int | None = None  # Newest last-updated version of a row.


def fragments(table: Table, at: VersionSpec = LATEST) -> list[FragmentDetail]:
    """Return the fragments of a version."""
    snapshot = Snapshot.open(table, at)
    return [_fragment_detail(fragment) for fragment in snapshot.manifest.fragments]


def _fragment_detail(fragment: Fragment) -> FragmentDetail:
    ids = None
    if isinstance(fragment.row_ids, bytes):
        ids = RowIdSequence.from_bytes(fragment.row_ids).bounds()
    created, updated = (
        RowDatasetVersionSequence.from_bytes(source) if isinstance(source, bytes) else None
        for source in (fragment.created_at, fragment.last_updated_at)
    )
    return FragmentDetail(
        fragment_id=fragment.id,
        num_rows=fragment.num_rows,
        physical_rows=fragment.physical_rows,
        num_bytes=sum(file.size_bytes for file in fragment.files),
        files=tuple(file.path for file in fragment.files),
        first_row_id=None if ids is None else ids[0],
        last_row_id=None if ids is None else ids[1],
        min_created_at=None if created is None else created.min_version,
        max_created_at=None if created is None else created.max_version,
        min_last_updated_at=None if updated is None else updated.min_version,
        max_last_updated_at=None if updated is None else updated.max_version,
    )
