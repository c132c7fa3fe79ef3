"""Scans that Spark plans with the plugin: what is pushed down, and that the rows are right."""

from __future__ import annotations

import re

import lance
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from .conftest import plan_of, sql

pytestmark = [pytest.mark.spark, pytest.mark.interop]


@pytest.fixture(scope="module")
def numbers(plugin, tmp_path_factory):
    """100 rows in 5 fragments; fragments 3 and 4 are of version 2, ten rows were updated in 3."""
    path = str(tmp_path_factory.mktemp("numbers") / "table")
    columns = (
        "id", "id % 7 AS m", "cast(id AS string) AS s", "id % 2 = 0 AS even",
        "named_struct('a', id, 'b', named_struct('c', id * 2, 'd', 'x')) AS st",
    )  # fmt: skip
    plugin.range(0, 60, 1, 1).selectExpr(*columns).write.format("lance").option(
        "max_row_per_file", "20"
    ).save(path)
    plugin.range(60, 100, 1, 1).selectExpr(*columns).write.format("lance").option(
        "max_row_per_file", "20"
    ).mode("append").save(path)
    lance.dataset(path).update({"s": "'changed'"}, where="id >= 80 AND id < 90")
    return path


@pytest.fixture
def frame(plugin, numbers):
    return plugin.read.format("lance").load(numbers)


def test_scan_reads_only_needed_columns_and_rows(frame):
    query = frame.where("id < 10 OR m IN (3, 4) AND s LIKE '9%'").select("st.b.c")
    plan = plan_of(query)
    assert "reads: struct<st:struct<b:struct<c:bigint>>>" in plan
    assert "Filter " not in plan
    assert "(id < 10) OR" in plan
    assert sorted(row.c for row in query.collect()) == [*range(0, 20, 2), 2 * 94, 2 * 95]


def test_untranslatable_conditions_stay_in_spark(frame):
    query = frame.where("id > 90 AND upper(s) = '95' AND length(s) = 2").select("id")
    plan = plan_of(query)
    assert "id > 90" in plan.split("filters:")[1]
    assert "Filter" in plan and "upper" in plan.split("filters:")[0]
    assert [row.id for row in query.collect()] == [95]


@pytest.mark.parametrize(
    ("condition", "wanted"),
    {
        "s NOT LIKE '%c%n%' AND s LIKE '_%5' AND id > 70": [75, 95],
        "s LIKE '4_' AND NOT (s LIKE '%1' OR s LIKE '%_2' OR id > 44)": [40, 43, 44],
        "substring(s, 1, 2) IN ('ch', '95')": [*range(80, 90), 95],
        "left(s, 1) = '3' AND substr(s, 2) < '2'": [3, 30, 31],
    }.items(),
)
def test_text_patterns_are_evaluated_in_scan(frame, condition, wanted):
    query = frame.where(condition).select("id")
    plan = plan_of(query)
    assert "reads: struct<id:bigint>," in plan and "Filter " not in plan
    assert sorted(row.id for row in query.collect()) == wanted
    assert frame.where(condition).count() == len(wanted)
    whole = frame.where(condition)
    assert sorted(row.id for row in whole.collect()) == wanted
    assert "s:string" in plan_of(whole).partition("reads:")[2]


@pytest.mark.parametrize(
    ("condition", "wanted"),
    {
        "substring(s, -1, 1) = '7' AND id < 20": [7, 17],
        "substring(s, 0, 1) = '7' AND id < 20": [7],
        "s LIKE concat('%', id % 10, '_') AND id < 12": [11],
        "s RLIKE '^9.$' AND id < 92": [90, 91],
        "s COLLATE UTF8_LCASE LIKE '%CH%D' AND id < 82": [80, 81],
    }.items(),
)
def test_other_text_conditions_stay_in_spark(frame, condition, wanted):
    query = frame.where(condition).select("id")
    assert "Filter " in plan_of(query)
    assert sorted(row.id for row in query.collect()) == wanted


def test_invalid_utf8_constant_differs_from_replacement_character(plugin, path):
    plugin.createDataFrame([("\ufffd",)], "s string").write.format("lance").save(path)
    frame = plugin.read.format("lance").load(path)
    assert frame.where("s = CAST(X'FF' AS STRING)").count() == 0
    assert frame.where("s = CAST(X'EFBFBD' AS STRING)").count() == 1


@pytest.mark.parametrize("pattern", ["9%\\5_", "_9%\\"])
def test_invalid_pattern_raises_spark_error(frame, pattern):
    query = frame.where(F.col("s").like(pattern)).select("id")
    with pytest.raises(AnalysisException, match="INVALID_FORMAT"):
        query.collect()


def test_fragments_without_new_rows_are_skipped(frame):
    query = frame.where("_row_created_at_version = 2").select("id")
    assert re.search(r"fragments: [23] kept, [34] skipped", plan_of(query))
    assert query.count() == 40
    changed = frame.where("_row_last_updated_at_version > 2")
    assert sorted(row.id for row in changed.select("id").collect()) == list(range(80, 90))
    assert re.search(r"fragments: 1 kept, \d skipped", plan_of(changed))


def test_lineage_columns_are_hidden_but_selectable(plugin, frame, numbers):
    assert frame.columns == ["id", "m", "s", "even", "st"]
    row = frame.where("_rowid = 42").select("id", "_rowid", "_row_created_at_version").first()
    assert tuple(row) == (42, 42, 1)
    joined = frame.select("_rowid", "id").join(
        frame.where("id = 7").select(F.col("_rowid").alias("other")), F.expr("_rowid = other")
    )
    assert [row.id for row in joined.collect()] == [7]
    assert (
        plugin.read.format("lance").option("metadataColumns", "_rowid").load(numbers).columns[-1]
        == "_rowid"
    )


def test_aggregates_are_answered_from_metadata(plugin, frame):
    query = frame.selectExpr("count(*)", "min(_rowid)", "max(_row_last_updated_at_version)")
    assert "LocalTableScan" in plan_of(query) and "BatchScan" not in plan_of(query)
    assert tuple(query.first()) == (100, 0, 3)
    assert frame.count() == 100
    assert frame.where("even").count() == 50
    assert "LocalTableScan" not in plan_of(frame.groupBy("even").count())


def test_bounds_exclude_deleted_rows(plugin, path):
    plugin.range(0, 30, 1, 1).write.format("lance").save(path)
    lance.dataset(path).delete("id < 5 OR id = 29")
    frame = plugin.read.format("lance").load(path)
    assert tuple(frame.selectExpr("count(*)", "min(_rowid)", "max(_rowid)").first()) == (24, 5, 28)
    lance.dataset(path).delete("true")
    empty = plugin.read.format("lance").load(path)
    assert tuple(empty.selectExpr("count(*)", "min(_rowid)").first()) == (0, None)


def test_limit_reads_only_enough_rows(frame):
    query = frame.limit(3)
    assert "limit: 3" in plan_of(query)
    assert query.count() == 3
    assert len(frame.where("id >= 50").limit(30).collect()) == 30
    assert len(frame.orderBy("id").limit(5).collect()) == 5
    assert frame.limit(1000).count() == 100


def test_scans_of_same_frame_are_independent(plugin, frame, numbers):
    assert frame.where("id < 3").count() == 3
    assert frame.count() == 100
    both = frame.where("id < 3").union(frame.where("id >= 97")).select("id")
    assert sorted(row.id for row in both.collect()) == [0, 1, 2, 97, 98, 99]
    assert (
        frame.where("id < 3").crossJoin(frame.where("id < 5").select(F.col("m").alias("n"))).count()
        == 15
    )
    frame.createOrReplaceTempView("numbers")
    plugin.sql(f"CREATE OR REPLACE TEMPORARY VIEW direct USING lance OPTIONS (path '{numbers}')")
    for view in ("numbers", "direct"):
        assert plugin.sql(f"SELECT count(*) FROM {view} WHERE id < 3").first()[0] == 3
        assert plugin.sql(f"SELECT count(*) FROM {view}").first()[0] == 100
        exists = (
            f"SELECT count(*) FROM {view} a WHERE EXISTS "
            f"(SELECT 1 FROM {view} b WHERE b.id = a.id AND b.m = 0)"
        )
        assert plugin.sql(exists).first()[0] == 15
    cached = frame.select("id", "m").cache()
    try:
        assert cached.count() == 100
        assert frame.select("id", "m").where("id < 5").count() == 5
    finally:
        cached.unpersist()


def test_scan_without_columns_keeps_row_count(frame):
    assert frame.where("m = 3").selectExpr("1 AS one").count() == 14
    assert frame.where("m = 3").agg(F.count(F.lit(1))).first()[0] == 14
    assert len(frame.where("id < 4").select(F.lit(7)).collect()) == 4


def test_small_side_is_broadcast(plugin, frame, path):
    plugin.range(1000).withColumn("x", F.rand()).write.format("lance").save(path)
    big = plugin.read.format("lance").load(path)
    threshold = plugin.conf.get("spark.sql.autoBroadcastJoinThreshold")
    plugin.conf.set("spark.sql.autoBroadcastJoinThreshold", "2000")
    try:
        small = frame.select("id", "m").where("_rowid IN (1, 2, 3)")
        assert "BroadcastHashJoin" in plan_of(big.join(small, "id"))
        assert "BroadcastHashJoin" not in plan_of(big.join(frame.select("id", "m", "s"), "id"))
    finally:
        plugin.conf.set("spark.sql.autoBroadcastJoinThreshold", threshold)


def test_broadcast_uses_file_sizes(plugin, path):
    """Texts that files hold in few bytes are broadcast, long ones that they do not are not."""
    ids = plugin.range(2000)
    ids.selectExpr("id", "repeat(id % 3, 40) AS s").write.format("lance").save(path + "/few")
    texts = "concat_ws(' ', transform(sequence(1, 9), x -> md5(concat(x, id)))) AS s"
    ids.selectExpr("id", texts).write.format("lance").save(path + "/many")
    few, many = (plugin.read.format("lance").load(f"{path}/{one}") for one in ("few", "many"))
    big = plugin.range(1_000_000)
    threshold = plugin.conf.get("spark.sql.autoBroadcastJoinThreshold")
    plugin.conf.set("spark.sql.autoBroadcastJoinThreshold", "60000")
    try:
        assert "BroadcastHashJoin" in plan_of(big.join(few, "id"))
        assert "BroadcastHashJoin" in plan_of(big.join(many.select("id"), "id"))
        assert "BroadcastHashJoin" not in plan_of(big.join(many, "id"))
    finally:
        plugin.conf.set("spark.sql.autoBroadcastJoinThreshold", threshold)


def test_frame_keeps_its_version(plugin, path):
    plugin.range(3).write.format("lance").save(path)
    frame = plugin.read.format("lance").load(path)
    plugin.range(4).write.format("lance").mode("append").save(path)
    assert frame.count() == 3
    assert sorted(row.id for row in frame.collect()) == [0, 1, 2]
    assert plugin.read.format("lance").load(path).count() == 7
    assert plugin.read.format("lance").option("version", 1).load(path).count() == 3


def test_options_and_user_schemas_apply(plugin, numbers):
    reader = plugin.read.format("lance")
    rows = reader.schema("id bigint, _rowid bigint").load(numbers).where("id = 3").collect()
    assert [tuple(row) for row in rows] == [(3, 3)]
    filtered = plugin.read.format("lance").option("filter", "id < 10").load(numbers)
    assert filtered.count() == 10
    assert filtered.where("m = 3").select("id").collect() == [(3,)]
    narrow = plugin.read.format("lance").option("columns", "id,_rowid").load(numbers)
    assert narrow.columns == ["id", "_rowid"]
    with pytest.raises(Exception, match="did you mean version"):
        plugin.read.format("lance").option("verison", 1).load(numbers)
    with pytest.raises(Exception, match="LANCE_TABLE_NOT_FOUND"):
        plugin.read.format("lance").load(numbers + "-nothing")


def test_tables_without_stable_ids_have_no_version_columns(plugin, path):
    plugin.range(0, 5, 1, 1).write.format("lance").option("enable_stable_row_ids", "false").save(
        path
    )
    frame = plugin.read.format("lance").load(path)
    assert frame.where("_rowid = 3").select("id").first()[0] == 3
    with pytest.raises(Exception, match="_row_created_at_version"):
        frame.select("_row_created_at_version")


def test_hidden_columns_are_dropped_on_write(plugin, frame, path):
    frame.select("id", "_rowid").write.format("lance").save(path)
    assert lance.dataset(path).schema.names == ["id"]


def test_long_conditions_are_pushed_down(frame):
    many = " OR ".join(f"id = {i} AND m = {i % 7}" for i in range(300))
    assert frame.where(many).count() == 100
    ids = ", ".join(map(str, range(50, 3000)))
    query = frame.where(f"id IN ({ids})")
    assert "Filter " not in plan_of(query)
    assert query.count() == 50


@pytest.fixture(scope="module")
def zoned(plugin, tmp_path_factory):
    """5,000 rows in 5 fragments, with zones of 100 rows; x and the row ids ascend."""
    path = str(tmp_path_factory.mktemp("zoned") / "table")
    plugin.range(0, 5000, 1, 1).selectExpr("id AS x", "id % 7 AS m").write.format("lance").option(
        "maxRowsPerFile", "1000"
    ).save(path)
    plugin.sql(f"CALL lance.system.create_zonemap('{path}', 'x', 100)")
    return path


def read_by(query):
    """Partitions that the scan of the only Lance table of a query read, and rows it returned."""
    scans = [query._jdf.queryExecution().executedPlan()]
    found = []
    while scans:
        node = scans.pop()
        if node.nodeName().startswith("AdaptiveSparkPlan"):
            scans.append(node.executedPlan())
        elif "QueryStage" in node.getClass().getSimpleName():
            scans.append(node.plan())
        elif node.getClass().getSimpleName() == "BatchScanExec":
            if "lance" in node.scan().description():
                found.append(node.metrics().apply("numOutputRows").value())
        else:
            scans += [node.children().apply(n) for n in range(node.children().length())]
    (rows,) = found
    return rows


@pytest.fixture(scope="module")
def zoned_rows(plugin, tmp_path_factory):
    """The same rows as a table with zone maps and as Parquet, with nulls and equal values."""
    folder = tmp_path_factory.mktemp("zoned_rows")
    rows = plugin.range(0, 3000, 1, 1).selectExpr(
        "id AS x",
        "CASE WHEN id % 10 > 0 THEN CAST(id DIV 3 AS int) END AS n",
        "DATE'2020-01-01' + CAST(id DIV 2 AS int) AS d",
        "TIMESTAMP'2020-01-01 00:00:00Z' + make_interval(0, 0, 0, 0, 0, 0, id / 3) AS t",
        "CAST(id AS double) AS f",
        "lpad(CAST(id AS string), 6, '0') AS s",
    )
    rows.write.parquet(f"{folder}/parquet")
    rows.write.format("lance").option("maxRowsPerFile", "1000").save(f"{folder}/lance")
    zones = "CALL lance.system.create_zonemap('{}/lance', 'x, n, d, t, f, s', 100)"
    plugin.sql(zones.format(folder))
    return f"lance.`{folder}/lance`", f"parquet.`{folder}/parquet`"


def first_rows(session, table, order, condition="true"):
    return session.sql(f"SELECT x, n FROM {table} WHERE {condition} ORDER BY {order} LIMIT 12")


def bounds_and_counts(session, table, condition="true"):
    asked = ", ".join(f"min({c}), max({c}), count({c})" for c in ("x", "n", "d", "t"))
    return session.sql(f"SELECT {asked}, count(*) FROM {table} WHERE {condition}")


def test_top_rows_are_read_from_few_zones(plugin, zoned_rows):
    ours, parquet = zoned_rows
    for order in (
        "x",
        "x DESC",
        "n DESC, x",
        "n NULLS LAST, x",
        "d DESC, x DESC",
        "t, x",
        "f DESC",
        "s",
    ):
        query = first_rows(plugin, ours, order)
        assert query.collect() == first_rows(plugin, parquet, order).collect(), order
        assert "top: 12 by" in plan_of(query)
        # Nulls of every zone may be among the first ones; zones are not asked which.
        assert read_by(query) <= (600 if order.startswith("n ") else 200), order
        some = "x % 100 = 7"
        assert (
            first_rows(plugin, ours, order, some).collect()
            == first_rows(plugin, parquet, order, some).collect()
        )


def test_aggregates_of_zoned_columns_are_answered_from_zones(plugin, zoned_rows):
    ours, parquet = zoned_rows
    query = bounds_and_counts(plugin, ours)
    expected = bounds_and_counts(plugin, parquet)
    assert query.schema == expected.schema
    assert query.collect() == expected.collect()
    assert "BatchScan" not in plan_of(query)
    for unknown in ("min(f)", "max(s)", "count(DISTINCT x)", "sum(x)", "min(x + 1)"):
        query = plugin.sql(f"SELECT {unknown} FROM {ours}")
        assert query.collect() == plugin.sql(f"SELECT {unknown} FROM {parquet}").collect()
        assert "BatchScan" in plan_of(query)


def test_zone_statistics_stay_correct_after_deletes(plugin, zoned_rows, path):
    ours, parquet = zoned_rows
    plugin.sql(f"CREATE TABLE lance.`{path}` AS SELECT * FROM {ours}")
    plugin.sql(f"CALL lance.system.create_zonemap('{path}', 'x, n, d, t', 100)")
    plugin.sql(f"DELETE FROM lance.`{path}` WHERE x > 2950 OR x < 40")
    rest = "x BETWEEN 40 AND 2950"
    for order in ("x DESC", "n NULLS LAST, x"):
        query = first_rows(plugin, f"lance.`{path}`", order)
        assert query.collect() == first_rows(plugin, parquet, order, rest).collect()
    query = bounds_and_counts(plugin, f"lance.`{path}`")
    assert query.collect() == bounds_and_counts(plugin, parquet, rest).collect()
    assert "BatchScan" in plan_of(query)


@pytest.fixture
def tasks_read(plugin):
    """Small tables are read by tasks, too, as large ones are."""
    plugin.conf.set("spark.sql.lance.smallScanBytes", "0")
    yield
    plugin.conf.unset("spark.sql.lance.smallScanBytes")


@pytest.mark.usefixtures("tasks_read")
@pytest.mark.parametrize(
    ("key", "wanted", "rows"),
    [("x", [77, 4321], 2), ("_rowid", [3, 4, 5], 3), ("m", [3], 5000), ("x", [9999], 0)],
)
def test_runtime_filter_prunes_by_join_keys(plugin, zoned, key, wanted, rows):
    """The keys are known when the table is read, not when the query is planned."""

    def small(ids):
        texts = ", ".join(f"'{number}'" for number in ids)
        return F.broadcast(plugin.range(10_000).where(f"CAST(id AS string) IN ({texts})"))

    frame = plugin.read.format("lance").load(zoned)
    table = frame.select("x", "m", "_rowid") if key == "_rowid" else frame
    query = table.join(small(wanted), F.col(key) == F.col("id"))
    expected = [x for x in range(5000) if (x % 7 if key == "m" else x) in wanted]
    assert sorted(row.x for row in query.collect()) == expected
    assert read_by(query) == rows
    # Neither the table alone nor a join with others reads by those keys.
    assert table.count() == 5000
    others = table.join(small([5, 6]), F.col(key) == F.col("id"))
    assert others.count() == (1428 if key == "m" else 2)


@pytest.fixture(scope="module")
def untranslated(plugin, tmp_path_factory):
    """A table, and a view of the same rows that no source holds."""
    path = str(tmp_path_factory.mktemp("untranslated") / "table")
    rows = plugin.range(20).selectExpr(
        "id", "IF(id % 4 = 0, NULL, CAST(id AS smallint)) AS i16", "CAST(id AS int) AS i32",
        "CAST(id AS double) AS d", "IF(id % 2 = 0, NULL, DATE'2024-01-01') AS day",
        "id % 3 = 0 AS b", "named_struct('a', IF(id % 5 = 0, NULL, CAST(id AS int))) AS st",
    )  # fmt: skip
    rows.write.format("lance").save(path)
    rows.createOrReplaceTempView("untranslated")
    return f"lance.`{path}`"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM {t} WHERE (isnotnull(d) AND i16 NOT BETWEEN 1BD AND 32767) IS NULL",
        "SELECT id FROM {t} WHERE (st.a <> -1 AND NOT (i32 < -2147483649)) IS NULL",
        "SELECT id FROM {t} WHERE (TIMESTAMP'2024-01-01 12:00:00Z' = day) IS NULL AND i32 > 3",
        "SELECT id FROM {t} WHERE b = (i16 > 32767) OR i32 = 2",
        "SELECT id FROM (SELECT id, b, i16 > 32767 AS k FROM {t}) WHERE k <=> b",
        "SELECT id FROM {t} WHERE id IN (SELECT id FROM {t} WHERE (i16 > 32767) IS NULL)",
        "SELECT count(i16 > 32767), max((i16 > 32767) IS NULL) FROM {t}",
        "SELECT k, count(k) FROM (SELECT i16 > 32767 AS k FROM {t}) GROUP BY k",
        "SELECT id FROM {t} ORDER BY i16 > 32767 NULLS LAST, id LIMIT 3",
    ],
)
def test_untranslatable_predicates_stay_in_spark(plugin, untranslated, query):
    """An AND with NULL, which Spark makes of a comparison that is never true, is an assertion."""
    expected = sql(plugin, query.format(t="untranslated"))
    assert sql(plugin, query.format(t=untranslated)) == expected
