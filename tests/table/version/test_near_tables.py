"""Which tables the error that there is none names."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from pyspark_lance.errors import TableNotFoundError, VersionNotFoundError
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table, suggest_paths
from pyspark_lance.table.version.time_travel import VersionSpec

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
def test_tables_above_and_beside_are_named(folder, path, near):
    assert hint_of(f"{folder}/{path}") == f"did you mean {folder / near}?"


def test_tables_in_the_folder_are_named(folder):
    expected = f"did you mean {folder / 'Events'} or {folder / 'orders.lance'}?"
    assert hint_of(folder) == hint_of(f"file://{folder}") == expected


def test_what_is_not_like_it_is_not_named(folder):
    assert hint_of(folder / "visits") == "check the path"


@pytest.mark.parametrize("pattern", ["*", "Event?", "[E]vents"])
def test_a_pattern_is_told_to_stand_for_nothing(folder, pattern):
    assert hint_of(f"{folder}/{pattern}") == (
        "a path is that of one table; patterns such as * are not expanded"
    )


def test_a_file_is_told_to_be_one(folder):
    (folder / "rows").write_text("1")
    assert hint_of(folder / "rows") == "a table is a folder, and this is a file"


def test_a_folder_that_is_not_there_is_said(folder):
    assert hint_of(folder / "other" / "Events").endswith(f"no folder {folder / 'other'} either")


@pytest.mark.parametrize(
    ("file", "kind"),
    [("part-0.c000.snappy.parquet", "Parquet"), ("_delta_log/0.json", "Delta"), ("x.csv", "CSV")],
)
def test_a_folder_of_another_format_is_named(folder, file, kind):
    path = folder / "visits" / file
    path.parent.mkdir(parents=True)
    path.touch()
    assert hint_of(folder / "visits") == (
        f"the folder holds {kind} files: spark.read.format({kind.lower()!r}) reads them"
    )


def test_stores_are_not_looked_through():
    assert hint_of("memory://somewhere/evnts") == "check the path"


def test_an_error_about_a_version_stays(folder):
    table = Table(str(folder / "Events"))
    with pytest.raises(VersionNotFoundError, match="no version 9"), suggest_paths(table):
        Snapshot.open(table, VersionSpec(version=9))
