"""replaceWhere: rows that match give way to new ones, in one version, against pylance."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from table_access import assert_same_rows, read_ours, read_pylance, write_table

from pyspark_lance.errors import InvalidInputError, SchemaMismatchError
from pyspark_lance.format.operation import Update
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import (
    WriteSettings,
    commit_write,
    plan_write,
    write_rows,
)

pytestmark = pytest.mark.interop


@pytest.fixture
def path(tmp_path):
    where = str(tmp_path / "t.lance")
    days = pa.table({"day": [1, 1, 2, 2, 3, None], "v": ["a", "b", "c", "d", "e", "n"]})
    write_table(where, days, max_rows_per_file=2)
    return where


def replaced(path, days, values, condition, **settings):
    table = pa.table({"day": pa.array(days, pa.int64()), "v": pa.array(values, pa.string())})
    return write_table(path, table, overwrite=True, replace_where=condition, **settings)


def rows(path):
    found = read_ours(path, system_columns=()).to_pylist()
    return sorted(((row["day"], row["v"]) for row in found), key=str)


def check_both(path):
    lance.dataset(path).validate()
    assert_same_rows(read_ours(path), read_pylance(path))


def test_replace_where_replaces_matching_rows_in_one_version(path):
    result = replaced(path, [2], ["new"], "day = 2")
    assert result.version == 2
    assert isinstance(result.transaction.operation, Update)
    assert rows(path) == [(1, "a"), (1, "b"), (2, "new"), (3, "e"), (None, "n")]
    # The fragment of day 2 is gone as a whole, the new rows have new ids.
    assert [one.id for one in result.manifest.fragments] == [0, 2, 3]
    new = read_ours(path).filter(pa.compute.field("v") == "new").to_pylist()[0]
    assert (new["_rowid"], new["_row_created_at_version"]) == (6, 2)
    result = replaced(path, [3], ["x"], "day >= 3")
    assert rows(path) == [(1, "a"), (1, "b"), (2, "new"), (3, "x"), (None, "n")]
    assert [one.num_deleted_rows for one in result.manifest.fragments] == [0, 1, 0, 0]
    check_both(path)
    lance.dataset(path).optimize.compact_files()
    replaced(path, [1], ["z"], "day = 1")
    assert rows(path) == [(1, "z"), (2, "new"), (3, "x"), (None, "n")]
    check_both(path)


def test_unmatched_rows_are_refused_without_leftovers(path):
    files = list(Snapshot.open(Table(path)).store.list("data"))
    for days in ([2, 3], [None]):
        with pytest.raises(SchemaMismatchError, match="do not match replaceWhere: day = 2"):
            replaced(path, days, ["x"] * len(days), "day = 2")
    # As Spark hands over the condition of an overwrite.
    text = '{"op": "=", "args": [{"column": ["day"]}, {"type": "bigint", "literal": 2}]}'
    with pytest.raises(SchemaMismatchError, match="condition of the overwrite, on day\n"):
        replaced(path, [3], ["x"], text)
    assert Snapshot.open(Table(path)).version == 1
    assert list(Snapshot.open(Table(path)).store.list("data")) == files


def test_empty_replacement_deletes_or_makes_no_version(path):
    assert replaced(path, [], [], "day = 7") is None
    assert replaced(path, [], [], "day < 3").version == 2
    assert rows(path) == [(3, "e"), (None, "n")]
    assert replaced(path, [7], ["x"], "day = 7").version == 3
    assert replaced(path, [], [], "true").version == 4
    assert rows(path) == []
    check_both(path)


def test_replace_where_needs_columns_of_data(path):
    with pytest.raises(InvalidInputError, match="only name columns that the data have"):
        replaced(path, [2], ["x"], "_rowid = 2")
    with pytest.raises(InvalidInputError, match="no column 'nope'"):
        replaced(path, [2], ["x"], "nope = 2")
    only_day = pa.table({"day": [2]})
    write_table(path, only_day, overwrite=True, replace_where="day = 2")
    assert (2, None) in rows(path)
    with pytest.raises(InvalidInputError):
        write_table(path, only_day, overwrite=True, replace_where="v = 'c'")
    with pytest.raises(InvalidInputError, match="overwrite"):
        WriteSettings(replace_where="day = 2")
    with pytest.raises(InvalidInputError, match="mergeSchema"):
        WriteSettings(overwrite=True, merge_schema=True, replace_where="day = 2")


def test_replace_where_on_new_table_checks_rows(tmp_path):
    path = str(tmp_path / "new.lance")
    with pytest.raises(SchemaMismatchError):
        replaced(path, [1], ["a"], "day = 2")
    assert replaced(path, [2], ["a"], "day = 2").version == 1
    assert rows(path) == [(2, "a")]


def test_concurrent_matching_changes_are_replaced_too(path):
    table = pa.table({"day": pa.array([1], pa.int64()), "v": ["ours"]})
    settings = WriteSettings(overwrite=True, replace_where="day = 1")
    plan = plan_write(Table(path), table.schema, settings, existing=open_existing(Table(path)))
    files = write_rows(plan, table.to_batches())
    lance.dataset(path).update({"v": "'theirs'"}, where="v = 'a'")
    lance.dataset(path).add_columns({"w": "day + 1"})
    write_table(path, pa.table({"day": [1, 4], "v": ["appended", "k"]}))
    assert commit_write(plan, files).version == 5
    assert rows(path) == [(1, "ours"), (2, "c"), (2, "d"), (3, "e"), (4, "k"), (None, "n")]
    check_both(path)


def test_indices_answer_correctly_after_replacement(path):
    dataset = lance.dataset(path)
    dataset.create_scalar_index("day", "BTREE")
    dataset.create_scalar_index("v", "BITMAP")
    replaced(path, [2, 2], ["c", "new"], "day = 2")
    dataset = lance.dataset(path)
    for condition in ("day = 2", "v = 'c'", "v = 'd'", "day >= 1"):
        answers = [
            dataset.scanner(filter=condition, use_scalar_index=use).to_table().sort_by("v")
            for use in (True, False)
        ]
        assert answers[0].equals(answers[1]), condition
