"""CLUSTER BY of Spark's SQL and of its writers: the columns by which compactions sort rows."""

from __future__ import annotations

import lance
import pytest

from pyspark_lance import LanceTable

from .conftest import sql

pytestmark = [pytest.mark.spark, pytest.mark.interop]

COLUMNS = "id BIGINT, a INT, place STRUCT<lat: INT>, tags ARRAY<INT>"
ROWS = "SELECT id, int(id * 37 % 101) AS a, named_struct('lat', int(id % 7)), array(1) FROM range"


@pytest.fixture(params=["session", "folder"])
def table(plugin, request, tmp_path):
    """The name of a table that is not there yet, free again after the test."""
    catalog = f"clustered_{abs(hash(request.node.name)) % 10**9}"
    plugin.conf.set(f"spark.sql.catalog.{catalog}", "org.pysparklance.LanceCatalog")
    plugin.conf.set(f"spark.sql.catalog.{catalog}.path", str(tmp_path / "folder"))
    name = catalog if request.param == "session" else f"{catalog}.t"
    yield name
    plugin.sql(f"DROP TABLE IF EXISTS {name}")


def columns_of(session, table):
    return LanceTable.forName(session, table).clusteringColumns()


def shown(session, table):
    """The rows below the title of DESCRIBE."""
    names = [row.col_name for row in session.sql(f"DESCRIBE EXTENDED {table}").collect()]
    if "# Clustering Information" not in names:
        return []
    first = names.index("# Clustering Information") + 2
    return names[first : names.index("", first)]


def test_create_table_cluster_by_sorts_compactions(plugin, table):
    plugin.sql(f"CREATE TABLE {table} ({COLUMNS}) USING lance CLUSTER BY (A, place.lat)")
    assert columns_of(plugin, table) == shown(plugin, table) == ["a", "place.lat"]
    for start in (0, 500):
        plugin.sql(f"INSERT INTO {table} {ROWS}({start}, {start + 500}, 1, 1)")

    def rows_sorted(more=""):
        call = f"CALL lance.system.compact(table => '{table}'{more})"
        return plugin.sql(call).first().num_rows

    assert rows_sorted() == 1000
    assert rows_sorted() == rows_sorted(", cluster_by => array()") == 0
    assert rows_sorted(", cluster_by => array('id')") == 1000
    (detail,) = plugin.sql(f"CALL lance.system.detail('{table}')").collect()
    assert detail.clustering_columns == ["a", "place.lat"]
    plugin.sql(f"INSERT OVERWRITE {table} {ROWS}(10)")
    assert columns_of(plugin, table) == ["a", "place.lat"]


def test_alter_table_changes_and_follows_clustering_columns(plugin, table):
    plugin.sql(f"CREATE TABLE {table} ({COLUMNS}) USING lance")
    assert shown(plugin, table) == []
    plugin.sql(f"ALTER TABLE {table} CLUSTER BY (id, place.lat)")
    plugin.sql(f"ALTER TABLE {table} RENAME COLUMN id TO key")
    plugin.sql(f"ALTER TABLE {table} RENAME COLUMN place.lat TO latitude")
    assert shown(plugin, table) == columns_of(plugin, table) == ["key", "place.latitude"]
    with pytest.raises(Exception, match=r"cannot be dropped(?s:.*)CLUSTER BY NONE"):
        plugin.sql(f"ALTER TABLE {table} DROP COLUMN key")
    for wrong, message in (
        ("(ky)", "there is no column 'ky'(?s:.*)did you mean 'key'"),
        ("(tags)", "cannot be sorted by the column 'tags'"),
        ("(place)", "cannot be sorted by the column 'place'"),
        ("(a, a)", "named twice|DUPLICATE|duplicate"),
    ):
        with pytest.raises(Exception, match=message):
            plugin.sql(f"ALTER TABLE {table} CLUSTER BY {wrong}")
    assert columns_of(plugin, table) == ["key", "place.latitude"]
    plugin.sql(f"ALTER TABLE {table} CLUSTER BY NONE")
    assert shown(plugin, table) == columns_of(plugin, table) == []
    plugin.sql(f"ALTER TABLE {table} DROP COLUMN key")


def test_replacing_table_redefines_clustering_columns(plugin, table):
    selected = "AS SELECT id, id % 3 AS a FROM range(9)"
    plugin.sql(f"CREATE TABLE {table} USING lance CLUSTER BY (a) {selected}")
    assert columns_of(plugin, table) == ["a"]
    plugin.sql(f"CREATE OR REPLACE TABLE {table} USING lance CLUSTER BY (id, a) {selected}")
    text = plugin.sql(f"SHOW CREATE TABLE {table}").first()[0]
    assert columns_of(plugin, table) == ["id", "a"]
    plugin.sql(f"REPLACE TABLE {table} USING lance {selected}")
    assert columns_of(plugin, table) == []
    plugin.sql(text.replace("CREATE TABLE", "CREATE OR REPLACE TABLE"))
    assert columns_of(plugin, table) == ["id", "a"]
    plugin.sql(f"REPLACE TABLE {table} (id BIGINT) USING lance CLUSTER BY (id)")
    assert columns_of(plugin, table) == ["id"]


def test_data_frame_writers_set_clustering_columns(plugin, table):
    frame = plugin.range(9).selectExpr("id", "id % 3 AS a")
    frame.writeTo(table).using("lance").clusterBy("a", "id").create()
    assert columns_of(plugin, table) == ["a", "id"]
    frame.writeTo(table).append()
    frame.writeTo(table).overwritePartitions()
    frame.write.format("lance").clusterBy("a", "id").mode("append").saveAsTable(table)
    assert columns_of(plugin, table) == ["a", "id"]
    assert len(sql(plugin, f"SELECT * FROM {table}")) == 18
    with pytest.raises(Exception, match="clustering columns do not match"):
        frame.write.format("lance").clusterBy("id").mode("append").saveAsTable(table)
    frame.writeTo(table).using("lance").clusterBy("id").createOrReplace()
    assert columns_of(plugin, table) == ["id"]
    frame.write.format("lance").clusterBy("a").mode("overwrite").saveAsTable(table)
    assert columns_of(plugin, table) == ["a"]


def test_cluster_by_applies_in_every_save_mode(plugin, path):
    frame = plugin.range(9).selectExpr("id", "id % 3 AS a")

    def save(mode, *columns):
        frame.write.format("lance").clusterBy(*columns).mode(mode).save(path)
        return LanceTable.forPath(plugin, path).clusteringColumns()

    assert save("error", "a") == save("append", "a") == save("ignore", "id") == ["a"]
    with pytest.raises(Exception, match=r"clustered by a, and an append(?s:.*)clusterBy\('id'\)"):
        save("append", "id")
    assert save("overwrite", "id", "a") == ["id", "a"]
    frame.write.format("lance").mode("overwrite").save(path)
    assert LanceTable.forPath(plugin, path).clusteringColumns() == ["id", "a"]


def test_registered_table_must_match_clustering_columns(plugin, path):
    plugin.range(9).write.format("lance").clusterBy("id").save(path)
    for name, by in (("clustered_same", "CLUSTER BY (id)"), ("clustered_none", "")):
        plugin.sql(f"CREATE TABLE {name} (id BIGINT) USING lance {by} LOCATION '{path}'")
        assert columns_of(plugin, name) == ["id"]
        plugin.sql(f"DROP TABLE {name}")
    plugin.sql(f"ALTER TABLE lance.`{path}` CLUSTER BY NONE")
    with pytest.raises(Exception, match="not clustered by these columns"):
        plugin.sql(
            f"CREATE TABLE clustered_other (id BIGINT) USING lance CLUSTER BY (id) "
            f"LOCATION '{path}'"
        )


def test_partitions_and_buckets_are_refused_with_hint(plugin, table, path):
    for text in ("PARTITIONED BY (a)", "CLUSTERED BY (a) INTO 4 BUCKETS"):
        with pytest.raises(Exception, match=r"no partitions and no buckets(?s:.*)CLUSTER BY \(…\)"):
            plugin.sql(f"CREATE TABLE {table} (id BIGINT, a INT) USING lance {text}")
    frame = plugin.range(9).selectExpr("id", "id % 3 AS a").write.format("lance")
    with pytest.raises(Exception, match="no partitions and no buckets"):
        frame.partitionBy("a").save(path)
    with pytest.raises(Exception, match="no partitions and no buckets"):
        frame.bucketBy(4, "a").saveAsTable(table)
    assert not plugin.catalog.tableExists(table)


def test_table_with_dropped_clustering_columns_is_described(plugin, path):
    plugin.range(9).selectExpr("id", "id AS a").write.format("lance").clusterBy("id", "a").save(
        path
    )
    lance.dataset(path).drop_columns(["a"])
    assert shown(plugin, f"lance.`{path}`") == ["id"]
    with pytest.raises(Exception, match=r"clustered by id, a, but there is no column 'a'"):
        plugin.sql(f"CALL lance.system.compact('{path}')")
