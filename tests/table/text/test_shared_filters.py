"""Rows that match a condition: read once for all searches of a version, and for no other."""

from __future__ import annotations

import shutil

import lance
import numpy as np
import pyarrow as pa
import pytest
from text_tables import ours

from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.text.queries import Match

CONDITION = "id % 10 = 3"


@pytest.fixture
def scans(monkeypatch):
    """One entry for each scan of a condition."""
    found = []
    run = ScanTask.run

    def counted(task, *args, **given):
        if task.predicate is not None and not task.fields:  # reads addresses alone
            found.append(task.predicate)
        return run(task, *args, **given)

    monkeypatch.setattr(ScanTask, "run", counted)
    return found


@pytest.fixture(params=[False, True], ids=["addresses", "row ids"])
def path(tmp_path, request):
    path = str(tmp_path / "t")
    write(path, np.arange(300), stable=request.param)
    return path


def write(path, numbers, *, stable=False):
    table = pa.table({"id": numbers, "s": ["cat dog" for _ in numbers]})
    dataset = lance.write_dataset(table, path, max_rows_per_file=100, enable_stable_row_ids=stable)
    dataset.create_scalar_index("s", "INVERTED")


def found(path, condition=CONDITION, words="cat"):
    _, rows = ours(path, Match(words, "s"), k=1000, condition=condition)
    return sorted(rows["id"].to_pylist()) if rows else []


def test_filter_is_scanned_once_for_version(path, scans):
    for words in ("cat", "dog", "cat dog"):
        assert found(path, words=words) == list(range(3, 300, 10))
    assert len(scans) == 1


def test_other_filters_are_scanned(path, scans):
    assert found(path) == list(range(3, 300, 10))
    assert found(path, "id % 10 = 4") == list(range(4, 300, 10))
    assert found(path, "id < 5") == [0, 1, 2, 3, 4]
    assert len(scans) == 3


def test_filter_of_changed_table_is_scanned_again(path, scans):
    assert len(found(path)) == 30
    lance.dataset(path).update({"id": "1000"}, where="id >= 290")
    assert found(path) == list(range(3, 290, 10))
    lance.dataset(path).delete("id < 100")
    assert found(path) == list(range(103, 290, 10))
    assert len(scans) == 3


def test_filter_of_recreated_table_is_scanned_again(path, scans):
    assert len(found(path)) == 30
    shutil.rmtree(path)
    write(path, np.arange(300)[::-1] * 2)
    assert found(path) == []
    assert found(path, "id % 10 = 4") == list(range(4, 600, 10))
    assert len(scans) == 3
