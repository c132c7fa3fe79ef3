"""ALTER TABLE that cannot be done says what is wrong, and the table stays as it was."""

from __future__ import annotations

import pyarrow as pa
import pytest
from table_access import read_ours, write_table

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.spark.sql.alter_table import alter_table
from pyspark_lance.table.unit_of_work import CommitSettings
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

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


def added(*column, **given):
    """What Spark makes of ``ADD COLUMN``."""
    return {
        "kind": "AddColumn", "column": column, "type": '"integer"', "nullable": True,
        "comment": None, "placed": False,
    } | given  # fmt: skip


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


_STRUCT = (
    '{"type": "struct", "fields": '
    '[{"name": "x", "type": "integer", "nullable": true, "metadata": {}}]}'
)
_LIST = '{"type": "array", "elementType": "integer", "containsNull": true}'


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (added("one", "d", sql="5", value=5), UnsupportedFeatureError, "'d'.* with a default"),
        (added("one", "d", nullable=False), InvalidInputError, "'d' .*must not be null"),
        (added("n", nullable=False), InvalidInputError, "'n' would be null in every row"),
        (added("id"), InvalidInputError, "'id' already"),
        (added("ID"), InvalidInputError, "differ by case"),
        (added("one", "x"), InvalidInputError, "'x' already"),
        (added("id", sql="5", value=5), InvalidInputError, "'id' already"),
        (added("n", type=_LIST, sql="array(1)", value=[1]), UnsupportedFeatureError, "default of"),
        (added("n", type='"interval year to month"'), UnsupportedFeatureError, "intervals"),
        (added("none", "d"), InvalidInputError, "'none'"),
    ],
)
def test_refused_column_leaves_others_out(table, change, error, says):
    others = [added("first"), added("one", "first"), added("filled", sql="7", value=7)]
    with pytest.raises(error, match=says):
        alter_table(table, [*others, change], CommitSettings())
    assert Snapshot.open(table).version == 1


@pytest.mark.parametrize("others", [[], [added("b", sql="5", value=5)]])
def test_null_struct_of_old_file_is_refused(tmp_path, others):
    path = str(tmp_path / "old")
    kind = pa.struct([("x", pa.int32())])
    write_table(path, pa.table({"one": pa.array([_ITEM], kind)}), file_version="2.0")
    inner = added("one", "s", type=_STRUCT)
    with pytest.raises(UnsupportedFeatureError, match="hold no null structs"):
        alter_table(Table(path), [*others, inner], CommitSettings())
    assert Snapshot.open(Table(path)).version == 1


def test_null_columns_and_members_are_one_version(table):
    changes = [added("one", "d"), added("n", comment="note"), added("one", "e"), added("m")]
    alter_table(table, changes, CommitSettings())
    snapshot = Snapshot.open(table)
    assert snapshot.version == 2
    assert snapshot.schema.names[-2:] == ("n", "m")
    fields = {field.name: field for field in snapshot.schema.fields}
    assert [member.name for member in fields["one"].children] == ["x", "d", "e"]
    assert fields["n"].metadata["comment"] == b"note"
    assert read_ours(table.uri).select(["one", "n"]).to_pylist() == [
        {"one": {"x": 1, "d": None, "e": None}, "n": None}
    ]


def test_columns_keep_their_order_beside_default(table):
    changes = [added("a"), added("b", sql="5", value=5), added("one", "d"), added("c", type=_LIST)]
    alter_table(table, changes, CommitSettings())
    snapshot = Snapshot.open(table)
    assert (snapshot.version, snapshot.schema.names[-3:]) == (2, ("a", "b", "c"))
    assert read_ours(table.uri).select(["a", "b", "c", "one"]).to_pylist() == [
        {"a": None, "b": 5, "c": None, "one": {"x": 1, "d": None}}
    ]
    assert verify(table).findings == ()


def test_default_fills_column_that_must_not_be_null(table):
    alter_table(table, [added("n", sql="5", value=5, nullable=False)], CommitSettings())
    assert not Snapshot.open(table).schema.fields[-1].nullable
    assert read_ours(table.uri)["n"].to_pylist() == [5]


@pytest.mark.parametrize(
    ("column", "type_"), [(("one", "x"), '"long"'), (("n",), '"byte"'), (("none",), '"long"')]
)
def test_refused_type_leaves_other_types_unchanged(table, column, type_):
    alter_table(table, [added("m"), added("n")], CommitSettings())
    changes = [
        {"kind": "UpdateColumnType", "column": name, "type": kind}
        for name, kind in [(("m",), '"long"'), (column, type_)]
    ]
    with pytest.raises(InvalidInputError):
        alter_table(table, changes, CommitSettings())
    assert Snapshot.open(table).version == 2
    alter_table(table, changes[:1], CommitSettings())
    assert Snapshot.open(table).schema.fields[-2].logical_type == "int64"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lance.row_lineage.inline_max_bytes", "-3"),
        ("lance.row_lineage.spill", "maybe"),
        ("lance.auto_cleanup.interval", "x"),
        ("lance.auto_cleanup.older_than", "5parsecs"),
        ("lance.auto_cleanup.retain_versions", "few"),
        ("lance.compaction.target_rows_per_fragment", "1_000"),
        ("lance.compaction.materialize_deletions", "yes"),
        ("lance.compaction.materialize_deletions_threshold", "half"),
    ],
)
def test_unusable_property_is_refused(table, name, value):
    def change(of, to):
        return {"kind": "SetProperty", "name": of, "value": to}

    changes = [change("team", "web"), change("lance.auto_cleanup.interval", "20")]
    with pytest.raises(InvalidInputError, match=f"the property {name} = '{value}' is n"):
        alter_table(table, [*changes, change(name, value)], CommitSettings())
    assert Snapshot.open(table).version == 1
    alter_table(table, [change(name, None), *changes], CommitSettings())
    assert Snapshot.open(table).manifest.config == {"lance.auto_cleanup.interval": "20"}
