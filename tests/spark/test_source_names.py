"""Names of a merge's source are looked up without an error of Spark; none is ever printed."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import functions as sf
from table_access import read_ours, write_table

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError, TableNotFoundError
from pyspark_lance.spark.expressions.expressions import quote_name
from pyspark_lance.spark.jobs import merge_job
from pyspark_lance.spark.jobs.semi_join import SourceNames

pytestmark = pytest.mark.spark


class _Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@pytest.fixture
def logged():
    """What PySpark logs of errors in queries, before anyone can catch them."""
    kept = _Kept()
    names = ["SQLQueryContextLogger", "DataFrameQueryContextLogger"]
    loggers = [PySparkLogger.getLogger(name) for name in names]
    for logger in loggers:
        logger.addHandler(kept)
    yield kept.lines
    for logger in loggers:
        logger.removeHandler(kept)


def sources(spark):
    """DataFrames with names of every kind."""
    plain = spark.createDataFrame([(1, "x", "y")], "id long, `a``b.c` string, `line\nbreak` string")
    other = spark.createDataFrame([(1, 2.0)], "ID long, price double")
    nested = spark.sql("SELECT struct(1 AS x, struct('b' AS y) AS s) AS source, array(1) AS tags")
    return {
        "plain": plain,
        "under an alias": plain.alias("source"),
        "under another alias": plain.alias("s"),
        "under an odd alias": plain.alias("s.`t"),
        "of two": plain.alias("source").join(other.alias("other")),
        "a struct": nested,
        "a struct under its own name": nested.alias("source"),
    }


NAMES = [
    ("id",), ("ID",), ("price",), ("a`b.c",), ("line\nbreak",), ("source",), ("tags",), ("x",),
    ("source", "id"), ("SOURCE", "Id"), ("s", "id"), ("s", "a`b.c"), ("s", "line\nbreak"),
    ("s.`t", "id"), ("other", "id"), ("other", "price"), ("source", "price"), ("nothing", "id"),
    ("source", "x"), ("source", "s", "y"), ("source", "source", "x"), ("source", "source", "z"),
    ("source", "x", "y"), ("tags", "x"), ("source", "tags", "x"),
]  # fmt: skip


def test_source_names_equal_spark(spark, logged):
    known = 0
    for kind, frame in sources(spark).items():
        names = SourceNames(frame)
        found = {parts: names.find(parts) for parts in NAMES}
        assert logged == [], kind
        for parts, column in found.items():
            try:
                (wanted,) = frame.select(sf.col(quote_name(*parts))).schema.fields
            except AnalysisException:
                wanted = None
            logged.clear()
            where = kind, parts
            assert (column is None) == (wanted is None), where
            if column is not None:
                assert column.dataType == wanted.dataType, where
                known += 1
    assert known > 30


def test_aliases_are_found_like_spark(spark, logged):
    has = {kind: SourceNames(frame).has_alias("source") for kind, frame in sources(spark).items()}
    assert logged == []
    assert {kind for kind, is_there in has.items() if is_there} == {
        "under an alias", "of two", "a struct", "a struct under its own name",
    }  # fmt: skip
    assert not SourceNames(spark.range(1).withColumnRenamed("id", "source")).has_alias("source")


@pytest.mark.parametrize("least", [0, 10**9], ids=["without a join", "by a join"])
def test_merge_logs_no_errors(spark, tmp_path, monkeypatch, logged, least):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": range(6), "v": [0] * 6, "w": range(6)}))
    monkeypatch.setattr(merge_job, "MIN_TARGET_ROWS", least)
    table = LanceTable.forPath(spark, path)
    rows = spark.createDataFrame([(1, 10), (7, 70)], "id long, v long")
    both = "target.id = source.id"
    table.merge(rows, both).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    # The other side of an equation may be of the target, too, and a value of nothing plain.
    inserted = {"id": "source.id", "v": "source.v + 1"}
    table.merge(rows, both + " AND target.id = w").whenMatchedUpdate(set=inserted).execute()
    # A source of two, which have no alias in common.
    other = rows.selectExpr("id AS key", "v AS more").alias("other")
    pairs = rows.alias("source").join(other, sf.expr("source.id = other.key"))
    table.merge(pairs, both).whenMatchedUpdate(set={"w": "other.more"}).execute()
    assert logged == []
    found = sorted((row["id"], row["v"], row["w"]) for row in read_ours(path).to_pylist())
    assert found[:3] == [(0, 0, 0), (1, 11, 10), (2, 0, 2)]
    assert found[-1] == (7, 70, 70)


def test_missing_table_logs_no_errors(spark, tmp_path, logged):
    for name in ("nothing_of_this_name", f"lance.`{tmp_path}/nothing`", "default.nothing"):
        with pytest.raises(TableNotFoundError):
            LanceTable.forName(spark, name)
    assert logged == []
    # What a catalog raises is shown as it is.
    spark.conf.set("spark.sql.catalog.broken", "no.such.Catalog")
    try:
        with pytest.raises(Exception, match=r"no\.such\.Catalog"):
            LanceTable.forName(spark, "broken.t")
    finally:
        spark.conf.unset("spark.sql.catalog.broken")


def test_misspelled_column_error_suggests_names(spark, tmp_path, logged):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": [1], "name": ["a"], "price": [1.0]}))
    table = LanceTable.forPath(spark, path)
    source = spark.createDataFrame([(1, 2.0)], "id long, cost double")
    merge = table.merge(source, "target.id = source.id")
    missing = [
        (lambda: table.update("idd = 1", {"price": "2.0"}), "'idd'", "did you mean 'id'"),
        (lambda: table.update("id = 1", {"price": "pric * 2"}), "'pric'", "did you mean 'price'"),
        (lambda: table.update("id = 1", {"price": sf.col("nam")}), "'nam'", "did you mean 'name'"),
        (lambda: table.delete("upper(namee) = 'A'"), "'namee'", "did you mean 'name'"),
        (lambda: table.delete("zzz = 1 AND id = 1"), "'zzz'", "there are: id, name, price"),
        (lambda: table.delete("t.id = 1"), "'t.id'", "the table is called 'target' here"),
        (
            table.merge(source, "target.idd = source.id").whenMatchedDelete().execute,
            "'target.idd'", "did you mean 'id'",
        ),
        (
            merge.whenMatchedUpdate(set={"price": "source.costs"}).execute,
            "'source.costs'", "did you mean 'cost'",
        ),
        (lambda: table.addColumns({"double": "pric * 2"}), "'pric'", "did you mean 'price'"),
    ]  # fmt: skip
    for change, name, hint in missing:
        with pytest.raises(InvalidInputError, match=f"(?s)no column {name}.*{hint}"):
            change()
    with pytest.raises(InvalidInputError, match=r"'id' is ambiguous(?s:.*)target.id or source.id"):
        table.merge(source, "id = id").whenMatchedDelete().execute()
    assert logged == []
    assert read_ours(path).num_rows == 1
