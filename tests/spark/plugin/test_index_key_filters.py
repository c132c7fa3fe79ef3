"""Joins and changes look for the keys that the other side has, and find what all rows give."""

from __future__ import annotations

import random
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from random_seeds import seeds

from pyspark_lance import LanceTable

from .conftest import rows_of_nodes, rows_read, sql

pytestmark = [pytest.mark.spark, pytest.mark.interop]

ROWS = 3_000
# Small tables are read while planning, or sent to all tasks whole.
LARGE = {
    "spark.sql.lance.smallScanBytes": "0",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
KINDS = {
    "bigint": (pa.int64(), lambda key: key),
    "int": (pa.int32(), lambda key: key),
    "string": (pa.string(), lambda key: f"k{key}"),
    "date": (pa.date32(), lambda key: date(1970, 1, 1) + timedelta(key)),
    "decimal(9,2)": (pa.decimal128(9, 2), Decimal),
}


def slow(*cases):
    return (pytest.param(case, marks=pytest.mark.slow) for case in cases)


@pytest.fixture
def large(plugin, settings):
    """A session that takes no table for small."""
    settings(LARGE)
    return plugin


def rows(keys, kind="bigint"):
    arrow, made = KINDS[kind]
    values = pa.array([None if key is None else made(key) for key in keys], arrow)
    return pa.table(
        {"k": values, "n": pa.array(range(len(keys)), pa.int64()), "s": ["old"] * len(keys)}
    )


def write(path, keys, kind="bigint", index="BTREE"):
    """Three fragments, an index over two of them, and rows that were deleted since."""
    third = len(keys) // 3
    for start in (0, third):
        part = rows(keys[start : start + third], kind)
        lance.write_dataset(part, path, mode="append" if start else "create")
    if index:
        lance.dataset(path).create_scalar_index("k", index)
    lance.write_dataset(rows(keys[2 * third :], kind), path, mode="append")
    lance.dataset(path).delete("n % 100 = 7")


def content(path):
    return sorted(map(repr, lance.dataset(path).to_table().to_pylist()))


@pytest.mark.parametrize(
    "statement",
    [
        """MERGE INTO {t} t USING s ON t.k = s.k
        WHEN MATCHED AND s.n > 5 THEN UPDATE SET n = s.n WHEN MATCHED THEN DELETE
        WHEN NOT MATCHED THEN INSERT *""",
        *slow(
            "MERGE INTO {t} t USING s ON t.k = s.k AND t.n > 3 WHEN MATCHED THEN DELETE",
            "UPDATE {t} SET s = 'new' WHERE k IN (SELECT k FROM s)",
        ),
        "DELETE FROM {t} t WHERE EXISTS (SELECT 1 FROM s WHERE s.k = t.k AND s.n > 5)",
    ],
)
def test_change_reads_only_rows_with_matching_keys(large, path, statement):
    keys = random.Random(1).sample(range(ROWS), ROWS)
    write(path, keys)
    covered = keys[: 2 * ROWS // 3]
    made = large.sparkContext.accumulator(0)

    def one(row):
        made.add(1)
        return row

    source = [(key, number, "new") for number, key in enumerate([*covered[:20], ROWS + 1, None])]
    few = large.createDataFrame(
        large.sparkContext.parallelize(source, 2).map(one), "k bigint, n bigint, s string"
    )
    few.createOrReplaceTempView("s")
    large.sql(statement.format(t=f"lance.`{path}`"))
    (read,) = rows_read(large)
    assert read <= 20 + ROWS // 3  # no index knows the last fragment
    assert made.value == len(source)


def rows_of_key_filters(session):
    return rows_of_nodes(session, "Filter", "might_contain")


UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


@pytest.mark.parametrize("clauses", [UPSERT, "WHEN MATCHED THEN DELETE"], ids=["upsert", "delete"])
@pytest.mark.parametrize("kind", ["bigint", "string", *slow("int", "date", "decimal(9,2)")])
def test_merge_without_index_shuffles_few_rows(large, settings, path, kind, clauses):
    settings({"spark.sql.lance.keyFilterRows": "1000"})
    keys = [*random.Random(3).sample(range(ROWS), ROWS - 3), None, None, None]
    write(path, keys, kind, index=None)
    made = large.sparkContext.accumulator(0)
    value = KINDS[kind][1]
    source = [(value(key), -1, "new") for key in range(0, 2 * ROWS, 60)]
    source.append((None, -2, "new"))

    def one(row):
        made.add(1)
        return row

    large.createDataFrame(
        large.sparkContext.parallelize(source, 2).map(one), f"k {kind}, n bigint, s string"
    ).createOrReplaceTempView("s")
    before = lance.dataset(path).to_table()
    large.sql(f"MERGE INTO lance.`{path}` t USING s ON t.k = s.k {clauses}")
    (kept,) = rows_of_key_filters(large)
    wanted = {key for key, *_ in source if key is not None}
    matched = [row for row in before.to_pylist() if row["k"] in wanted]
    assert len(matched) <= kept <= len(matched) + ROWS // 50
    assert made.value == len(source)
    expected = [row for row in before.to_pylist() if row["k"] not in wanted]
    if clauses == UPSERT:
        expected += [{"k": key, "n": n, "s": s} for key, n, s in source]
    assert content(path) == sorted(map(repr, expected))


def test_merge_filters_by_all_keys_of_equal_bytes(large, settings, path):
    settings({"spark.sql.lance.keyFilterRows": "1000"})
    numbers = pa.array(range(ROWS), pa.int64())
    floats = pa.array([0.0 if number % 2 else -0.0 for number in range(ROWS)])
    lance.write_dataset(pa.table({"k": numbers, "f": floats, "n": numbers}), path)
    rows = large.range(0, ROWS, 100).selectExpr("id AS k", "0D AS f", "-1L AS n")
    rows.createOrReplaceTempView("s")
    large.sql(f"MERGE INTO lance.`{path}` t USING s ON t.f = s.f AND t.k = s.k {UPSERT}")
    (kept,) = rows_of_key_filters(large)
    assert ROWS // 100 <= kept <= ROWS // 100 + ROWS // 50
    found = lance.dataset(path).to_table()
    assert found.num_rows == ROWS
    assert sorted(found.filter(pc.field("n") == -1)["k"].to_pylist()) == [*range(0, ROWS, 100)]


@pytest.mark.parametrize(
    ("rows", "index", "clauses"),
    [
        (str(ROWS + 1), None, UPSERT),
        ("1000", "BTREE", UPSERT),
        ("1000", None, f"{UPSERT} WHEN NOT MATCHED BY SOURCE THEN DELETE"),
    ],
    ids=["small table", "few keys that an index finds", "rows without a match"],
)
def test_merge_that_needs_no_key_filter_has_none(large, settings, path, rows, index, clauses):
    settings({"spark.sql.lance.keyFilterRows": rows})
    write(path, range(ROWS), index=index)
    sources = large.range(0, 2 * ROWS, 60).selectExpr("id AS k", "-1L AS n", "'new' AS s")
    sources.createOrReplaceTempView("s")
    large.sql(f"MERGE INTO lance.`{path}` t USING s ON t.k = s.k {clauses}")
    assert not rows_of_key_filters(large)
    found = lance.dataset(path).to_table(["k"], filter="s = 'new'")["k"]
    assert sorted(found.to_pylist()) == [*range(0, 2 * ROWS, 60)]


@pytest.mark.parametrize("index", ["BTREE", "ZONEMAP"])
def test_merge_looks_many_keys_up(large, path, index):
    keys = np.random.default_rng(4).permutation(1_100_000)
    lance.write_dataset(pa.table({"k": keys, "n": keys}), path)
    lance.dataset(path).create_scalar_index("k", index)
    source = large.range(0, 1_100_000, 20).selectExpr("id AS k", "-1L AS n").cache()
    assert source.count() == 55_000  # so that their number is known
    source.createOrReplaceTempView("s")
    large.sql(f"MERGE INTO lance.`{path}` t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET *")
    if index == "BTREE":
        assert rows_read(large) == [55_000]
    assert bool(rows_of_key_filters(large)) == (index == "ZONEMAP")
    changed = lance.dataset(path).to_table(["k"], filter="n = -1")["k"]
    assert sorted(changed.to_pylist()) == [*range(0, 1_100_000, 20)]
    source.unpersist()


def test_merge_of_underestimated_keys_is_filtered(large, settings, path):
    """Spark expects half of the keys, as it does of projections without statistics."""
    settings({"spark.sql.lance.keyFilterRows": "1000"})
    write(path, range(10 * ROWS))
    sources = large.range(0, 60_000).selectExpr("id AS k", "-1L AS n", "'new' AS s")
    sources.createOrReplaceTempView("s")
    large.sql(f"MERGE INTO lance.`{path}` t USING s ON t.k = s.k WHEN MATCHED THEN DELETE")
    assert rows_of_key_filters(large)
    assert not content(path)


def test_clustered_upsert_opens_only_files_of_keys(large, path):
    lance.write_dataset(rows(random.Random(2).sample(range(ROWS), ROWS)), path)
    lance.dataset(path).create_scalar_index("k", "ZONEMAP")
    LanceTable.forPath(large, path).compact(clusterBy=["k"], targetRowsPerFragment=ROWS // 10)
    batch = range(ROWS // 10 + 5, ROWS // 10 + 45)
    keys = [
        (fragment, fragment.to_table(["k"])["k"])
        for fragment in lance.dataset(path).get_fragments()
    ]
    others = [
        Path(path, "data", file.path)
        for fragment, k in keys
        if not pc.any(pc.is_in(k, pa.array(batch))).as_py()
        for file in fragment.data_files()
    ]
    assert len(others) == 9
    large.createDataFrame(
        [(key, -1, "new") for key in batch], "k long, n long, s string"
    ).createOrReplaceTempView("s")
    for file in others:  # opening one fails
        file.rename(file.with_suffix(".away"))
    large.sql(
        f"MERGE INTO lance.`{path}` t USING s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    for file in others:
        file.with_suffix(".away").rename(file)
    found = lance.dataset(path).to_table().sort_by("k")
    assert found["k"].to_pylist() == list(range(ROWS))
    assert found.filter(pc.field("s") == "new")["k"].to_pylist() == list(batch)


@pytest.mark.parametrize(
    "statement",
    [
        """MERGE INTO {t} t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET s = 'new'
        WHEN NOT MATCHED BY SOURCE THEN DELETE""",
        "DELETE FROM {t} WHERE k NOT IN (SELECT k FROM s WHERE k IS NOT NULL)",
    ],
)
def test_rows_without_key_are_read_if_changed(large, path, statement):
    write(path, list(range(ROWS)))
    large.createDataFrame([(3,), (5,)], "k bigint").createOrReplaceTempView("s")
    large.sql(statement.format(t=f"lance.`{path}`"))
    assert rows_read(large) == []
    assert sorted(lance.dataset(path).to_table()["k"].to_pylist()) == [3, 5]


def test_too_many_keys_disable_pruning(large, path):
    write(path, list(range(ROWS)))
    before = lance.dataset(path).count_rows()
    # The keys of the table come last, so a limit of the keys would drop them.
    large.range(ROWS - 60_000, ROWS).toDF("k").createOrReplaceTempView("s")
    large.sql(
        f"MERGE INTO lance.`{path}` t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET s = 'new' "
        "WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)"
    )
    assert rows_read(large) == [before]
    after = lance.dataset(path).to_table()
    assert len(after) == 60_000
    assert after["s"].to_pylist().count("new") == before


def test_wider_integers_prune_narrower_column(large, path):
    write(path, list(range(ROWS)), "int")
    large.createDataFrame([(1,), (2**40 + 2,), (3,)], "k bigint").createOrReplaceTempView("s")
    large.sql(f"DELETE FROM lance.`{path}` WHERE k IN (SELECT k FROM s)")
    assert rows_read(large)[0] <= 3 + ROWS // 3
    left = lance.dataset(path).to_table()["k"].to_pylist()
    assert {1, 2, 3} & set(left) == {2}


CLAUSES = [
    "WHEN MATCHED THEN UPDATE SET s = concat(t.s, '+', s.s)",
    "WHEN MATCHED AND s.n % 2 = 0 THEN UPDATE SET n = s.n WHEN MATCHED THEN DELETE",
    "WHEN NOT MATCHED THEN INSERT *",
    "WHEN MATCHED THEN UPDATE SET n = t.n + 1 WHEN NOT MATCHED AND s.n % 3 > 0 THEN INSERT *",
    """WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)
    WHEN NOT MATCHED BY SOURCE AND t.n % 7 = 1 THEN UPDATE SET s = 'left'""",
]
OTHERS = [
    "UPDATE {t} SET s = 'in' WHERE k IN (SELECT k FROM s)",
    "UPDATE {t} SET s = 'not' WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.k = {t}.k) AND n % 5 = 0",
    "DELETE FROM {t} WHERE k IN (SELECT k FROM s WHERE n % 2 = 0)",
    "DELETE FROM {t} WHERE n < 500 OR k IN (SELECT k FROM s)",
]
JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]


def random_statement(rng):
    if rng.random() < 0.4:
        return rng.choice(OTHERS)
    more = rng.choice(["", "", " AND t.n % 4 > 0", " AND t.n > s.n"])
    return f"MERGE INTO {{t}} t USING s ON t.k = s.k{more} {rng.choice(CLAUSES)}"


@pytest.mark.parametrize("seed", seeds(40, in_ci=1))
def test_random_statements_change_same_rows_with_index(large, tmp_path, seed):
    rng = random.Random(seed)
    kind = rng.choice(list(KINDS))
    keys = rng.sample(range(ROWS * 2), ROWS - 5) + [None] * 5
    rng.shuffle(keys)
    paths = [str(tmp_path / name) for name in ("with", "without")]
    for path, index in zip(paths, [rng.choice(["BTREE", "BITMAP", "ZONEMAP"]), None], strict=True):
        write(path, keys, kind, index)
    large.conf.set("spark.sql.adaptive.enabled", rng.choice(["true", "false"]))
    for _ in range(3):
        source = [*rng.sample(range(ROWS * 2), rng.choice([0, 3, 30])), None, None]
        few = large.createDataFrame(rows(source, kind)).repartition(2)
        few.createOrReplaceTempView("s")
        large.sql("SELECT /*+ BROADCAST(s) */ * FROM s").createOrReplaceTempView("hinted")
        statement = random_statement(rng)
        if rng.random() < 0.3:
            statement = statement.replace("USING s ", "USING hinted s ")
        for path in paths:
            large.sql(statement.format(t=f"lance.`{path}`"))
        assert content(paths[0]) == content(paths[1]), statement
        join, other = rng.choice(JOINS), rng.choice(["s", "hinted s"])
        query = f"FROM lance.`{{}}` t {join} {other} ON t.k = s.k"
        found = [sql(large, f"SELECT count(*), sum(t.n) {query.format(path)}") for path in paths]
        assert found[0] == found[1], query
    large.conf.unset("spark.sql.adaptive.enabled")
