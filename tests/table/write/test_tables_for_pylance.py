"""What we write, pylance reads, filters, takes, updates, compacts and validates."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest
from random_seeds import seeds
from random_tables import random_table
from table_access import assert_same_rows, read_ours, read_pylance, write_table

pytestmark = pytest.mark.interop


def assert_same_values(found: pa.Table, expected: pa.Table) -> None:
    for name in expected.column_names:
        mine = found[name].combine_chunks()
        other = expected[name].combine_chunks().cast(mine.type)
        if not mine.equals(other):
            assert repr(mine.to_pylist()) == repr(other.to_pylist()), name


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("seed", seeds(30, in_ci=5, first=100))
def test_pylance_uses_random_tables(tmp_path, seed, version):
    path = str(tmp_path / "t")
    rng = np.random.default_rng(seed)
    rows = int(rng.choice([1, 60, 1025, 5000]))
    table = random_table(seed, rows, version)
    half = rows // 2
    settings = {"file_version": version, "max_rows_per_file": int(rng.choice([17, 999, 10_000]))}
    if half:
        write_table(path, table.slice(0, half), **settings)
    write_table(path, table.slice(half), **settings)

    dataset = lance.dataset(path)
    dataset.validate()
    assert dataset.data_storage_version == version
    assert_same_values(dataset.to_table(), table)
    assert dataset.count_rows("id >= 10") == max(0, rows - 10)
    some = sorted(rng.choice(rows, min(rows, 20), replace=False).tolist())
    assert_same_values(dataset.take(some), table.take(some))

    dataset.update({"id": "id + 1000000"}, where="id % 3 = 0")
    dataset.delete("id % 5 = 1")
    assert_same_rows(read_ours(path), read_pylance(path))
    dataset = lance.dataset(path)
    dataset.optimize.compact_files(target_rows_per_fragment=100_000)
    dataset = lance.dataset(path)
    dataset.validate()
    assert_same_rows(read_ours(path), read_pylance(path))
    write_table(path, table.slice(0, 7))
    lance.dataset(path).validate()
    assert_same_rows(read_ours(path), read_pylance(path))


def test_columns_may_be_reordered_or_missing(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"a": [1], "b": ["x"], "c": [[1, 2]]}))
    write_table(path, pa.table({"c": [[3]], "a": [2]}))
    expected = [{"a": 1, "b": "x", "c": [1, 2]}, {"a": 2, "b": None, "c": [3]}]
    assert lance.dataset(path).to_table().to_pylist() == expected
    assert read_ours(path, system_columns=()).to_pylist() == expected


def test_indices_config_and_metadata_survive_our_commits(tmp_path):
    path = str(tmp_path / "t")
    data = pa.table({"id": pa.array(range(1000)), "k": pa.array([i % 9 for i in range(1000)])})
    lance.write_dataset(data, path, enable_stable_row_ids=True, data_storage_version="2.1")
    dataset = lance.dataset(path)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("k", "BITMAP")
    dataset.update_config({"team": "storage"})
    before = {index["name"]: index["uuid"] for index in lance.dataset(path).list_indices()}
    write_table(path, data.slice(0, 100))
    dataset = lance.dataset(path)
    assert {index["name"]: index["uuid"] for index in dataset.list_indices()} == before
    assert dataset.config()["team"] == "storage"
    assert dataset.count_rows("id = 50") == 2
    assert (
        dataset.count_rows("k = 4")
        == dataset.scanner(filter="k = 4", use_scalar_index=False).to_table().num_rows
    )
    write_table(path, data.slice(0, 10), overwrite=True)
    dataset = lance.dataset(path)
    assert dataset.list_indices() == []
    assert dataset.config()["team"] == "storage"
