"""UPDATE of large tables: rewrites columns where that costs less than to move rows."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from table_files import files_of, used_files

from .conftest import register_meddler

pytestmark = pytest.mark.spark

ROWS = 102_000
# Stored bytes of a row: to move all of them takes more than the two seconds from which on rows are
# counted.
WIDTH = 3_200


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Fragments of 218 and 109 MB, with labels of a few bytes."""
    path = str(tmp_path_factory.mktemp("wide") / "source")
    values = np.random.default_rng(1).integers(0, 256, ROWS * WIDTH, np.uint8).view(np.float32)
    offsets = np.arange(ROWS + 1, dtype=np.int32) * (WIDTH // 4)
    data = pa.table(
        {
            "id": range(ROWS),
            "label": [f"label {i % 7}" for i in range(ROWS)],
            "vector": pa.ListArray.from_arrays(offsets, pa.array(values)),
        }
    )
    lance.write_dataset(data, path, max_rows_per_file=ROWS // 3 * 2, enable_stable_row_ids=True)
    return path


@pytest.fixture
def name(source, tmp_path):
    """A clone, so that each test changes a table of its own and writes no wide rows before."""
    path = str(tmp_path / "wide")
    lance.dataset(source).shallow_clone(path, 1)
    return f"lance.`{path}`"


def path_of(name):
    return name.removeprefix("lance.`").removesuffix("`")


def written_bytes(name):
    """Return the bytes of the table's own data files; those of the clone's source are elsewhere."""
    return sum(file.stat().st_size for file in Path(path_of(name), "data").glob("*.lance"))


def rows(session, name, condition):
    columns = "id, label, _rowaddr, _row_created_at_version, _row_last_updated_at_version"
    found = session.sql(f"SELECT {columns} FROM {name} WHERE {condition} ORDER BY id").collect()
    return [tuple(row) for row in found]


def test_update_of_all_rows_writes_one_column(plugin, name):
    before = rows(plugin, name, "id % 1000 = 1")
    plan = plugin.sql(f"EXPLAIN UPDATE {name} SET label = concat(label, '!')").first()[0]
    assert "writes: [label], by columns" in plan
    plugin.sql(f"UPDATE {name} SET label = concat(label, '!')")
    after = rows(plugin, name, "id % 1000 = 1")
    assert after == [(i, f"{label}!", address, 1, 2) for i, label, address, _, _ in before]
    assert written_bytes(name) < 1_000_000
    dataset = lance.dataset(path_of(name))
    assert dataset.count_rows("label like '%!'") == ROWS
    assert len(dataset.get_fragments()) == 2


def test_each_fragment_is_read_by_one_task(plugin, name):
    """Also where a scan of the columns would split it."""
    plugin.sql(f"UPDATE {name} SET label = concat(id, label, vector[3])")
    assert len(rows(plugin, name, "label NOT LIKE 'label%'")) == ROWS
    assert written_bytes(name) < 3_000_000
    assert len(lance.dataset(path_of(name)).get_fragments()) == 2


@pytest.mark.parametrize(
    ("condition", "updated", "by_columns"),
    [
        ("id < 60000", 60_000, True),
        ("id % 10 > 0 AND id < 68000", 61_200, True),
        ("length(label) + id % 3 > 7", 68_000, True),
        ("id IN (5, 7000)", 2, False),
        ("id = -1", 0, False),
    ],
)
def test_update_counts_rows_before_it_chooses(plugin, name, condition, updated, by_columns):
    plan = plugin.sql(f"EXPLAIN UPDATE {name} SET label = 'new' WHERE {condition}").first()[0]
    assert "by rows or columns" in plan
    matched = rows(plugin, name, condition)
    assert len(matched) == updated
    plugin.sql(f"UPDATE {name} SET label = 'new' WHERE {condition}")
    found = rows(plugin, name, "label = 'new'")
    assert [row[0] for row in found] == [row[0] for row in matched]
    assert all(row[3:] == (1, 2) for row in found)
    stayed = [row[2] for row in found] == [row[2] for row in matched]
    assert stayed == (by_columns or not updated)
    assert written_bytes(name) < 1_000_000
    assert lance.dataset(path_of(name)).count_rows() == ROWS


def test_update_moves_rows_where_columns_cost_more(plugin, name):
    for assigned, condition in (
        ("vector = array(1f)", "id < 90000"),
        ("label = 'x'", "id IN (SELECT id + 1 FROM range(90000))"),
        ("label = 'x'", "id < (SELECT max(id) FROM range(90000))"),
    ):
        statement = f"UPDATE {name} SET {assigned} WHERE {condition}"
        plan = plugin.sql(f"EXPLAIN {statement}").first()[0]
        assert "columns" not in plan.split("\n")[1], statement
    plugin.sql(f"UPDATE {name} SET label = 'x' WHERE id IN (SELECT id + 1 FROM range(40))")
    assert lance.dataset(path_of(name)).count_rows("label = 'x'") == 40


def test_update_by_columns_runs_again_after_conflict(plugin, name, tmp_path):
    path = path_of(name)
    register_meddler(plugin, path, "label", tmp_path / "meddled")
    plugin.sql(f"UPDATE {name} SET label = meddled(label) WHERE id < 60000")
    found = rows(plugin, name, "id IN (4, 5, 6, 60000)")
    assert [row[1] for row in found] == ["label 4!", "theirs!", "label 6!", "label 3"]
    assert [row[4] for row in found] == [3, 3, 3, 1]
    dataset = lance.dataset(path)
    assert (dataset.version, dataset.count_rows("label like '%!'")) == (3, 60_000)
    # The file of the first attempt is gone.
    assert {file for file in files_of(path) if file.startswith("data/")} <= used_files(path)
