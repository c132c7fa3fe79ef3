"""Blobs in objects of the table (``_blobs``), which their rows share wherever they move."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from local_changes import delete_rows
from managed_blobs import (
    INLINE_BYTES,
    blob_rows,
    check,
    descriptors,
    kinds,
    new_table,
    objects,
    our_blobs,
    referenced,
    their_blobs,
)
from row_changes import add_to, upsert
from table_access import read_changes, write_table

from pyspark_lance.errors import CorruptFileError, MissingFileError, UnsupportedFeatureError
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.refs import create_branch
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

# In the data file, and in an object where several share one and where each has its own.
_SIZES = (0, 3, INLINE_BYTES, 70_000, 90_000, 5_000_000)


def run_history(path: str, seed: int) -> None:
    """Changes by both, after each of which both read the bytes that a dict of rows has."""
    rng = np.random.default_rng(seed)

    def value() -> bytes | None:
        size = int(rng.choice(_SIZES[:-1] if rng.random() < 0.9 else _SIZES))
        return None if rng.random() < 0.1 else rng.bytes(size)

    rows = {i: value() for i in range(12)}
    new_table(path, rows, max_rows_per_file=5)
    for _ in range(6):
        from_pylance, known = bool(rng.integers(2)), sorted(rows)
        keys = rng.choice(known, size=min(4, len(known)), replace=False).tolist()
        condition = f"id IN ({', '.join(map(str, keys))})"
        new = {max(known) + 1 + i: value() for i in range(3)}
        before = referenced(path)
        match str(rng.choice(["append", "delete", "update", "merge", "compact", "cluster"])):
            case "append" if from_pylance:
                lance.write_dataset(blob_rows(new), path, mode="append")
                rows |= new
            case "append":
                write_table(path, blob_rows(new))
                rows |= new
            case "delete":
                if len(known) > len(keys):
                    delete = lance.dataset(path).delete if from_pylance else None
                    delete(condition) if delete else delete_rows(path, condition)
                    rows = {key: blob for key, blob in rows.items() if key not in keys}
            case "update" if from_pylance:
                lance.dataset(path).update({"n": "n + 1"}, where=condition)
            case "update":
                add_to(path, condition, "n", 1)
                assert referenced(path) == before
            case "merge":
                source = {key: value() for key in sorted(keys)} | new
                if from_pylance:
                    builder = lance.dataset(path).merge_insert("id").when_matched_update_all()
                    builder.when_not_matched_insert_all().execute(blob_rows(source))
                else:
                    upsert(path, blob_rows(source))
                rows |= source
            case "compact" if from_pylance:
                lance.dataset(path).optimize.compact_files(materialize_deletions_threshold=0.0)
            case "compact":
                compact(Table(path), CompactionRequest(materialize_deletions_threshold=0.0))
                assert referenced(path) == before
            case "cluster":
                compact(Table(path), CompactionRequest(cluster_by=["n"], sort_bytes=1000))
                assert referenced(path) == before
        check(path, rows)
        if rng.random() < 0.2:
            cleanup_old_versions(Table(path), CleanupPolicy(older_than_s=0))
            assert objects(path) == referenced(path)
    lance.dataset(path).validate()
    assert verify(Table(path), read_data=True).findings == ()
    from_pylance = str(path) + "-theirs"
    shutil.copytree(path, from_pylance)
    cleanup_old_versions(Table(path), CleanupPolicy(older_than_s=0))
    lance.dataset(from_pylance).cleanup_old_versions(timedelta(0))
    for one in (path, from_pylance):
        check(one, rows)
        assert objects(one) == referenced(one)
        assert verify(Table(one), read_data=True).findings == ()


def test_pylance_and_package_alternately_change_managed_blobs(tmp_path):
    for seed in range(2):
        run_history(str(tmp_path / str(seed)), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_managed_blobs_survive_many_mixed_histories(tmp_path, seed):
    run_history(str(tmp_path), seed)


def test_managed_blobs_follow_branches_clones_and_restores(tmp_path):
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
        compact(Table(where, branch=branch), CompactionRequest(cluster_by=["id"]))
        assert kinds(where, branch) == [5] * 5
        assert our_blobs(where, branch) == their_blobs(where, branch) == rows
    restore(Table(path), VersionSpec(version=1))
    assert len(our_blobs(path)) == len(their_blobs(path)) == 6
    # A compaction that leaves the bytes where they are changes no value.
    lance.dataset(path).delete("id = 0")
    lance.dataset(path).optimize.compact_files(materialize_deletions_threshold=0.0)
    changes = read_changes(path, 4, Snapshot.open(Table(path)).version, "none")
    assert changes["_change_type"].to_pylist() == ["delete"]


def test_blobs_of_removed_source_table_name_that_table(tmp_path):
    path, clone = str(tmp_path / "t"), str(tmp_path / "clone")
    new_table(path, {1: b"x" * 80_000})
    lance.dataset(path).shallow_clone(clone, reference=1)
    delete_rows(clone, "id = 2")
    compact(Table(clone), CompactionRequest(cluster_by=["id"]))
    shutil.rmtree(path)
    with pytest.raises(UnsupportedFeatureError, match="folder of a Lance table any more") as raised:
        our_blobs(clone)
    assert repr(path) in raised.value.what
    assert "put that table back" in raised.value.hint
    assert any("missing" in one.kind for one in verify(Table(clone)).findings)


def test_schema_enables_managed_blobs_for_pylance_too(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, blob_rows({1: b"a" * 80_000}, managed=True), file_version="2.2")
    check(path, {1: b"a" * 80_000})
    lance.write_dataset(blob_rows({2: b"b" * 80_000}), path, mode="append")
    check(path, {1: b"a" * 80_000, 2: b"b" * 80_000})
    write_table(path, blob_rows({3: b"c"}), overwrite=True, overwrite_schema=True)
    check(path, {3: b"c"})


def test_missing_or_truncated_blob_objects_are_named(tmp_path):
    path = str(tmp_path / "t")
    new_table(path, {1: b"x" * 80_000})
    (held,) = (tmp_path / "t" / "_blobs").iterdir()
    whole = held.read_bytes()
    held.write_bytes(whole[:-1])
    with pytest.raises(CorruptFileError, match=held.name):
        our_blobs(path)
    (found,) = verify(Table(path)).findings
    assert found.kind == "missing_blobs"
    assert "79999 bytes of 80000" in found.what
    held.unlink()
    (found,) = verify(Table(path)).findings
    assert held.name in found.what
    with pytest.raises(MissingFileError, match=held.name) as raised:
        our_blobs(path)
    assert raised.value.hint
    # Blobs of deleted rows are not needed.
    write_table(path, blob_rows({2: b""}))
    delete_rows(path, "id = 1")
    assert verify(Table(path), read_data=True).findings == ()
    assert our_blobs(path) == {2: b""}


def layout(path: str) -> list[list[tuple[int, int, int, int] | None]]:
    """Kind, place, size, and a number for the object of each blob of each column."""
    numbers: dict[str, int] = {}

    def place(one: dict | None) -> tuple[int, int, int, int] | None:
        if one is None:
            return None
        number = numbers.setdefault(one["blob_uri"], len(numbers))
        return one["kind"], one["position"] if one["kind"] else 0, one["size"], number

    return [[place(one) for one in descriptors(path, column=column)] for column in ("b", "c")]


@pytest.mark.parametrize("seed", range(3))
def test_blob_placement_equals_pylance(tmp_path, seed):
    rng = np.random.default_rng(seed)
    limits = {"inline": 100, "dedicated": 1_000, "pack-file": 2_500} if seed else {}
    metadata = {f"lance-encoding:blob-{name}-size-threshold": str(n) for name, n in limits.items()}
    sizes = rng.choice([0, 99, 100, 101, 999, 1_000, 1_001, 65_536, 65_537], 40)
    values = [None if rng.random() < 0.1 else rng.bytes(int(size)) for size in sizes]
    fields = [lance.blob_field("b"), lance.blob_field("c")]
    fields[0] = fields[0].with_metadata({**(fields[0].metadata or {}), **metadata})
    managed = {"lance.blob.managed": "true"}
    blobs = [lance.blob_array(values), lance.blob_array(values[::-1])]
    rows = pa.table(blobs, schema=pa.schema(fields, metadata=managed))
    ours, from_pylance = str(tmp_path / "ours"), str(tmp_path / "theirs")
    write_table(ours, rows, file_version="2.2")
    lance.write_dataset(rows, from_pylance, data_storage_version="2.2")
    assert layout(ours) == layout(from_pylance)
    assert {one[0] for column in layout(ours) for one in column if one} == {0, 4}
    sizes_of = [
        sorted(Path(one, name).stat().st_size for name in objects(one))
        for one in (ours, from_pylance)
    ]
    assert sizes_of[0] == sizes_of[1]
