"""Joins and aggregates by the key of a table need no shuffle, and lose no row after any history."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import lance
import pyarrow as pa
import pytest
from zone_map_tables import change_in_place

from pyspark_lance import LanceTable

from .conftest import plan_of, sql

pytestmark = [pytest.mark.spark, pytest.mark.interop]

BUCKETING = "spark.sql.sources.v2.bucketing.enabled"
SETTINGS = {
    BUCKETING: "true",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": "2",
    # Joins by more columns than the key have no shuffle either.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.lance.smallScanBytes": "0",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
# Settings of Spark that let it join partitions in other ways.
WAYS = [
    {},
    {"spark.sql.sources.v2.bucketing.partiallyClusteredDistribution.enabled": "true"},
    {"spark.sql.sources.v2.bucketing.shuffle.enabled": "true"},
]
NOON = datetime(1969, 12, 31, 12, tzinfo=UTC)
KINDS = {
    "string": (pa.string(), "k{}".format),
    "int": (pa.int32(), lambda number: number),
    "date": (pa.date32(), lambda number: date(1970, 1, 2) - timedelta(number)),
    "timestamp": (pa.timestamp("us", "UTC"), lambda number: NOON + timedelta(hours=number)),
    "decimal(20,3)": (pa.decimal128(20, 3), lambda number: Decimal(number) / 8),
    "boolean": (pa.bool_(), lambda number: number % 2 == 0),
    "double": (pa.float64(), lambda number: [0.0, -0.0, float("nan"), 1.5][number % 4]),
}
JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 60))]


@pytest.fixture
def bucketed(plugin, settings):
    """A session that joins tables by their keys, and broadcasts none."""
    settings(SETTINGS)
    return plugin


def rows(rng, kind, count, keys=None):
    arrow, made = KINDS[kind]
    numbers = [rng.choice(keys or [None, *range(5)]) for _ in range(count)]
    values = [None if number is None else made(number) for number in numbers]
    numbers = pa.array(range(count), pa.int32())
    return pa.table({"k": pa.array(values, arrow), "i": pa.array([7] * count), "n": numbers})


def cluster(session, path):
    return LanceTable.forPath(session, path).compact(clusterBy=["k", "n"], splitFilesBy="k")


def make(session, path, rng, kind, stable=True):
    """A table of some keys, sorted by them."""
    lance.write_dataset(rows(rng, kind, 60), path, enable_stable_row_ids=stable)
    lance.dataset(path).create_scalar_index("k", "ZONEMAP")
    cluster(session, path)
    read_again(session, path)


def read_again(session, path):
    """Make the view of a table see its newest version."""
    session.read.format("lance").load(path).createOrReplaceTempView(path.rsplit("/", 1)[1])


def shuffles(session, query):
    return plan_of(session.sql(query)).count("Exchange hashpartitioning")


def rows_of(session, query):
    """Rows as texts, since NaN does not equal NaN."""
    return list(map(repr, sql(session, query)))


def check(session, query):
    """The same rows with shuffles and without; how many shuffles there were fewer."""
    session.conf.set(BUCKETING, "false")
    expected, before = rows_of(session, query), shuffles(session, query)
    session.conf.set(BUCKETING, "true")
    fewer = before - shuffles(session, query)
    assert rows_of(session, query) == expected, query
    return fewer


def test_storage_partitioned_joins_and_groups_avoid_shuffle(bucketed, tmp_path):
    rng = random.Random(1)
    for name in ("a", "b"):
        make(bucketed, str(tmp_path / name), rng, "string")
    joined = "SELECT a.k, count(*), sum(a.n * b.n) FROM a JOIN b ON a.k = b.k GROUP BY a.k"
    assert check(bucketed, joined) == 2 and shuffles(bucketed, joined) == 0
    assert "tasks by: [k]" in plan_of(bucketed.sql(joined))
    some = "SELECT * FROM a JOIN b ON a.k = b.k AND a.n = b.n WHERE b.n < 30 AND a.k > 'k1'"
    assert shuffles(bucketed, some) == 0
    assert shuffles(bucketed, "SELECT k, max(n) FROM a GROUP BY k") == 0
    # Of the columns that are read none is the key, one value of the other is not proven, and the
    # first rows of all are not those of each key.
    for other in ("i, count(*) FROM a GROUP BY i", "n, count(*) FROM a GROUP BY n"):
        assert shuffles(bucketed, f"SELECT {other}") == 1
    limited = "SELECT k, count(*) FROM (SELECT * FROM a LIMIT 25) GROUP BY k"
    assert "tasks by" not in plan_of(bucketed.sql(limited))
    # Rows that no zone map knows, and nothing is said any more.
    path = str(tmp_path / "a")
    before = len(lance.dataset(path).get_fragments())
    bucketed.range(40, numPartitions=4).selectExpr(
        "concat('k', id % 3) AS k", "7L AS i", "CAST(id AS int) AS n"
    ).writeTo(f"lance.`{path}`").append()
    read_again(bucketed, path)
    assert shuffles(bucketed, joined) == 2
    # Each value went to one task, into files of its own.
    assert len(lance.dataset(path).get_fragments()) == before + 3
    LanceTable.forPath(bucketed, path).refreshZonemaps()
    read_again(bucketed, path)
    assert check(bucketed, joined) == 2 and shuffles(bucketed, joined) == 0


def test_joins_by_high_cardinality_key_use_buckets(bucketed, tmp_path):
    for name, count in (("users", 500), ("clicks", 2000)):
        path = str(tmp_path / name)
        ids = bucketed.range(count).selectExpr("id % 500 AS id", f"id AS in_{name}")
        ids.selectExpr("*", "pmod(hash(id), 8) AS bucket").write.format("lance").save(path)
        table = LanceTable.forPath(bucketed, path)
        table.createZonemap("bucket")
        table.compact(clusterBy=["bucket", "id"], splitFilesBy="bucket")
        read_again(bucketed, path)
    for join in JOINS:
        query = f"SELECT * FROM clicks c {join} users u ON c.bucket = u.bucket AND c.id = u.id"
        assert check(bucketed, query) == 2
        assert shuffles(bucketed, query) == 0
    joined = "SELECT c.id, count(*), max(in_users) FROM clicks c JOIN users u"
    by_key = f"{joined} ON c.bucket = u.bucket AND c.id = u.id GROUP BY c.bucket, c.id"
    assert check(bucketed, by_key) == 2
    assert shuffles(bucketed, by_key) == 0
    without = f"{joined} ON c.id = u.id GROUP BY c.id"
    assert rows_of(bucketed, without) == rows_of(bucketed, by_key)
    assert shuffles(bucketed, without) == 2


def random_step(session, path, rng, kind):
    dataset = lance.dataset(path)
    match rng.choice(
        ["append", "update", "merge", "delete", "compact", "column", "refresh", "cluster"]
    ):
        case "append":
            keys = rng.choice([None, [rng.randrange(5)]])
            lance.write_dataset(rows(rng, kind, rng.randint(1, 20), keys), path, mode="append")
        case "update":
            table = LanceTable.forPath(session, path)
            table.update(f"n % 20 = {rng.randrange(20)}", {"k": "NULL"})
        case "merge":
            source = rows(rng, kind, 10).to_pylist()
            session.createDataFrame(source, f"k {kind}, i bigint, n int").createOrReplaceTempView(
                "s"
            )
            session.sql(f"""MERGE INTO lance.`{path}` t USING (SELECT DISTINCT n, k, i FROM s) s
                ON t.n = s.n WHEN MATCHED THEN UPDATE SET k = s.k
                WHEN NOT MATCHED THEN INSERT *""")
        case "delete":
            dataset.delete(f"n % 7 = {rng.randrange(7)}")
        case "compact":
            dataset.optimize.compact_files(target_rows_per_fragment=rng.choice([10, 1000]))
        case "column" if dataset.get_fragments():
            change_in_place(path, rng.choice(dataset.get_fragments()).fragment_id)
        case "refresh":
            rng.choice(
                [
                    LanceTable.forPath(session, path).refreshZonemaps,
                    dataset.optimize.optimize_indices,
                ]
            )()
        case "cluster":
            cluster(session, path)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_histories_join_equally_without_shuffle(bucketed, settings, tmp_path, seed):
    rng = random.Random(seed)
    kind = rng.choice(list(KINDS)) if seed else "timestamp"
    paths = [str(tmp_path / name) for name in ("a", "b")]
    for path in paths:
        make(bucketed, path, rng, kind, stable=rng.random() < 0.8)
    settings(rng.choice(WAYS))
    settings({"spark.sql.adaptive.enabled": rng.choice(["true", "false"])})
    for step in range(2 if seed == 0 else 6):
        if step:
            random_step(bucketed, rng.choice(paths), rng, kind)
        for path in paths:
            read_again(bucketed, path)
        how = rng.choice(JOINS)
        more = rng.choice(["", " AND a.n < b.n", " AND a.i = b.i"])
        other = "" if "SEMI" in how or "ANTI" in how else ", b.k AS bk, b.n AS bn"
        where = rng.choice(["", " WHERE a.n < 30", " WHERE a.k IS NOT NULL"])
        fewer = check(bucketed, f"SELECT a.k, a.n{other} FROM a {how} b ON a.k = b.k{more}{where}")
        assert fewer >= 0
        assert kind != "double" or fewer == 0
        assert step or kind == "double" or fewer == 2
        counted = [
            Counter(map(repr, lance.dataset(path).to_table()["k"].drop_null().to_pylist()))
            for path in paths
        ]
        if kind != "double":
            ((count,),) = sql(bucketed, "SELECT count(*) FROM a JOIN b ON a.k = b.k")
            assert count == sum(own * counted[1][key] for key, own in counted[0].items())
        check(bucketed, "SELECT k, count(*), min(n), sum(n) FROM b GROUP BY k")
