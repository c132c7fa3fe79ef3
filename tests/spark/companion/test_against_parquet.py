"""Random queries: the companion, plain Python and Spark over Parquet give the same rows.

Some conditions run by default, always the same; 2,000 by ``poe nightly-statements``.
"""

from __future__ import annotations

import datetime as dt
import decimal
import os
import random

import pytest
from pyspark.sql import functions as F

from pyspark_lance.spark.data_source import LanceDataSource

from .conftest import plan_of

pytestmark = pytest.mark.spark

CONDITIONS = int(os.environ.get("PYSPARK_LANCE_TEST_QUERIES", "12"))
ROWS = 400
SCHEMA = (
    "id bigint, b boolean, i8 tinyint, i16 smallint, i32 int, i64 bigint, f32 float, f64 double, "
    "d1 decimal(10,2), d2 decimal(30,5), s string, bin binary, day date, ts timestamp, "
    "ntz timestamp_ntz, st struct<a int, b string, c struct<d double>>, l array<int>, "
    "m map<string, int>"
)

# For each type, constants as SQL writes them; they meet the values below, and their edges.
CONSTANTS = {
    "b": ["true", "false"],
    "i8": ["0", "127", "-128", "3Y", "300", "1.5", "'7'"],
    "i16": ["0", "-3", "32767", "100000", "2.5"],
    "i32": ["0", "5", "-7", "2147483647", "3000000000", "4.5", "'12'", "1e1"],
    "i64": ["0", "9223372036854775807", "-5", "10", "9.5", "99999999999999999999"],
    "f32": ["0.0f", "float('nan')", "1.5", "1.1", "-0.0f", "float('inf')", "3"],
    "f64": ["0.0d", "double('nan')", "-0.0d", "1.5", "double('-inf')", "7", "1e300"],
    "d1": ["0", "1.50", "1.505", "99999999.99", "-3", "1e3"],
    "d2": ["0", "1.5", "123456789012345678901234.12345", "-3.00001"],
    "s": ["''", "'a'", "'ab'", "'é'", "'Zz'", "'%'", "'a_b'", "'😀'"],
    "bin": ["x''", "x'00'", "x'6162'", "x'ff'"],
    "day": ["date'2024-02-29'", "date'1969-12-31'", "date'0001-01-01'", "'2024-02-29'"],
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
    ["day", "ts", "ntz"], ["b"], ["bin"],
]  # fmt: skip


def rows(chance):
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
        return None if chance.random() < 0.2 else chance.choice(pool)

    for number in range(ROWS):
        struct = None
        if chance.random() < 0.8:
            inner = None if chance.random() < 0.3 else (one([0.0, nan, 2.0]),)
            struct = (one([0, 3, 2]), one(["a", "", "b"]), inner)
        yield (number, *map(one, pools), struct, one([[], [1], [1, None]]), one([{}, {"k": 1}]))


def condition(chance, depth=0):
    """SQL of a random condition that cannot fail on a row."""
    kind = chance.random()
    if depth < 3 and kind < 0.3:
        word = chance.choice([" AND ", " OR "])
        terms = [condition(chance, depth + 1) for _ in range(chance.randint(2, 3))]
        return "(" + word.join(terms) + ")"
    if depth < 3 and kind < 0.4:
        return f"NOT ({condition(chance, depth + 1)})"
    column = chance.choice(list(CONSTANTS))
    constants = CONSTANTS[column]
    operator = chance.choice(["=", "<>", "<", "<=", ">", ">=", "<=>"])
    if kind < 0.5:
        return f"{chance.choice([*CONSTANTS, 'st', 'l', 'm'])} IS {chance.choice(['', 'NOT '])}NULL"
    if kind < 0.6:
        some = [chance.choice(constants) for _ in range(chance.randint(1, 4))]
        some += ["NULL"] * (chance.random() < 0.2)
        return f"{column} {chance.choice(['', 'NOT '])}IN ({', '.join(some)})"
    if kind < 0.68:
        text = chance.choice(["s", "st.b"])
        return f"{text} {chance.choice(['', 'NOT '])}LIKE {chance.choice(PATTERNS)}"
    if kind < 0.72:
        return chance.choice(OTHERS)
    if kind < 0.82:
        family = chance.choice([one for one in FAMILIES if len(one) > 1])
        return f"{chance.choice(family)} {operator} {chance.choice(family)}"
    return f"{column} {operator} {chance.choice(constants)}"


def plain_source():
    """The Python source under a name that no Java class answers to.

    Workers cannot import this file, so the class is one that is pickled with its contents.
    """
    members = {"name": classmethod(lambda cls: "plain_lance"), "__module__": "__main__"}
    return type("PlainLance", (LanceDataSource,), members)


@pytest.fixture(scope="module")
def frames(companion, tmp_path_factory):
    """The same rows through the companion, plain Python and Parquet."""
    base = str(tmp_path_factory.mktemp("same"))
    companion.dataSource.register(plain_source())
    data = companion.createDataFrame(list(rows(random.Random(5))), SCHEMA).coalesce(1)
    data.write.parquet(f"{base}/parquet")
    stored = companion.read.parquet(f"{base}/parquet").coalesce(1).sortWithinPartitions("id")
    stored.write.format("lance").option("max_row_per_file", "150").save(f"{base}/lance")
    found = {
        "companion": companion.read.format("lance").load(f"{base}/lance"),
        "plain": companion.read.format("plain_lance").load(f"{base}/lance"),
        "parquet": companion.read.parquet(f"{base}/parquet"),
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


def test_conditions_select_the_same_rows(frames):
    chance = random.Random(11)
    conditions = [condition(chance) for _ in range(CONDITIONS)]
    expected = matches_of_all(frames["parquet"], conditions)
    assert matches_of_all(frames["plain"], conditions) == expected
    pushed = 0
    for text, ids in zip(conditions, expected, strict=True):
        query = frames["companion"].where(text).select("id")
        assert sorted(row.id for row in query.collect()) == ids, text
        pushed += "filters: []" not in plan_of(query)
    assert pushed > CONDITIONS // 2


QUERIES = (
    "SELECT * FROM {t} WHERE i32 > 0 OR s LIKE 'a%'",
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


@pytest.mark.parametrize("query", QUERIES)
def test_queries_return_the_same_rows(companion, frames, query):
    def answer(name):
        return sorted(repr(row) for row in companion.sql(query.format(t=name)).collect())

    expected = answer("parquet")
    assert answer("companion") == expected
    assert answer("plain") == expected
