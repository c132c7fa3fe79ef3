"""Catalogs over Lance namespaces in SQL: nested, shared with pylance, and by a REST service."""

from __future__ import annotations

import io
import threading
from concurrent.futures import ThreadPoolExecutor

import lance
import lance.namespace as lance_namespace
import pyarrow as pa
import pytest
from catalog_servers import unity_and_polaris  # noqa: F401
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrameReader
from s3_server import running_server
from spark_releases import needs

from pyspark_lance import LanceTable

from .conftest import sql

pytestmark = [pytest.mark.spark, pytest.mark.interop]
CATALOG = "org.pysparklance.LanceCatalog"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(tmp_path_factory.mktemp("names"))


@pytest.fixture(scope="module")
def names(plugin, root):
    """The session, with the catalog ``names`` over a folder."""
    plugin.conf.set("spark.sql.catalog.names", CATALOG)
    plugin.conf.set("spark.sql.catalog.names.root", root)
    plugin.conf.set("spark.sql.catalog.names.impl", "dir")
    return plugin


@pytest.fixture(scope="module")
def rest(plugin, root):
    """The session, with the catalog ``rest`` of a server over the same folder."""
    settings = {
        "root": root,
        "storage.allow_http": "true",
        "vend_input_storage_options": "true",
        "vend_input_storage_options_refresh_interval_millis": "1000",
    }
    with lance_namespace.RestAdapter("dir", settings, port=0) as adapter:
        plugin.conf.set("spark.sql.catalog.rest", CATALOG)
        plugin.conf.set("spark.sql.catalog.rest.uri", f"http://127.0.0.1:{adapter.port}")
        plugin.conf.set("spark.sql.catalog.rest.headers.Authorization", "Bearer s3cr3t")
        yield plugin


def test_namespaces_are_created_described_listed_and_dropped(names):
    names.sql("CREATE NAMESPACE names.eu COMMENT 'Europe' WITH DBPROPERTIES (a = '1')")
    names.sql("CREATE NAMESPACE IF NOT EXISTS names.eu")
    names.sql("CREATE NAMESPACE names.eu.north")
    assert sql(names, "SHOW NAMESPACES IN names") == [("eu",), ("main",)]
    assert sql(names, "SHOW NAMESPACES IN names.eu") == [("eu.north",)]
    names.sql("ALTER NAMESPACE names.eu SET PROPERTIES (a = '2', b = '3')")
    described = dict(sql(names, "DESCRIBE NAMESPACE EXTENDED names.eu"))
    assert described["Comment"] == "Europe"
    assert described["Properties"] == "((a,2), (b,3))"
    for statement, message in (
        ("CREATE NAMESPACE names.eu", "SCHEMA_ALREADY_EXISTS"),
        ("CREATE NAMESPACE names.us.west", "no namespace us"),
        ("SHOW TABLES IN names.us", "SCHEMA_NOT_FOUND"),
        ("DROP NAMESPACE names.eu", "SCHEMA_NOT_EMPTY|not empty"),
        ("CREATE NAMESPACE names.us LOCATION '/x'", "leave out LOCATION"),
        ("CREATE TABLE names.us.t (id int)", "SCHEMA_NOT_FOUND|no namespace"),
    ):
        with pytest.raises(Exception, match=message):
            names.sql(statement)
    names.sql("DROP NAMESPACE names.eu CASCADE")
    names.sql("DROP NAMESPACE IF EXISTS names.eu")
    assert sql(names, "SHOW NAMESPACES IN names") == [("main",)]


def test_one_of_concurrent_creations_wins(names):
    def outcomes(statement):
        """Run it for the numbers 0 to 3 at once; the message of each error, or ''."""
        barrier = threading.Barrier(4)

        def run(number):
            barrier.wait()
            try:
                names.sql(statement.format(number))
            except AnalysisException as error:
                return str(error)
            return ""

        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(run, range(4)))

    errors = outcomes("CREATE TABLE names.raced AS SELECT {} AS k FROM range(3)")
    assert sorted(bool(error) for error in errors) == [False, True, True, True]
    assert all("ALREADY_EXISTS" in error for error in errors if error)
    assert sql(names, "SELECT k FROM names.raced") == [(errors.index(""),)] * 3
    assert outcomes("CREATE TABLE IF NOT EXISTS names.once (id INT)") == [""] * 4
    errors = outcomes("CREATE TABLE names.plain (id INT)")
    assert sorted("TABLE_OR_VIEW_ALREADY_EXISTS" in error for error in errors) == [
        False, True, True, True,
    ]  # fmt: skip
    for table in ("raced", "once", "plain"):
        names.sql(f"DROP TABLE names.{table}")


@needs("column defaults of V2 tables in writes by name")
def test_table_lifecycle_works_in_nested_namespace(names, root):
    names.sql("CREATE NAMESPACE names.life")
    names.sql("CREATE NAMESPACE names.life.deep")
    table = "names.life.deep.t"
    names.sql(f"CREATE TABLE {table} (id bigint, s string DEFAULT 'none')")
    names.sql(f"INSERT INTO {table} (id) VALUES (1), (2)")
    names.range(3, 5).selectExpr("id", "'x' AS s").writeTo(table).append()
    names.sql(f"UPDATE {table} SET s = 'y' WHERE id = 2")
    names.sql(f"DELETE FROM {table} WHERE id = 3")
    names.sql(
        f"MERGE INTO {table} t USING (SELECT 4 AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET s = 'm' WHEN NOT MATCHED THEN INSERT (id) VALUES (0)"
    )
    assert sql(names, f"SELECT * FROM {table}") == [(1, "none"), (2, "y"), (4, "m")]
    assert sql(names, f"SELECT count(*) FROM {table} VERSION AS OF 2") == [(2,)]
    assert sql(names, "SELECT count(*) FROM `names`.life.deep.`t$versions`") == [(6,)]
    names.sql(f"ALTER TABLE {table} ADD COLUMNS (more int)")
    if hasattr(DataFrameReader, "changes"):  # Spark 4.2
        assert sql(names, f"SELECT id FROM {table} CHANGES FROM VERSION 4 TO VERSION 5")
    assert LanceTable.forName(names, table).delete("id = 1").num_deleted_rows == 1
    assert [r.name for r in names.catalog.listTables("names.life.deep")] == ["t"]
    names.sql(f"ALTER TABLE {table} RENAME TO life.u")
    assert sql(names, "SELECT id, more FROM names.life.u") == [(2, None), (4, None)]
    names.sql("CREATE OR REPLACE TABLE names.life.u AS SELECT id FROM names.life.u WHERE id = 2")
    pylance = lance_namespace.DirectoryNamespace(root=root)
    found = pylance.describe_table(lance_namespace.DescribeTableRequest(id=["life", "u"]))
    assert lance.dataset(found.location).to_table().to_pylist() == [{"id": 2}]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        names.sql("CREATE TABLE names.life.u (id int)")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        names.sql("SELECT * FROM names.life.deep.t")
    names.sql("DROP TABLE names.life.u")
    names.sql("USE names.life.deep")
    try:
        names.sql("CREATE TABLE here AS SELECT 1 AS id")
        assert sql(names, "SELECT * FROM here") == [(1,)]
    finally:
        names.sql("USE spark_catalog.default")
    names.sql("CALL names.system.compact('names.life.deep.here')")
    names.sql("DROP NAMESPACE names.life CASCADE")


def test_pylance_tables_are_visible(names, root):
    pylance = lance_namespace.DirectoryNamespace(root=root)
    pylance.create_namespace(lance_namespace.CreateNamespaceRequest(id=["py"]))
    data = io.BytesIO()
    table = pa.table({"id": [1, 2, 3]})
    with pa.ipc.new_stream(data, table.schema) as stream:
        stream.write_table(table)
    for name in (["py", "t"], ["flat"]):
        pylance.create_table(lance_namespace.CreateTableRequest(id=name), data.getvalue())
    assert sql(names, "SELECT id FROM names.py.t JOIN names.flat USING (id)") == [(1,), (2,), (3,)]
    assert sql(names, "SHOW TABLES IN names.main") == [("main", "flat", False)]
    names.sql("DROP TABLE names.flat")
    names.sql("DROP NAMESPACE names.py CASCADE")
    assert pylance.list_tables(lance_namespace.ListTablesRequest(id=[])).tables == []


def test_table_location_must_be_inside_root(names, root, tmp_path):
    names.sql(f"CREATE TABLE names.placed (id int) LOCATION '{root}/some/where'")
    names.sql("INSERT INTO names.placed VALUES (1)")
    assert lance.dataset(f"{root}/some/where").count_rows() == 1
    with pytest.raises(Exception, match="are in its own folder"):
        names.sql(f"CREATE TABLE names.other (id int) LOCATION '{tmp_path}/x'")
    names.sql("DROP TABLE names.placed")


def test_rest_catalog_renews_expired_credentials(rest):
    """The credentials end at once: each task asks for new ones."""
    rest.sql("CREATE NAMESPACE rest.shop WITH DBPROPERTIES (a = '1')")
    rest.sql("CREATE TABLE rest.shop.t AS SELECT id FROM range(100)")
    rest.sql("DELETE FROM rest.shop.t WHERE id > 9")
    rest.sql("UPDATE rest.shop.t SET id = 50 WHERE id = 5")
    frame = rest.table("rest.shop.t").repartition(2)
    assert frame.selectExpr("sum(id)").collect()[0][0] == 90
    assert sql(rest, "SHOW TABLES IN rest.shop") == [("shop", "t", False)]
    assert sql(rest, "SHOW NAMESPACES IN rest") == [("main",), ("shop",)]
    with pytest.raises(Exception, match="oops"):
        rest.sql("CREATE TABLE rest.shop.failed AS SELECT raise_error('oops') AS a")
    assert sql(rest, "SHOW TABLES IN rest.shop") == [("shop", "t", False)]
    shown = rest.sql("EXPLAIN EXTENDED SELECT * FROM rest.shop.t").collect()[0][0]
    shown += str(rest.sql("DESCRIBE EXTENDED rest.shop.t").collect())
    shown += str(rest.sql("SHOW CREATE TABLE rest.shop.t").collect())
    assert "s3cr3t" not in shown
    with pytest.raises(Exception, match=r"SCHEMA_NOT_EMPTY|not empty"):
        rest.sql("DROP NAMESPACE rest.shop")
    rest.sql("DROP TABLE rest.shop.t")
    rest.sql("DROP NAMESPACE rest.shop")
    assert sql(rest, "SHOW NAMESPACES IN rest") == [("main",)]


@pytest.fixture(scope="module")
def glue(plugin):
    """The session, with the catalog ``glue`` of a server of AWS Glue."""
    server = running_server()
    settings = {
        "namespace": "glue", "endpoint": server.endpoint, "region": "us-east-1",
        "access_key_id": server.access_key, "secret_access_key": server.secret_key,
    }  # fmt: skip
    plugin.conf.set("spark.sql.catalog.glue", CATALOG)
    for name, value in settings.items():
        plugin.conf.set(f"spark.sql.catalog.glue.{name}", value)
    return plugin


def _live_through(spark, table, folder):
    """Create, change, describe, list and drop a table, and one at a location of the user."""
    schema, _, name = table.rpartition(".")
    spark.sql(f"CREATE TABLE {table} COMMENT 'shoes' AS SELECT 1L AS id, 'a' AS s")
    spark.sql(f"INSERT INTO {table} VALUES (2, 'b'), (3, 'c')")
    spark.sql(f"UPDATE {table} SET s = 'x' WHERE id = 2")
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT 3L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    )
    assert sql(spark, f"SELECT * FROM {table} ORDER BY id") == [(1, "a"), (2, "x")]
    assert spark.table(table).count() == 2
    described = dict(row[:2] for row in sql(spark, f"DESCRIBE EXTENDED {table}"))
    assert described["Comment"] == "shoes" and described["Type"] == "MANAGED"
    assert name in [row[1] for row in sql(spark, f"SHOW TABLES IN {schema}")]
    location = str(folder / "elsewhere")
    spark.sql(f"CREATE TABLE {schema}.other (id bigint) USING lance LOCATION '{location}'")
    spark.range(4).writeTo(f"{schema}.other").append()
    described = dict(row[:2] for row in sql(spark, f"DESCRIBE EXTENDED {schema}.other"))
    assert described["Type"] == "EXTERNAL" and described["Location"].endswith(location)
    assert location in sql(spark, f"SHOW CREATE TABLE {schema}.other")[0][0]
    with pytest.raises(Exception, match="oops"):
        spark.sql(f"CREATE TABLE {schema}.failed AS SELECT raise_error('oops') AS a")
    with pytest.raises(Exception, match="_rowid"):
        spark.sql(f"CREATE TABLE {schema}.failed (_rowid bigint)")
    assert "failed" not in [row[1] for row in sql(spark, f"SHOW TABLES IN {schema}")]
    assert lance.dataset(location).count_rows() == 4
    with pytest.raises(Exception, match=r"SCHEMA_NOT_EMPTY|not empty"):
        spark.sql(f"DROP NAMESPACE {schema}")
    spark.sql(f"DROP TABLE {schema}.other")
    assert lance.dataset(location).count_rows() == 4
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql(f"SELECT * FROM {schema}.other")
    spark.sql(f"DROP TABLE {table}")
    spark.sql(f"CREATE TABLE {table} AS SELECT 7 AS id")
    assert sql(spark, f"SELECT * FROM {table}") == [(7,)]
    spark.sql(f"DROP NAMESPACE {schema} CASCADE")
    with pytest.raises(Exception, match=r"SCHEMA_NOT_FOUND|no namespace"):
        spark.sql(f"CREATE TABLE {table} (id int)")


def test_glue_tables_use_database_location(glue, tmp_path):
    glue.sql(f"CREATE NAMESPACE glue.shop COMMENT 'all' LOCATION '{tmp_path / 'shop'}'")
    assert sql(glue, "SHOW NAMESPACES IN glue") == [("shop",)]
    described = dict(sql(glue, "DESCRIBE NAMESPACE EXTENDED glue.shop"))
    assert described["Comment"] == "all" and described["Location"].endswith("/shop")
    _live_through(glue, "glue.shop.orders", tmp_path)


def test_unity_and_polaris_tables_have_three_part_names(
    plugin,
    unity_and_polaris,  # noqa: F811
    tmp_path,
):
    for kind in ("unity", "polaris"):
        plugin.conf.set(f"spark.sql.catalog.{kind}", CATALOG)
        plugin.conf.set(f"spark.sql.catalog.{kind}.namespace", kind)
        plugin.conf.set(f"spark.sql.catalog.{kind}.{kind}.endpoint", unity_and_polaris)
        plugin.conf.set(f"spark.sql.catalog.{kind}.{kind}.auth_token", "s3cr3t-token")
        plugin.conf.set(f"spark.sql.catalog.{kind}.{kind}.root", str(tmp_path / kind))
        plugin.sql(f"CREATE NAMESPACE {kind}.main_catalog.eu COMMENT 'Europe'")
        assert (
            dict(sql(plugin, f"DESCRIBE NAMESPACE {kind}.main_catalog.eu"))["Comment"] == "Europe"
        )
        (tmp_path / f"of-{kind}").mkdir()
        _live_through(plugin, f"{kind}.main_catalog.eu.t", tmp_path / f"of-{kind}")


def test_catalog_errors_hide_settings(plugin):
    plugin.conf.set("spark.sql.catalog.wrong", CATALOG)
    plugin.conf.set("spark.sql.catalog.wrong.namespace", "unity")
    plugin.conf.set("spark.sql.catalog.wrong.unity.auth_token", "s3cr3t-token")
    with pytest.raises(Exception, match=r"unity\.endpoint") as caught:
        plugin.sql("SHOW NAMESPACES IN wrong")
    assert "s3cr3t" not in str(caught.value)
