"""Columns of LanceTable, mergeSchema, replaceWhere and batches that come twice, through Spark."""

from __future__ import annotations

import lance
import pytest
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, StructField, StructType

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError

pytestmark = pytest.mark.spark


def write(frame, path, mode="append", **options):
    frame.write.format("lance").mode(mode).options(**options).save(path)


def rows(spark, path, *columns, **options):
    frame = spark.read.format("lance").options(**options).load(path)
    return sorted(tuple(row) for row in (frame.select(*columns) if columns else frame).collect())


@pytest.fixture
def table(spark, tmp_path):
    """Three fragments with ids 0 to 8; 4 is deleted."""
    path = str(tmp_path / "t")
    for start in (0, 3, 6):
        frame = spark.range(start, start + 3, 1, 1)
        write(frame.selectExpr("id", "cast(id AS int) AS k", "named_struct('a', id) AS s"), path)
    lance.dataset(path).delete("id = 4")
    return LanceTable.forPath(spark, path)


def path_of(table):
    return table._table.root


def validated(table):
    dataset = lance.dataset(path_of(table))
    dataset.validate()
    return dataset


def test_columns_of_nulls_and_of_expressions(spark, table):
    assert table.addColumns("n int, t array<string>").version == 5
    schema = StructType([StructField("m", IntegerType())])
    assert table.addColumns(schema).version == 6
    shout = sf.udf(lambda value: f"{value}!")
    result = table.addColumns(
        {"double": "id * 2 + s.a", "shout": shout(sf.col("id")), "at": "_rowid + 0 * id"}
    )
    assert (result.version, result.num_written_files, result.num_written_rows) == (7, 3, 8)
    assert rows(spark, path_of(table), "id", "double", "shout", "at", "n") == [
        (i, 3 * i, f"{i}!", i, None) for i in range(9) if i != 4
    ]
    assert validated(table).to_table()["double"].to_pylist() == [0, 3, 6, 9, 15, 18, 21, 24]
    with pytest.raises(Exception, match="already"):
        table.addColumns({"double": "1"})
    for columns in ("s.b int", "`s`.`b` int NOT NULL", {"s.b": "1"}):
        with pytest.raises(InvalidInputError, match=r"(?s)is a field of a struct.*ADD COLUMNS"):
            table.addColumns(columns)
    for columns in (sf.col("id"), [sf.col("id").alias("b")], schema.fields, None):
        with pytest.raises(InvalidInputError, match=r"takes a schema.*not (Column|list|NoneType)"):
            table.addColumns(columns)


def test_columns_of_another_frame_joined_by_row_id(spark, table):
    path = path_of(table)
    read = spark.read.format("lance").option("metadataColumns", "_rowid").load(path)
    values = read.where("id % 2 = 0").selectExpr("_rowid", "id * 10 AS ten", "array(id) AS l")
    beyond = spark.createDataFrame([(999, 1, [1])], "_rowid bigint, ten bigint, l array<bigint>")
    assert table.addColumns(values.union(beyond)).num_written_files == 3
    assert rows(spark, path, "id", "ten", "l") == [
        (i, i * 10 if i % 2 == 0 else None, [i] if i % 2 == 0 else None) for i in range(9) if i != 4
    ]
    validated(table)
    with pytest.raises(Exception, match="repeated or out of order"):
        table.addColumns(values.union(values).selectExpr("_rowid", "ten AS other"))
    with pytest.raises(Exception, match="no column _rowid"):
        table.addColumns(spark.range(3))
    assert lance.dataset(path).version == 5


def test_rows_appended_during_add_columns_are_computed(spark, table):
    path = path_of(table)

    # The job is lazy until its rows are read, so another writer comes while they are.
    @sf.udf("bigint")
    def slow(value):
        import lance as pylance
        import pyarrow as pa

        if value == 8:
            one = {"id": [100], "k": pa.array([1], pa.int32()), "s": [{"a": 1}]}
            pylance.write_dataset(pa.table(one), path, mode="append")
        return value + 1

    result = table.addColumns({"next": slow("id")})
    assert (result.version, result.num_written_files) == (6, 4)
    assert rows(spark, path, "id", "next")[-2:] == [(8, 9), (100, 101)]
    validated(table)


def test_dropping_renaming_and_changing(spark, table):
    path = path_of(table)
    assert table.renameColumn("k", "key").version == 5
    assert table.renameColumn("s.a", "b").version == 6
    result = table.changeColumn("key", "bigint")
    assert (result.version, result.num_written_files) == (7, 3)
    assert table.changeColumn("key", nullable=False).version == 8
    assert table.changeColumn("key", comment="the key").version == 9
    assert table.setMetadata({"owner": "us"}, {"s.b": {"unit": "m"}}).version == 10
    assert table.toDF().schema["key"].dataType.simpleString() == "bigint"
    schema = validated(table).schema
    assert not schema.field("key").nullable
    assert schema.field("key").metadata[b"comment"] == b"the key"
    assert rows(spark, path) == [(i, i, (i,)) for i in range(9) if i != 4]
    with pytest.raises(Exception, match="LANCE_SCHEMA_MISMATCH"):
        write(spark.sql("SELECT 1L AS id, null AS key"), path)
    assert table.dropColumns("s").version == 11
    assert table.toDF().columns == ["id", "key"]
    with pytest.raises(Exception, match="holds nulls"):
        write(spark.sql("SELECT null AS id, 1L AS key"), path)
        table.changeColumn("id", nullable=False)
    with pytest.raises(Exception, match="cannot change"):
        table.changeColumn("key", "int")
    with pytest.raises(Exception, match="one of dataType"):
        table.changeColumn("key", "int", nullable=True)


def test_column_names_may_be_backquoted(spark, table):
    table.renameColumn("k", "`n m`")
    assert table.toDF().columns == ["id", "n m", "s"]
    table.renameColumn("`n m`", "c`d")
    table.renameColumn("`c``d`", "```e```")
    table.addColumns({"`x y`": "id * 2", "sum": "id"})
    table.renameColumn("s.`a`", "in ner")
    table.changeColumn("s.`in ner`", comment="inner")
    assert table.toDF().columns == ["id", "`e`", "s", "x y", "sum"]
    found = rows(spark, path_of(table), columns="`x y`,id")
    assert found == [(2 * i, i) for i in range(9) if i != 4]
    table.dropColumns("`e`", "`sum`")
    assert table.toDF().columns == ["id", "s", "x y"]
    for name in ("`id", "s.", "s.`in ner", ""):
        with pytest.raises(InvalidInputError, match="is not a column name"):
            table.dropColumns(name)
    with pytest.raises(InvalidInputError, match="one by one"):
        table.dropColumns(["id", "s"])
    table.dropColumns("x y")
    assert table.toDF().columns == ["id", "s"]


def test_updates_rewrite_rows_or_columns_as_requested(spark, table):
    path = path_of(table)
    lineage = ("id", "k", "s", "_rowid", "_rowaddr", "_row_last_updated_at_version")
    before = rows(spark, path, *lineage, metadataColumns="all")
    # A subquery: Spark may shuffle the rows before they get here.
    condition = "id IN (SELECT id + 1 FROM range(2)) OR id = 8"
    result = table.update(condition, {"k": "k + 100", "s.a": "-1"}, rewrite="columns")
    assert (result.version, result.num_updated_rows) == (5, 3)
    assert str(result.rewrite) == "columns, because columns were asked for"
    assert rows(spark, path, *lineage, metadataColumns="all") == [
        (i, k + 100, (-1,), row_id, address, 5) if i in (1, 2, 8) else (i, k, s, *others)
        for i, k, s, *others in before
        for row_id, address, _ in [others]
    ]
    files = [one.data_files() for one in validated(table).get_fragments()]
    assert [len(one) for one in files] == [2, 1, 2]
    assert table.update("id = 99", {"k": "1"}, rewrite="columns").version is None
    assert table.update("id = 0", {"k": "k + 1"}, rewrite="rows").version == 6
    everywhere = table.update(None, {"k": "k + 1"})
    assert everywhere.num_updated_rows == 8
    assert "moving 8 of 8 rows takes about" in everywhere.rewrite.reason
    assert [row[1] for row in rows(spark, path, "id", "k")] == [2, 102, 103, 4, 6, 7, 8, 109]
    validated(table)
    with pytest.raises(Exception, match="LANCE_SCHEMA_MISMATCH"):
        table.update("id = 0", {"k": "'nonsense'"}, rewrite="columns")
    with pytest.raises(Exception, match="auto, rows, columns"):
        table.update("id = 0", {"k": "1"}, rewrite="cells")


def test_merge_schema_replace_where_and_numbered_batches(spark, table):
    path = path_of(table)
    new = spark.range(20, 22).selectExpr("id", "'x' AS extra", "named_struct('z', 1, 'a', id) AS s")
    with pytest.raises(Exception, match="does not have"):
        write(new, path)
    write(new, path, mergeSchema="true")
    assert rows(spark, path, "id", "extra", "s")[-3:] == [
        (8, None, (8, None)),
        (20, "x", (20, 1)),
        (21, "x", (21, 1)),
    ]
    assert validated(table).version == 5

    twice = {"txnAppId": "job", "txnVersion": "3"}
    for _ in range(2):
        write(spark.range(30, 31), path, **twice)
    assert (len(rows(spark, path, "id")), lance.dataset(path).version) == (11, 6)

    part = spark.sql("SELECT 20L AS id, 'new' AS extra")
    write(part, path, "overwrite", replaceWhere="id >= 20 AND id < 30")
    assert rows(spark, path, "id", "extra")[-2:] == [(20, "new"), (30, None)]
    assert validated(table).version == 7
    with pytest.raises(Exception, match="do not match replaceWhere"):
        write(part, path, "overwrite", replaceWhere="id = 8")
    with pytest.raises(Exception, match="replaceWhere needs an overwrite"):
        write(part, path, replaceWhere="id = 8")
    assert lance.dataset(path).version == 7
