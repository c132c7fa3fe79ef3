"""Tables of Spark's own catalog: one Lance table each, made and replaced in one version."""

from __future__ import annotations

import shutil

import lance
import pytest
from pyspark.sql import functions as F
from s3_server import s3_server, s3_table_root  # noqa: F401
from spark_releases import has, needs

from pyspark_lance import LanceTable
from pyspark_lance.errors import TableNotFoundError

from .conftest import sql

pytestmark = [pytest.mark.spark, pytest.mark.interop]


@pytest.fixture
def name(plugin, request):
    """A name in the session catalog, free again after the test."""
    name = f"s_{abs(hash(request.node.name)) % 10**9}"
    yield name
    plugin.sql(f"DROP TABLE IF EXISTS {name}")


def location(session, name):
    """Where a table is."""
    rows = session.sql(f"DESCRIBE EXTENDED {name}").collect()
    return next(row.data_type for row in rows if row.col_name == "Location").removeprefix("file:")


@pytest.mark.parametrize("place", ["session", "folder"])
def test_table_is_replaced_from_itself_in_one_version(plugin, name, place):
    table = name if place == "session" else f"folder.{name}"
    plugin.sql(f"CREATE OR REPLACE TABLE {table} USING lance AS SELECT id FROM range(4)")
    path = location(plugin, table)
    plugin.sql(
        f"CREATE OR REPLACE TABLE {table} USING lance AS "
        f"SELECT id * 10 AS tens, 'x' AS s FROM {table} WHERE id > 1"
    )
    assert sql(plugin, f"SELECT * FROM {table}") == [(20, "x"), (30, "x")]
    assert lance.dataset(path).version == 2
    assert sql(plugin, f"SELECT * FROM {table} VERSION AS OF 1") == [(0,), (1,), (2,), (3,)]
    frame = plugin.table(table).selectExpr("tens + 1 AS more")
    frame.write.format("lance").mode("overwrite").saveAsTable(table)
    assert sql(plugin, f"SELECT * FROM {table}") == [(21,), (31,)]
    plugin.sql(f"REPLACE TABLE {table} (a int) USING lance")
    assert (plugin.table(table).columns, lance.dataset(path).version) == (["a"], 4)
    plugin.sql(f"INSERT INTO {table} VALUES (1)")
    failing = plugin.range(3).selectExpr("assert_true(id < 2) IS NULL AS bad", "id")
    with pytest.raises(Exception, match="is not true"):
        failing.write.format("lance").mode("overwrite").saveAsTable(table)
    assert sql(plugin, f"SELECT * FROM {table}") == [(1,)]
    assert lance.dataset(path).version == 5
    plugin.sql(f"DROP TABLE {table}")


def test_failed_create_leaves_no_table(plugin, name):
    # One task: another one could still be writing when the first has failed.
    failing = plugin.range(0, 3, 1, 1).selectExpr("assert_true(id < 2) IS NULL AS bad", "id")
    with pytest.raises(Exception, match="is not true"):
        failing.write.format("lance").saveAsTable(name)
    assert not plugin.catalog.tableExists(name)
    with pytest.raises(Exception, match="collation"):
        plugin.sql(f"CREATE TABLE {name} (s STRING COLLATE UNICODE_CI) USING lance")
    assert not plugin.catalog.tableExists(name)


@pytest.mark.s3
@pytest.mark.parametrize("way", ["saveAsTable", "overwrite", "writeTo"])
def test_table_keeps_storage_options_of_creation(
    plugin,
    name,
    way,
    s3_table_root,  # noqa: F811
    s3_server,  # noqa: F811
):
    options = {f"storage.{key}": value for key, value in s3_server.options.items()}
    path = f"{s3_table_root}/{way}"
    if way == "writeTo":
        writer = plugin.range(3).writeTo(name).using("lance").options(**options)
        writer.option("path", path).create()
    else:
        mode = "overwrite" if way == "overwrite" else "errorifexists"
        writer = plugin.range(3).write.format("lance").mode(mode).options(**options)
        writer.option("path", path).saveAsTable(name)
    plugin.sql(f"INSERT INTO {name} VALUES (3L)")
    assert sql(plugin, f"SELECT id FROM {name}") == [(0,), (1,), (2,), (3,)]
    shown = str(plugin.sql(f"DESCRIBE EXTENDED {name}").collect())
    shown += str(plugin.sql(f"SHOW TBLPROPERTIES {name}").collect())
    assert path in shown
    assert s3_server.secret_key not in shown


def test_external_table_is_replaced_in_place(plugin, name, path):
    plugin.range(3).write.format("lance").save(path)
    plugin.sql(f"CREATE TABLE {name} USING lance LOCATION '{path}'")
    frame = plugin.range(5).selectExpr("id", "'a' AS s")
    frame.write.format("lance").mode("overwrite").option("path", path).saveAsTable(name)
    assert (lance.dataset(path).version, lance.dataset(path).count_rows()) == (2, 5)
    with pytest.raises(Exception, match="leave out the location"):
        frame.write.format("lance").mode("overwrite").option("path", f"{path}2").saveAsTable(name)
    plugin.sql(f"DROP TABLE {name}")
    assert lance.dataset(path).count_rows() == 5


@pytest.mark.parametrize("way", ["SQL", "saveAsTable"])
def test_builtin_session_catalog_never_overwrites_table(plugin, name, path, way):
    session = plugin.newSession()
    session.conf.set("spark.sql.catalog.spark_catalog", "builtin")
    session.range(3).write.format("lance").save(path)
    with pytest.raises(Exception, match="LANCE_TABLE_ALREADY_EXISTS"):
        if way == "SQL":
            session.sql(f"CREATE TABLE {name} USING lance LOCATION '{path}' AS SELECT 7L AS id")
        else:
            session.range(7, 8).write.format("lance").option("path", path).saveAsTable(name)
    assert sql(session, f"SELECT * FROM lance.`{path}`") == [(0,), (1,), (2,)]
    session.sql(f"CREATE TABLE {name} USING lance LOCATION '{path}'")
    assert sql(session, f"SELECT * FROM {name}") == [(0,), (1,), (2,)]


def test_tables_of_other_sources_are_unaffected(plugin, name):
    plugin.sql(f"CREATE TABLE {name} (a int, b int) USING parquet PARTITIONED BY (b)")
    plugin.sql(f"INSERT INTO {name} VALUES (1, 2)")
    plugin.sql(f"ALTER TABLE {name} ADD COLUMNS (c string)")
    assert sql(plugin, f"SELECT a, b, c FROM {name}") == [(1, 2, None)]
    plugin.sql(f"DROP TABLE {name}")
    plugin.sql(f"CREATE TABLE {name} USING json AS SELECT id FROM range(2)")
    plugin.range(3).write.format("json").mode("overwrite").saveAsTable(name)
    assert plugin.table(name).count() == 3
    with pytest.raises(Exception, match="another source"):
        plugin.sql(f"CREATE OR REPLACE TABLE {name} USING lance AS SELECT 1 AS a")
    assert plugin.table(name).count() == 3
    plugin.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name}_v AS SELECT * FROM {name}")
    assert plugin.table(f"{name}_v").count() == 3
    assert "spark_catalog" in {row.catalog for row in plugin.sql("SHOW CATALOGS").collect()}


@needs("column defaults of V2 tables in writes by name")
def test_alter_table_describe_and_show(plugin, name):
    plugin.sql(
        f"CREATE TABLE {name} (id bigint NOT NULL COMMENT 'key', v varchar(5), "
        "d int DEFAULT 7, st struct<a: int>) USING lance COMMENT 'all of it' "
        "TBLPROPERTIES (owner_team = 'web')"
    )
    for change in (
        "ADD COLUMNS (note string COMMENT 'a note', price decimal(10, 2) DEFAULT 1.5)",
        "ADD COLUMN st.b string",
        "ALTER COLUMN v TYPE varchar(8)",
        "RENAME COLUMN note TO remark",
        "ALTER COLUMN d SET DEFAULT 8",
        "ALTER COLUMN remark COMMENT 'said'",
        "SET TBLPROPERTIES (a = 'b', c = 'd')",
        "UNSET TBLPROPERTIES (a)",
        "DROP COLUMN price",
    ):
        plugin.sql(f"ALTER TABLE {name} {change}")
    plugin.sql(f"INSERT INTO {name} (id, st) VALUES (1, named_struct('a', 2, 'b', 'c'))")
    assert sql(plugin, f"SELECT id, v, d, st.b, remark FROM {name}") == [(1, None, 8, "c", None)]
    shown = {
        (row.col_name, row.data_type, row.comment)
        for row in plugin.sql(f"DESCRIBE {name}").collect()
    }
    assert {("id", "bigint", "key"), ("v", "varchar(8)", None), ("remark", "string", "said")} <= {
        (column, kind, comment or None) for column, kind, comment in shown
    }
    properties = dict(sql(plugin, f"SHOW TBLPROPERTIES {name}"))
    assert (properties["c"], properties["owner_team"], "a" in properties) == ("d", "web", False)
    text = plugin.sql(f"SHOW CREATE TABLE {name}").collect()[0][0]
    plugin.sql(f"ANALYZE TABLE {name} COMPUTE STATISTICS")
    plugin.sql(f"DROP TABLE {name}")
    plugin.sql(text)
    assert plugin.sql(f"SHOW CREATE TABLE {name}").collect()[0][0] == text
    plugin.sql(f"ALTER TABLE {name} RENAME TO {name}_2")
    assert plugin.table(f"{name}_2").count() == 0
    known = LanceTable.forName(plugin, f"{name}_2")
    assert known.update(set={"d": 3}).num_updated_rows == 0
    assert known.toDF().columns[:2] == ["id", "v"]
    with pytest.raises(TableNotFoundError, match="no table"):
        LanceTable.forName(plugin, "nothing_of_the_kind")
    plugin.sql(f"DROP TABLE {name}_2")


@needs("column defaults of V2 tables in writes by name")
def test_declared_column_rules_apply_to_every_write(plugin, name, path):
    plugin.sql(
        f"CREATE TABLE {name} (id int NOT NULL, v varchar(3), c char(2), d int DEFAULT 7, "
        f"st struct<a: int NOT NULL>) USING lance LOCATION '{path}'"
    )
    plugin.sql(f"INSERT INTO {name} (id, v, c, st) VALUES (1, 'abc', 'x', named_struct('a', 1))")
    plugin.sql(f"INSERT INTO {name} (id) VALUES (2)")
    plugin.sql(
        f"MERGE INTO {name} t USING (SELECT 3 AS id) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    plugin.sql(f"INSERT OVERWRITE {name} SELECT * FROM {name}")
    plugin.sql(f"INSERT INTO {name} (id) VALUES (4)")
    plugin.sql(f"UPDATE {name} SET d = DEFAULT WHERE id = 1")
    assert sql(plugin, f"SELECT id, d, c FROM {name}") == [
        (1, 7, "x "), (2, 7, None), (3, 7, None), (4, 7, None),
    ]  # fmt: skip
    before = lance.dataset(path).version
    row = "SELECT 9 AS id, CAST({v} AS string) AS v, 'x' AS c, 1 AS d, {st} AS st"
    for v, st, message in (
        ("'abcd'", "named_struct('a', 1)", r"(?i)length|characters"),
        ("'ab'", "named_struct('a', CAST(NULL AS int))", r"(?i)null"),
    ):
        text = row.format(v=v, st=st)
        with pytest.raises(Exception, match=message):
            plugin.sql(f"INSERT INTO {name} {text}")
        with pytest.raises(Exception, match=message):
            plugin.sql(text).write.format("lance").mode("append").save(path)
        with pytest.raises(Exception, match=message):
            source = plugin.sql(text)
            LanceTable.forPath(plugin, path).merge(
                source, "target.id = source.id"
            ).whenNotMatchedInsertAll().execute()
    with pytest.raises(Exception, match=r"(?i)length|characters"):
        plugin.sql(f"UPDATE {name} SET v = 'abcd'")
    with pytest.raises(Exception, match=r"(?i)null"):
        plugin.sql(f"UPDATE {name} SET id = NULL")
    assert lance.dataset(path).version == before


@needs("column defaults of V2 tables in writes by name")
def test_added_column_default_fills_existing_rows(plugin):
    plugin.sql("CREATE TABLE folder.filled AS SELECT id FROM range(2)")
    plugin.sql(
        "ALTER TABLE folder.filled ADD COLUMNS (z int DEFAULT 7, s string DEFAULT 'a', "
        "day date DEFAULT DATE '2026-01-02', price decimal(5, 2) DEFAULT 1.25)"
    )
    plugin.sql("INSERT INTO folder.filled (id, z) VALUES (2, 8)")
    rows = sql(plugin, "SELECT id, z, s, CAST(day AS string), price + 0.0 > 1 FROM folder.filled")
    assert rows == [(0, 7, "a", "2026-01-02", True), (1, 7, "a", "2026-01-02", True),
                    (2, 8, "a", "2026-01-02", True)]  # fmt: skip
    plugin.sql("DROP TABLE folder.filled")


def test_views_follow_table(plugin, path):
    plugin.range(3).write.format("lance").save(path)
    plugin.sql(f"CREATE OR REPLACE TEMPORARY VIEW followed USING lance OPTIONS (path '{path}')")
    frame = plugin.read.format("lance").load(path)
    assert plugin.table("followed").count() == 3
    plugin.range(10, 12).write.format("lance").mode("append").save(path)
    assert plugin.table("followed").count() == 5
    plugin.sql("INSERT OVERWRITE followed SELECT id + 1 FROM followed")
    assert sql(plugin, "SELECT * FROM followed") == [(1,), (11,), (12,), (2,), (3,)]
    # A DataFrame stays where it is, and so must not take the place of what came later.
    with pytest.raises(Exception, match="would be lost"):
        frame.selectExpr("id + 1 AS id").write.format("lance").mode("overwrite").save(path)
    with pytest.raises(Exception, match="would be lost"):
        frame.createOrReplaceTempView("stale")
        plugin.sql(f"INSERT OVERWRITE lance.`{path}` SELECT * FROM stale")
    assert lance.dataset(path).count_rows() == 5
    past = plugin.read.format("lance").option("version", 1).load(path)
    past.write.format("lance").mode("overwrite").save(path)
    assert lance.dataset(path).count_rows() == 3


def test_overwrite_replaces_matching_rows(plugin, name):
    plugin.sql(f"CREATE TABLE {name} USING lance AS SELECT id, id % 2 AS m FROM range(6)")
    odd = plugin.range(100, 102).selectExpr("id", "1L AS m")
    odd.writeTo(name).overwrite(F.col("m") == 1)
    assert sql(plugin, f"SELECT id FROM {name} WHERE m = 1") == [(100,), (101,)]
    plugin.sql(f"INSERT INTO {name} REPLACE WHERE m = 0 SELECT 200L, 0L")
    assert sql(plugin, f"SELECT id FROM {name}") == [(100,), (101,), (200,)]
    plugin.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        plugin.sql(f"INSERT OVERWRITE {name} SELECT 1L, 1L")
    finally:
        plugin.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert sql(plugin, f"SELECT * FROM {name}") == [(1, 1)]


def test_merge_evolves_schema_on_request(plugin, name):
    plugin.sql(f"CREATE TABLE {name} USING lance AS SELECT 1 AS id, 'a' AS s")
    merge = (
        f"MERGE WITH SCHEMA EVOLUTION INTO {name} t USING "
        "(SELECT 1 AS id, 'b' AS s, 5 AS more UNION ALL SELECT 2, 'c', 6) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    if not has("MERGE WITH SCHEMA EVOLUTION"):  # Spark itself would change rows, and no columns
        with pytest.raises(Exception, match=r"UNSUPPORTED_FEATURE.*\n  hint: .*ADD COLUMNS"):
            plugin.sql(merge)
        assert sql(plugin, f"SELECT * FROM {name}") == [(1, "a")]
        return
    plugin.sql(merge)
    assert sql(plugin, f"SELECT id, s, more FROM {name}") == [(1, "b", 5), (2, "c", 6)]


@needs("MERGE WITH SCHEMA EVOLUTION")
@pytest.mark.parametrize("place", ["session", "folder"])
def test_schema_evolution_keeps_declared_lengths(plugin, name, place):
    table = name if place == "session" else f"folder.{name}"
    plugin.sql(f"CREATE TABLE {table} (id INT, c CHAR(4), v ARRAY<VARCHAR(3)>) USING lance")
    plugin.sql(f"INSERT INTO {table} VALUES (1, 'a', array('x'))")
    merge = (
        f"MERGE WITH SCHEMA EVOLUTION INTO {table} t USING (SELECT 1 AS id, '{{}}' AS c, "
        "array('y') AS v, 5 AS {}) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    statements = [merge]
    if has("schema evolution of other writes than MERGE"):
        statements.append(
            f"INSERT WITH SCHEMA EVOLUTION INTO {table} BY NAME "
            "SELECT 2 AS id, '{}' AS c, array('y') AS v, 5 AS {}"
        )
    try:
        for number, statement in enumerate(statements):
            with pytest.raises(Exception, match="EXCEED_LIMIT_LENGTH"):
                plugin.sql(statement.format("too long", f"more{number}"))
            plugin.sql(statement.format("b", f"extra{number}"))
        rows = sql(plugin, f"SELECT id, c, v, extra0 FROM {table} ORDER BY id")
        assert rows[0] == (1, "b   ", ["y"], 5)
        assert [row[:3] for row in rows[1:]] == [(2, "b   ", ["y"])] * (len(statements) - 1)
        types = dict(row[:2] for row in sql(plugin, f"DESCRIBE {table}"))
        assert (types["c"], types["v"]) == ("char(4)", "array<varchar(3)>")
    finally:
        plugin.sql(f"DROP TABLE {table}")


@needs("schema evolution of other writes than MERGE")
@pytest.mark.parametrize("place", ["session", "folder"])
def test_merge_schema_writes_add_columns(plugin, name, place):
    table = name if place == "session" else f"folder.{name}"
    plugin.sql(f"CREATE TABLE {table} USING lance AS SELECT 1 AS id, 'a' AS s")
    more = plugin.sql("SELECT 'b' AS s, 5 AS more, 2 AS id")
    with pytest.raises(Exception, match="TOO_MANY_DATA_COLUMNS"):
        more.writeTo(table).append()
    more.writeTo(table).option("mergeSchema", "true").append()
    assert sql(plugin, f"SELECT id, s, more FROM {table}") == [(1, "a", None), (2, "b", 5)]
    wider = plugin.sql("SELECT 3 AS id, 'c' AS s, 6 AS more, 1.5D AS x")
    wider.write.format("lance").mode("append").option("merge_schema", True).saveAsTable(table)
    assert sql(plugin, f"SELECT id, x FROM {table}") == [(1, None), (2, None), (3, 1.5)]
    plugin.sql(f"DROP TABLE {table}")


@pytest.mark.parametrize("place", ["session", "path"])
def test_lineage_columns_are_usable_in_every_statement(plugin, name, path, place):
    plugin.range(0, 5, 1, 1).selectExpr("id", "0L AS v").write.format("lance").save(path)
    table = f"lance.`{path}`"
    if place == "session":
        plugin.sql(f"CREATE TABLE {name} USING lance LOCATION '{path}'")
        table = name
    plugin.sql(f"UPDATE {table} SET v = _rowid + 10 WHERE _rowid >= 3")
    assert sql(plugin, f"SELECT id, v, _rowid FROM {table} WHERE v > 0") == [
        (3, 13, 3), (4, 14, 4),
    ]  # fmt: skip
    plugin.sql(f"UPDATE {table} SET v = _row_last_updated_at_version WHERE _rowid = 3")
    plugin.sql(
        f"MERGE INTO {table} t USING (SELECT 0L AS id UNION ALL SELECT 4L) s ON t._rowid = s.id "
        "WHEN MATCHED AND t._row_last_updated_at_version = 1 THEN UPDATE SET v = t._rowid - 7 "
        "WHEN MATCHED THEN DELETE"
    )
    assert sql(plugin, f"SELECT id, v FROM {table}") == [(0, -7), (1, 0), (2, 0), (3, 2)]
    plugin.sql(f"DELETE FROM {table} WHERE _rowid IN (SELECT _rowid FROM {table} WHERE id = 2)")
    version = lance.dataset(path).version
    for statement in (
        f"UPDATE {table} SET _rowid = 77",
        f"UPDATE {table} SET v = 1, _row_created_at_version = 1",
        (
            f"MERGE INTO {table} t USING (SELECT 0L AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET t._rowid = 5"
        ),
        (
            f"MERGE INTO {table} t USING (SELECT 9L AS id) s ON t.id = s.id "
            "WHEN NOT MATCHED THEN INSERT (id, _rowid) VALUES (s.id, 5)"
        ),
        f"EXECUTE IMMEDIATE 'UPDATE {table} SET _RowId = 77'",
    ):
        with pytest.raises(Exception, match=r"the lineage column _\w+ cannot be set"):
            plugin.sql(statement)
    assert lance.dataset(path).version == version


@pytest.mark.parametrize("place", ["session", "folder"])
def test_lance_spark_properties_set_column_storage(plugin, name, place):
    table = name if place == "session" else f"folder.{name}"
    plugin.sql(
        f"CREATE TABLE {table} (id int, v array<float>, b binary) USING lance TBLPROPERTIES ("
        "'v.arrow.fixed-size-list.size' = '2', 'b.lance.compression' = 'zstd', 'team' = 'web')"
    )
    plugin.sql(f"INSERT INTO {table} VALUES (1, array(0.5f, 1.5f), x'00ff')")
    stored = lance.dataset(location(plugin, table)).schema
    assert str(stored.field("v").type) == "fixed_size_list<item: float>[2]"
    assert stored.field("b").metadata == {b"lance-encoding:compression": b"zstd"}
    shown = dict(sql(plugin, f"SHOW TBLPROPERTIES {table}"))
    assert shown["team"] == "web"
    assert not any(key.startswith(("v.", "b.")) for key in shown)
    with pytest.raises(Exception, match=r"b\.lance\.encoding cannot be 'plain'"):
        plugin.sql(
            f"CREATE TABLE {name}_2 (b binary) USING lance "
            "TBLPROPERTIES ('b.lance.encoding' = 'plain')"
        )


@needs("column defaults of V2 tables in writes by name")
def test_missing_columns_get_defaults_in_every_write(plugin, name):
    plugin.sql(
        f"CREATE TABLE {name} (id int, v int DEFAULT 7, s string DEFAULT reverse('yx')) USING lance"
    )
    one = plugin.sql("SELECT 1 AS id")
    one.writeTo(name).append()
    one.write.format("lance").mode("append").saveAsTable(name)
    plugin.sql(f"INSERT INTO {name} (id) VALUES (1)")
    plugin.sql(
        f"MERGE INTO {name} t USING (SELECT 2 AS id) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    table = LanceTable.forName(plugin, name)
    for number in (3, 4):
        source = plugin.sql(f"SELECT {number} AS id").alias("source")
        merge = table.merge(source, "target.id = source.id")
        if number == 3:
            merge.whenNotMatchedInsertAll().execute()
        else:
            merge.whenNotMatchedInsert(values={"id": "source.id"}).execute()
    assert sql(plugin, f"SELECT DISTINCT v, s FROM {name}") == [(7, "xy")]
    assert plugin.table(name).count() == 6
    with pytest.raises(Exception, match=r"default reverse\('yx'\) is not a constant"):
        one.write.format("lance").mode("append").save(location(plugin, name))
    plugin.sql(f"ALTER TABLE {name} ALTER COLUMN s SET DEFAULT 'y'")
    plugin.sql("SELECT 9 AS id").write.format("lance").mode("append").save(location(plugin, name))
    assert sql(plugin, f"SELECT * FROM {name} WHERE id = 9") == [(9, 7, "y")]


@pytest.mark.parametrize("source", ["SELECT 1L AS id", "SELECT 1L AS id UNION ALL SELECT 9L"])
@pytest.mark.parametrize(
    ("condition", "matched"), [("t._rowid = s.id", ""), ("t.id = s.id", "AND t._rowid = 1")]
)
def test_merge_naming_hidden_columns_inserts(plugin, path, source, condition, matched):
    plugin.range(0, 3, 1, 1).write.format("lance").save(path)
    rows = {1, 9} if "9" in source else {1}
    for insert in ("INSERT *", "INSERT (id) VALUES (s.id)"):
        plugin.sql(
            f"MERGE INTO lance.`{path}` t USING ({source}) s ON {condition} "
            f"WHEN MATCHED {matched} THEN UPDATE SET * WHEN NOT MATCHED THEN {insert}"
        )
    found = [row for (row,) in sql(plugin, f"SELECT id FROM lance.`{path}`")]
    assert set(found) == {0, 1, 2} | rows
    plugin.sql(
        f"MERGE INTO lance.`{path}` t USING (SELECT id, _rowid FROM lance.`{path}`) s "
        "ON t._rowid = s._rowid WHEN MATCHED AND s.id = 1 THEN DELETE"
    )
    assert set(found) - {1} == {row for (row,) in sql(plugin, f"SELECT id FROM lance.`{path}`")}


@pytest.mark.parametrize("is_external", [False, True])
def test_show_create_table_recreates_types(plugin, name, path, is_external):
    location = f"LOCATION '{path}'" if is_external else ""
    plugin.sql(
        f"CREATE TABLE {name} (id INT NOT NULL, c CHAR(3), t VARCHAR(5) DEFAULT 'x', "
        "v ARRAY<FLOAT>, h FLOAT, j STRING, b BINARY, "
        "s STRUCT<a: INT NOT NULL COMMENT 'inner', l: ARRAY<STRUCT<c: INT COMMENT 'deep'>>>, "
        "m MAP<STRING, STRUCT<x: INT COMMENT 'value'>>) "
        f"USING lance {location} TBLPROPERTIES (fileFormatVersion = '2.2', "
        "enableStableRowIds = 'false', `v.fixed_size_list` = 2, `v.float16` = 'true', "
        "`h.float16` = 'true', `j.json` = 'true', `b.blob` = 'true', "
        "`c.compression` = 'zstd', team = 'web')"
    )
    where = LanceTable.forName(plugin, name).detail().first().location
    before = lance.dataset(where).schema
    text = plugin.sql(f"SHOW CREATE TABLE {name}").first()[0]
    assert all(f"COMMENT '{one}'" in text for one in ("inner", "deep", "value"))
    shown = dict(sql(plugin, f"SHOW TBLPROPERTIES {name}"))
    assert shown == {"team": "web"}
    plugin.sql(f"DROP TABLE {name}")
    plugin.sql(text)
    if is_external:  # the files get their name again
        plugin.sql(f"DROP TABLE {name}")
        shutil.rmtree(path)
        plugin.sql(text)
    made = lance.dataset(LanceTable.forName(plugin, name).detail().first().location)
    assert made.schema.equals(before, check_metadata=True)
    assert made.data_storage_version == "2.2" and not made.has_stable_row_ids
    assert plugin.sql(f"SHOW CREATE TABLE {name}").first()[0] == text
    if is_external:
        plugin.sql(f"DROP TABLE {name}")
        with pytest.raises(Exception, match=r"LANCE_INVALID_INPUT.*without the property"):
            plugin.sql(text.replace("'h.float16' = 'true'", "'h.float16' = 'false'"))


@needs("CREATE TABLE LIKE of V2 tables")
@pytest.mark.parametrize("source", ["session", "folder"])
@pytest.mark.parametrize("target", ["session", "folder"])
def test_create_table_like_copies_definition(plugin, name, source, target):
    places = {"session": "spark_catalog.default.", "folder": "folder."}
    first, second = f"{places[source]}{name}", f"{places[target]}{name}_like"
    definition = (
        "(id INT NOT NULL COMMENT 'key', c CHAR(3) DEFAULT 'q', v ARRAY<FLOAT>, "
        "CONSTRAINT k PRIMARY KEY (id)) USING lance CLUSTER BY (c) COMMENT 'short' "
        "TBLPROPERTIES (`v.fixed_size_list` = 2, team = 'web')"
    )
    plugin.sql(f"CREATE TABLE {first} {definition}")
    try:
        plugin.sql(f"INSERT INTO {first} VALUES (1, 'a', array(1f, 2f))")
        plugin.sql(f"CREATE TABLE {second} LIKE {first}")
        assert sql(plugin, f"SELECT * FROM {second}") == []
        texts = [
            plugin.sql(f"SHOW CREATE TABLE {one}").first()[0].replace(one, "")
            for one in (first, second)
        ]
        assert texts[0] == texts[1]
        assert LanceTable.forName(plugin, second).clusteringColumns() == ["c"]
        plugin.sql(f"CREATE TABLE IF NOT EXISTS {second} LIKE {first}")
        with pytest.raises(Exception, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
            plugin.sql(f"CREATE TABLE {second} LIKE {first}")
        plugin.sql(f"DROP TABLE {second}")
        plugin.sql(f"CREATE TABLE {second} LIKE {first} TBLPROPERTIES (team = 'shop')")
        assert sql(plugin, f"SHOW TBLPROPERTIES {second} ('team')") == [("team", "shop")]
    finally:
        for one in (first, second):
            plugin.sql(f"DROP TABLE IF EXISTS {one}")


@needs("CREATE TABLE LIKE of V2 tables")
def test_create_table_like_takes_columns_of_other_sources(plugin, name):
    plugin.sql(f"CREATE TABLE {name} (a INT, p VARCHAR(3)) USING parquet PARTITIONED BY (p)")
    try:
        plugin.sql(f"CREATE TABLE folder.{name} LIKE spark_catalog.default.{name}")
        plugin.sql(f"INSERT INTO folder.{name} VALUES (1, 'x')")
        assert sql(plugin, f"SELECT * FROM folder.{name}") == [(1, "x")]
        with pytest.raises(Exception, match=r"UNSUPPORTED_FEATURE.*\n  hint: .*USING parquet"):
            plugin.sql(f"CREATE TABLE folder.{name}2 LIKE folder.{name} USING parquet")
    finally:
        plugin.sql(f"DROP TABLE folder.{name}")
