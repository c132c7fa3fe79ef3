"""Save modes, catalog tables, SQL that changes a table."""

from __future__ import annotations

from datetime import UTC, timedelta

import lance
import pyarrow as pa
import pytest

from .conftest import sql

pytestmark = [pytest.mark.spark, pytest.mark.interop]


@pytest.fixture
def table(plugin, request):
    """A name in the session catalog, free again after the test."""
    name = f"t_{abs(hash(request.node.name)) % 10**9}"
    yield name
    plugin.sql(f"DROP TABLE IF EXISTS {name}")


def test_save_modes_follow_spark(plugin, path):
    def save(rows, mode=None):
        writer = plugin.range(rows).write.format("lance")
        (writer.mode(mode) if mode else writer).save(path)

    save(3)
    for mode in (None, "error", "errorifexists"):
        with pytest.raises(Exception, match="LANCE_TABLE_ALREADY_EXISTS"):
            save(4, mode)
    save(4, "ignore")
    assert lance.dataset(path).count_rows() == 3
    save(5, "append")
    assert lance.dataset(path).count_rows() == 8
    save(2, "overwrite")
    assert (lance.dataset(path).count_rows(), lance.dataset(path).version) == (2, 3)
    plugin.range(7).write.format("lance").mode("ignore").save(path + "2")
    assert lance.dataset(path + "2").count_rows() == 7


def test_write_options_reach_writer(plugin, path):
    frame = plugin.range(10).selectExpr("id", "array(1f, 2f) AS v")
    frame.coalesce(1).write.format("lance").option("max_row_per_file", "4").option(
        "v.fixed_size_list", "2"
    ).save(path)
    assert len(lance.dataset(path).get_fragments()) == 3
    assert "fixed_size_list" in str(lance.dataset(path).schema.field("v").type)


def test_managed_table_lifecycle(plugin, table):
    plugin.sql(f"CREATE TABLE {table} (id bigint, s string) USING lance")
    assert sql(plugin, f"SELECT * FROM {table}") == []
    plugin.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    plugin.sql(f"INSERT INTO {table} (s, id) VALUES ('c', 3)")
    assert sql(plugin, f"SELECT s, id FROM {table} WHERE id > 1") == [("b", 2), ("c", 3)]
    plugin.sql(f"INSERT OVERWRITE {table} SELECT id * 10, s FROM {table} WHERE id < 3")
    assert sql(plugin, f"SELECT * FROM {table}") == [(10, "a"), (20, "b")]
    assert sql(plugin, f"SELECT id FROM {table} WITH (version = 3)") == [(1,), (2,), (3,)]
    plugin.range(5).selectExpr("id", "'z' AS s").write.insertInto(table)
    assert plugin.table(table).count() == 7
    plugin.sql(f"TRUNCATE TABLE {table}")
    assert plugin.table(table).count() == 0


def test_table_with_location_uses_table_at_path(plugin, path, table):
    plugin.range(5).write.format("lance").save(path)
    plugin.sql(f"CREATE TABLE {table} USING lance LOCATION '{path}'")
    assert plugin.table(table).count() == 5
    plugin.sql(f"INSERT INTO {table} SELECT id + 100 FROM {table}")
    assert lance.dataset(path).count_rows() == 10
    assert sql(plugin, f"SELECT id, _rowid FROM {table} WHERE _rowid = 7") == [(102, 7)]
    lance.dataset(path).delete("id < 100")
    assert plugin.table(table).count() == 5
    plugin.sql(f"DROP TABLE {table}")
    assert lance.dataset(path).count_rows() == 5
    with pytest.raises(Exception, match="SCHEMA_MISMATCH"):
        plugin.sql(f"CREATE TABLE {table} (id string) USING lance LOCATION '{path}'")


def test_create_table_as_select_and_save_as_table(plugin, path, table):
    plugin.sql(f"CREATE TABLE {table} USING lance AS SELECT id FROM range(4)")
    assert plugin.table(table).count() == 4
    plugin.range(2).write.format("lance").mode("append").saveAsTable(table)
    assert plugin.table(table).count() == 6
    plugin.range(3).write.format("lance").mode("overwrite").saveAsTable(table)
    assert plugin.table(table).count() == 3
    plugin.range(9).write.format("lance").save(path)
    with pytest.raises(Exception, match="LANCE_TABLE_ALREADY_EXISTS"):
        plugin.sql(f"CREATE TABLE other USING lance LOCATION '{path}' AS SELECT id FROM range(4)")
    assert lance.dataset(path).count_rows() == 9


def test_rows_are_deleted_by_condition(plugin, path):
    plugin.range(0, 100, 1, 1).selectExpr(
        "id", "id % 10 AS m", "cast(id AS string) s"
    ).write.format("lance").option("max_row_per_file", "25").save(path)
    plugin.sql(f"CREATE OR REPLACE TEMPORARY VIEW doomed USING lance OPTIONS (path '{path}')")
    plugin.sql("DELETE FROM doomed WHERE m = 3 AND id > 10 OR s IN ('50', '51')")
    expected = [i for i in range(100) if not ((i % 10 == 3 and i > 10) or i in (50, 51))]
    assert sql(plugin, f"SELECT id, _rowid FROM lance.`{path}`") == sorted(
        ((i, i) for i in expected), key=repr
    )
    assert lance.dataset(path).version == 2
    plugin.sql("DELETE FROM doomed WHERE m = 3 AND id > 10")
    assert lance.dataset(path).version == 2
    plugin.sql("DELETE FROM doomed WHERE id < 25")
    assert len(lance.dataset(path).get_fragments()) == 3
    plugin.sql("DELETE FROM doomed")
    assert lance.dataset(path).count_rows() == 0
    assert plugin.read.format("lance").option("version", 1).load(path).count() == 100


def test_past_version_is_not_changed(plugin, path):
    plugin.range(10).write.format("lance").save(path)
    plugin.range(10).write.format("lance").mode("append").save(path)
    plugin.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW past USING lance OPTIONS (path '{path}', version 1)"
    )
    with pytest.raises(Exception, match="an older version of a table"):
        plugin.sql("DELETE FROM past WHERE id = 3")
    assert lance.dataset(path).count_rows() == 20


def test_view_shows_rows_written_through_it(plugin, path):
    plugin.range(3).write.format("lance").save(path)
    plugin.sql(f"CREATE OR REPLACE TEMPORARY VIEW sink USING lance OPTIONS (path '{path}')")
    plugin.sql("INSERT INTO sink VALUES (7)")
    assert sql(plugin, "SELECT * FROM sink") == [(0,), (1,), (2,), (7,)]
    plugin.sql("INSERT OVERWRITE TABLE sink SELECT id + 1 FROM sink")
    assert sql(plugin, "SELECT * FROM sink") == [(1,), (2,), (3,), (8,)]


def test_folder_catalog_creates_lists_renames_and_drops_tables(plugin):
    plugin.sql("CREATE TABLE folder.a (id bigint, s string)")
    plugin.sql("INSERT INTO folder.a VALUES (1, 'x')")
    plugin.sql("CREATE TABLE folder.b AS SELECT id FROM range(3)")
    names = {row.tableName for row in plugin.sql("SHOW TABLES IN folder").collect()}
    assert {"a", "b"} <= names
    plugin.sql("CREATE OR REPLACE TABLE folder.a AS SELECT id * 2 AS double FROM folder.b")
    assert sql(plugin, "SELECT * FROM folder.a") == [(0,), (2,), (4,)]
    assert sql(plugin, "SELECT s FROM folder.a VERSION AS OF 2") == [("x",)]
    plugin.sql("DELETE FROM folder.a WHERE double = 2")
    plugin.sql("TRUNCATE TABLE folder.b")
    plugin.range(2).writeTo("folder.b").append()
    plugin.sql("ALTER TABLE folder.a RENAME TO c")
    assert plugin.table("folder.c").count() == 2
    with pytest.raises(Exception, match="ALREADY_EXISTS"):
        plugin.sql("CREATE TABLE folder.b (id int)")
    plugin.sql("DROP TABLE folder.b")
    plugin.sql("DROP TABLE folder.c")
    assert not {"a", "b", "c"} & {
        r.tableName for r in plugin.sql("SHOW TABLES IN folder").collect()
    }
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        plugin.sql("SELECT * FROM folder.c")


def test_folder_catalog_has_optional_default_namespace(plugin):
    plugin.sql("CREATE TABLE folder.default.three AS SELECT 1 AS id, array() AS v, NULL AS n")
    plugin.sql("INSERT INTO folder.three SELECT 2, array(), NULL")
    plugin.sql("UPDATE folder.default.three SET id = 5 WHERE id = 2")
    assert sql(plugin, "SELECT * FROM folder.default.three") == [(1, [], None), (5, [], None)]
    for place in ("folder", "folder.main", "folder.default"):
        assert "three" in {one.name for one in plugin.catalog.listTables(place)}
        shown = plugin.sql(f"SHOW TABLES IN {place}").collect()
        assert ("main", "three") in {(row.namespace, row.tableName) for row in shown}
    assert plugin.catalog.tableExists("folder.main.three")
    plugin.sql("USE folder")
    try:
        assert "three" in {one.name for one in plugin.catalog.listTables()}
        assert plugin.table("three").count() == 2
        plugin.sql("DROP TABLE three")
    finally:
        plugin.sql("USE spark_catalog.default")
    with pytest.raises(Exception, match="SCHEMA_NOT_FOUND"):
        plugin.sql("CREATE TABLE folder.other.t (id int)")
    with pytest.raises(Exception, match=r"LANCE_INVALID_INPUT\] the catalog has no folder"):
        plugin.sql("CREATE TABLE lance.t (id int)")
    names = {one.name for one in plugin.catalog.listTables("default")}
    plugin.sql("CREATE TABLE spark_catalog.default.listed USING lance AS SELECT 1 AS id")
    assert {one.name for one in plugin.catalog.listTables()} == names | {"listed"}
    plugin.sql("DROP TABLE spark_catalog.default.listed")


def test_path_tables_support_time_travel(plugin, path):
    plugin.range(3).write.format("lance").save(path)
    moment = (
        lance.dataset(path)
        .versions()[0]["timestamp"]
        .astimezone(tz=__import__("datetime").timezone.utc)
    )
    plugin.range(3).write.format("lance").mode("append").save(path)
    lance.dataset(path).tags.create("first", 1)
    name = f"lance.`{path}`"
    assert plugin.table(name).count() == 6
    assert plugin.sql(f"SELECT * FROM {name} VERSION AS OF 1").count() == 3
    assert plugin.sql(f"SELECT * FROM {name} VERSION AS OF 'first'").count() == 3
    later = f"{moment:%Y-%m-%d %H:%M:%S.%f}"
    assert plugin.sql(f"SELECT * FROM {name} TIMESTAMP AS OF '{later}'").count() in (3, 6)
    plugin.sql(f"DELETE FROM {name} WHERE id = 1")
    assert plugin.table(name).count() == 4
    # As the README finds rows that are gone.
    gone = (
        f"SELECT id, _rowid FROM {name} VERSION AS OF 2 "
        f"WHERE _rowid NOT IN (SELECT _rowid FROM {name} VERSION AS OF 3)"
    )
    assert sql(plugin, gone) == [(1, 1), (1, 4)]


def test_timestamps_without_zone_use_session_zone(plugin, path):
    for _ in range(3):
        plugin.range(1).coalesce(1).write.format("lance").mode("append").save(path)
    moment = lance.dataset(path).versions()[1]["timestamp"].astimezone(UTC)
    text = (moment + timedelta(hours=5.5)).strftime("%Y-%m-%d %H:%M:%S.%f")
    options = {"path": path, "readChangeFeed": "true"}
    kept = plugin.conf.get("spark.sql.session.timeZone")
    try:
        plugin.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
        read = plugin.read.format("lance").option("timestampAsOf", text)
        assert read.load(path).count() == 2
        for clause in (f"'{text}'", f"TIMESTAMP '{text}'"):
            counted = f"SELECT count(*) FROM lance.`{path}` TIMESTAMP AS OF {clause}"
            assert sql(plugin, counted) == [(2,)]
        for bounds, versions in (
            ({"startingTimestamp": text}, {2, 3}),
            ({"startingVersion": 1, "endingTimestamp": text}, {1, 2}),
        ):
            feed = plugin.read.format("lance").options(**options, **bounds).load()
            assert {row._commit_version for row in feed.collect()} == versions
        call = f"CALL lance.system.restore('{path}', timestamp => '{text}')"
        assert sql(plugin, call) == [(4,)]
        assert lance.dataset(path).count_rows() == 2
    finally:
        plugin.conf.set("spark.sql.session.timeZone", kept)


def test_columns_differing_by_case_follow_case_sensitivity(plugin, path):
    table = pa.table({"id": [1, 2], "A": [3, 4], "a": [5, 6]})
    lance.write_dataset(table, path, enable_stable_row_ids=True)
    try:
        plugin.conf.set("spark.sql.caseSensitive", "true")
        assert sql(plugin, f"SELECT id FROM lance.`{path}` WHERE a = 5") == [(1,)]
        assert sql(plugin, f"SELECT a FROM lance.`{path}` WHERE A = 4") == [(6,)]
        plugin.sql(f"UPDATE lance.`{path}` SET a = 8 WHERE A = 4")
        plugin.sql(f"DELETE FROM lance.`{path}` WHERE a = 5")
        assert sql(plugin, f"SELECT * FROM lance.`{path}`") == [(2, 4, 8)]
    finally:
        plugin.conf.unset("spark.sql.caseSensitive")


def test_alter_table_changes_columns_one_version_each(plugin, path):
    plugin.range(0, 10, 1, 1).selectExpr(
        "id", "cast(id AS int) AS n", "named_struct('a', id, 'b', 'x') AS st"
    ).write.format("lance").save(path)
    name = f"lance.`{path}`"
    for change in (
        "ADD COLUMNS (note string COMMENT 'a note', price decimal(10, 2))",
        "ALTER COLUMN n TYPE bigint",
        "RENAME COLUMN n TO number",
        "RENAME COLUMN st.b TO c",
        "DROP COLUMNS (price, st.a)",
        "DROP COLUMN IF EXISTS nothing",
        "ALTER COLUMN number COMMENT 'counted'",
        "ADD COLUMN st.d int",
    ):
        plugin.sql(f"ALTER TABLE {name} {change}")
    frame = plugin.table(name)
    assert [(f.name, f.dataType.simpleString()) for f in frame.schema.fields] == [
        ("id", "bigint"), ("number", "bigint"), ("st", "struct<c:string,d:int>"),
        ("note", "string"),
    ]  # fmt: skip
    rows = [(i, i, ("x", None), None, i, 1) for i in range(10)]
    found = frame.select("*", "_rowid", "_row_created_at_version").orderBy("id").collect()
    assert [tuple(row) for row in found] == rows
    dataset = lance.dataset(path)
    dataset.validate()
    assert dataset.version == 8
    assert dataset.schema.field("note").metadata[b"comment"] == b"a note"
    with pytest.raises(Exception, match="FIRST and AFTER"):
        plugin.sql(f"ALTER TABLE {name} ADD COLUMN a int FIRST")
    assert lance.dataset(path).version == 8


def test_alter_table_drops_not_null(plugin, path):
    from pyspark_lance import LanceTable

    LanceTable.create(plugin, path, "id bigint NOT NULL, s string")
    name = f"lance.`{path}`"
    with pytest.raises(Exception, match="null"):
        plugin.sql(f"INSERT INTO {name} VALUES (NULL, 'a')")
    plugin.sql(f"ALTER TABLE {name} ALTER COLUMN id DROP NOT NULL")
    plugin.sql(f"INSERT INTO {name} VALUES (NULL, 'a')")
    plugin.sql(f"ALTER TABLE {name} ALTER COLUMN id DROP NOT NULL")
    assert lance.dataset(path).version == 3
    assert lance.dataset(path).schema.field("id").nullable
    # Spark is shown columns that may be null, as for its own files, and so refuses by itself.
    with pytest.raises(Exception, match="Cannot change nullable column to non-nullable"):
        plugin.sql(f"ALTER TABLE {name} ALTER COLUMN s SET NOT NULL")
    assert sql(plugin, f"SELECT * FROM {name}") == [(None, "a")]
