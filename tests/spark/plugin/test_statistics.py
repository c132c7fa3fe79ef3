"""Statistics of columns with the plugin: what an analysis keeps, shows, and changes in plans."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

from .conftest import plan_of

pytestmark = pytest.mark.spark

CBO = {"spark.sql.cbo.enabled": "true", "spark.sql.cbo.joinReorder.enabled": "true"}
SMALL = {**CBO, "spark.sql.autoBroadcastJoinThreshold": "20000"}
ROWS = (
    "id AS k", "id % 400 AS g", "cast(id % 50 AS decimal(12, 2)) / 4 AS price",
    "date_add(DATE '2020-01-01', cast(id % 90 AS int)) AS day", "id % 2 = 0 AS even",
    "if(id % 4 = 0, null, concat('word ', id % 30)) AS word", "array(id) AS list",
    "timestamp_ntz '2020-01-01 00:00:00' + make_dt_interval(id % 5) AS seen", "id / 3.0D AS rows",
)  # fmt: skip


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "rows")


@pytest.fixture(scope="module")
def written(plugin, tmp_path_factory):
    """A table of 20,000 rows and nine columns, of which each test has a copy."""
    path = str(tmp_path_factory.mktemp("written") / "rows")
    plugin.range(0, 20_000, 1, 2).selectExpr(*ROWS).write.format("lance").save(path)
    return path


@pytest.fixture
def table(plugin, written, path):
    return LanceTable.forPath(plugin, shutil.copytree(written, path))


def described(spark, path, column):
    """What Spark shows of a column, without what it does not know."""
    rows = spark.sql(f"DESCRIBE EXTENDED lance.`{path}` {column}").collect()
    shown = {name: value for name, value in rows if value != "NULL"}
    # Spark shows bounds as Java does.
    return {name: re.sub(r"^Optional\[(.*)\]$", r"\1", value) for name, value in shown.items()}


def test_describe_extended_shows_analyzed_statistics(plugin, path, table):
    name = f"lance.`{path}`"
    assert "distinct_count" not in described(plugin, path, "g")
    plugin.sql(f"EXPLAIN ANALYZE TABLE {name} COMPUTE STATISTICS FOR ALL COLUMNS").collect()
    assert "distinct_count" not in described(plugin, path, "g")
    plugin.sql(f"ANALYZE TABLE {name} COMPUTE STATISTICS FOR COLUMNS g, WORD")
    assert "distinct_count" not in described(plugin, path, "k")
    known = described(plugin, path, "g")
    assert (known["min"], known["max"], known["num_nulls"]) == ("0", "399", "0")
    assert abs(int(known["distinct_count"]) - 400) <= 40
    known = described(plugin, path, "word")
    assert (known["num_nulls"], known["avg_col_len"], known["max_col_len"]) == ("5000", "7", "7")
    plugin.sql(f"ANALYZE TABLE {name} COMPUTE STATISTICS FOR ALL COLUMNS")
    ends = {
        column: (known.get("min"), known.get("max"))
        for column in ("k", "price", "day", "even", "seen", "rows", "list")
        for known in (described(plugin, path, column),)
    }
    assert ends.pop("rows")[0] == "0.0"
    assert ends == {
        "k": ("0", "19999"), "price": ("0.000000", "12.250000"), "list": (None, None),
        "day": ("18262", "18351"), "even": ("false", "true"),
        "seen": ("1577836800000000", "1578182400000000"),
    }  # fmt: skip


@pytest.mark.slow
def test_many_columns_are_analyzed_in_several_passes(plugin, tmp_path):
    path = str(tmp_path / "wide")
    names = [f"c {number}" for number in range(70)]
    columns = [f"id % {number + 1} AS `{name}`" for number, name in enumerate(names)]
    plugin.range(0, 300, 1, 2).selectExpr(*columns).write.format("lance").save(path)

    def kept():
        config = Snapshot.open(Table(path)).manifest.config.items()
        known = {key: json.loads(value) for key, value in config if "statistics" in key}
        return {key: value | {"version": None} for key, value in known.items()}

    assert LanceTable.forPath(plugin, path).analyze().version == 2
    by_table = kept()
    assert len(by_table) == len(names)
    plugin.sql(f"ANALYZE TABLE lance.`{path}` COMPUTE STATISTICS FOR COLUMNS `c 0`")
    plugin.sql(f"ANALYZE TABLE lance.`{path}` COMPUTE STATISTICS FOR ALL COLUMNS")
    assert kept() == by_table
    for number in (0, 31, 32, 63, 64, 69):
        known = described(plugin, path, f"`c {number}`")
        assert (known["min"], known["max"], known["num_nulls"]) == ("0", str(number), "0")
        assert abs(int(known["distinct_count"]) - (number + 1)) <= 7


def test_filtered_join_side_is_broadcast(plugin, table, settings):
    rows = table.toDF()
    query = "g = 7 AND price > 1"
    big = plugin.range(1_000_000)

    def is_broadcast():
        few = rows.where(query).select("k", "word")
        return "BroadcastHashJoin" in plan_of(big.join(few, big.id == few.k))

    settings(SMALL)
    assert not is_broadcast()
    table.analyze()
    rows = table.toDF()
    assert is_broadcast()
    assert rows.where(query).count() == big.join(rows.where(query), big.id == rows.k).count()


def test_statistics_change_join_order(plugin, settings, tmp_path):
    tables = {
        "facts": (20_000, "id AS a", "id % 400 AS b"),
        "few": (600, "id % 100 AS h"),  # but each joins with many
        "some": (5_000, "id AS m"),
    }
    for name, (rows, *columns) in tables.items():
        path = str(tmp_path / name)
        plugin.range(0, rows, 1, 1).selectExpr(*columns).write.format("lance").save(path)
    settings({**CBO, "spark.sql.autoBroadcastJoinThreshold": "-1"})

    def order():
        for name in tables:
            rows = plugin.read.format("lance").load(str(tmp_path / name))
            rows.createOrReplaceTempView(f"joined_{name}")
        found = plugin.sql(
            "SELECT count(*) FROM joined_facts JOIN joined_few ON b = h JOIN joined_some ON a = m"
        )
        scans = [line for line in plan_of(found).split("\n") if "BatchScan" in line]
        return [name for scan in scans for name in tables if f"/{name}" in scan]

    assert order() == ["facts", "few", "some"]
    for name in tables:
        LanceTable.forPath(plugin, str(tmp_path / name)).analyze()
    assert order() == ["facts", "some", "few"]


def test_statistics_are_scaled_and_dropped_with_row_changes(plugin, path, table):
    assert table.analyze(["k", "g", "word"]).version == 2
    table.compact(targetRowsPerFragment=10**6)
    plugin.range(20_000, 30_000, 1, 1).selectExpr(*ROWS).write.format("lance").mode("append").save(
        path
    )
    known = described(plugin, path, "k")
    assert abs(int(known["distinct_count"]) - 30_000) <= 3_000
    assert "min" not in known
    assert described(plugin, path, "word")["num_nulls"] == "7500"
    assert abs(int(described(plugin, path, "g")["distinct_count"]) - 400) <= 40
    table.delete("k >= 4000")
    assert "distinct_count" not in described(plugin, path, "g")
    table.analyze("g")
    table.addColumns({"other": "g"})
    table.dropColumns("g")
    table.addColumns({"g": "cast(other AS string)"})
    assert "distinct_count" not in described(plugin, path, "g")


def test_pylance_keeps_stored_statistics(plugin, path, table):
    import lance
    import pyarrow as pa

    table.analyze("k")
    dataset = lance.dataset(path)
    (text,) = (value for key, value in dataset.config().items() if "statistics" in key)
    assert json.loads(text)["num_rows"] == 20_000
    dataset.update({"g": "g + 1"}, where="k < 100")
    dataset.optimize.compact_files()
    assert abs(int(described(plugin, path, "k")["distinct_count"]) - 20_000) <= 2_000
    lance.write_dataset(pa.table({"k": pa.array(range(9000))}), path, mode="overwrite")
    known = described(plugin, path, "k")
    assert "min" not in known
    assert abs(int(known.get("distinct_count", 9000)) - 9_000) <= 900


def test_unanalyzable_columns_are_named(plugin, path, table):
    name = f"lance.`{path}`"
    for run in (
        lambda column: table.analyze(column),
        lambda column: plugin.sql(
            f"ANALYZE TABLE {name} COMPUTE STATISTICS FOR COLUMNS k, {column}"
        ),
    ):
        with pytest.raises(Exception, match="there is no column 'wrd'") as refused:
            run("wrd")
        assert "did you mean 'word'?" in str(refused.value)
        with pytest.raises(Exception, match="'list' is array<bigint>"):
            run("list")
    with pytest.raises(InvalidInputError):
        table.analyze(["k", "list"])
    assert table.detail().first().version == 1


def test_sorted_numbers_are_sized_as_rows_for_broadcast(plugin, tmp_path):
    rows, path = 1_000_000, tmp_path / "sorted"
    plugin.range(0, rows, 1, 1).write.format("lance").save(str(path))
    in_files = sum(file.stat().st_size for file in (path / "data").iterdir())
    assert in_files < 3 * rows
    frame = plugin.read.format("lance").load(str(path))
    size = int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())
    assert 1.3 * in_files < size < 4 * rows
