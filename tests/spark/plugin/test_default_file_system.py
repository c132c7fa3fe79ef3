"""Paths without a scheme are in Hadoop's default file system, as those of Parquet files are."""

from __future__ import annotations

import os
import uuid

import lance
import pytest
from hdfs_cluster import hdfs_cluster  # noqa: F401
from s3_server import s3_server  # noqa: F401
from spark_sessions import session_settings

from pyspark_lance import LanceTable
from pyspark_lance.store.hadoop_options import URI_SCHEME, has_host

from .conftest import sql

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.interop]


@pytest.fixture
def bucket(s3_server):  # noqa: F811
    return s3_server.new_bucket()


@pytest.fixture
def s3(plugin, s3_server, bucket, monkeypatch):  # noqa: F811
    """A session whose default file system is a bucket; the path of it is ignored."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with session_settings(
        plugin, {**s3_server.hadoop_settings, "fs.defaultFS": f"s3a://{bucket}/ignored"}
    ):
        yield plugin


@pytest.fixture
def folder(bucket):
    """A folder that is nowhere on the local disk."""
    path = f"/only-in-{bucket}"
    yield path
    assert not os.path.exists(path)


def ids(server, bucket, path):
    """What pylance reads in the bucket."""
    found = lance.dataset(f"s3://{bucket}/{path.lstrip('/')}", storage_options=server.options)
    return sorted(found.to_table(columns=["id"])["id"].to_pylist())


def home(session):
    users = session._jvm.org.apache.hadoop.security.UserGroupInformation
    return f"/user/{users.getCurrentUser().getShortUserName()}"


def test_paths_are_in_the_default_file_system(s3, s3_server, bucket, folder):  # noqa: F811
    path = f"{folder}/t"
    s3.range(3).write.format("lance").save(path)
    assert ids(s3_server, bucket, path) == [0, 1, 2]
    assert s3.read.format("lance").load(path).where("id > 0").count() == 2
    assert s3.read.format("lance").load(f"s3a:///{path}").count() == 3
    name = f"lance.`{path}`"
    s3.sql(f"INSERT INTO {name} VALUES (7)")
    s3.sql(f"DELETE FROM {name} WHERE id = 0")
    s3.sql(f"UPDATE {name} SET id = 8 WHERE id = 7")
    assert sql(s3, f"CALL lance.system.compact('{path}')")
    assert s3.read.format("lance").load(f"{path}$history").count() == 5
    s3.sql(f"CREATE TABLE lance.`{path}2` AS SELECT * FROM {name}")
    assert ids(s3_server, bucket, f"{path}2") == [1, 2, 8]
    s3.range(2).write.format("lance").save("relative/t")
    assert ids(s3_server, bucket, f"{home(s3)}/relative/t") == [0, 1]
    assert not os.path.exists("relative")


def test_cached_views_of_a_path_are_refreshed(s3, bucket, folder):
    path = f"{folder}/t"
    s3.range(3).write.format("lance").save(path)
    view = f"v_{uuid.uuid4().hex[:8]}"
    s3.sql(f"CREATE TEMPORARY VIEW {view} USING lance OPTIONS (path '{path}')")
    s3.sql(f"CACHE TABLE {view}")
    s3.range(1).write.format("lance").mode("append").save(f"s3a://{bucket}{path}")
    assert s3.table(view).count() == 4
    s3.sql(f"UNCACHE TABLE {view}")


def test_lance_table_resolves_paths(s3, s3_server, bucket, folder):  # noqa: F811
    path = f"{folder}/t"
    table = LanceTable.create(s3, path, "id bigint")
    s3.range(3).write.format("lance").mode("append").save(path)
    table.delete("id = 0")
    assert LanceTable.forPath(s3, path).toDF().count() == 2
    assert LanceTable.isLanceTable(s3, f"s3a://{bucket}{path}")
    table.copyWithStableRowIds(f"{path}-copy")
    LanceTable.create(s3).location("built").addColumn("id", "bigint").execute()
    assert ids(s3_server, bucket, path) == ids(s3_server, bucket, f"{path}-copy") == [1, 2]
    assert ids(s3_server, bucket, f"{home(s3)}/built") == []
    assert LanceTable.forPath(s3, "built").toDF().count() == 0


def test_streams_resolve_paths(s3, s3_server, bucket, folder, tmp_path):  # noqa: F811
    path = f"{folder}/t"
    s3.range(3).write.format("lance").save(path)
    query = (
        s3.readStream.format("lance").load(path).writeStream.format("lance")
        .option("checkpointLocation", f"file://{tmp_path}").trigger(availableNow=True)
        .start(f"{path}-copy")
    )  # fmt: skip
    query.awaitTermination()
    assert ids(s3_server, bucket, f"{path}-copy") == [0, 1, 2]


def catalog_at(session, root):
    name = f"c_{uuid.uuid4().hex[:8]}"
    session.conf.set(f"spark.sql.catalog.{name}", "org.pysparklance.LanceCatalog")
    session.conf.set(f"spark.sql.catalog.{name}.path", root)
    return name


def test_roots_of_catalogs_are_resolved(s3, s3_server, bucket, folder):  # noqa: F811
    catalog = catalog_at(s3, folder)
    s3.sql(f"CREATE TABLE {catalog}.t AS SELECT id FROM range(3)")
    s3.sql(f"INSERT INTO {catalog}.t VALUES (7)")
    assert sql(s3, f"SHOW TABLES IN {catalog}") == [("main", "t", False)]
    assert s3_server.client().list_objects_v2(Bucket=bucket, Prefix=folder[1:])["KeyCount"] > 0
    assert LanceTable.forName(s3, f"{catalog}.t").toDF().count() == 4


def test_local_catalogs_stay_local(s3, tmp_path):
    catalog = catalog_at(s3, f"file://{tmp_path}")
    s3.sql(f"CREATE TABLE {catalog}.t AS SELECT id FROM range(3)")
    s3.sql(f"INSERT INTO {catalog}.t VALUES (7)")
    assert s3.table(f"{catalog}.t").count() == 4
    assert LanceTable.forName(s3, f"{catalog}.t").toDF().count() == 4
    assert any(tmp_path.iterdir())
    s3.sql(f"DROP TABLE {catalog}.t")


def test_plugin_separates_uris_as_python_does(plugin):
    of_plugin = plugin._jvm.org.pysparklance.python.PathUri
    for text in (
        "/t", "t", "a:b", "a:b/c", "a:/b", "S3A://b/t", "s3+ddb://b/t?x=y", "hdfs:///t", "hdfs:/t",
        "file:/t", "FILE:///t", "file://", "c:x://b/t", "1a://b/t", "in/a://b/t", "://b", "s3a:",
    ):  # fmt: skip
        scheme = URI_SCHEME.match(text)
        assert of_plugin.scheme(text) == (scheme[1].lower() if scheme else ""), text
        assert of_plugin.hasHost(text) == has_host(text), text


def test_forms_of_one_path_are_equal(plugin):
    is_same = plugin._jvm.org.pysparklance.python.Options.isSamePath
    with session_settings(plugin, {"fs.defaultFS": "s3+ddb://bucket/"}):
        assert is_same("s3+ddb://bucket/t/", "/t")
    assert is_same("FILE:///t//", "/t")
    assert is_same("file:/t", "file:///t")
    assert not is_same("s3a://bucket/t", "/t")


def test_relative_locations_are_in_the_database(plugin, tmp_path):
    database = f"d_{uuid.uuid4().hex[:8]}"
    plugin.sql(f"CREATE DATABASE {database} LOCATION '{tmp_path}'")
    for short, clause in (("t", "LOCATION 'in/t'"), ("u", "OPTIONS (path 'in/u')")):
        name = f"{database}.{short}"
        plugin.sql(f"CREATE TABLE {name} USING lance {clause} AS SELECT 1L AS id")
        plugin.sql(f"INSERT INTO {name} VALUES (2)")
        assert sorted(row.id for row in plugin.table(name).collect()) == [1, 2]
    plugin.sql(f"CREATE OR REPLACE TABLE {database}.t USING lance LOCATION 'in/t' AS SELECT 3L id")
    assert plugin.table(f"{database}.t").collect()[0].id == 3
    assert sorted(os.listdir(tmp_path / "in")) == ["t", "u"]
    assert not os.path.exists("in")
    plugin.sql(f"DROP DATABASE {database} CASCADE")


@pytest.mark.slow
def test_paths_mean_what_they_mean_to_parquet(plugin, hdfs_cluster):  # noqa: F811
    """On HDFS, which Spark's own sources can open in this environment, too."""
    # The catalog of a session takes the default file system that is set when it is first used.
    plugin, jvm = plugin.newSession(), plugin._jvm
    settings = {"fs.defaultFS": f"{hdfs_cluster.uri}/ignored"}
    with session_settings(plugin, settings):
        conf = plugin._jsparkSession.sessionState().newHadoopConf()
        files = jvm.org.apache.hadoop.fs.FileSystem.get(conf)

        def exists(path):
            return files.exists(jvm.org.apache.hadoop.fs.Path(path))

        for kind, log in (("parquet", "_SUCCESS"), ("lance", "_versions")):
            for path, whole in (
                (f"/a%20b/{kind}", f"/a%20b/{kind}"),
                (f"x/{kind}", f"{home(plugin)}/x/{kind}"),
                (f"hdfs:///c/{kind}", f"/c/{kind}"),
                (f"hdfs:/d/{kind}", f"/d/{kind}"),
            ):
                plugin.range(3).write.format(kind).save(path)
                assert exists(f"{whole}/{log}")
                assert plugin.read.format(kind).load(path).count() == 3
                assert plugin.read.format(kind).load(f"{hdfs_cluster.uri}{whole}").count() == 3
        proxies = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
        services = {
            "dfs.nameservices": "both",
            "dfs.ha.namenodes.both": "nn1,nn2",
            "dfs.namenode.rpc-address.both.nn1": "127.0.0.1:1",
            "dfs.namenode.rpc-address.both.nn2": hdfs_cluster.uri.partition("://")[2],
            "dfs.client.failover.proxy.provider.both": proxies,
        }
        with session_settings(plugin, services):
            for kind in ("parquet", "lance"):
                assert plugin.read.format(kind).load(f"hdfs://both/c/{kind}").count() == 3
            assert LanceTable.forPath(plugin, "hdfs://both/c/lance").toDF().count() == 3
        name = f"t_{uuid.uuid4().hex[:8]}"
        for kind in ("parquet", "lance"):
            plugin.sql(f"CREATE TABLE {name} USING {kind} LOCATION '/loc/{kind}' AS SELECT 1L id")
            plugin.sql(f"INSERT INTO {name} VALUES (2)")
            assert plugin.read.format(kind).load(f"/loc/{kind}").count() == 2
            shown = sql(plugin, f"DESCRIBE EXTENDED {name}")
            assert f"{hdfs_cluster.uri}/loc/{kind}" in [row[1] for row in shown]
            plugin.sql(f"DROP TABLE {name}")
        assert LanceTable.forPath(plugin, "/loc/lance").toDF().count() == 2
        catalog = catalog_at(plugin, "/catalog")
        plugin.sql(f"CREATE TABLE {catalog}.t (id bigint) LOCATION '/catalog/t.lance'")
        plugin.sql(f"INSERT INTO {catalog}.t VALUES (1)")
        assert exists("/catalog/t.lance/_versions")
