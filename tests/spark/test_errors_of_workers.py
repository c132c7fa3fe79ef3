"""An error of ours in a worker reaches the caller of LanceTable as what it is."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from table_access import append

from pyspark_lance import LanceTable, errors
from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    LanceError,
    SchemaMismatchError,
    VersionNotFoundError,
    error_in,
)

ALL = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, LanceError)
]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("where", ["", "s3://a/b c.lance bytes 1..2"])
@pytest.mark.parametrize("hint", ["", "do [this] first"])
def test_error_is_restored_from_its_text(kind, where, hint):
    error = kind("3 of 'x' [y] are: wrong", where, hint)
    around = f"An exception was thrown:\nx.errors.{kind.__name__}: {error}\n SQLSTATE: 38000\n"
    found = error_in(around)
    assert type(found) is kind
    assert found.args == error.args
    assert str(found) == str(error)
    assert str(pickle.loads(pickle.dumps(found))) == str(error)


def test_last_error_in_text_is_restored():
    first, last = CorruptFileError("a", "b", "c"), InvalidInputError("d")
    assert str(error_in(f"{first}\n\nDuring handling:\n{last}")) == str(last)
    assert error_in("[LANCE_UNHEARD_OF] a") is None
    assert error_in("[PYTHON_DATA_SOURCE_ERROR] nothing") is None


def test_text_added_by_spark_is_removed():
    error = SchemaMismatchError("a value of column 'n' does not fit int: abc")
    around = f"[USER_RAISED_EXCEPTION] {error} SQLSTATE: P0001\n\tat org.apache.spark"
    assert str(error_in(around)) == str(error)


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0, rows=50)
    return path


def damage(path):
    (file,) = Path(path, "data").glob("*.lance")
    content = file.read_bytes()
    file.write_bytes(content[:-40] + b"\xff" * 24 + content[-16:])


@pytest.mark.spark
def test_damaged_file_raises_same_error_in_every_method(spark, path):
    damage(path)
    table = LanceTable.forPath(spark, path)
    source = spark.range(3).alias("source")
    merge = table.merge(source, "target.id = source.id").whenMatchedDelete()
    for call in (
        lambda: table.update("id = 3", {"id": "id + 1"}),
        lambda: table.update("id = 3", {"id": "id + 1"}, rewrite="columns"),
        lambda: table.delete("id % 7 = 3"),
        lambda: table.delete(sf.col("id") + sf.rand() > 70),
        merge.execute,
        lambda: table.addColumns({"twice": "id * 2"}),
        lambda: table.changeColumn("id", "decimal(30,0)"),
    ):
        with pytest.raises(CorruptFileError) as caught:
            call()
        message = str(caught.value)
        assert message.startswith("[LANCE_CORRUPT_FILE] ")
        assert "Traceback" not in message
        assert "org.apache" not in message
        assert ".lance" in caught.value.where
        assert caught.value.__suppress_context__


@pytest.mark.spark
def test_planning_and_value_errors_are_typed(spark, path):
    table = LanceTable.forPath(spark, path)
    with pytest.raises(VersionNotFoundError, match="no version 99"):
        table.scan(version=99)
    with pytest.raises(InvalidInputError, match="more than one source row"):
        rows = spark.sql("SELECT 3L AS id UNION ALL SELECT 3L").alias("source")
        table.merge(rows, "target.id = source.id").whenMatchedUpdateAll().execute()
    LanceTable.create(spark, path + "-2", "id bigint not null")
    append(path + "-2", 0)
    with pytest.raises(SchemaMismatchError, match="id"):
        LanceTable.forPath(spark, path + "-2").update("id = 1", {"id": "CAST(NULL AS bigint)"})


@pytest.mark.spark
def test_user_errors_are_unchanged(spark, path):
    with pytest.raises(PySparkException, match="ZeroDivisionError"):
        LanceTable.forPath(spark, path).update(
            set={"id": sf.udf(lambda value: value // 0, "long")("id")}
        )


@pytest.mark.spark
def test_traceback_ends_at_user_code_by_default(spark, path, monkeypatch):
    table = LanceTable.forPath(spark, path)
    calls = (
        lambda: LanceTable.forPath(spark, f"{path}-nothing"),
        lambda: table.restore(99),
        lambda: table.update("idd = 1", {"id": "1"}),
        lambda: table.update("id = ", {"id": "1"}),
        lambda: table.delete(unknown=1),
        lambda: table.merge(table.toDF(), "target.idd = 1").whenMatchedUpdateAll().execute(),
    )
    for call in calls:
        with pytest.raises((LanceError, PySparkException)) as short:
            call()
        monkeypatch.setenv(errors.FULL_TRACEBACK, "1")
        with pytest.raises((LanceError, PySparkException)) as full:
            call()
        monkeypatch.delenv(errors.FULL_TRACEBACK)
        assert str(short.value) == str(full.value)
        shown, there = (
            traceback.extract_tb(expected.value.__traceback__) for expected in (short, full)
        )
        assert {frame.filename for frame in shown} == {__file__}
        assert any("pyspark_lance" in frame.filename for frame in there)


def test_column_of_other_dataframe_error_explains_mistake(spark, path):
    table = LanceTable.forPath(spark, path)
    other = spark.range(3)
    for change in (
        lambda: table.delete(other["id"] == 1),
        lambda: table.update(other["id"] == 1, {"id": "5"}),
        lambda: table.update("id = 1", {"id": other["id"] + 1}),
    ):
        with pytest.raises(InvalidInputError, match="takes a column from another DataFrame"):
            change()


@pytest.mark.spark
def test_failing_subquery_error_is_short(spark, path):
    append(path + "-2", 0, rows=50)
    damage(path + "-2")
    spark.sql(f"CREATE TEMPORARY VIEW damaged USING lance OPTIONS (path '{path}-2')")
    table = LanceTable.forPath(spark, path)
    for subquery, kind, expected in (
        ("SELECT id FROM range(2)", InvalidInputError, r"\[SCALAR_SUBQUERY_TOO_MANY_ROWS\]"),
        ("SELECT max(id) FROM damaged", CorruptFileError, "hint: restore the file"),
    ):
        with pytest.raises(kind, match=expected) as caught:
            table.update(f"id = ({subquery})", {"id": "5"})
        message = str(caught.value)
        assert len(message.splitlines()) < 5
        assert "hint: " in message
    spark.catalog.dropTempView("damaged")


@pytest.mark.spark
def test_invalid_utf8_is_refused_by_every_write(spark, tmp_path):
    path = str(tmp_path / "t")
    good = spark.sql("SELECT id, CAST(id AS STRING) AS text FROM range(4)")
    good.write.format("lance").mode("append").save(path)
    bad = spark.sql("SELECT 2L AS id, CAST(X'4FFF' AS STRING) AS text")
    table = LanceTable.forPath(spark, path)
    merge = table.merge(bad.alias("source"), "target.id = source.id").whenMatchedUpdateAll()
    for call in (
        lambda: table.update("id = 1", {"text": "CAST(X'4FFF' AS STRING)"}),
        lambda: merge.execute(),
        lambda: bad.write.format("lance").mode("append").save(path),
    ):
        with pytest.raises((InvalidInputError, PySparkException)) as caught:
            call()
        found = error_in(str(caught.value))
        assert type(found) is InvalidInputError and "column 'text' is not UTF-8" in found.what
    assert table.toDF().exceptAll(good).isEmpty() and table.toDF().count() == 4
