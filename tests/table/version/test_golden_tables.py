"""Tables that old releases of Lance wrote are read as pylance reads them, and can be gone on with.

They are in ``tests/golden``; ``make.py`` there says how each was made and what is wrong with it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from local_changes import delete_rows
from table_access import assert_same_rows, read_ours, read_pylance, write_table

from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID, SYSTEM_COLUMNS
from pyspark_lance.table.scan.scan_statistics import prune_scan
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
TABLES = sorted(path.relative_to(GOLDEN).as_posix() for path in GOLDEN.glob("pylance-*/*"))
_UNCOUNTED = tuple(f"pylance-{release}/" for release in ("0.5.9", "0.6.5", "0.7.5", "0.8.0"))
OLD_COUNTS = [name for name in TABLES if name.startswith(_UNCOUNTED)]
MIXED = "pylance-0.16.0/files_of_two_versions"


def outcome(read) -> pa.Table | None:
    """What was read; None if it is refused."""
    try:
        return read()
    except (CorruptFileError, UnsupportedFeatureError, OSError, ValueError):
        return None


@pytest.mark.parametrize("name", TABLES)
def test_old_versions_read_like_pylance(name):
    path = str(GOLDEN / name)
    for entry in lance.dataset(path).versions():
        version = entry["version"]
        at = VersionSpec(version=version)
        theirs = outcome(lance.dataset(path, version=version).to_table)
        ours = outcome(lambda at=at: read_ours(path, at, system_columns=()))
        assert (ours is None) == (theirs is None), version
        if ours is not None and theirs is not None:
            assert ours.num_rows == theirs.num_rows == Snapshot.open(Table(path), at).num_rows()
            assert not theirs.num_rows or repr(ours.to_pydict()) == repr(theirs.to_pydict())


@pytest.mark.parametrize("name", [name for name in TABLES if name != MIXED])
def test_lineage_of_old_tables_reads_like_pylance(name):
    path = str(GOLDEN / name)
    for entry in lance.dataset(path).versions():
        version = entry["version"]
        theirs = outcome(lambda version=version: read_pylance(path, version))
        if theirs is None or not theirs.num_rows:
            continue
        at = VersionSpec(version=version)
        stable = Snapshot.open(Table(path), at).uses_stable_row_ids
        names = SYSTEM_COLUMNS if stable else (ROW_ID, ROW_ADDRESS)
        assert_same_rows(read_ours(path, at, system_columns=names), theirs)


def test_missing_row_ids_are_corrupt():
    path = str(GOLDEN / "pylance-0.22.0/short_sequence")
    with pytest.raises(CorruptFileError, match=r"_rowid sequence of fragment 4 has .* values for"):
        read_ours(path)


def test_offsets_refused_by_pylance_are_corrupt():
    path = str(GOLDEN / "pylance-0.29.0/offsets_that_lance_refuses")
    with pytest.raises(CorruptFileError, match=r"row .* is deleted in a fragment of 100 rows"):
        read_ours(path, system_columns=())


@pytest.mark.parametrize("name", OLD_COUNTS)
def test_row_counts_are_known_before_reading(name):
    path = str(GOLDEN / name)
    rows = lance.dataset(path).count_rows()
    snapshot = Snapshot.open(Table(path))
    assert snapshot.num_rows() == rows
    assert prune_scan(snapshot, None)[1] == rows


@pytest.mark.parametrize("name", [name for name in OLD_COUNTS if "without_rows" not in name])
def test_missing_counts_are_added_by_next_commit(name, tmp_path):
    path = str(tmp_path / "t")
    shutil.copytree(GOLDEN / name, path)
    before = lance.dataset(path).to_table()
    write_table(path, before.slice(0, 3))
    dataset = lance.dataset(path)
    dataset.validate()
    assert dataset.count_rows() == dataset.to_table().num_rows == before.num_rows + 3
    for fragment in dataset.get_fragments():
        stated = fragment.metadata
        deletions = stated.deletion_file
        assert stated.physical_rows == fragment.physical_rows > 0
        assert (0 if deletions is None else deletions.num_deleted_rows) == fragment.num_deletions
    assert lance.dataset(path).optimize.compact_files()
    assert lance.dataset(path).count_rows() == before.num_rows + 3


@pytest.mark.parametrize("name", [name for name in OLD_COUNTS if "without_rows" not in name])
def test_delete_extends_uncounted_deletions(name, tmp_path):
    path = str(tmp_path / "t")
    shutil.copytree(GOLDEN / name, path)
    before = lance.dataset(path).to_table()
    column = before.column_names[0]
    delete_rows(path, f"{column} = 1 OR {column} = 5")
    left = [value for value in before[column].to_pylist() if value not in (1, 5)]
    dataset = lance.dataset(path)
    dataset.validate()
    assert dataset.to_table()[column].to_pylist() == left
    assert dataset.count_rows() == len(left) == read_ours(path, system_columns=()).num_rows


def test_delete_extends_deletions_with_invalid_offsets(tmp_path):
    path = str(tmp_path / "t")
    shutil.copytree(GOLDEN / "pylance-0.22.0/offsets_that_lance_reads", path)
    before = read_ours(path, system_columns=())
    delete_rows(path, "id >= 290")
    left = [value for value in before["id"].to_pylist() if value < 290]
    assert lance.dataset(path).to_table()["id"].to_pylist() == left
    assert lance.dataset(path).count_rows() == len(left)


def test_file_version_follows_files_instead_of_manifest(tmp_path):
    path = str(tmp_path / "t")
    shutil.copytree(GOLDEN / "pylance-0.16.0/newer_files_than_recorded", path)
    assert lance.dataset(path).data_storage_version == "0.1"
    write_table(path, lance.dataset(path).to_table())
    dataset = lance.dataset(path)
    assert dataset.data_storage_version == "2.0"
    assert dataset.to_table()["x"].to_pylist() == [*range(10), *range(10)]
    assert dataset.delete("x < 5")
    assert dataset.to_table().equals(read_ours(path, system_columns=()))


@pytest.mark.parametrize("change", ["append", "delete"])
def test_mixed_file_versions_are_only_read_and_replaced(change, tmp_path):
    path = str(tmp_path / "t")
    shutil.copytree(GOLDEN / MIXED, path)
    rows = lance.dataset(path).to_table()
    assert read_ours(path, system_columns=(ROW_ADDRESS,))["_rowaddr"].to_pylist()[10:] == [
        *range(1 << 32, (1 << 32) + 10),
        *range(1 << 32, (1 << 32) + 5),
        *range(2 << 32, (2 << 32) + 5),
    ]
    with pytest.raises(UnsupportedFeatureError, match=r"data files of versions 0\.1, 2\.0"):
        write_table(path, rows) if change == "append" else delete_rows(path, "x = 12")
    assert lance.dataset(path).version == 2
    write_table(path, rows, overwrite=True)
    assert lance.dataset(path).to_table().equals(rows)


def test_empty_old_table_gets_files_of_its_version(tmp_path):
    rows = pa.table({"x": [1, 2], "s": ["a", "b"]})
    for name, version in (("legacy", "0.1"), ("stable", "2.0")):
        path = str(tmp_path / name)
        shutil.copytree(GOLDEN / f"pylance-0.15.0/{name}_without_files", path)
        write_table(path, rows)
        dataset = lance.dataset(path)
        assert dataset.data_storage_version == version
        assert dataset.to_table().equals(rows)
        assert dataset.count_rows() == 2
        assert read_ours(path, system_columns=()).equals(rows)
