"""PRIMARY KEY … NOT ENFORCED of Spark's SQL is the primary key that the table's fields declare."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import lance
import pyarrow as pa
import pytest
from spark_releases import needs

from pyspark_lance import LanceTable
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.interop, needs("constraints of tables")]

COLUMNS = "region STRING NOT NULL, id BIGINT NOT NULL, v STRING"
MARK = b"lance-schema:unenforced-primary-key"
PLACES = {"id": b"1", "region": b"2"}
KINDS = [("region", pa.string()), ("id", pa.int64()), ("v", pa.string())]


@pytest.fixture
def name(plugin):
    """A name in the session catalog, free again after the test."""
    yield "keyed"
    plugin.sql("DROP TABLE IF EXISTS keyed")


def constraints_shown(session, table):
    rows = session.sql(f"DESCRIBE EXTENDED {table}").collect()
    names = [row.col_name for row in rows]
    if "# Constraints" not in names:
        return []
    return [row.data_type for row in rows[names.index("# Constraints") + 1 :] if row.data_type][:1]


def test_primary_key_is_created_with_table(plugin, path):
    table = f"lance.`{path}`"
    key = "CONSTRAINT k PRIMARY KEY (ID, region) NOT ENFORCED"
    plugin.sql(f"CREATE TABLE {table} ({COLUMNS}, {key})")
    assert LanceTable.forPath(plugin, path).primaryKey() == ["id", "region"]
    assert lance.dataset(path).version == 1
    assert lance.dataset(path).schema.field("id").metadata[MARK] == b"true"
    (shown,) = constraints_shown(plugin, table)
    assert "PRIMARY KEY (id, region) NOT ENFORCED" in shown
    plugin.sql(f"INSERT INTO {table} VALUES ('a', 1, 'x'), ('b', 1, 'y')")
    rows = plugin.createDataFrame(
        [("b", 1, "new"), ("c", 1, "z")], "region string, id long, v string"
    )
    merged = LanceTable.forPath(plugin, path).merge(rows)
    merged.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert sorted(plugin.table(table).collect()) == [
        ("a", 1, "x"), ("b", 1, "new"), ("c", 1, "z"),
    ]  # fmt: skip
    plugin.sql(f"CREATE OR REPLACE TABLE {table} ({COLUMNS}, PRIMARY KEY (id))")
    assert LanceTable.forPath(plugin, path).primaryKey() == ["id"]
    plugin.sql(f"CREATE OR REPLACE TABLE {table} ({COLUMNS})")
    assert LanceTable.forPath(plugin, path).primaryKey() == []
    assert constraints_shown(plugin, table) == []


def test_primary_key_is_added_once(plugin, path, name):
    plugin.sql(f"CREATE TABLE {name} ({COLUMNS}) USING lance LOCATION '{path}'")
    plugin.sql(f"ALTER TABLE {name} ADD CONSTRAINT k PRIMARY KEY (region, id) NOT ENFORCED")
    assert LanceTable.forPath(plugin, path).primaryKey() == ["region", "id"]
    assert "PRIMARY KEY (region, id)" in constraints_shown(plugin, name)[0]
    with pytest.raises(Exception, match="which cannot be changed"):
        plugin.sql(f"ALTER TABLE {name} ADD CONSTRAINT j PRIMARY KEY (id)")
    with pytest.raises(Exception, match="primary key stays"):
        plugin.sql(f"ALTER TABLE {name} DROP CONSTRAINT primary_key")
    # A table that is there gets a name, and keeps its key.
    plugin.sql(f"DROP TABLE {name}")
    with pytest.raises(Exception, match="without this primary key"):
        plugin.sql(
            f"CREATE TABLE {name} ({COLUMNS}, PRIMARY KEY (id)) USING lance LOCATION '{path}'"
        )


def test_primary_key_columns_are_not_nullable(plugin, path):
    table = f"lance.`{path}`"
    plugin.sql(f"CREATE TABLE {table} (id BIGINT, v STRING, PRIMARY KEY (v))")
    assert not lance.dataset(path).schema.field("v").nullable
    plugin.sql(f"CREATE OR REPLACE TABLE {table} (id BIGINT, v STRING)")
    with pytest.raises(Exception, match="'id' of the primary key may be null"):
        plugin.sql(f"ALTER TABLE {table} ADD CONSTRAINT k PRIMARY KEY (id)")


def test_primary_key_of_pylance_is_shown(plugin, path):
    field = pa.field("id", pa.int64(), nullable=False, metadata={MARK: b"true"})
    lance.write_dataset(pa.table([[1]], schema=pa.schema([field])), path)
    assert "PRIMARY KEY (id)" in constraints_shown(plugin, f"lance.`{path}`")[0]


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("PRIMARY KEY (place)", "'place' cannot be part of a primary key"),
        ("PRIMARY KEY (other)", "other"),
    ],
)
def test_invalid_primary_keys_are_refused(plugin, path, key, what):
    with pytest.raises(Exception, match=what):
        plugin.sql(f"CREATE TABLE lance.`{path}` ({COLUMNS}, place STRUCT<x: INT>, {key})")


def test_constraints_of_other_tables_are_refused(plugin, tmp_path):
    for statement in (
        "CREATE TABLE of_parquet (id BIGINT NOT NULL, PRIMARY KEY (id)) USING parquet",
        "CREATE OR REPLACE TABLE of_parquet (id BIGINT NOT NULL, PRIMARY KEY (id)) USING parquet",
    ):
        with pytest.raises(Exception, match=r"does not support|no Lance table"):
            plugin.sql(statement)
    assert not plugin.catalog.tableExists("of_parquet")


def test_concurrent_merges_insert_each_key_once(plugin, path):
    table = f"lance.`{path}`"
    plugin.sql(f"CREATE TABLE {table} (id BIGINT NOT NULL, n BIGINT, PRIMARY KEY (id))")

    def merge(n):
        source = f"(SELECT id, {n} AS n FROM range({n}, 20) AS new (id))"
        plugin.sql(
            f"MERGE INTO {table} t USING {source} s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(merge, range(3)))
    rows = plugin.table(table).collect()
    assert sorted(row.id for row in rows) == list(range(20))
    # The last merge changed all of its rows.
    assert any(all(row.n == n for row in rows if row.id >= n) for n in range(3))


def by_sql(session, path, rows):
    rows.createOrReplaceTempView("given")
    session.sql(
        f"MERGE INTO lance.`{path}` t USING given s ON t.id = s.id AND t.region = s.region "
        "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
    )


def by_condition(session, path, rows):
    """As a join of Spark's, since a value is an expression."""
    values = {"id": "s.id", "region": "upper(s.region)", "v": "s.v"}
    merge = (
        LanceTable.forPath(session, path)
        .alias("t")
        .merge(
            rows.selectExpr("id", "lower(region) AS region", "v").alias("s"),
            "t.id = s.id AND t.region = upper(s.region)",
        )
    )
    merge.whenMatchedUpdate(set={"v": "s.v"}).whenNotMatchedInsert(values=values).execute()


def by_changes(session, path, rows):
    changes = rows.selectExpr("*", "'insert' AS _change_type", "2L AS _commit_version")
    LanceTable.forPath(session, path).applyChanges(changes, source="s")


@pytest.mark.parametrize("merge", [by_sql, by_condition, by_changes])
def test_merges_record_inserted_keys_like_pylance(plugin, tmp_path, merge):
    key = {name: {MARK: b"true", MARK + b":position": place} for name, place in PLACES.items()}
    schema = pa.schema(
        [pa.field(name, kind, nullable=name == "v", metadata=key.get(name)) for name, kind in KINDS]
    )
    first = pa.table([["A", "B"], [1, 1], ["old", "old"]], schema=schema)
    new = pa.table([["C", "D"], [7, 8], ["new"] * 2], schema=schema)
    ours, from_pylance = str(tmp_path / "ours"), str(tmp_path / "theirs")
    for path in (ours, from_pylance):
        lance.write_dataset(first, path, enable_stable_row_ids=True)
    merge(plugin, ours, plugin.createDataFrame(new.to_pandas()))
    dataset = lance.dataset(from_pylance).merge_insert(["id", "region"])
    dataset.when_matched_update_all().when_not_matched_insert_all().execute(new)
    noted = [
        Snapshot.open(Table(path)).file.transaction().operation.inserted_rows
        for path in (ours, from_pylance)
    ]
    assert noted[0] == noted[1]
    rows = lance.dataset(ours).to_table().to_pylist()
    assert sorted(map(str, rows)) == sorted(
        map(str, lance.dataset(from_pylance).to_table().to_pylist())
    )
