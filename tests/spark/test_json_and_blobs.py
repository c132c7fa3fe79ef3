import json

import lance
import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructType

pytestmark = [pytest.mark.spark, pytest.mark.interop]

DOCUMENTS = ['{"a":[1,2.5,null]}', None, '"text"', "7"]
BLOBS = [b"abc", None, b"", bytes(100_000)]
BLOB = {"lance-encoding:blob": "true"}


def table():
    fields = [("id", pa.int64()), ("j", pa.json_())]
    schema = pa.schema([*fields, pa.field("b", pa.large_binary(), metadata=BLOB)])
    return pa.table(
        {"id": range(4), "j": pa.array(DOCUMENTS, pa.json_()), "b": BLOBS}, schema=schema
    )


def read(spark, path, **options):
    return spark.read.format("lance").options(**options).load(path)


def values(texts):
    return [None if text is None else json.loads(text) for text in texts]


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_json_and_blobs_read_as_plain_types(spark, tmp_path, version):
    path = str(tmp_path)
    lance.write_dataset(table(), path, data_storage_version=version)
    frame = read(spark, path).orderBy("id")
    assert isinstance(frame.schema["j"].dataType, StringType)
    assert isinstance(frame.schema["b"].dataType, StructType)
    rows = frame.collect()
    assert values(row.j for row in rows) == values(DOCUMENTS)
    assert [row.b and int(row.b["size"]) for row in rows] == [3, None, 0, 100_000]
    assert [int(row["size"]) for row in frame.where("id = 0").select("b.size").collect()] == [3]
    found = read(spark, path, filter="j LIKE '%2.5%'").select("id").collect()
    assert [row.id for row in found] == [0]
    frame = read(spark, path, blobColumns="B").orderBy("id")
    assert isinstance(frame.schema["b"].dataType, BinaryType)
    assert [row.b and bytes(row.b) for row in frame.collect()] == [
        None if b is None else b for b in BLOBS
    ]


def test_append_converts_text_and_binary(spark, tmp_path):
    path = str(tmp_path)
    lance.write_dataset(table(), path, data_storage_version="2.1")
    new = spark.createDataFrame([(9, '{"x": 1}', bytearray(b"new"))], "id long, j string, b binary")
    new.write.format("lance").mode("append").save(path)
    rows = read(spark, path, blobColumns="b").where("id = 9").collect()
    assert (rows[0].j, bytes(rows[0].b)) == ('{"x":1}', b"new")
    assert lance.dataset(path).count_rows("json_exists(j, '$.x')") == 1
    bad = spark.createDataFrame([(9, "{oops", None)], "id long, j string, b binary")
    with pytest.raises(Exception, match=r"column 'j'.*is not JSON"):
        bad.write.format("lance").mode("append").save(path)


def test_copies_and_options_create_json_and_blob_columns(spark, tmp_path):
    path, copy, made = (str(tmp_path / name) for name in ("t", "copy", "made"))
    lance.write_dataset(table(), path, data_storage_version="2.2")
    frame = read(spark, path, blobColumns="b")
    frame.write.format("lance").mode("append").save(copy)
    plain = spark.createDataFrame([(1, "[]", bytearray(b"x"))], "id long, j string, b binary")
    writer = plain.write.format("lance").mode("append").option("file_format_version", "2.2")
    writer.option("j.json", "true").option("b.blob", "true").save(made)
    for target, rows in ((copy, 4), (made, 1)):
        schema = lance.dataset(target).schema
        assert str(schema.field("j").type) == "extension<arrow.json>"
        blob = schema.field("b")
        assert (blob.metadata or {}).get(b"lance-encoding:blob") == b"true" or (
            "lance.blob.v2" in str(blob.type)
        )
        assert lance.dataset(target).count_rows() == rows
    assert sorted(
        (row.id, row.b and bytes(row.b)) for row in read(spark, copy, blobColumns="b").collect()
    ) == [(i, b if b is None else bytes(b)) for i, b in enumerate(BLOBS)]


def test_legacy_table_is_written_and_filtered(spark, tmp_path):
    path = str(tmp_path)
    frame = spark.range(1000).selectExpr("id", "concat('w', id) AS s", "id / 2 AS f")
    frame.write.format("lance").mode("append").option("file_format_version", "0.1").save(path)
    frame.write.format("lance").mode("append").save(path)
    assert lance.dataset(path).data_storage_version == "0.1"
    assert lance.dataset(path).count_rows("id < 10") == 20
    found = read(spark, path, filter="id >= 990 AND s <> 'w999'").count()
    assert found == 18


def test_update_stores_json_and_blobs(spark, tmp_path):
    from pyspark_lance import LanceTable

    path = str(tmp_path)
    lance.write_dataset(table(), path, data_storage_version="2.2", enable_stable_row_ids=True)
    target = LanceTable.forPath(spark, path)
    target.update("id = 0", {"j": "'{\"z\": 1}'", "b": "X'0102'"})
    target.update("id = 2", {"id": "20"})
    rows = {row.id: row for row in read(spark, path, blobColumns="b").collect()}
    assert values([rows[0].j, rows[20].j]) == [{"z": 1}, "text"]
    assert [bytes(rows[0].b), bytes(rows[20].b), bytes(rows[3].b)] == [b"\1\2", b"", BLOBS[3]]
    assert lance.dataset(path).count_rows("json_exists(j, '$.z')") == 1
    with pytest.raises(Exception, match="is not JSON"):
        target.update("id = 0", {"j": "'oops'"})
