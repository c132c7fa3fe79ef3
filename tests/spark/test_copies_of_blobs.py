"""Rows with blobs that are written again without any option: their bytes go with them."""

from functools import reduce

import lance
import pyarrow as pa
import pytest
from blob_tables import COPIED, blobs_by_id, new_blob_table, pylance_blobs
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.logical_view import BLOB_FILE
from pyspark_lance.spark.types.write_schema import stored_schema

pytestmark = [pytest.mark.spark, pytest.mark.interop]


def read(spark, path, **options):
    return spark.read.format("lance").options(**options).load(path)


def write(frame, path, mode="append", **options):
    frame.write.format("lance").mode(mode).options(**options).save(path)
    return path


@pytest.fixture
def source(tmp_path):
    return new_blob_table(str(tmp_path / "source"))


@pytest.fixture
def copy(tmp_path):
    return str(tmp_path / "copy")


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_blobs_are_copied_to_other_and_same_table(spark, tmp_path, copy, version):
    source = new_blob_table(str(tmp_path / "source"), version)
    write(read(spark, source), copy, fileFormatVersion=version)
    assert blobs_by_id(copy) == COPIED
    assert lance.dataset(copy).schema == lance.dataset(source).schema
    # Its own rows, after which nothing of older versions is left.
    write(read(spark, source).where("id > 1"), source, "overwrite")
    expected = {i: COPIED[i] for i in (2, 3, 4)}
    table = LanceTable.forPath(spark, source)
    table.cleanupOldVersions(retainVersions=1)
    assert blobs_by_id(source) == expected
    write(read(spark, source).selectExpr("id + 10 AS id", "b"), source)
    assert blobs_by_id(source) == expected | {i + 10: blob for i, blob in expected.items()}
    old = read(spark, copy, version="1").where("id < 2")
    write(old, copy, "overwrite", replaceWhere="id < 2")
    assert blobs_by_id(copy) == COPIED


def test_blobs_survive_expressions_functions_and_other_formats(spark, tmp_path, copy, source):
    identity = sf.udf(lambda blob: blob, read(spark, source).schema["b"].dataType)
    frame = read(spark, source)
    parquet = str(tmp_path / "parquet")
    frame.write.parquet(parquet)
    frame.createOrReplaceTempView("blobs")
    pairs = (
        frame.alias("l").join(frame.alias("r"), "id").selectExpr("id", "coalesce(l.b, r.b) AS b")
    )
    listed = frame.groupBy("id").agg(sf.collect_list("b").alias("bs"))
    ways = {
        "cached": frame.cache(),
        "view": spark.sql("SELECT * FROM blobs ORDER BY id DESC"),
        "union": frame.where("id < 2").unionByName(frame.where("id >= 2")),
        "join": pairs,
        "case": frame.withColumn("b", sf.expr("CASE WHEN id >= 0 THEN b END")),
        "function": frame.withColumn("b", identity("b")),
        "list": listed.selectExpr("id", "explode_outer(bs) AS b"),
        "parquet": spark.read.parquet(parquet),
    }
    shifted = [
        way.select((sf.col("id") + 10 * number).alias("id"), "b")
        for number, way in enumerate(ways.values())
    ]
    write(reduce(DataFrame.union, shifted), copy, fileFormatVersion="2.1")
    frame.unpersist()
    assert blobs_by_id(copy) == {
        key + 10 * number: blob for number in range(len(ways)) for key, blob in COPIED.items()
    }


def test_blobs_in_structs_lists_and_maps(spark, copy, source):
    frame = read(spark, source).selectExpr(
        "id", "named_struct('b', b, 'n', id) AS s", "array(b, b) AS l", "map('k', b) AS m"
    )
    write(frame, copy)
    rows = {row.id: row for row in read(spark, copy, blobColumns="s,l").collect()}
    assert lance.dataset(copy).schema.field("m").type == pa.map_(pa.string(), pa.binary())
    for key, blob in COPIED.items():
        assert (rows[key].s.b, rows[key].s.n) == (blob, key)
        assert rows[key].l == [blob, blob]
        assert rows[key].m == {"k": blob}
    # As they are, and single members of them.
    whole, part = f"{copy}-whole", f"{copy}-part"
    write(read(spark, copy), whole)
    assert read(spark, whole, blobColumns="s,l").orderBy("id").collect() == [
        rows[key] for key in COPIED
    ]
    write(read(spark, copy).select("id", "s.b"), part)
    assert blobs_by_id(part) == COPIED


def test_added_columns_copy_blobs(spark, source):
    table = LanceTable.forPath(spark, source)
    table.addColumns({"again": "b"})
    frame = read(spark, source, metadataColumns="_rowid").selectExpr("_rowid", "b AS joined")
    table.addColumns(frame)
    assert pylance_blobs(source, "again") == pylance_blobs(source, "joined") == [*COPIED.values()]


@pytest.mark.parametrize("to_version", ["2.1", "2.2"])
def test_merge_copies_blobs_of_other_table(spark, copy, source, to_version):
    new_blob_table(copy, to_version, {0: b"old", 4: b"stays", 9: b"other"})
    changes = read(spark, source).where("id <> 4")
    merge = LanceTable.forPath(spark, copy).merge(changes, "target.id = source.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert blobs_by_id(copy) == {**COPIED, 4: b"stays", 9: b"other"}
    # Some rows get new bytes, and some keep their bytes.
    merge = LanceTable.forPath(spark, copy).merge(read(spark, source), "target.id = source.id")
    merge = merge.whenMatchedUpdate("source.id = 4", {"b": "source.b"})
    merge = merge.whenMatchedUpdate("source.id = 3", {"b": "X'0102'"})
    merge.whenMatchedUpdate("source.id = 2", {"id": "20"}).execute()
    expected = {**COPIED, 3: b"\1\2", 9: b"other", 20: b""}
    del expected[2]
    assert blobs_by_id(copy) == expected


def test_feed_and_applied_changes_copy_blobs(spark, tmp_path, copy, source):
    table = LanceTable.forPath(spark, source)
    write(read(spark, source), copy)
    table.delete("id = 3")
    table.update("id = 0", {"b": "X'0102'"})
    replica = LanceTable.forPath(spark, copy)
    replica.applyChanges(table.changes(2), keys="id")
    expected = {**COPIED, 0: b"\1\2"}
    del expected[3]
    assert blobs_by_id(copy) == expected
    feed = read(spark, source, readChangeFeed="true", startingVersion="2")
    images = feed.selectExpr("concat(id, _change_type) AS id", "b")
    shown = {
        name: blob and bytes(blob)
        for name, blob in read(
            spark, write(images, str(tmp_path / "images")), blobColumns="b"
        ).collect()
    }
    assert shown == {
        "3delete": COPIED[3], "0update_preimage": b"abc", "0update_postimage": b"\1\2",
    }  # fmt: skip


def test_stream_and_its_batches_copy_blobs(spark, tmp_path, copy, source):
    def start(name):
        frame = spark.readStream.format("lance").load(source)
        place = str(tmp_path / name)
        return frame.writeStream.option("checkpointLocation", place).trigger(availableNow=True)

    start("sink").format("lance").start(copy).awaitTermination()
    batches = f"{copy}-batches"
    start("batches").foreachBatch(
        lambda frame, _: write(frame, batches) and None
    ).start().awaitTermination()
    assert blobs_by_id(copy) == blobs_by_id(batches) == COPIED


def test_partial_descriptors_are_refused_and_plain_structs_accepted(spark, tmp_path, copy, source):
    frame = read(spark, source)
    assert isinstance(frame.schema["b"].dataType, StructType)
    partial = frame.withColumn("b", sf.col("b").dropFields("position"))
    with pytest.raises(Exception, match=r"(?s)only some fields.*blobColumns = b.*lance_blob_file"):
        write(partial, copy)
    own = frame.select("id", "b.position", "b.size").selectExpr("id", "struct(position, size) AS b")
    write(own, copy)
    assert lance.dataset(copy).schema.field("b").type.names == ["position", "size"]
    write(read(spark, copy), copy, "overwrite")
    write(frame.withColumn("b", sf.col("b").dropFields(BLOB_FILE)), f"{copy}-plain")
    assert "position" in lance.dataset(f"{copy}-plain").schema.field("b").type.names


def test_blob_bytes_are_written_to_binary_columns(spark, copy, source):
    write(read(spark, source), copy, **{"b.blob": "false"})
    assert pa.types.is_binary(lance.dataset(copy).schema.field("b").type)
    write(read(spark, source).withColumn("id", sf.col("id") + 10), copy)
    rows = lance.dataset(copy).to_table().to_pylist()
    assert {row["id"]: row["b"] for row in rows} == COPIED | {
        i + 10: blob for i, blob in COPIED.items()
    }


def descriptor(**members):
    return StructType([StructField(name, kind) for name, kind in members.items()])


SIZE = DecimalType(20)
PLAIN = {
    "kind": ShortType(), "position": SIZE, "size": SIZE, "blob_id": LongType(),
    "blob_uri": StringType(),
}  # fmt: skip
LOCATED = descriptor(**PLAIN, **{BLOB_FILE: StringType()})


def stored(options=None, **columns):
    return stored_schema(descriptor(**columns), options or {}, existing=None, overwrite=False)


def test_only_complete_descriptors_are_stored_as_blobs():
    columns = {"b": LOCATED, "l": ArrayType(descriptor(n=LongType(), b=LOCATED))}
    schema = stored(**columns)
    blob = schema.field("l").type.value_field.type.field("b")
    for field in (schema.field("b"), blob):
        assert (field.type, field.metadata[b"lance-encoding:blob"]) == (pa.large_binary(), b"true")
    for field in stored({"b.blob": "false", "l.blob": "false"}, **columns):
        assert "lance-encoding:blob" not in str(field)
    assert pa.types.is_struct(stored(b=descriptor(**PLAIN)).field("b").type)
    for part in (
        descriptor(**{BLOB_FILE: StringType()}),
        descriptor(position=SIZE, **{BLOB_FILE: StringType()}),
    ):
        for kind in (part, MapType(LongType(), ArrayType(part))):
            with pytest.raises(InvalidInputError, match=r"(?s)some fields of.*blobColumns = b"):
                stored(b=kind)
