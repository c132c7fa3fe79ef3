"""Statements that would do nothing, or half of what they say, are refused by name."""

from __future__ import annotations

import json
import os
import shutil

import lance
import pytest
from pyspark.errors import AnalysisException
from spark_releases import needs

from pyspark_lance import LanceTable

from .conftest import sql

pytestmark = [pytest.mark.spark, pytest.mark.interop]


@pytest.fixture
def name(plugin, request):
    """A name in the session catalog, free again after the test."""
    name = f"r_{abs(hash(request.node.name)) % 10**9}"
    yield name
    plugin.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture(scope="module")
def written(plugin, tmp_path_factory):
    """A table of which each test has a copy."""
    path = str(tmp_path_factory.mktemp("written") / "table")
    plugin.sql(f"CREATE TABLE lance.`{path}` (id bigint, v string)")
    plugin.sql(f"INSERT INTO lance.`{path}` VALUES (1, 'a')")
    return path


@pytest.fixture
def table(written, path):
    """A path with a table, as SQL names it."""
    return f"lance.`{shutil.copytree(written, path)}`"


def properties(session, name):
    """The properties that SQL shows of a table."""
    return dict(sql(session, f"SHOW TBLPROPERTIES {name}"))


def test_path_table_is_not_dropped_renamed_or_moved(plugin, path, table):
    version = lance.dataset(path).version
    for statement, says in (
        (f"DROP TABLE IF EXISTS {table}", r"LANCE_UNSUPPORTED_FEATURE.*\n.*\n.*DELETE FROM"),
        (f"ALTER TABLE {table} RENAME TO lance.other", r"LANCE_UNSUPPORTED_FEATURE.*\n.*\n.*move"),
        (
            f"ALTER TABLE {table} SET LOCATION '{path}2'",
            r"LANCE_UNSUPPORTED_FEATURE.*\n.*\n.*LOCATION",
        ),
        (f"CREATE TABLE lance.`{path}2` (id int) LOCATION '{path}3'", "LANCE_INVALID_INPUT"),
    ):
        with pytest.raises(Exception, match=says) as refused:
            plugin.sql(statement)
        assert path in str(refused.value)
        assert "Traceback" not in str(refused.value)
    assert sql(plugin, f"SELECT * FROM {table}") == [(1, "a")]
    assert lance.dataset(path).version == version
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]


def test_missing_path_table_is_dropped_with_if_exists(plugin, path):
    plugin.sql(f"DROP TABLE IF EXISTS lance.`{path}`")
    with pytest.raises(Exception, match=r"LANCE_TABLE_NOT_FOUND|TABLE_OR_VIEW_NOT_FOUND"):
        plugin.sql(f"DROP TABLE lance.`{path}`")
    plugin.sql(f"CREATE TABLE lance.`{path}` (id int) LOCATION '{path}'")
    assert plugin.table(f"lance.`{path}`").columns == ["id"]


def test_catalog_root_is_not_dropped(plugin):
    with pytest.raises(Exception, match="the root of a catalog cannot be dropped"):
        plugin.sql("DROP NAMESPACE lance.main CASCADE")


def test_table_location_is_fixed_and_properties_change(plugin, name, path):
    plugin.sql(f"CREATE TABLE {name} (id int) USING lance TBLPROPERTIES (team = 'web', kind = 'x')")
    with pytest.raises(Exception, match="LANCE_UNSUPPORTED_FEATURE"):
        plugin.sql(f"ALTER TABLE {name} SET LOCATION '{path}'")
    plugin.sql(f"INSERT INTO {name} VALUES (1)")
    assert LanceTable.forName(plugin, name).toDF().count() == 1
    assert not os.path.exists(path)
    plugin.sql(f"ALTER TABLE {name} SET TBLPROPERTIES (kind = 'y')")
    plugin.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES (team)")
    assert properties(plugin, name) == {"kind": "y"}
    assert LanceTable.forName(plugin, name).properties() == {"kind": "y"}


def test_registered_table_requires_stored_properties(plugin, name, path, table):
    plugin.sql(f"ALTER TABLE {table} SET TBLPROPERTIES (team = 'web', kind = 'x')")
    create = f"CREATE TABLE {name} USING lance LOCATION '{path}' TBLPROPERTIES "
    with pytest.raises(Exception, match="LANCE_INVALID_INPUT") as refused:
        plugin.sql(create + "(team = 'sales')")
    assert path in str(refused.value)
    assert sql(plugin, f"SHOW TABLES LIKE '{name}'") == []
    plugin.sql(create + "(team = 'web')")
    assert properties(plugin, name) == {"team": "web", "kind": "x"}
    plugin.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES (team)")
    assert properties(plugin, name) == {"kind": "x"}


def test_path_property_is_not_location(plugin, name, path, table):
    plugin.sql(f"CREATE TABLE {name} (other int) USING lance TBLPROPERTIES (path = '{path}')")
    assert plugin.table(name).columns == ["other"]
    assert properties(plugin, name) == {"path": path}


def test_invalid_storage_properties_are_refused(plugin, name):
    for given, says in (
        ("fileFormatVersion = 9", "use one of 0.1, 2.0"),
        ("`id.fixed_size_list` = 3", "needs an array column"),
        ("mergeSchema = true", "mergeSchema is an option"),
    ):
        with pytest.raises(Exception, match=says):
            plugin.sql(f"CREATE TABLE {name} (id int) USING lance TBLPROPERTIES ({given})")
        with pytest.raises(Exception, match=says):
            plugin.sql(f"CREATE TABLE {name} USING lance TBLPROPERTIES ({given}) AS SELECT 1 id")
        assert sql(plugin, f"SHOW TABLES LIKE '{name}'") == []


def test_storage_properties_apply_to_new_table(plugin, path):
    plugin.sql(
        f"CREATE TABLE lance.`{path}` (id bigint, v array<float>) TBLPROPERTIES "
        "(fileFormatVersion = '2.0', `v.fixed_size_list` = 2, `team.json` = 'kept', version = '1')"
    )
    plugin.sql(f"INSERT INTO lance.`{path}` VALUES (1, array(1f, 2f))")
    made = lance.dataset(path)
    assert made.data_storage_version == "2.0"
    assert "fixed_size_list" in str(made.schema.field("v").type)
    assert properties(plugin, f"lance.`{path}`") == {"team.json": "kept", "version": "1"}


def test_missing_path_error_suggests_nearby_tables(plugin, path, table):
    typo = path[:-1]
    for statement in (
        f"SELECT * FROM lance.`{typo}`",
        f"DELETE FROM lance.`{typo}`",
        f"INSERT INTO lance.`{typo}` VALUES (1, 'a')",
        f"SELECT * FROM lance.`{typo}` VERSION AS OF 1",
    ):
        with pytest.raises(AnalysisException, match="LANCE_TABLE_NOT_FOUND") as missing:
            plugin.sql(statement)
        assert f"did you mean {path}?" in str(missing.value)
    with pytest.raises(AnalysisException, match=r"there is no table nothing in the catalog"):
        plugin.sql("SELECT * FROM lance.nothing")
    assert not plugin.catalog.tableExists(f"lance.`{typo}`")
    plugin.range(2).write.saveAsTable(f"lance.`{typo}`")
    plugin.range(2).writeTo(f"lance.`{typo}2`").create()
    assert lance.dataset(typo).count_rows() == lance.dataset(f"{typo}2").count_rows() == 2


def test_timestamp_as_of_accepts_function_call(plugin, table):
    at = f"{table} TIMESTAMP AS OF now() + INTERVAL 1 HOUR"
    assert sql(plugin, f"SELECT * FROM {at}") == [(1, "a")]
    assert sql(plugin, f"WITH past AS (SELECT id FROM {at}) SELECT * FROM past") == [(1,)]
    inside = f"SELECT id FROM range(3) WHERE id IN (SELECT id FROM {at})"
    assert sql(plugin, inside) == [(1,)]


def test_narrowed_views_are_not_changed(plugin, path):
    plugin.sql("SELECT id, array(float(id), 1f) AS v FROM range(20)").write.format("lance").option(
        "v.fixed_size_list", 2
    ).save(path)
    nearest = json.dumps({"column": "v", "k": 2, "q": [1.0, 1.0]})
    part = "CREATE OR REPLACE TEMP VIEW part USING lance"
    for options, statement, says in (
        (f"nearest '{nearest}'", "DELETE FROM part", "a search cannot be deleted"),
        ("version '1'", "INSERT INTO part SELECT * FROM part", "option version is read-only"),
        ("filter 'id > 10'", "INSERT OVERWRITE part SELECT * FROM part", "filter shows a part"),
    ):
        plugin.sql(f"{part} OPTIONS (path '{path}', {options})")
        with pytest.raises(Exception, match=rf"LANCE_INVALID_INPUT.*{says}"):
            plugin.sql(statement)
    assert lance.dataset(path).version == 1


def test_unsupported_alter_table_error_uses_sql_terms(plugin, path, table):
    with pytest.raises(AnalysisException, match=r"ALTER COLUMN … FIRST or AFTER is not") as refused:
        plugin.sql(f"ALTER TABLE {table} ALTER COLUMN v FIRST")
    assert path in str(refused.value)
    assert "RENAME COLUMN, ALTER COLUMN … TYPE" in str(refused.value)
    with pytest.raises(AnalysisException, match="there is no table '' in the catalog"):
        plugin.sql("SELECT * FROM lance.``")


@pytest.mark.parametrize(
    ("columns", "what", "way"),
    [
        *(
            pytest.param(*refused, marks=needs("constraints of tables"))
            for refused in (
                ("a INT CHECK (a > 0)", "CHECK", "before writing"),
                ("a INT, CONSTRAINT one UNIQUE (a)", "UNIQUE", "MERGE INTO"),
                ("a INT REFERENCES others(a)", "FOREIGN KEY", "LEFT ANTI JOIN"),
            )
        ),
        ("a INT, b INT GENERATED ALWAYS AS (a + 1)", "generated columns", "compute b"),
        ("a BIGINT GENERATED ALWAYS AS IDENTITY", "identity columns", "_rowid"),
    ],
)
def test_constraints_and_generated_columns_are_refused_with_hint(plugin, path, columns, what, way):
    for statement in (
        f"CREATE TABLE lance.`{path}` ({columns})",
        f"CREATE OR REPLACE TABLE lance.`{path}` ({columns})",
        f"CREATE TABLE constrained ({columns}) USING lance",
    ):
        with pytest.raises(Exception, match=rf"no {what}.*\n  hint: .*{way}"):
            plugin.sql(statement)
    assert not os.path.exists(path)
    # What is not ours is left to Spark.
    with pytest.raises(Exception, match=r"does not support|constraints of .* no Lance table"):
        plugin.sql(f"CREATE TABLE constrained ({columns}) USING parquet")
    assert not plugin.catalog.tableExists("constrained")


@needs("constraints of tables")
@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("ADD CONSTRAINT one CHECK (id > 0)", "CHECK"),
        ("ADD CONSTRAINT one UNIQUE (id)", "UNIQUE"),
        ("DROP CONSTRAINT one", "constraints"),
    ],
)
def test_constraints_cannot_be_added_or_dropped_later(plugin, path, table, change, what):
    with pytest.raises(Exception, match=rf"FEATURE\] Lance tables have no {what}"):
        plugin.sql(f"ALTER TABLE {table} {change}")
    assert lance.dataset(path).version == 2


def test_change_feed_of_name_is_refused(plugin, tmp_path):
    """Spark has its columns before the options, so the feed would lack those of changes."""
    path = str(tmp_path / "t")
    plugin.range(3).write.format("lance").save(path)
    feed = plugin.read.option("startingVersion", 1).option("readChangeFeed", "true")
    with pytest.raises(Exception, match=r"(?s)needs the path of a table.*forName\(spark"):
        feed.table(f"lance.`{path}`").collect()
    assert "_change_type" in feed.format("lance").load(path).columns
    off = plugin.read.option("readChangeFeed", "false").table(f"lance.`{path}`")
    assert off.count() == 3
