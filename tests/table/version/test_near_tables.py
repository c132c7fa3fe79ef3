"""Which tables the error that there is none names."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from pyspark_lance.errors import TableNotFoundError, VersionNotFoundError
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table, suggest_paths

pytestmark = pytest.mark.interop


@pytest.fixture
def folder(tmp_path):
    """Two tables, and a folder that is none, without the folders of other tests beside them."""
    folder = tmp_path / "warehouse"
    for name in ("Events", "orders.lance"):
        lance.write_dataset(pa.table({"id": [1]}), folder / name)
    (folder / "event").mkdir()
    return folder


def hint_of(path):
    """What the error says of a path without a table."""
    table = Table(str(path))
    with pytest.raises(TableNotFoundError) as missing, suggest_paths(table):
        Snapshot.open(table)
    assert missing.value.what == "there is no Lance table here"
    return missing.value.hint


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("evnts", "Events"), ("event", "Events"), ("orders", "orders.lance"), ("evnts/", "Events"),
        ("Events/data", "Events"), ("Events/new", "Events"),
    ],
)  # fmt: skip
def test_similar_paths_above_and_beside_are_suggested(folder, path, near):
    assert hint_of(f"{folder}/{path}") == f"did you mean {folder / near}?"


def test_tables_in_folder_are_suggested(folder):
    expected = f"did you mean {folder / 'Events'} or {folder / 'orders.lance'}?"
    assert hint_of(folder) == hint_of(f"file://{folder}") == expected


def test_dissimilar_tables_are_not_suggested(folder):
    assert hint_of(folder / "visits") == "check the path"


@pytest.mark.parametrize("pattern", ["*", "Event?", "[E]vents"])
def test_glob_pattern_hint_says_patterns_are_not_expanded(folder, pattern):
    assert hint_of(f"{folder}/{pattern}") == (
        "a path is that of one table; patterns such as * are not expanded"
    )


def test_file_hint_says_table_is_folder(folder):
    (folder / "rows").write_text("1")
    assert hint_of(folder / "rows") == "a table is a folder, and this is a file"


def test_missing_folder_is_reported(folder):
    assert hint_of(folder / "other" / "Events").endswith(f"no folder {folder / 'other'} either")


@pytest.mark.parametrize(
    ("file", "kind"),
    [("part-0.c000.snappy.parquet", "Parquet"), ("_delta_log/0.json", "Delta"), ("x.csv", "CSV")],
)
def test_folder_of_other_format_is_named(folder, file, kind):
    path = folder / "visits" / file
    path.parent.mkdir(parents=True)
    path.touch()
    assert hint_of(folder / "visits") == (
        f"the folder holds {kind} files: spark.read.format({kind.lower()!r}) reads them"
    )


def test_remote_stores_are_not_searched():
    assert hint_of("memory://somewhere/evnts") == "check the path"


def test_version_error_is_unchanged(folder):
    table = Table(str(folder / "Events"))
    with pytest.raises(VersionNotFoundError, match="no version 9"), suggest_paths(table):
        Snapshot.open(table, VersionSpec(version=9))
