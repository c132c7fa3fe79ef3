"""ALTER TABLE that cannot be done says what is wrong, and the table stays as it was."""

from __future__ import annotations

import pyarrow as pa
import pytest
from table_access import write_table

from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.spark.sql.alter_table import alter_table
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.work.commit_settings import CommitSettings

_ITEM = {"x": 1}


@pytest.fixture
def table(tmp_path):
    """A column of each kind that has something in it."""
    path = str(tmp_path / "table")
    kind = pa.struct([("x", pa.int32())])
    columns = {
        "id": pa.array([1]),
        "lists": pa.array([[_ITEM]], pa.list_(kind)),
        "maps": pa.array([[("k", _ITEM)]], pa.map_(pa.string(), kind)),
        "one": pa.array([_ITEM], kind),
        "deep": pa.array([{"lists": [_ITEM]}], pa.struct([("lists", pa.list_(kind))])),
    }
    write_table(path, pa.table(columns))
    return Table(path)


def added(*column):
    """What Spark makes of ``ADD COLUMN``."""
    return {
        "kind": "AddColumn", "column": column, "type": '"integer"', "nullable": True,
        "comment": None, "placed": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (("lists", "element", "d"), "'lists' is a list"),
        (("lists", "d"), "'lists' is a list"),
        (("deep", "lists", "element", "d"), "'lists' is a list"),
        (("maps", "value", "d"), "'maps' is a map"),
        (("id", "d"), "'id' is int64"),
    ],
)
def test_member_is_added_only_to_struct(table, column, says):
    with pytest.raises(UnsupportedFeatureError, match=f"{says}, and fields") as refused:
        alter_table(table, [added(*column)], CommitSettings())
    assert ".".join(column) in str(refused.value).replace("`", "")
    assert Snapshot.open(table).version == 1
    alter_table(table, [added("one", "d")], CommitSettings())
    one = next(field for field in Snapshot.open(table).schema.fields if field.name == "one")
    assert [member.name for member in one.children] == ["x", "d"]


def test_replace_columns_is_refused(table):
    changes = [
        {"kind": "DeleteColumn", "column": [name], "ifExists": False}
        for name in Snapshot.open(table).schema.names
    ]
    with pytest.raises(UnsupportedFeatureError, match="REPLACE COLUMNS") as refused:
        alter_table(table, [*changes, added("n")], CommitSettings())
    assert table.uri in str(refused.value)
    assert Snapshot.open(table).version == 1
