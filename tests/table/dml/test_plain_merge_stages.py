"""The stages of plain merges come to what a join comes to, in however many buckets rows meet."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from local_changes import merge_rows
from row_changes import insert, matched_delete, matched_update
from table_access import read_ours, write_table

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.row_address import row_addresses
from pyspark_lance.table.dml import plain_merge
from pyspark_lance.table.dml.change_stages import Parts
from pyspark_lance.table.dml.plain_merge import broadcast_parts

COLUMNS = ["id", "k", "v"]
SHAPES = {
    "upsert": [matched_update(COLUMNS), insert(COLUMNS)],
    "some columns": [matched_update(["v"])],
    "insert": [insert(["id", "v"])],
    "delete": [matched_delete()],
}


def make(path):
    ids = np.arange(300)
    table = pa.table(
        {
            "id": pa.array(ids // 2 * 2, pa.int32(), mask=ids % 50 == 0),
            "k": pa.array([f"k{i % 7}" for i in ids], mask=ids % 70 == 0),
            "v": ids * 10,
        }
    )
    write_table(path, table, max_rows_per_file=100)


def source():
    ids = [*range(40), 210, 212, 1000, 1001, None, 50]
    keys = [*(f"k{i % 7}" for i in range(44)), "k1", None]
    table = pa.table({"id": pa.array(ids, pa.int64()), "k": keys, "v": [-i for i in range(46)]})
    return pa.Table.from_batches(table.to_batches(max_chunksize=9))


def merged(path, clauses, buckets):
    make(path)
    result = merge_rows(path, source(), ["id", "k"], clauses, buckets=buckets)
    rows = read_ours(path).select([*COLUMNS, "_row_created_at_version"]).to_pylist()
    return result, sorted(map(repr, rows))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("buckets", [0, 1, 5])
def test_bucketed_merge_equals_join(tmp_path, shape, buckets):
    joined = merged(str(tmp_path / "joined"), SHAPES[shape], None)
    assert joined[0].version == 2
    assert merged(str(tmp_path / "plain"), SHAPES[shape], buckets) == joined


@pytest.mark.parametrize("buckets", [None, 0, 5])
def test_duplicate_source_matches_are_refused(tmp_path, buckets):
    path = str(tmp_path / "t")
    make(path)
    twice = pa.table({"id": [12, 12], "k": ["k5", "k5"], "v": [1, 2]})
    with pytest.raises(InvalidInputError, match="more than one source row"):
        merge_rows(path, twice, ["id", "k"], SHAPES["upsert"], buckets=buckets)


def test_few_rows_are_not_partitioned_by_fragment():
    fragments = [Fragment(id=number, files=(), physical_rows=10) for number in range(20)]
    addresses = row_addresses(7, np.arange(3)), row_addresses(2**32 - 1, np.arange(3))
    every = np.concatenate([row_addresses(0, np.arange(2)), *addresses])
    few = broadcast_parts(fragments, (b"x" * 1000,))
    assert few.of_rows(every).tolist() == [0] * 8
    many = broadcast_parts(fragments, (b"x" * 1_000_000,))
    assert many == Parts.of(fragments)
    assert many.of_rows(addresses[0]).tolist() == [7] * 3


def test_large_targets_are_not_broadcast(monkeypatch):
    monkeypatch.setattr(plain_merge, "_SMALL_ROW_COUNT", 1)
    target, too_many = plain_merge.TARGET, plain_merge.TOO_MANY
    assert plain_merge.broadcast_target([(target, b"x" * 64)]) == (b"x" * 64,)
    assert plain_merge.broadcast_target([(target, b"x" * 65)]) is None
    assert plain_merge.broadcast_target([(too_many, b"")]) is None
