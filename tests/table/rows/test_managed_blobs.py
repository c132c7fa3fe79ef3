"""Blobs in objects of the table (``_blobs``), which their rows share wherever they move."""

from __future__ import annotations

import shutil
from datetime import timedelta

import lance
import numpy as np
import pyarrow as pa
import pytest
from local_changes import delete_rows
from row_changes import add_to, upsert
from table_access import read_changes, read_ours, write_table

from pyspark_lance.errors import CorruptFileError, MissingFileError
from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.refs.branches import create_branch
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.time_travel import VersionSpec
from pyspark_lance.table.work.metadata_commits import restore

pytestmark = pytest.mark.interop

MANAGED = 16384
# In the data file, and in an object where several share one and where each has its own.
_SIZES = (0, 3, 70_000, 90_000, 5_000_000)


def blob_rows(values: dict[int, bytes | None], *, managed: bool = False) -> pa.Table:
    fields = [pa.field("id", pa.int64()), pa.field("n", pa.int64()), lance.blob_field("b")]
    metadata = {"lance.blob.managed": "true"} if managed else None
    ids = pa.array(list(values), pa.int64())
    blobs = lance.blob_array(list(values.values()))
    return pa.table([ids, ids, blobs], schema=pa.schema(fields, metadata=metadata))


def new_table(path: str, values: dict[int, bytes | None], **settings: object) -> None:
    lance.write_dataset(
        blob_rows(values, managed=True), path, data_storage_version="2.2",
        enable_stable_row_ids=True, **settings,
    )  # fmt: skip


def our_blobs(path: str, branch: str | None = None, **request: object) -> dict[int, bytes | None]:
    snapshot = Snapshot.open(Table(path, branch=branch))
    schema = logical_schema(snapshot.schema, binary_blobs={"b"})
    rows = read_ours(path, branch=branch, schema=schema, system_columns=(), **request)
    return dict(zip(rows["id"].to_pylist(), rows["b"].to_pylist(), strict=True))


def their_blobs(path: str, branch: str | None = None) -> dict[int, bytes | None]:
    dataset = lance.dataset(path, session=lance.Session())
    if branch is not None:
        dataset = dataset.checkout_version((branch, None))
    rows = dataset.to_table(columns=["id", "b"], blob_handling="all_binary")
    return dict(zip(rows["id"].to_pylist(), rows["b"].to_pylist(), strict=True))


def kinds(path: str, branch: str | None = None) -> list[int]:
    schema = logical_schema(Snapshot.open(Table(path, branch=branch)).schema)
    rows = read_ours(path, branch=branch, schema=schema, system_columns=())["b"].to_pylist()
    return sorted(row["kind"] for row in rows if row is not None)


def check(path: str, expected: dict[int, bytes | None]) -> None:
    assert our_blobs(path) == expected
    assert their_blobs(path) == expected
    manifest = Snapshot.open(Table(path)).manifest
    assert manifest.reader_flags & manifest.writer_flags & MANAGED


def run_history(path: str, seed: int) -> None:
    """Changes by both, after each of which both read the bytes that a dict of rows has."""
    rng = np.random.default_rng(seed)

    def value() -> bytes | None:
        size = int(rng.choice(_SIZES[:4] if rng.random() < 0.9 else _SIZES))
        return None if rng.random() < 0.1 else rng.bytes(size)

    rows = {i: value() for i in range(12)}
    new_table(path, rows, max_rows_per_file=5)
    for _ in range(6):
        theirs, known = bool(rng.integers(2)), sorted(rows)
        keys = rng.choice(known, size=min(4, len(known)), replace=False).tolist()
        condition = f"id IN ({', '.join(map(str, keys))})"
        new = {max(known) + 1 + i: value() for i in range(3)}
        match str(rng.choice(["append", "delete", "update", "merge", "compact"])):
            case "append" if theirs:
                lance.write_dataset(blob_rows(new), path, mode="append")
                rows |= new
            case "append":
                write_table(path, blob_rows(new))
                rows |= new
            case "delete":
                if len(known) > len(keys):
                    delete = lance.dataset(path).delete if theirs else None
                    delete(condition) if delete else delete_rows(path, condition)
                    rows = {key: blob for key, blob in rows.items() if key not in keys}
            case "update" if theirs:
                lance.dataset(path).update({"n": "n + 1"}, where=condition)
            case "update":
                add_to(path, condition, "n", 1)
            case "merge":
                source = {key: value() for key in sorted(keys)} | new
                if theirs:
                    builder = lance.dataset(path).merge_insert("id").when_matched_update_all()
                    builder.when_not_matched_insert_all().execute(blob_rows(source))
                else:
                    upsert(path, blob_rows(source))
                rows |= source
            case "compact" if theirs:
                lance.dataset(path).optimize.compact_files(materialize_deletions_threshold=0.0)
            case "compact":
                compact(Table(path), {"materialize_deletions_threshold": 0.0})
        check(path, rows)
    lance.dataset(path).validate()
    assert verify(Table(path), read_data=True).findings == ()
    cleanup_old_versions(Table(path), CleanupPolicy(older_than_s=0))
    check(path, rows)
    lance.dataset(path).cleanup_old_versions(timedelta(0), delete_unverified=True)
    check(path, rows)


def test_both_change_tables_with_managed_blobs_in_turn(tmp_path):
    for seed in range(2):
        run_history(str(tmp_path / str(seed)), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_both_change_tables_with_managed_blobs_in_many_histories(tmp_path, seed):
    run_history(str(tmp_path), seed)


def test_branches_clones_and_restored_versions_find_the_blobs(tmp_path):
    path, clone = str(tmp_path / "t"), str(tmp_path / "clone")
    rows = {i: np.random.default_rng(i).bytes(70_000 + i) for i in range(6)}
    new_table(path, rows)
    lance.dataset(path).delete("id = 5")
    del rows[5]
    create_branch(Table(path), "b")
    lance.dataset(path).shallow_clone(clone, reference=2)
    for where, branch in ((path, "b"), (clone, None)):
        assert our_blobs(where, branch) == their_blobs(where, branch) == rows
        # Its compaction keeps the objects of the base, and names the base.
        dataset = lance.dataset(where)
        dataset = dataset if branch is None else dataset.checkout_version((branch, None))
        dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
        assert kinds(where, branch) == [5] * 5
        assert our_blobs(where, branch) == their_blobs(where, branch) == rows
        compact(Table(where, branch=branch), {"materialize_deletions_threshold": 0.0})
        assert our_blobs(where, branch) == their_blobs(where, branch) == rows
    restore(Table(path), VersionSpec(version=1))
    assert len(our_blobs(path)) == len(their_blobs(path)) == 6
    # A compaction that leaves the bytes where they are changes no value.
    lance.dataset(path).delete("id = 0")
    lance.dataset(path).optimize.compact_files(materialize_deletions_threshold=0.0)
    changes = read_changes(path, 4, Snapshot.open(Table(path)).version, "none")
    assert changes["_change_type"].to_pylist() == ["delete"]


def test_a_new_table_whose_schema_asks_for_it_says_so_and_goes_on_in_pylance(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, blob_rows({1: b"a" * 80_000}, managed=True), file_version="2.2")
    check(path, {1: b"a" * 80_000})
    lance.write_dataset(blob_rows({2: b"b" * 80_000}), path, mode="append")
    assert 4 in kinds(path)
    check(path, {1: b"a" * 80_000, 2: b"b" * 80_000})
    write_table(path, blob_rows({3: b"c"}), overwrite=True, overwrite_schema=True)
    check(path, {3: b"c"})


def test_objects_that_are_gone_or_cut_short_are_named(tmp_path):
    path = str(tmp_path / "t")
    new_table(path, {1: b"x" * 80_000})
    (held,) = (tmp_path / "t" / "_blobs").iterdir()
    whole = held.read_bytes()
    held.write_bytes(whole[:-1])
    with pytest.raises(CorruptFileError, match=held.name):
        our_blobs(path)
    held.unlink()
    with pytest.raises(MissingFileError, match=held.name) as raised:
        our_blobs(path)
    assert raised.value.hint
    assert verify(Table(path), read_data=True).findings
    shutil.rmtree(path)
