"""PRIMARY KEY … NOT ENFORCED of Spark's SQL is the primary key that the table's fields declare."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import lance
import pyarrow as pa
import pytest

from pyspark_lance import LanceTable

pytestmark = [pytest.mark.spark, pytest.mark.interop]

COLUMNS = "region STRING NOT NULL, id BIGINT NOT NULL, v STRING"
MARK = b"lance-schema:unenforced-primary-key"


@pytest.fixture
def name(companion):
    """A name in the session catalog, free again after the test."""
    yield "keyed"
    companion.sql("DROP TABLE IF EXISTS keyed")


def constraints_shown(session, table):
    rows = session.sql(f"DESCRIBE EXTENDED {table}").collect()
    names = [row.col_name for row in rows]
    if "# Constraints" not in names:
        return []
    return [row.data_type for row in rows[names.index("# Constraints") + 1 :] if row.data_type][:1]


def test_a_key_is_made_with_the_table(companion, path):
    table = f"lance.`{path}`"
    key = "CONSTRAINT k PRIMARY KEY (ID, region) NOT ENFORCED"
    companion.sql(f"CREATE TABLE {table} ({COLUMNS}, {key})")
    assert LanceTable.forPath(companion, path).primaryKey() == ["id", "region"]
    assert lance.dataset(path).version == 1
    assert lance.dataset(path).schema.field("id").metadata[MARK] == b"true"
    (shown,) = constraints_shown(companion, table)
    assert "PRIMARY KEY (id, region) NOT ENFORCED" in shown
    companion.sql(f"INSERT INTO {table} VALUES ('a', 1, 'x'), ('b', 1, 'y')")
    rows = companion.createDataFrame(
        [("b", 1, "new"), ("c", 1, "z")], "region string, id long, v string"
    )
    merged = LanceTable.forPath(companion, path).merge(rows)
    merged.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert sorted(companion.table(table).collect()) == [
        ("a", 1, "x"), ("b", 1, "new"), ("c", 1, "z"),
    ]  # fmt: skip
    companion.sql(f"CREATE OR REPLACE TABLE {table} ({COLUMNS}, PRIMARY KEY (id))")
    assert LanceTable.forPath(companion, path).primaryKey() == ["id"]
    companion.sql(f"CREATE OR REPLACE TABLE {table} ({COLUMNS})")
    assert LanceTable.forPath(companion, path).primaryKey() == []
    assert constraints_shown(companion, table) == []


def test_a_key_is_added_once_and_stays(companion, path, name):
    companion.sql(f"CREATE TABLE {name} ({COLUMNS}) USING lance LOCATION '{path}'")
    companion.sql(f"ALTER TABLE {name} ADD CONSTRAINT k PRIMARY KEY (region, id) NOT ENFORCED")
    assert LanceTable.forPath(companion, path).primaryKey() == ["region", "id"]
    assert "PRIMARY KEY (region, id)" in constraints_shown(companion, name)[0]
    with pytest.raises(Exception, match="which cannot be changed"):
        companion.sql(f"ALTER TABLE {name} ADD CONSTRAINT j PRIMARY KEY (id)")
    with pytest.raises(Exception, match="primary key stays"):
        companion.sql(f"ALTER TABLE {name} DROP CONSTRAINT primary_key")
    # A table that is there gets a name, and keeps its key.
    companion.sql(f"DROP TABLE {name}")
    with pytest.raises(Exception, match="without this primary key"):
        companion.sql(
            f"CREATE TABLE {name} ({COLUMNS}, PRIMARY KEY (id)) USING lance LOCATION '{path}'"
        )


def test_columns_of_a_key_are_never_null(companion, path):
    table = f"lance.`{path}`"
    companion.sql(f"CREATE TABLE {table} (id BIGINT, v STRING, PRIMARY KEY (v))")
    assert not lance.dataset(path).schema.field("v").nullable
    companion.sql(f"CREATE OR REPLACE TABLE {table} (id BIGINT, v STRING)")
    with pytest.raises(Exception, match="'id' of the primary key may be null"):
        companion.sql(f"ALTER TABLE {table} ADD CONSTRAINT k PRIMARY KEY (id)")


def test_a_key_that_pylance_declared_is_shown(companion, path):
    field = pa.field("id", pa.int64(), nullable=False, metadata={MARK: b"true"})
    lance.write_dataset(pa.table([[1]], schema=pa.schema([field])), path)
    assert "PRIMARY KEY (id)" in constraints_shown(companion, f"lance.`{path}`")[0]


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("PRIMARY KEY (place)", "'place' cannot be part of a primary key"),
        ("PRIMARY KEY (other)", "other"),
    ],
)
def test_what_cannot_be_a_key_is_said(companion, path, key, what):
    with pytest.raises(Exception, match=what):
        companion.sql(f"CREATE TABLE lance.`{path}` ({COLUMNS}, place STRUCT<x: INT>, {key})")


def test_constraints_of_other_tables_are_not_forgotten_in_silence(companion, tmp_path):
    for statement in (
        "CREATE TABLE of_parquet (id BIGINT NOT NULL, PRIMARY KEY (id)) USING parquet",
        "CREATE OR REPLACE TABLE of_parquet (id BIGINT NOT NULL, PRIMARY KEY (id)) USING parquet",
    ):
        with pytest.raises(Exception, match=r"does not support|no Lance table"):
            companion.sql(statement)
    assert not companion.catalog.tableExists("of_parquet")


def test_merges_at_once_insert_each_new_key_once(companion, path):
    table = f"lance.`{path}`"
    companion.sql(f"CREATE TABLE {table} (id BIGINT NOT NULL, n BIGINT, PRIMARY KEY (id))")

    def merge(n):
        source = f"(SELECT id, {n} AS n FROM range({n}, 20) AS new (id))"
        companion.sql(
            f"MERGE INTO {table} t USING {source} s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(merge, range(3)))
    rows = companion.table(table).collect()
    assert sorted(row.id for row in rows) == list(range(20))
    # Whoever came last changed all of its rows.
    assert any(all(row.n == n for row in rows if row.id >= n) for n in range(3))
