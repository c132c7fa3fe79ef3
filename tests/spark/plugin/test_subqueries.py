"""Subqueries and joins with the plugin: which rows their scans read, and what runs once."""

from __future__ import annotations

import pytest
from random_seeds import cases

from pyspark_lance import LanceTable

from .conftest import plan_of, sql

pytestmark = pytest.mark.spark

CBO = "spark.sql.cbo.enabled"
THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"
ROWS = (
    "if(id % 11 = 0, null, id) AS k", "if(id % 13 = 0, null, id % 10) AS g", "id * 7 % 30 AS v",
    "concat('g', id % 3) AS s",
)  # fmt: skip
# What Spark knows of the inner table only once the subquery has become a join.
LATE = {
    "SELECT k FROM {a} WHERE k = 5 AND EXISTS (SELECT 1 FROM {b} WHERE {b}.k = {a}.k)": "k = 5",
    "SELECT k FROM {a} WHERE g = 7 AND g IN (SELECT g FROM {b} WHERE v > 3)": "v > 3",
    "SELECT k FROM {a} WHERE g = 3 AND v > (SELECT avg(v) FROM {b} WHERE {b}.g = {a}.g)": "g = 3",
    "SELECT k FROM {a} WHERE k < 9 AND NOT EXISTS (SELECT 1 FROM {b} WHERE {b}.k = {a}.k)": "",
}


@pytest.fixture(scope="module")
def views(plugin, tmp_path_factory):
    """Two Lance tables, and the same rows of Spark's own."""
    names = {}
    for name, first, last in (("a", 0, 80), ("b", 40, 150)):
        rows = plugin.range(first, last, 1, 1).selectExpr(*ROWS)
        path = str(tmp_path_factory.mktemp("views") / name)
        rows.write.format("lance").save(path)
        plugin.read.format("lance").load(path).createOrReplaceTempView(f"subqueries_{name}")
        rows.createOrReplaceTempView(f"subqueries_own_{name}")
        names[name] = f"subqueries_{name}"
    return names


def own(views):
    return {name: view.replace("subqueries_", "subqueries_own_") for name, view in views.items()}


@pytest.mark.parametrize("query", LATE, ids=["exists", "in", "scalar", "not exists"])
def test_late_condition_reaches_scan(plugin, views, query):
    text = query.format(**views)
    scans = [line for line in plan_of(plugin.sql(text)).split("\n") if "BatchScan" in line]
    (inner,) = (scan for scan in scans if scan.partition(", reads:")[0].endswith("b version 1"))
    assert LATE[query] in inner.partition("filters:")[2]
    assert sql(plugin, text) == sql(plugin, query.format(**own(views)))


def test_identical_subquery_scans_are_reused(plugin, views):
    query = """
        WITH offers AS (SELECT {a}.k, {a}.v FROM {a} JOIN {b} ON {a}.g = {b}.g
          WHERE {b}.v < 5 AND {b}.s = 'g1')
        SELECT k, v FROM offers WHERE v = (
          SELECT min(v) FROM offers AS i WHERE i.k = offers.k)"""
    frame = plugin.sql(query.format(**views))
    found = sorted(frame.collect())
    assert found == sorted(plugin.sql(query.format(**own(views))).collect())
    assert found
    assert "ReusedExchange" in plan_of(frame).partition("Initial Plan")[0]


def test_reordered_conditions_share_one_scan(plugin, views):
    join = "SELECT v FROM {a} JOIN (SELECT g FROM {b} WHERE %s) USING (g)"
    one, other = (join % where for where in ("k > 9 AND v = 1", "v = 1 AND k > 9"))
    frame = plugin.sql(f"{one} UNION ALL {other}".format(**views))
    assert len(frame.collect()) == 2 * plugin.sql(one.format(**own(views))).count()
    assert "ReusedExchange" in plan_of(frame).partition("Initial Plan")[0]


def test_limit_applies_before_condition(plugin, views):
    query = "SELECT count(*) FROM (SELECT * FROM {a} LIMIT 4) WHERE k > 3"
    assert plugin.sql(query.format(**views)).first()[0] == 0


def test_cost_based_optimizer_uses_zone_map_statistics(plugin, tmp_path):
    path = str(tmp_path / "table")
    rows = plugin.range(0, 20_000, 1, 1).selectExpr(
        "id AS k", "id % 100 AS g", "id % 3 AS v", "concat('s', id % 9) AS s"
    )
    rows.write.format("lance").save(path)
    LanceTable.forPath(plugin, path).createIndex("g", kind="zonemap")
    LanceTable.forPath(plugin, path).createIndex("s", kind="bitmap")
    frame = plugin.read.format("lance").load(path)
    frame.createOrReplaceTempView("estimated")
    big = plugin.range(1_000_000)
    query = "SELECT k FROM estimated WHERE g = 4 AND v >= 0"
    kept = {name: plugin.conf.get(name) for name in (CBO, THRESHOLD)}
    try:
        plugin.conf.set(THRESHOLD, "5000")
        small = plugin.sql(query)
        assert "BroadcastHashJoin" not in plan_of(big.join(small, big.id == small.k))
        plugin.conf.set(CBO, "true")
        small = plugin.sql(query)
        assert "BroadcastHashJoin" in plan_of(big.join(small, big.id == small.k))
        for column, groups in (("g", 100), ("s", 9)):
            # A sum of another column, which no index answers.
            query = frame.groupBy(column).sum("k")._jdf.queryExecution().stringWithStats()
            assert f"rowCount={groups})" in query.partition("+-")[0]
        assert small.count() == 200
    finally:
        for name, value in kept.items():
            plugin.conf.set(name, value)


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        ("s LIKE '%g%1%'", r"s LIKE '%g%1%' ESCAPE '\'"),
        ("s NOT LIKE '%g%1%'", r"NOT (s LIKE '%g%1%' ESCAPE '\')"),
        ("(s LIKE '%g%1%' OR v < 3)", r"(s LIKE '%g%1%' ESCAPE '\') OR (v < 3)"),
    ],
)
def test_plan_shows_patterns(plugin, views, condition, shown):
    query = f"SELECT k FROM {{a}} WHERE {condition}"
    assert shown in plan_of(plugin.sql(query.format(**views))).partition("filters:")[2]
    assert sql(plugin, query.format(**views)) == sql(plugin, query.format(**own(views)))


SELF = (
    "id < (SELECT max(id) FROM {t} y WHERE y.g = x.g AND y.id < 60)",
    "v = (SELECT max(v) - 1 FROM {t} y WHERE y.id < x.id)",
    "v >= (SELECT avg(v) FROM {t} y WHERE y.g = x.g AND y.id > x.id)",
    "(SELECT count(*) FROM {t} y WHERE y.g + 1 = x.g AND y.v > x.v) >= 2",
    "EXISTS (SELECT 1 FROM {t} y WHERE y.g = x.g AND y.id > x.id)",
    "id IN (SELECT max(y.id) FROM {t} y WHERE y.v <= x.v GROUP BY y.g)",
    "_rowid > (SELECT count(*) FROM {t} y WHERE y.v <= x.v) AND k IS NOT NULL",
    "v > (SELECT max(c) FROM VALUES (1), (9), (20) o(c) WHERE o.c < x.id)",
    "v > 9 AND v = (SELECT max(v) FROM {t} y WHERE CAST(y.id AS INT) = CAST(x.id AS INT))",
)


@pytest.mark.parametrize("condition", cases(SELF, in_ci=(SELF[0], *SELF[3:7], SELF[8])))
def test_subquery_over_changed_table_finds_its_rows(plugin, tmp_path, condition):
    path = str(tmp_path / "t")
    rows = plugin.range(0, 80, 1, 1).selectExpr("id", *ROWS)
    rows.write.format("lance").option("max_row_per_file", "30").save(path)
    table = f"lance.`{path}`"
    where = condition.format(t=table)
    found = [one for (one,) in sql(plugin, f"SELECT id FROM {table} x WHERE {where}")]
    assert 0 < len(found) < 80
    plugin.sql(f"UPDATE {table} AS x SET s = 'found' WHERE {where}")
    changed = sql(plugin, f"SELECT id FROM {table} WHERE s = 'found'")
    assert [one for (one,) in changed] == found
    plugin.sql(f"DELETE FROM {table} x WHERE {where}")
    left = sql(plugin, f"SELECT id FROM {table}")
    assert sorted(one for (one,) in left) == sorted(set(range(80)) - set(found))
    assert LanceTable.forPath(plugin, path).detail().first().version == 3


def test_subquery_value_over_changed_table_error_suggests_merge(plugin, tmp_path):
    path = str(tmp_path / "t")
    plugin.range(3).selectExpr("id", "0 AS n").write.format("lance").save(path)
    table = f"lance.`{path}`"
    with pytest.raises(Exception, match=r"LANCE_UNSUPPORTED_FEATURE.*\n.*use MERGE INTO"):
        plugin.sql(f"UPDATE {table} x SET n = (SELECT max(id) FROM {table} y WHERE y.id < x.id)")
    plugin.sql(f"""
        MERGE INTO {table} t USING (SELECT id, (SELECT max(id) FROM {table} y WHERE y.id < x.id) n
        FROM {table} x) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = s.n""")
    assert sql(plugin, f"SELECT id, n FROM {table}") == [(0, None), (1, 0), (2, 1)]


@pytest.mark.parametrize(
    ("relation", "expected"),
    [
        ("y.id = x.small", {0: 0, 1: 1, 2: 2, 3: 3}),
        ("CAST(y.small AS BIGINT) = x.id", {0: 0, 1: 1, 2: 2, 3: 3}),
        ("y.id = x.id + 1", {0: 1, 1: 2, 2: 3, 3: None}),
    ],
)
@pytest.mark.parametrize("source", ["{t}", "(SELECT id, CAST(id AS SHORT) AS small FROM range(4))"])
def test_update_sets_value_of_subquery_of_equal_values(
    plugin, tmp_path, relation, expected, source
):
    table = f"lance.`{tmp_path / 't'}`"
    plugin.sql(
        f"CREATE TABLE {table} AS SELECT id, CAST(id AS SHORT) AS small, -1L AS n FROM range(4)"
    )
    values = f"SELECT max(y.id) FROM {source.format(t=table)} y WHERE {relation}"
    plugin.sql(f"UPDATE {table} x SET n = ({values}) WHERE id < 9")
    assert dict(sql(plugin, f"SELECT id, n FROM {table}")) == expected
