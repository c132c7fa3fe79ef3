"""Scans test the keys of a small side of a join, and joins find what they find of all rows."""

from __future__ import annotations

import random

import pytest

from pyspark_lance import LanceTable

from .conftest import rows_read, sql

pytestmark = pytest.mark.spark

PRUNING = "spark.sql.optimizer.dynamicPartitionPruning.enabled"
ROWS = 120_000
FACTS = [
    "if(id % 97 = 0, null, id * 7919 % 3000) AS k", "cast(id % 1500 AS int) AS i",
    "date_add(DATE '2020-01-01', cast(id % 1000 AS int)) AS d", "id AS v",
    "concat('text ', id % 50) AS s",
]  # fmt: skip
KINDS = [
    "if(id % 31 = 0, null, id) AS k", "cast(id AS int) AS i",
    "date_add(DATE '2020-01-01', cast(id AS int)) AS d", "concat('kind ', id % 40) AS name",
]  # fmt: skip
COLUMNS = ["k", "i", "d"]


@pytest.fixture(scope="module")
def tables(plugin, tmp_path_factory):
    """Many facts, some deleted, and a few kinds of them."""
    for name, rows, columns in (("facts", ROWS + 2_000, FACTS), ("kinds", 1_200, KINDS)):
        path = str(tmp_path_factory.mktemp("tested") / name)
        plugin.range(0, rows, 1, 2).selectExpr(*columns).write.format("lance").save(path)
        LanceTable.forPath(plugin, path).delete("i % 70 = 3")
        plugin.read.format("lance").load(path).createOrReplaceTempView(name)
    return plugin


def without(session, query):
    session.conf.set(PRUNING, "false")
    try:
        return sql(session, query)
    finally:
        session.conf.unset(PRUNING)


@pytest.mark.parametrize("column", COLUMNS)
def test_scan_returns_only_rows_with_join_keys(tables, column):
    query = f"""SELECT count(*), sum(v), max(s) FROM facts JOIN kinds USING ({column})
        WHERE name = 'kind 7'"""
    found = sql(tables, query)
    assert rows_read(tables) == [found[0][0]]
    assert found == without(tables, query)


@pytest.mark.parametrize(
    ("query", "scans"),
    [
        ("SELECT sum(v) FROM facts JOIN kinds ON facts.k = kinds.k", 0),  # all kinds
        ("SELECT sum(v) FROM facts JOIN kinds ON facts.k = kinds.k WHERE kinds.i IS NOT NULL", 0),
        ("SELECT sum(v) FROM facts LEFT JOIN kinds ON facts.k = kinds.k AND name = 'kind 1'", 0),
        ("SELECT sum(v) FROM facts WHERE k NOT IN (SELECT k FROM kinds WHERE k < 5)", 0),
        ("SELECT sum(v) FROM facts WHERE k IN (SELECT k FROM kinds WHERE name = 'kind 1')", 1),
        ("""SELECT sum(a) FROM (SELECT k, avg(v) AS a FROM facts GROUP BY k) JOIN kinds USING (k)
        WHERE name = 'kind 1'""", 1),
        ("""SELECT sum(a) FROM (SELECT k + 1 AS k, v AS a FROM facts) JOIN kinds USING (k)
        WHERE name = 'kind 1'""", 0),
        ("""SELECT sum(f.v + g.v) FROM facts f JOIN kinds USING (i) JOIN (SELECT k, v FROM facts
        WHERE v < 40000) g ON f.k = g.k WHERE name = 'kind 1'""", 1),
        ("""SELECT sum(n) FROM (SELECT k, monotonically_increasing_id() AS n FROM facts)
        JOIN kinds USING (k) WHERE name = 'kind 1'""", 0),
        # Both scans are one, which is run once.
        ("""SELECT count(*) FROM facts a JOIN facts b ON a.k = b.k JOIN kinds ON a.k = kinds.k
        WHERE name = 'kind 1'""", 0),
    ],
)  # fmt: skip
def test_runtime_filters_apply_only_to_few_keys(tables, query, scans):
    found = sql(tables, query)
    assert len(rows_read(tables)) == scans
    assert found == without(tables, query)


def test_too_many_keys_leave_all_rows(tables, tmp_path):
    path = str(tmp_path / "many")
    tables.range(0, 200_000, 1, 2).selectExpr("id AS k", "id % 3 AS g").write.format("lance").save(
        path
    )
    tables.read.format("lance").load(path).createOrReplaceTempView("many")
    query = "SELECT count(*), sum(v) FROM facts JOIN many USING (k) WHERE g < 2"
    found = sql(tables, query)
    assert rows_read(tables) == [tables.table("facts").where("k IS NOT NULL").count()]
    assert found == without(tables, query)


JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "FULL JOIN"]
FACT_SIDES = [
    "facts",
    "(SELECT * FROM facts WHERE v % 3 > 0)",
    "(SELECT * FROM facts WHERE s = 'text 7')",
    "(SELECT k, i, d, max(v) AS v FROM facts GROUP BY k, i, d)",
    "(SELECT f.* FROM facts f JOIN kinds o ON f.i = o.i WHERE o.name < 'kind 2')",
    "(SELECT f.* FROM facts f LEFT JOIN kinds o ON f.d = o.d AND o.name = 'kind 3')",
]


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 30))]
)
def test_joins_equal_joins_without_runtime_filters(tables, settings, seed):
    rng = random.Random(seed)
    for _ in range(4):
        settings({"spark.sql.adaptive.enabled": rng.choice(["true", "false"])})
        column, other = rng.choice(COLUMNS), rng.choice(COLUMNS)
        more = f" AND f.{other} = n.{other}" if rng.random() < 0.3 else ""
        condition = rng.choice(["name = 'kind 3'", "name LIKE 'kind 1%'", "k > 1150", "i < 0"])
        small = f"(SELECT * FROM kinds WHERE {condition})"
        sides = [f"{rng.choice(FACT_SIDES)} f", f"{small} n"]
        rng.shuffle(sides)
        join = rng.choice(JOINS)
        names = sides[0][-1] if "SEMI" in join or "ANTI" in join else "f"
        value = "v" if names == "f" else "i"
        query = (
            f"SELECT count(*), sum({names}.{value}), min({names}.d) FROM {sides[0]} {join} "
            f"{sides[1]} ON f.{column} = n.{column}{more}"
        )
        assert sql(tables, query) == without(tables, query), query
