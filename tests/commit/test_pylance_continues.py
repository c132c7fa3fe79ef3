"""One table, two writers: commits of pylance and of this package alternate and overlap."""

from __future__ import annotations

import multiprocessing

import lance
import numpy as np
import pyarrow as pa
import pytest
from commit_tables import commit, delete_rows, latest, transaction
from lance.fragment import write_fragments

from pyspark_lance.commit.apply_operation import CreateOptions
from pyspark_lance.errors import RetryableCommitError
from pyspark_lance.format.fragment import DataFile, Fragment
from pyspark_lance.format.manifest import BasePath
from pyspark_lance.format.operation import (
    Append,
    Overwrite,
    ReserveFragments,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMap,
)
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.store.local_store import LocalStore

pytestmark = pytest.mark.interop

SCHEMA = LanceSchema.from_arrow(pa.schema([("id", pa.int64())]))
LINEAGE = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def written(root, ids, row_ids=None):
    """A fragment whose data file pylance writes."""
    rows = pa.table({"id": pa.array(ids, pa.int64())})
    (metadata,) = write_fragments(rows, root, data_storage_version="2.1")
    file = metadata.files[0]
    sequence = None if row_ids is None else RowIdSequence.from_array(row_ids).to_bytes()
    return Fragment(
        0,
        (DataFile(file.path, (0,), (0,), 2, 1, file.file_size_bytes),),
        len(ids),
        row_ids=sequence,
    )


def create(root, *ids_of_fragments):
    fragments = tuple(written(root, ids) for ids in ids_of_fragments)
    work = transaction(Overwrite(fragments, SCHEMA), 0)
    return commit(LocalStore(root), work, create=CreateOptions())


def append(root, read_version, ids, **arguments):
    work = transaction(Append((written(root, ids),)), read_version)
    return commit(LocalStore(root), work, **arguments)


def table(root):
    return lance.dataset(root, session=lance.Session())


def rows(root):
    found = table(root).to_table(columns=LINEAGE).to_pylist()
    return sorted(tuple(row.values()) for row in found)


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "t.lance")


def test_pylance_continues_after_our_commits(root):
    create(root, [1, 2, 3])
    stale = table(root)
    append(root, 1, [4])
    stale.delete("id = 2")
    assert rows(root) == [(1, 0, 1, 1), (3, 2, 1, 1), (4, 3, 2, 2)]
    merge = table(root).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(pa.table({"id": pa.array([4, 5], pa.int64())}))
    table(root).optimize.compact_files(materialize_deletions_threshold=0.0)
    append(root, table(root).version, [6])
    table(root).validate()
    assert [(row[0], row[1]) for row in rows(root)] == [(1, 0), (3, 2), (4, 3), (5, 4), (6, 5)]
    assert table(root).tags.list() == {}
    assert len(table(root).versions()) == table(root).version


def test_our_commits_follow_pylance_commits(root):
    create(root, list(range(10)), list(range(10, 20)))
    store = LocalStore(root)
    planned = latest(store)
    table(root).delete("id in (1, 2)")
    table(root).insert(pa.table({"id": pa.array([100], pa.int64())}))
    operation, affected = delete_rows(store, planned, {0: [5, 6], 1: [0]})
    result = commit(store, transaction(operation, 1), affected_rows=affected)
    assert result.version == 4
    expected = sorted({*range(20), 100} - {1, 2, 5, 6, 10})
    assert sorted(row[0] for row in rows(root)) == expected
    table(root).validate()

    operation, affected = delete_rows(store, planned, {0: [2]})
    with pytest.raises(RetryableCommitError):
        commit(store, transaction(operation, 1), affected_rows=affected)


def test_pylance_rebases_delete_onto_ours(root):
    create(root, list(range(10)))
    store = LocalStore(root)
    stale = table(root)
    operation, affected = delete_rows(store, latest(store), {0: [3]})
    commit(store, transaction(operation, 1), affected_rows=affected)
    stale.delete("id = 7")
    assert [row[0] for row in rows(root)] == [0, 1, 2, 4, 5, 6, 8, 9]
    table(root).validate()


def test_update_keeps_row_ids_and_created_at(root):
    create(root, [1, 2, 3])
    append(root, 1, [4, 5])
    store = LocalStore(root)
    operation, affected = delete_rows(store, latest(store), {0: [1], 1: [0]})
    update = Update(
        updated_fragments=operation.updated_fragments,
        # Two rows moved, one is new.
        new_fragments=(written(root, [40, 20, 99], row_ids=[3, 1]),),
        fields_for_preserving_frag_bitmap=(0,),
    )
    commit(store, transaction(update, 2), affected_rows=affected)
    assert rows(root) == [
        (1, 0, 1, 1), (3, 2, 1, 1), (5, 4, 2, 2), (20, 1, 1, 3), (40, 3, 2, 3), (99, 5, 3, 3),
    ]  # fmt: skip
    table(root).validate()


def test_pylance_reads_tables_after_other_operations(root, tmp_path):
    create(root, [1, 2, 3])
    store = LocalStore(root)
    commit(store, transaction(ReserveFragments(5), 1))
    bases = (BasePath(0, "other", False, str(tmp_path / "other")),)
    commit(store, transaction(UpdateBases(bases), 2))
    config = UpdateConfig(
        config_updates=UpdateMap((("k", "v"),)),
        table_metadata_updates=UpdateMap((("t", "v"),)),
        schema_metadata_updates=UpdateMap((("s", "v"),)),
        field_metadata_updates={0: UpdateMap((("f", "v"),))},
    )
    commit(store, transaction(config, 3))
    append(root, 4, [4])
    from_pylance = table(root)
    from_pylance.validate()
    assert from_pylance.config()["k"] == "v"
    assert from_pylance.schema.metadata == {b"s": b"v"}
    assert from_pylance.schema.field("id").metadata == {b"f": b"v"}
    assert [fragment.fragment_id for fragment in from_pylance.get_fragments()] == [0, 6]
    # Everything is still there after pylance made the next version.
    from_pylance.insert(pa.table({"id": pa.array([5], pa.int64())}))
    manifest = latest(store).manifest
    assert manifest.config == {"k": "v"}
    assert manifest.table_metadata == {"t": "v"}
    assert manifest.base_paths == (BasePath(1, "other", False, str(tmp_path / "other")),)


def append_many(root, first, times):
    """Run in a process of its own."""
    for number in range(times):
        append(root, 1, [first + number], retries=100, timeout_s=120)


def test_concurrent_processes_append_with_dense_row_ids(root):
    create(root, [0])
    processes, times = 3, 8
    context = multiprocessing.get_context("spawn")
    running = [
        context.Process(target=append_many, args=(root, 1 + index * times, times))
        for index in range(processes)
    ]
    for process in running:
        process.start()
    # pylance is one of the crowd.
    for number in range(5):
        table(root).insert(pa.table({"id": pa.array([1000 + number], pa.int64())}))
    for process in running:
        process.join()
        assert process.exitcode == 0
    total = 1 + processes * times + 5
    assert table(root).version == total
    table(root).validate()
    found = table(root).to_table(columns=["id", "_rowid"])
    assert np.array_equal(np.sort(found["_rowid"].to_numpy()), np.arange(total))
    assert sorted(found["id"].to_pylist()) == [*range(1 + processes * times), *range(1000, 1005)]
