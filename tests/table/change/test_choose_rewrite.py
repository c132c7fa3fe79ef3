"""Rows or columns: the choice follows what each costs, and what is possible."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest
from table_access import write_table

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.table.change.choose_rewrite import (
    RewriteMode,
    can_rewrite_columns,
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
def test_narrow_columns_of_many_rows_are_rewritten_as_columns(path, names, changed, expected):
    snapshot = Snapshot.open(Table(path))
    assert choose_rewrite(snapshot, names, changed) is expected
    for asked in (ROWS, COLUMNS):
        assert choose_rewrite(snapshot, names, changed, asked=asked) is asked


def test_costs_grow_with_what_each_way_touches(path):
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


def test_an_index_on_the_column_speaks_for_moving_rows(tmp_path):
    where = str(tmp_path / "t.lance")
    vectors = np.random.default_rng(2).random(COUNT * 64, dtype=np.float32)
    wide = pa.FixedSizeListArray.from_arrays(pa.array(vectors), 64)
    data = pa.table({"a": range(COUNT), "b": range(COUNT), "v": wide})
    write_table(where, data, max_rows_per_file=COUNT // 2)
    assert can_rewrite_columns(Snapshot.open(Table(where)), ["a"])
    assert choose_rewrite(Snapshot.open(Table(where)), ["a"], {0: 10_000}) is COLUMNS
    lance.dataset(where).create_scalar_index("a", "BTREE")
    snapshot = Snapshot.open(Table(where))
    assert not can_rewrite_columns(snapshot, ["a"])
    assert can_rewrite_columns(snapshot, ["b"])
    assert choose_rewrite(snapshot, ["a"], {0: 10_000}) is ROWS
    assert choose_rewrite(snapshot, ["b"], {0: 10_000}) is COLUMNS
    assert choose_rewrite(snapshot, ["a"], {0: 10_000}, asked=COLUMNS) is COLUMNS


def test_what_cannot_be_rewritten_is_moved_or_refused(tmp_path):
    where = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"a": range(9000)}), where, data_storage_version="legacy")
    snapshot = Snapshot.open(Table(where))
    assert choose_rewrite(snapshot, ["a"], {0: 10_000}) is ROWS
    with pytest.raises(UnsupportedFeatureError, match=r"0\.1"):
        choose_rewrite(snapshot, ["a"], {0: 1}, asked=COLUMNS)


def test_modes_are_named():
    assert [rewrite_mode(text) for text in ("auto", " Rows", "COLUMNS")] == [AUTO, ROWS, COLUMNS]
    with pytest.raises(InvalidInputError, match="auto, rows, columns"):
        rewrite_mode("both")
