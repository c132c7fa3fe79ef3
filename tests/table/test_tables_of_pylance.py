"""What pylance writes, changes and compacts, we read: values, ids, addresses and versions."""

from __future__ import annotations

import dataclasses

import lance
import pyarrow as pa
import pytest
from random_seeds import seeds
from table_access import assert_same_rows, random_history_or_skip, read_ours, read_pylance

from pyspark_lance.metafile.manifest_file import encode_manifest, latest_version, read_manifest
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.version.snapshot import VersionSpec

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("seed", seeds(30, in_ci=2))
def test_versions_of_random_history_read_like_pylance(tmp_path, seed, version):
    path = str(tmp_path / "t")
    random_history_or_skip(path, seed, version)
    for number in [v["version"] for v in lance.dataset(path).versions()]:
        assert_same_rows(read_ours(path, VersionSpec(version=number)), read_pylance(path, number))


def test_missing_row_counts_are_read_from_data_files(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [1, 2, 3]}), path, data_storage_version="2.0")
    store = open_store(path)
    location = latest_version(store)
    file = read_manifest(store, location)
    (fragment,) = file.manifest.fragments
    silent = dataclasses.replace(
        file.manifest, fragments=(dataclasses.replace(fragment, physical_rows=0),)
    )
    store.put(location.path, encode_manifest(silent, (), file.transaction()))
    assert read_ours(path, system_columns=("_rowid",))["id"].to_pylist() == [1, 2, 3]
    assert lance.dataset(path).to_table()["id"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("deleted", [4999, 5000, 20_000])
def test_deletion_files_of_any_encoding_are_read(tmp_path, deleted):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": range(30_000)}), path, enable_stable_row_ids=True)
    lance.dataset(path).delete(f"id < {deleted}")
    assert_same_rows(read_ours(path), read_pylance(path))
