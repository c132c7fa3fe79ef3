"""Random queries: the plugin, plain Python and Spark over Parquet give the same rows.

Each few conditions run with other settings of the session, which are drawn, and on one of two
tables.  Some run by default, always the same; 20,000 by ``poe nightly-statements``, other ones by
``PYSPARK_LANCE_SEED=8``.  What fails is reported by the smallest condition that does.
"""

from __future__ import annotations

import datetime as dt
import decimal
import os
import random

import pytest
from drawn_settings import drawn, simpler_conditions, simpler_settings, smallest, sql_of
from pyspark.sql import functions as F
from random_seeds import grid
from spark_sessions import session_settings

from pyspark_lance import LanceTable
from pyspark_lance.spark.data_source import LanceDataSource

from .conftest import plan_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled")]

CONDITIONS = int(os.environ.get("PYSPARK_LANCE_TEST_QUERIES", "8"))
SEED = int(os.environ.get("PYSPARK_LANCE_SEED", "7"))
PER_SETTINGS = 8
MAX_FAILURES = 5
ROWS = 400
SCHEMA = (
    "id bigint, b boolean, i8 tinyint, i16 smallint, i32 int, i64 bigint, f32 float, f64 double, "
    "d1 decimal(10,2), d2 decimal(30,5), s string, bin binary, day date, ts timestamp, "
    "ntz timestamp_ntz, st struct<a int, b string, c struct<d double>>, l array<int>, "
    "m map<string, int>"
)
# Of rows by their number: times beyond what Python has, which Spark cannot collect.
FAR = (
    ("CASE id % 5 WHEN 0 THEN timestamp'9999-12-31 23:59:59.999999 America/Los_Angeles' "
    "WHEN 1 THEN timestamp'0001-01-01 00:00:00 Asia/Kathmandu' "
    "WHEN 2 THEN timestamp_micros(9223372036854775807) "
    "WHEN 3 THEN timestamp'2050-07-01 06:30:00Z' END AS far"),
    "date_add(date'9999-12-31', CAST(id % 3 AS int) - 1) AS far_day",
    ("CASE id % 4 WHEN 0 THEN repeat('long ', 2000) WHEN 1 THEN 'a\\0b' "
    "WHEN 2 THEN '😀😀' END AS odd"),
)  # fmt: skip

# For each type, constants as SQL writes them; they meet the values below, and their edges.
CONSTANTS = {
    "b": ["true", "false"],
    "i8": ["0", "127", "-128", "3Y", "300", "1.5", "'7'"],
    "i16": ["0", "-3", "32767", "-32768", "100000", "2.5"],
    "i32": ["0", "5", "-7", "2147483647", "-2147483648", "3000000000", "4.5", "'12'", "1e1"],
    "i64": [
        "0",
        "9223372036854775807",
        "-9223372036854775808",
        "-5",
        "10",
        "9.5",
        "99999999999999999999",
    ],
    "f32": ["0.0f", "float('nan')", "1.5", "1.1", "-0.0f", "float('inf')", "3"],
    "f64": ["0.0d", "double('nan')", "-0.0d", "1.5", "double('-inf')", "7", "1e300"],
    "d1": ["0", "1.50", "1.505", "99999999.99", "-3", "1e3"],
    "d2": [
        "0",
        "1.5",
        "123456789012345678901234.12345",
        "-3.00001",
        "9999999999999999999999999.99999",
        "99999999999999999999999999999999999999",
        "-99999999999999999999999999999999999999",
    ],
    "s": ["''", "'a'", "'ab'", "'é'", "'Zz'", "'%'", "'a_b'", "'😀'"],
    "bin": ["x''", "x'00'", "x'6162'", "x'ff'"],
    "day": [
        "date'2024-02-29'",
        "date'1969-12-31'",
        "date'0001-01-01'",
        "'2024-02-29'",
        "date'9999-12-31'",
    ],
    "far": [
        "timestamp'9999-12-31 23:59:59.999999'",
        "timestamp'0001-01-01 00:00:00'",
        "timestamp_micros(9223372036854775807)",
        "date'9999-12-31'",
        "date'2050-06-30'",
        "timestamp'9999-12-31 23:59:59.999999 America/Los_Angeles'",
        "date'0001-01-01'",
    ],
    "far_day": [
        "date'9999-12-31'",
        "date_add(date'9999-12-31', 1)",
        "date'-0001-12-31'",
        "timestamp'9999-12-31 00:00:00'",
    ],
    "odd": ["repeat('long ', 2000)", "'a\\0b'", "'😀😀'", "'a'", "''"],
    "ts": [
        "timestamp'2024-02-29 12:00:00.000001'",
        "timestamp'1969-12-31 23:59:59.999999'",
        "date'2024-02-29'",
    ],
    "ntz": ["timestamp_ntz'2024-02-29 12:00:00'", "timestamp_ntz'1969-12-31 23:59:59.999999'"],
    "st.a": ["0", "3", "2.5"],
    "st.b": ["'a'", "''"],
    "st.c.d": ["0.0d", "double('nan')"],
}
PATTERNS = [
    "'a%'", "'%b'", "'%a%'", "'a%b'", "'_b'", "'%'", "''", "'a\\\\_b'", "'é%'", "'_'", "'%a%b%'",
    "'a|_%' ESCAPE '|'",
]  # fmt: skip
OTHERS = [
    "b", "NOT b", "b = (i32 > 3)", "upper(s) = 'A'", "length(s) > 1", "size(l) = 1",
    "coalesce(i32, 0) = 0", "m['k'] = 1", "get(l, 0) = 1", "substring(s, 1, 1) IN ('a', '😀')",
    "substr(s, 2) < 'b'", "left(st.b, 1) = 'a'", "substring(s, -1, 1) = 'b'", "left(s, 0) = ''",
]  # fmt: skip
FAMILIES = [
    ["i8", "i16", "i32", "i64", "st.a"], ["f32", "f64", "st.c.d"], ["d1", "d2"], ["s", "st.b"],
    ["day", "ts", "ntz", "far", "far_day"], ["b"], ["bin"],
]  # fmt: skip


def rows(rng):
    """Rows with NULL in every place, NaN, both zeros, edges and repeated values."""
    nan, inf = float("nan"), float("inf")
    utc = dt.UTC
    pools = [
        [True, False],
        [0, 1, 3, 127, -128],
        [0, -3, 2, 32767, -32768],
        [0, 5, 4, -7, 12, 2**31 - 1, -(2**31)],
        [0, 10, 9, -5, 2**63 - 1, -(2**63)],
        [0.0, -0.0, nan, inf, 1.5, 1.100000023841858, 3.0],
        [0.0, -0.0, nan, inf, -inf, 1.5, 7.0, 1e300],
        [decimal.Decimal(x) for x in ("0", "1.50", "1.51", "99999999.99", "-3", "1000")],
        [decimal.Decimal(x) for x in ("0", "1.5", "123456789012345678901234.12345", "-3.00001")],
        ["", "a", "ab", "aab", "é", "éa", "Zz", "%", "a_b", "axb", "😀"],
        [b"", b"\x00", b"ab", b"\xff", b"abc"],
        [dt.date(2024, 2, 29), dt.date(1969, 12, 31), dt.date(1, 1, 1), dt.date(2024, 3, 1)],
        [
            dt.datetime(2024, 2, 29, 12, 0, 0, 1, utc),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999, utc),
            dt.datetime(2024, 2, 29, tzinfo=utc),
        ],
        [dt.datetime(2024, 2, 29, 12), dt.datetime(1969, 12, 31, 23, 59, 59, 999999)],
    ]  # fmt: skip

    def one(pool):
        return None if rng.random() < 0.2 else rng.choice(pool)

    for number in range(ROWS):
        struct = None
        if rng.random() < 0.8:
            inner = None if rng.random() < 0.3 else (one([0.0, nan, 2.0]),)
            struct = (one([0, 3, 2]), one(["a", "", "b"]), inner)
        yield (number, *map(one, pools), struct, one([[], [1], [1, None]]), one([{}, {"k": 1}]))


def condition(rng, depth=0):
    """A random condition that cannot fail on a row."""
    kind = rng.random()
    if depth < 3 and kind < 0.3:
        word = rng.choice(["AND", "OR"])
        return (word, *(condition(rng, depth + 1) for _ in range(rng.randint(2, 3))))
    if depth < 3 and kind < 0.4:
        return (rng.choice(["NOT", "NOT", "IS NULL"]), condition(rng, depth + 1))
    column = rng.choice(list(CONSTANTS))
    constants = CONSTANTS[column]
    operator = rng.choice(["=", "<>", "<", "<=", ">", ">=", "<=>"])
    if kind < 0.5:
        return f"{rng.choice([*CONSTANTS, 'st', 'l', 'm'])} IS {rng.choice(['', 'NOT '])}NULL"
    if kind < 0.6:
        some = [rng.choice(constants) for _ in range(rng.randint(1, 4))]
        some += ["NULL"] * (rng.random() < 0.2)
        return f"{column} {rng.choice(['', 'NOT '])}IN ({', '.join(some)})"
    if kind < 0.68:
        text = rng.choice(["s", "st.b"])
        return f"{text} {rng.choice(['', 'NOT '])}LIKE {rng.choice(PATTERNS)}"
    if kind < 0.72:
        return rng.choice(OTHERS)
    if kind < 0.82:
        family = rng.choice([one for one in FAMILIES if len(one) > 1])
        return f"{rng.choice(family)} {operator} {rng.choice(family)}"
    return f"{column} {operator} {rng.choice(constants)}"


INDICES = {
    "i64": "btree", "far": "btree", "d1": "btree", "s": "bitmap", "i16": "bitmap",
    "far_day": "zonemap",
}  # fmt: skip


def plain_source():
    """The Python source under a name that no Java class answers to.

    Workers cannot import this file, so the class is one that is pickled with its contents.
    """
    members = {"name": classmethod(lambda cls: "plain_lance"), "__module__": "__main__"}
    return type("PlainLance", (LanceDataSource,), members)


@pytest.fixture(scope="module")
def frames(plugin, tmp_path_factory):
    """The same rows through the plugin, plain Python and Parquet.

    Those of ``indexed`` are clustered, and have an index of every kind.
    """
    base = str(tmp_path_factory.mktemp("same"))
    plugin.dataSource.register(plain_source())
    data = plugin.createDataFrame(list(rows(random.Random(5))), SCHEMA).selectExpr("*", *FAR)
    data.coalesce(1).write.parquet(f"{base}/parquet")
    stored = plugin.read.parquet(f"{base}/parquet").coalesce(1).sortWithinPartitions("id")
    stored.write.format("lance").option("max_row_per_file", "150").save(f"{base}/lance")
    stored.write.format("lance").option("max_row_per_file", "90").save(f"{base}/indexed")
    indexed = LanceTable.forPath(plugin, f"{base}/indexed")
    indexed.compact(clusterBy=["i8", "far"])
    for column, kind in INDICES.items():
        indexed.createIndex(column, kind)
    found = {
        "indexed": plugin.read.format("lance").load(f"{base}/indexed"),
        "plugin": plugin.read.format("lance").load(f"{base}/lance"),
        "python": plugin.read.format("plain_lance").load(f"{base}/lance"),
        "parquet": plugin.read.parquet(f"{base}/parquet"),
    }
    for name, frame in found.items():
        frame.createOrReplaceTempView(name)
    return found


def matches_of_all(frame, conditions):
    """For each condition the ids of the rows for which it holds, in one query."""
    columns = [F.expr(one).alias(f"c{number}") for number, one in enumerate(conditions)]
    found = frame.select("id", *columns).collect()
    return [
        sorted(row.id for row in found if row[f"c{number}"]) for number in range(len(conditions))
    ]


def selected(frame, text):
    """The rows for which a condition holds, or why there are none."""
    try:
        return sorted(row.id for row in frame.where(text).select("id").collect())
    except Exception as error:  # noqa: BLE001 - any failure is a difference
        return str(error)[:500]


def differs(plugin, frames, name, given, text):
    with session_settings(plugin, given):
        return selected(frames[name], text) != selected(frames["parquet"], text)


def explained(plugin, frames, name, given, found):
    """The smallest condition and the fewest settings that select other rows than Parquet's do."""
    found = smallest(
        found, simpler_conditions, lambda one: differs(plugin, frames, name, given, sql_of(one))
    )
    text = sql_of(found)
    given = smallest(given, simpler_settings, lambda one: differs(plugin, frames, name, one, text))
    with session_settings(plugin, given):
        own, expected = selected(frames[name], text), selected(frames["parquet"], text)
    return f"{text}\n  on {name} with {given}\n  selects {own}\n  not {expected}"


def test_conditions_select_same_rows(plugin, frames):
    rng, failures = random.Random(SEED), []
    pushed = 0
    for _ in range(CONDITIONS // PER_SETTINGS):
        given, name = drawn(rng), rng.choice(["plugin", "indexed"])
        conditions = [condition(rng) for _ in range(PER_SETTINGS)]
        texts = list(map(sql_of, conditions))
        with session_settings(plugin, given):
            expected = matches_of_all(frames["parquet"], texts)
            assert matches_of_all(frames["python"], texts) == expected, (given, texts)
            own = [selected(frames[name], text) for text in texts]
            plans = [plan_of(frames[name].where(text).select("id")) for text in texts]
        pushed += sum("filters: []" not in plan for plan in plans)
        failures += [
            explained(plugin, frames, name, given, one)
            for one, ids, found in zip(conditions, expected, own, strict=True)
            if ids != found
        ]
        if len(failures) >= MAX_FAILURES:
            break
    assert not failures, "\n".join(failures)
    assert pushed > CONDITIONS // 2


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Kathmandu"])
def test_extreme_values_reach_tasks(plugin, frames, zone):
    """Tables of tests are small: their rows are read where a scan is planned unless disabled."""
    texts = [f"far <= {one}" for one in CONSTANTS["far"]]
    texts += [f"far_day = {one}" for one in CONSTANTS["far_day"][:2]]
    texts += [f"odd = {one}" for one in CONSTANTS["odd"][:3]]
    given = {"spark.sql.lance.smallScanBytes": "0", "spark.sql.session.timeZone": zone}
    with session_settings(plugin, given):
        expected = matches_of_all(frames["parquet"], texts)
        assert [selected(frames["plugin"], text) for text in texts] == expected


QUERIES = (
    "SELECT * EXCEPT (far, far_day) FROM {t} WHERE i32 > 0 OR s LIKE 'a%'",
    "SELECT st.c.d, st.a FROM {t} WHERE st.b = 'a'",
    "SELECT st.c FROM {t} WHERE st.c.d IS NULL",
    "SELECT l, m, bin FROM {t} WHERE NOT (f64 > 1.5)",
    "SELECT count(*), count(s), sum(i32), min(ts), max(f64) FROM {t}",
    "SELECT count(*) FROM {t} WHERE b",
    "SELECT i32, count(*) FROM {t} WHERE day < date'2024-03-01' GROUP BY i32",
    "SELECT a.id, b.id FROM {t} a JOIN {t} b ON a.i64 = b.i64 AND a.id < b.id WHERE a.i8 = 3",
    (
        "SELECT a.id, b.s FROM {t} a "
        "LEFT JOIN (SELECT s, id + 1 AS id FROM {t} WHERE i16 > 0) b USING (id)"
    ),
    "SELECT id FROM {t} WHERE i32 = 5 UNION ALL SELECT id FROM {t} WHERE i32 = 4",
    "SELECT id FROM {t} WHERE i32 IN (SELECT i32 FROM {t} WHERE s = 'ab')",
    "SELECT id FROM {t} x WHERE NOT EXISTS (SELECT 1 FROM {t} y WHERE y.id = x.id + 1 AND y.b)",
    "SELECT count(*) FROM (SELECT id FROM {t} WHERE id > 300 LIMIT 20)",
    "SELECT id, s FROM {t} ORDER BY s NULLS LAST, id LIMIT 15",
    "SELECT DISTINCT f32 FROM {t} WHERE f32 = 0.0f OR f32 > 1e30",
    "SELECT 1 FROM {t} WHERE id < 5",
    "SELECT (SELECT max(id) FROM {t} WHERE b) - id FROM {t} WHERE id < 3",
    "SELECT id, explode(l) AS e FROM {t} WHERE size(l) > 0",
    "SELECT id, rank() OVER (PARTITION BY i8 ORDER BY id) r FROM {t} WHERE i8 IS NOT NULL",
)


@pytest.mark.parametrize(("query", "other"), grid(QUERIES, ("indexed", "python")))
def test_queries_return_same_rows(plugin, frames, query, other):
    def answer(name):
        return sorted(repr(row) for row in plugin.sql(query.format(t=name)).collect())

    given = drawn(random.Random(query))
    with session_settings(plugin, given):
        expected = answer("parquet")
        for name in ("plugin", other):
            assert answer(name) == expected, (name, given)
