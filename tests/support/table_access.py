"""Tables written, changed and read by pylance and by this package, for tests that compare."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from operator import itemgetter

import lance
import numpy as np
import pyarrow as pa
import pytest
from random_tables import random_table

from pyspark_lance.format.column_names import SYSTEM_COLUMNS
from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.metafile.manifest_file import encode_manifest, list_versions, read_manifest
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.cdf.change_feed import ChangeRequest, Deduplication, plan_changes
from pyspark_lance.table.cdf.change_feed_task import CHANGE_FIELDS
from pyspark_lance.table.cdf.change_window import Bound, resolve_window
from pyspark_lance.table.cdf.stream import TableStream
from pyspark_lance.table.cdf.stream_offset import BatchView, StreamOffset
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import LATEST, Snapshot, VersionSpec, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import (
    WriteSettings,
    commit_write,
    plan_write,
    write_rows,
)

LINEAGE = list(SYSTEM_COLUMNS)


def read_ours(
    path: str,
    at: VersionSpec = LATEST,
    *,
    branch: str | None = None,
    storage: Mapping[str, str] | None = None,
    **request: object,
) -> pa.Table:
    snapshot = Snapshot.open(Table(path, storage or {}, branch=branch), at)
    request.setdefault("system_columns", SYSTEM_COLUMNS)
    tasks = plan_scan(snapshot, ScanRequest(**request))
    batches = [batch for task in tasks for batch in task.run()]
    if batches:
        return pa.Table.from_batches(batches)
    fields = [*snapshot.schema.to_arrow(), *(pa.field(n, pa.uint64()) for n in SYSTEM_COLUMNS)]
    return pa.schema(fields).empty_table()


def read_changes(path: str, start: int, end: int, mode: str, **request: object) -> pa.Table:
    """The change feed of the versions ``start`` to ``end``."""
    snapshot = Snapshot.open(Table(path), VersionSpec(version=end))
    shown = request.pop("shown", None) or logical_schema(snapshot.schema).fields
    request.setdefault("columns", shown)
    window = resolve_window(Table(path), Bound(version=start), Bound(version=end))
    tasks = plan_changes(
        Table(path), shown, ChangeRequest(window=window, mode=Deduplication(mode), **request)
    )
    batches = [batch for task in tasks for batch in task.run()]
    schema = pa.schema([*(field.to_arrow() for field in request["columns"]), *CHANGE_FIELDS])
    return pa.Table.from_batches(batches, schema)


def read_batch(stream: TableStream, start: StreamOffset, end: StreamOffset) -> list[dict]:
    """The changes of one batch, those of older versions first, what goes before what comes.

    Stream, offsets and tasks take the ways that they take in Spark: checkpoint and pickle.
    """
    stream = pickle.loads(pickle.dumps(stream))
    start, end = (StreamOffset.from_json(one.to_json()) for one in (start, end))
    tasks = pickle.loads(pickle.dumps(stream.plan_batch(start, end, all_columns)))
    rows = [row for task in tasks for batch in task.run() for row in batch.to_pylist()]
    gone = "delete", "update_preimage"
    return sorted(rows, key=lambda row: (row["_commit_version"], row["_change_type"] not in gone))


def all_columns(snapshot: Snapshot) -> BatchView:
    fields = logical_schema(snapshot.schema).fields
    return BatchView(fields, fields, None, 1024)


def remove_versions(path: str, versions: Iterable[int]) -> None:
    """Take manifests away, as a cleanup would."""
    gone = set(versions)
    store = open_store(path, {})
    for location in list_versions(store):
        if location.version in gone:
            store.delete(location.path)


def forget_transactions(path: str, *, keep_files: bool) -> None:
    """Make manifests as old releases did, without a copy of the transaction."""
    store = open_store(path, {})
    for location in list_versions(store):
        file = read_manifest(store, location)
        store.put(location.path, encode_manifest(file.manifest, file.indices, None))
    if not keep_files:
        for info in list(store.list("_transactions")):
            store.delete(info.path)


def read_pylance(path: str, version: int | None = None) -> pa.Table:
    return read_dataset(lance.dataset(path, version=version))


def read_dataset(dataset: lance.LanceDataset) -> pa.Table:
    names = list(dataset.schema.names)
    return dataset.scanner(
        columns=[*names, *LINEAGE], with_row_id=True, with_row_address=True
    ).to_table()


def assert_same_rows(ours: pa.Table, from_pylance: pa.Table) -> None:
    """Equal up to the order of rows, by row address; NaN equals NaN."""
    from_pylance = from_pylance.select(ours.column_names)
    for mine, other in zip(ours.schema, from_pylance.schema, strict=True):
        assert mine.type == other.type, mine.name
    try:
        ours, from_pylance = ours.sort_by("_rowaddr"), from_pylance.sort_by("_rowaddr")
    except pa.ArrowInvalid as error:
        assert "unify dictionaries with nulls" in str(error)
        rows = (sorted(one.to_pylist(), key=itemgetter("_rowaddr")) for one in (ours, from_pylance))
        assert repr(next(rows)) == repr(next(rows))
        return
    assert ours.num_rows == from_pylance.num_rows
    for name in ours.column_names:
        mine, other = ours[name].combine_chunks(), from_pylance[name].combine_chunks()
        if not mine.equals(other):
            assert repr(mine.to_pylist()) == repr(other.to_pylist()), name


def random_history(path: str, seed: int, version: str, *, stable: bool = True) -> None:
    """Create a table and changes it in ways that pylance offers."""
    rng = np.random.default_rng(seed)
    rows = int(rng.choice([40, 300, 1500]))
    table = random_table(seed, rows, version)
    lance.write_dataset(
        table.slice(0, rows // 2), path, enable_stable_row_ids=stable,
        data_storage_version=version, max_rows_per_file=int(rng.choice([7, 100, 1000])),
    )  # fmt: skip
    lance.write_dataset(table.slice(rows // 2), path, mode="append")
    for _ in range(int(rng.integers(1, 7))):
        dataset = lance.dataset(path)
        some = int(rng.integers(0, rows))
        match rng.choice(["delete", "update", "merge", "compact", "append", "add", "drop"]):
            case "delete":
                dataset.delete(f"id % {int(rng.integers(3, 9))} = 1 AND id < {some}")
            case "update":
                dataset.update({"id": "id + 0"}, where=f"id >= {some} AND id < {some + 9}")
            case "merge":
                new = dataset.to_table().slice(some // 3, 20)
                if new.num_rows:
                    shifted = new.set_column(0, "id", pa.compute.add(new["id"], some % 2 * 10_000))
                    (
                        dataset.merge_insert("id")
                        .when_matched_update_all()
                        .when_not_matched_insert_all()
                        .execute(shifted)
                    )
            case "compact":
                dataset.optimize.compact_files(target_rows_per_fragment=int(rng.choice([50, 2000])))
            case "append":
                lance.write_dataset(dataset.to_table().slice(0, 11), path, mode="append")
            case "add":
                names = [n for n in ("x", "y", "z") if n not in dataset.schema.names]
                if names:
                    dataset.add_columns({names[0]: "id * 2"})
            case "drop":
                extra = [n for n in ("x", "c4") if n in dataset.schema.names]
                if extra:
                    dataset.drop_columns([extra[0]])


def random_history_or_skip(path: str, seed: int, version: str) -> None:
    """As ``random_history``; some of them pylance itself refuses, or panics on."""
    try:
        random_history(path, seed, version)
    except BaseException as error:
        # Everything in there is pylance; its panics are no Exceptions.
        if not isinstance(error, Exception) and "Panic" not in type(error).__name__:
            raise
        pytest.skip(f"pylance itself cannot make this history: {str(error)[:200]}")


def write_table(path: str, table: pa.Table, **settings: object):
    """One write by this package; None when it made no version."""
    plan = plan_write(
        Table(path), table.schema, WriteSettings(**settings), existing=open_existing(Table(path))
    )
    return commit_write(plan, write_rows(plan, table.to_batches()))


def append(path: str, first: int, rows: int = 3, **settings: object) -> int | None:
    """Append rows with the ids ``first`` and following; return the version."""
    table = pa.table({"id": pa.array(range(first, first + rows), pa.int64())})
    result = write_table(path, table, **settings)
    return None if result is None else result.version
