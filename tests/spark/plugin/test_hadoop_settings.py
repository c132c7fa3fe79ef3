"""Hadoop's settings of a session open its tables: all ways of the plugin to Python take them."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import lance
import pytest
from s3_server import s3_server  # noqa: F401
from spark_releases import needs
from spark_sessions import session_settings

from pyspark_lance import LanceTable

from .conftest import sql

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.interop]

PROVIDER = "fs.s3a.aws.credentials.provider"


def settings_of(server):
    return {
        "fs.s3a.access.key": server.access_key,
        "fs.s3a.secret.key": server.secret_key,
        "fs.s3a.endpoint": server.endpoint,
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
    }


@pytest.fixture
def s3(plugin, s3_server, monkeypatch):  # noqa: F811
    """A session with the settings of the server, and no credentials anywhere else."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with session_settings(plugin, settings_of(s3_server)):
        yield plugin


@pytest.fixture
def path(s3, s3_server):  # noqa: F811
    return f"s3a://{s3_server.new_bucket()}/warehouse/table"


def ids(server, path):
    """What pylance reads there."""
    found = lance.dataset(path.replace("s3a:", "s3:"), storage_options=server.options)
    return sorted(found.to_table(columns=["id"])["id"].to_pylist())


def test_reads_writes_and_statements_use_hadoop_settings(s3, s3_server, path):  # noqa: F811
    s3.range(4).repartition(2).write.format("lance").save(path)
    s3.range(4, 6).write.format("lance").mode("append").save(path)
    assert s3.read.format("lance").load(path).where("id > 1").count() == 4
    name = f"lance.`{path}`"
    s3.sql(f"UPDATE {name} SET id = id + 10 WHERE id = 5")
    s3.sql(f"DELETE FROM {name} WHERE id = 4")
    s3.sql(f"INSERT INTO {name} VALUES (20)")
    s3.sql(
        f"MERGE INTO {name} t USING (SELECT 30L AS id) s ON t.id = s.id WHEN NOT MATCHED THEN "
        "INSERT *"
    )
    assert ids(s3_server, path) == [0, 1, 2, 3, 15, 20, 30]
    s3.sql(f"CREATE INDEX by_id ON {name} (id)")
    assert sql(s3, f"SELECT count(*) FROM {name} WHERE id = 15") == [(1,)]
    assert sql(s3, f"CALL lance.system.compact('{path}')")
    assert sql(s3, f"CALL lance.system.cleanup('{path}', older_than => '0s')")
    s3.sql(f"CREATE TABLE lance.`{path}2` AS SELECT * FROM {name}")
    assert ids(s3_server, f"{path}2") == [0, 1, 2, 3, 15, 20, 30]


def test_catalog_tables_use_hadoop_settings(s3, s3_server):  # noqa: F811
    catalog, bucket = f"s3_{uuid.uuid4().hex[:8]}", s3_server.new_bucket()
    s3.conf.set(f"spark.sql.catalog.{catalog}", "org.pysparklance.LanceCatalog")
    s3.conf.set(f"spark.sql.catalog.{catalog}.path", f"s3a://{bucket}/folder")
    s3.sql(f"CREATE NAMESPACE {catalog}.n")
    for name in (f"{catalog}.t", f"{catalog}.n.t"):
        s3.sql(f"CREATE TABLE {name} AS SELECT id FROM range(3)")
        s3.sql(f"INSERT INTO {name} VALUES (7)")
        assert sql(s3, f"SELECT id FROM {name} WHERE id > 1 ORDER BY id") == [(2,), (7,)]
        assert sql(s3, f"CALL {catalog}.system.history('{name}')")
        shown = str(s3.sql(f"DESCRIBE EXTENDED {name}").collect())
        shown += str(s3.sql(f"SHOW CREATE TABLE {name}").collect())
        assert s3_server.secret_key not in shown
    assert sql(s3, f"SHOW TABLES IN {catalog}") == [("main", "t", False)]
    s3.sql(f"DROP TABLE {catalog}.t")
    session_table = f"s_{uuid.uuid4().hex[:8]}"
    location = f"s3a://{bucket}/session"
    s3.sql(f"CREATE TABLE {session_table} USING lance LOCATION '{location}' AS SELECT 1L AS id")
    s3.sql(f"INSERT INTO {session_table} VALUES (2)")
    assert ids(s3_server, location) == [1, 2]
    assert LanceTable.forName(s3, session_table).toDF().count() == 2
    s3.sql(f"DROP TABLE {session_table}")


def test_streams_use_hadoop_settings(s3, s3_server, path, tmp_path):  # noqa: F811
    s3.range(3).write.format("lance").save(path)
    stream = s3.readStream.format("lance").option("readChangeFeed", "true")
    rows = stream.option("startingVersion", "0").load(path).select("id")
    query = (
        rows.writeStream.format("lance")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start(f"{path}-copy")
    )
    query.awaitTermination()
    assert ids(s3_server, f"{path}-copy") == [0, 1, 2]


def test_bucket_settings_and_options_take_precedence(s3, s3_server, path):  # noqa: F811
    bucket = path.split("/")[2]
    s3.range(3).write.format("lance").save(path)
    read = s3.read.format("lance")
    with session_settings(s3, {f"fs.s3a.bucket.{bucket}.access.key": "of-the-bucket"}):
        s3_server.access_keys.clear()
        assert read.load(path).count() == 3
        assert set(s3_server.access_keys) == {"of-the-bucket"}
        s3_server.access_keys.clear()
        own = read.option("storage.key", "of-the-read").option("storage.secret", "own-secret")
        assert own.load(path).count() == 3
        assert set(s3_server.access_keys) == {"of-the-read"}


def keep_secret(session, place, name, secret):
    """Keep a secret in a credential file of Hadoop's."""
    jvm = session._jvm
    conf = jvm.org.apache.hadoop.conf.Configuration()
    conf.set("hadoop.security.credential.provider.path", place)
    provider = jvm.org.apache.hadoop.security.alias.CredentialProviderFactory.getProviders(conf)[0]
    letters = session.sparkContext._gateway.new_array(jvm.char, len(secret))
    for number, letter in enumerate(secret):
        letters[number] = letter
    provider.createCredentialEntry(name, letters)
    provider.flush()


def test_secrets_are_read_from_credential_files(s3, s3_server, path, tmp_path):  # noqa: F811
    place = f"localjceks://file{tmp_path}/secrets.jceks"
    keep_secret(s3, place, "fs.s3a.access.key", "of-the-file")
    s3.range(3).write.format("lance").save(path)
    with session_settings(s3, {"hadoop.security.credential.provider.path": place}):
        s3_server.access_keys.clear()
        assert s3.read.format("lance").load(path).count() == 3
        assert LanceTable.forPath(s3, path).detail()
        assert set(s3_server.access_keys) == {"of-the-file"}


def test_unsupported_provider_error_hides_other_settings(s3, s3_server, path):  # noqa: F811
    s3.range(3).write.format("lance").save(path)
    with session_settings(s3, {PROVIDER: "com.example.Mine"}), pytest.raises(Exception) as caught:
        s3.read.format("lance").load(path).count()
    assert "com.example.Mine" in str(caught.value)
    with pytest.raises(Exception) as missing:
        s3.read.format("lance").load(f"{path}-none").count()
    assert "LANCE_TABLE_NOT_FOUND" in str(missing.value)
    frame = s3.read.format("lance").load(path).where("id > 1")
    frame.collect()
    shown = frame._jdf.queryExecution().toString() + str(caught.value) + str(missing.value)
    assert s3_server.secret_key not in shown
    assert s3_server.access_key not in shown


def test_other_threads_use_hadoop_settings(s3, s3_server, path):  # noqa: F811
    def write():
        s3.range(3).write.format("lance").mode("append").save(path)
        return s3.read.format("lance").load(path).count()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(write).result() == 3
    assert LanceTable.forPath(s3, path).delete("id = 1").num_deleted_rows == 1


@pytest.fixture
def shared_settings(plugin, s3_server, monkeypatch):  # noqa: F811
    """Hadoop's settings of all sessions, with keys that a test changes."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    shared = plugin.sparkContext._jsc.hadoopConfiguration()
    settings = {**settings_of(s3_server), "fs.s3a.session.token": "token-1"}
    settings["fs.s3a.access.key"] = "first-of-stream"
    for name, value in settings.items():
        shared.set(name, value)
    yield shared
    for name in settings:
        shared.unset(name)
    s3_server.ended_keys.clear()


def test_streams_take_keys_that_change(plugin, s3_server, shared_settings, tmp_path):  # noqa: F811
    """Source and sink, whose first keys end while the query runs."""
    path = f"s3a://{s3_server.new_bucket()}/t"
    plugin.range(2).write.format("lance").save(path)
    rows = plugin.readStream.format("lance").option("consumer", "copy").load(path)
    sink = rows.writeStream.format("lance").option("checkpointLocation", str(tmp_path))
    query = sink.start(f"{path}-copy")
    try:
        query.processAllAvailable()
        shared_settings.set("fs.s3a.access.key", "second-of-stream")
        shared_settings.set("fs.s3a.session.token", "token-2")
        plugin.range(2, 3).write.format("lance").mode("append").save(path)
        query.processAllAvailable()
        s3_server.ended_keys.add("first-of-stream")
        plugin.range(3, 4).write.format("lance").mode("append").save(path)
        query.processAllAvailable()
        assert query.exception() is None
        shown = str(query.recentProgress) + query._jsq.toString()
        assert "second-of-stream" not in shown
        assert "token-2" not in shown
    finally:
        query.stop()
    assert ids(s3_server, f"{path}-copy") == [0, 1, 2, 3]


@needs("limits of micro-batches")
def test_available_now_ends_after_keys_change(plugin, s3_server, shared_settings):  # noqa: F811
    """The query ends at the version that is the newest when its process is replaced."""
    path, seen = f"s3a://{s3_server.new_bucket()}/t", []
    for number in range(3):
        plugin.range(number, number + 1).write.format("lance").mode("append").save(path)

    def write(rows, batch):
        seen.extend(row.id for row in rows.collect())
        if batch == 0:
            shared_settings.set("fs.s3a.access.key", "third-of-stream")
        if len(seen) < 8:
            new = plugin.range(10 + batch, 11 + batch).write.format("lance")
            new.mode("append").save(path)

    rows = plugin.readStream.format("lance").option("readChangeFeed", "true")
    rows = rows.option("startingVersion", "0").option("maxVersionsPerTrigger", "1").load(path)
    rows.writeStream.foreachBatch(write).trigger(availableNow=True).start().awaitTermination()
    assert seen == [0, 1, 2, 10]
