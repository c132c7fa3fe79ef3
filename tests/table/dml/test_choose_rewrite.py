"""Rows or columns: the choice follows what each costs, and what is possible."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest
from table_access import write_table

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.table.dml.row_change import (
    RewriteMode,
    choose_rewrite,
    rewrite_cost,
    rewrite_mode,
)
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

AUTO, ROWS, COLUMNS = RewriteMode.AUTO, RewriteMode.ROWS, RewriteMode.COLUMNS
COUNT = 20_000


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Two fragments of 10,000 rows of 4, some 30, and 256 bytes."""
    where = str(tmp_path_factory.mktemp("choose") / "t.lance")
    rng = np.random.default_rng(1)
    vectors = rng.random(COUNT * 64, dtype=np.float32)
    data = pa.table(
        {
            "k": rng.integers(0, 1 << 30, COUNT).astype(np.int32),
            "text": [f"{i} {i * 7919 % 1_000_003} some words more" for i in range(COUNT)],
            "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors), 64),
        }
    )
    write_table(where, data, max_rows_per_file=COUNT // 2)
    return where


@pytest.mark.parametrize(
    ("names", "changed", "expected"),
    [
        (["k"], {0: 1}, ROWS),
        (["k"], {0: 5000}, ROWS),
        (["k"], {0: 10_000, 1: 10_000}, COLUMNS),
        (["v"], {0: 100, 1: 100}, ROWS),
        (["v"], {0: 1000}, ROWS),
        (["text"], {0: 10_000, 1: 9000}, COLUMNS),
        (["k", "text", "v"], {0: 5000}, ROWS),
    ],
)
def test_narrow_columns_are_rewritten_as_columns(path, names, changed, expected):
    snapshot = Snapshot.open(Table(path))
    choice = choose_rewrite(snapshot, names, AUTO, changed)
    assert choice.mode is expected
    assert f"moving {sum(changed.values()):,} of 20,000 rows" in choice.reason
    for asked in (ROWS, COLUMNS):
        given = choose_rewrite(snapshot, names, asked, changed)
        assert str(given) == f"{asked}, because {asked} were asked for"


def test_rewrite_costs_grow_with_touched_data(path):
    snapshot = Snapshot.open(Table(path))
    few, many = (rewrite_cost(snapshot, ["k"], {0: count}) for count in (10, 1000))
    assert few.rows_s < many.rows_s
    # Rows here and there make many stretches of last-updated versions; all rows make one.
    half, whole = (rewrite_cost(snapshot, ["k"], {0: count}) for count in (5000, 10_000))
    assert few.columns_s < many.columns_s < half.columns_s
    assert whole.columns_s <= few.columns_s
    both = rewrite_cost(snapshot, ["k"], {0: 10, 1: 10})
    assert both.columns_s == pytest.approx(2 * few.columns_s, rel=0.1)
    assert rewrite_cost(snapshot, ["v"], {0: 10}).columns_s > 2 * few.columns_s
    nothing = rewrite_cost(snapshot, ["k"], {0: 0})
    assert (nothing.rows_s, nothing.columns_s) == (0, 0)


def test_indexed_column_favors_moving_rows(tmp_path):
    where = str(tmp_path / "t.lance")
    vectors = np.random.default_rng(2).random(COUNT * 64, dtype=np.float32)
    wide = pa.FixedSizeListArray.from_arrays(pa.array(vectors), 64)
    data = pa.table({"a": range(COUNT), "b": range(COUNT), "v": wide})
    write_table(where, data, max_rows_per_file=COUNT // 2)
    assert choose_rewrite(Snapshot.open(Table(where)), ["a"], AUTO, {0: 10_000}).mode is COLUMNS
    lance.dataset(where).create_scalar_index("a", "BTREE")
    snapshot = Snapshot.open(Table(where))
    choice = choose_rewrite(snapshot, ["a"], AUTO, {0: 10_000})
    assert choice.mode is ROWS
    assert choice.reason == "an index covers column 'a', and stays usable when rows move"
    assert choose_rewrite(snapshot, ["b"], AUTO, {0: 10_000}).mode is COLUMNS
    assert choose_rewrite(snapshot, ["a"], COLUMNS, {0: 10_000}).mode is COLUMNS


def labelled_vectors(path):
    """2,000 embeddings of 16 KB as lists, with labels of a few bytes."""
    values = pa.array(np.random.default_rng(3).random(2000 * 4096, np.float32))
    vectors = pa.ListArray.from_arrays(np.arange(2001, dtype=np.int32) * 4096, values)
    labels = [f"label {i}" for i in range(2000)]
    write_table(path, pa.table({"id": range(2000), "label": labels, "vector": vectors}))


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["id"], COLUMNS), (["label"], COLUMNS), (["id", "label"], COLUMNS), (["vector"], ROWS)],
)
def test_labels_beside_embeddings_are_rewritten_as_columns(tmp_path, names, expected):
    where = str(tmp_path / "t.lance")
    labelled_vectors(where)
    snapshot = Snapshot.open(Table(where))
    assert choose_rewrite(snapshot, names, AUTO, {0: 1000}).mode is expected


def test_choice_without_data_files_is_made_by_types(tmp_path):
    where = tmp_path / "t.lance"
    labelled_vectors(str(where))
    snapshot = Snapshot.open(Table(str(where)))
    for file in where.glob("data/*.lance"):
        file.unlink()
    assert choose_rewrite(snapshot, ["label"], AUTO, {0: 1000}).mode is ROWS
    assert choose_rewrite(snapshot, ["label"], AUTO, {7: 1000}).mode is ROWS
    assert choose_rewrite(snapshot, ["label"], AUTO, {}).mode is ROWS


def test_unsupported_column_rewrite_moves_rows_or_is_refused(tmp_path):
    where = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"a": range(9000)}), where, data_storage_version="legacy")
    snapshot = Snapshot.open(Table(where))
    choice = choose_rewrite(snapshot, ["a"], AUTO, {0: 10_000})
    assert choice.mode is ROWS
    assert "files of version 0.1" in choice.reason
    with pytest.raises(UnsupportedFeatureError, match=r"0\.1"):
        choose_rewrite(snapshot, ["a"], COLUMNS, {0: 1})


def test_changed_rows_are_counted_only_if_useful(path, monkeypatch):
    snapshot = Snapshot.open(Table(path))
    calls = []

    def count():
        calls.append(1)
        return {0: 10_000, 1: 10_000}

    small = choose_rewrite(snapshot, ["k"], AUTO, count)
    assert (small.mode, calls) == (ROWS, [])
    assert "so small" in small.reason
    monkeypatch.setattr("pyspark_lance.table.dml.row_change.WORTH_COUNTING_S", 0.0)
    assert choose_rewrite(snapshot, ["k"], AUTO, count).mode is COLUMNS
    assert choose_rewrite(snapshot, [], AUTO, count).reason == "no column gets another value"
    assert len(calls) == 1


def test_merges_with_inserts_or_deletes_move_rows(path):
    snapshot = Snapshot.open(Table(path))
    assert choose_rewrite(snapshot, None, AUTO, {}).mode is ROWS
    assert choose_rewrite(snapshot, None, ROWS, {}).reason == "rows were asked for"
    with pytest.raises(InvalidInputError, match="does not rewrite columns"):
        choose_rewrite(snapshot, None, COLUMNS, {})


def test_rewrite_modes_are_parsed():
    assert [rewrite_mode(text) for text in ("auto", " Rows", "COLUMNS")] == [AUTO, ROWS, COLUMNS]
    with pytest.raises(InvalidInputError, match="auto, rows, columns"):
        rewrite_mode("both")
