"""Writes whose tasks sort their rows, in memory or by temporary files."""

from __future__ import annotations

import pickle
import tempfile

import numpy as np
import pyarrow as pa
import pytest
from random_tables import random_table
from table_access import read_ours, write_table

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.spark.options.parse_options import parse_sort_by
from pyspark_lance.table import sort
from pyspark_lance.table.index.btree import comparable, has_order
from pyspark_lance.table.sort import RowOrder


def by_hand(values, descending):
    """Nulls first, NaN last; turned around if the greatest value comes first."""
    kept = [(v is not None, v is not None and v != v, v) for v in values.to_pylist()]
    known = sorted({one[2] for one in kept if one[0] and not one[1]})
    places = [(a, b, known.index(v) if a and not b else 0) for a, b, v in kept]
    return [tuple(-int(part) for part in place) if descending else place for place in places]


@pytest.mark.parametrize("in_memory", [True, False])
def test_sort_is_stable(tmp_path, monkeypatch, in_memory):
    if not in_memory:
        monkeypatch.setattr(sort.ExternalSorter.__init__, "__defaults__", (90, 1 << 30))
    rng = np.random.default_rng(3)
    rows = pa.table(
        {
            "a": pa.array(rng.integers(0, 5, 700), mask=rng.random(700) < 0.2),
            "b": np.where(rng.random(700) < 0.2, np.nan, rng.integers(0, 4, 700) - 0.5),
            "place": [{"name": None if i % 5 == 0 else f"n{i * 7 % 9}"} for i in range(700)],
            "number": range(700),
        }
    )
    for sort_by in ((("a", False),), (("b", True), ("a", False)), (("place.name", True),)):
        path = str(tmp_path / sort_by[0][0])
        pieces = pa.Table.from_batches(rows.to_batches(max_chunksize=60))
        write_table(path, pieces, sort_by=sort_by, max_rows_per_file=200)
        found = read_ours(path).sort_by("_rowaddr")
        flat = rows.append_column("place.name", pa.compute.struct_field(rows["place"], "name"))
        keys = [by_hand(flat[name], descending) for name, descending in sort_by]
        expected = sorted(range(700), key=lambda i: [key[i] for key in keys])
        assert found["number"].to_pylist() == expected
        assert found["place"].to_pylist() == rows["place"].take(expected).to_pylist()


def test_sort_in_memory_needs_no_temporary_folder(tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    rows = pa.table({"a": [3, 1, 2] * 100})
    path = str(tmp_path / "t")
    write_table(path, rows, sort_by=(("a", False),))
    assert read_ours(path)["a"].to_pylist() == sorted([3, 1, 2] * 100)
    monkeypatch.setattr(sort.ExternalSorter.__init__, "__defaults__", (90, 1 << 30))
    batches = pa.Table.from_batches(rows.to_batches(max_chunksize=60))
    with pytest.raises(FileNotFoundError, match="temporary"):
        write_table(path, batches, sort_by=(("a", False),))
    temporary.mkdir()
    write_table(path, batches, sort_by=(("a", False),))
    assert read_ours(path).num_rows == 600
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("seed", range(6))
def test_values_of_any_type_sort_by_order(seed):
    table = random_table(seed, 300, "2.2")
    for name in table.column_names:
        values = table[name].combine_chunks()
        if not has_order(values.type) or pa.types.is_floating(values.type):
            continue
        order = np.lexsort(comparable(values)[::-1])
        shown = values.take(pa.array(order)).to_pylist()
        present = [one for one in shown if one is not None]
        assert shown[len(shown) - len(present) :] == present
        assert present == sorted(present), name


def test_unsortable_columns_are_refused_before_writing(tmp_path):
    rows = pa.table({"id": [1], "tags": [["x"]]})
    for sort_by, kind, message in (
        ((("nothing", False),), InvalidInputError, "no column 'nothing'"),
        ((("tags", False),), UnsupportedFeatureError, "'tags' of type array<"),
        ((("id", False), ("ID", True)), InvalidInputError, "named twice"),
    ):
        with pytest.raises(kind, match=message):
            write_table(str(tmp_path / "t"), rows, sort_by=sort_by)
    assert not (tmp_path / "t").exists()


def test_sort_by_parses_sql_columns():
    assert parse_sort_by("a, b DESC,c asc") == (("a", False), ("b", True), ("c", False))
    assert parse_sort_by("`x, y` desc, `desc`") == (("x, y", True), ("desc", False))
    assert parse_sort_by("`a nulls last`") == (("a nulls last", False),)
    assert parse_sort_by(" ") == ()


@pytest.mark.parametrize("text", ["a NULLS LAST", "b, a desc  nulls first "])
def test_null_ordering_is_refused(text):
    with pytest.raises(InvalidInputError, match=r"(?i)sortBy takes no 'nulls (.|\n)*DESC last"):
        parse_sort_by(text)


def test_row_order_pickles(tmp_path):
    write_table(str(tmp_path / "t"), pa.table({"id": [1]}), sort_by=(("id", True),))
    order = RowOrder.of(read_schema(str(tmp_path / "t")), ["id"], descending=[True])
    assert pickle.loads(pickle.dumps(order)) == order


def read_schema(path):
    from pyspark_lance.table.version.snapshot import Snapshot
    from pyspark_lance.table.version.table import Table

    return Snapshot.open(Table(path)).schema
