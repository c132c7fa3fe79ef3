"""LanceTable, and options from ``hadoop_options``, take Hadoop's settings of a session."""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import lance
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from s3_server import s3_server  # noqa: F401
from script_process import hidden_pandas, run_command
from spark_sessions import session_settings

from pyspark_lance import LanceTable, hadoop_options
from pyspark_lance.spark.data_source import LanceDataSource
from pyspark_lance.spark.options.parse_options import storage_options_of
from pyspark_lance.table.version.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.interop]


@pytest.fixture
def path(s3_server):  # noqa: F811
    return f"s3a://{s3_server.new_bucket()}/warehouse/table"


def ids(server, path):
    found = lance.dataset(path.replace("s3a:", "s3:"), storage_options=server.options)
    return sorted(found.to_table(columns=["id"])["id"].to_pylist())


def test_hadoop_settings_reach_lance_table(spark, s3_server, path):  # noqa: F811
    with session_settings(spark, s3_server.hadoop_settings):
        table = LanceTable.create(spark, path, "id bigint")
        spark.range(5).write.format("lance").mode("append").options(
            **hadoop_options(spark, path)
        ).save(path)
        assert LanceTable.isLanceTable(spark, path)
        table.update("id = 1", {"id": "id + 10"})
        source = spark.range(4, 7)
        table.merge(source, "target.id = source.id").whenNotMatchedInsertAll().execute()
        table.compact()
        assert sorted(row.id for row in table.toDF().collect()) == [0, 2, 3, 4, 5, 6, 11]
        assert table.changes(1).count() > 0
        built = LanceTable.createOrReplace(spark).location(f"{path}2").addColumn("id", "bigint")
        assert built.execute().toDF().count() == 0
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(lambda: LanceTable.forPath(spark, path).delete("id > 5"))
            assert found.result().num_deleted_rows == 2
    assert ids(s3_server, path) == [0, 2, 3, 4, 5]


def test_options_for_reads_writes_and_streams(spark, s3_server, path, tmp_path):  # noqa: F811
    with session_settings(spark, s3_server.hadoop_settings):
        options = hadoop_options(spark, path)
    assert options == {
        "storage.key": s3_server.access_key,
        "storage.secret": s3_server.secret_key,
        "storage.region": "us-east-1",
        "storage.endpoint_url": s3_server.endpoint,
        "storage.virtual_hosted_style_request": "false",
    }
    assert hadoop_options(spark, "/data/table") == {}
    spark.range(3).write.format("lance").options(**options).mode("append").save(path)
    assert spark.read.format("lance").options(**options).load(path).count() == 3
    rows = spark.readStream.format("lance").options(**options).option("readChangeFeed", "true")
    query = (
        rows.option("startingVersion", "0").load(path).select("id").writeStream.format("lance")
        .options(**options).option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True).start(f"{path}-copy")
    )  # fmt: skip
    query.awaitTermination()
    assert ids(s3_server, f"{path}-copy") == [0, 1, 2]


def test_default_file_system_is_that_of_the_session(spark, s3_server, path):  # noqa: F811
    bucket = path.split("/")[2]
    default = {"fs.defaultFS": f"s3a://{bucket}"}
    with session_settings(spark, {**s3_server.hadoop_settings, **default}):
        options = hadoop_options(spark, "/warehouse/table")
        spark.range(3).write.format("lance").options(**options).mode("append").save(
            "/warehouse/table"
        )
        assert LanceTable.forPath(spark, "/warehouse/table").toDF().count() == 3
        LanceTable.create(spark, "relative", "id bigint")
        assert hadoop_options(spark, "file:///x") == {}
    home = options["storage.working_directory"]
    assert home.startswith(f"s3a://{bucket}/user/")
    assert ids(s3_server, path) == [0, 1, 2]
    assert ids(s3_server, f"{home}/relative") == []


def test_core_site_is_read_without_the_plugin(tmp_path, monkeypatch):
    site = "<property><name>fs.defaultFS</name><value>memory://site</value></property>"
    (tmp_path / "core-site.xml").write_text(f"<configuration>{site}</configuration>")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))

    def root(**options):
        source = LanceDataSource(CaseInsensitiveDict({**options}))
        return pickle.loads(pickle.dumps(source))._read_options().table.root

    assert root(path="/data/t") == "memory://site/data/t"
    assert root(path="file:///data/t") == "file:///data/t"
    # LanceTable has resolved its path by the session, in which no setting of the file may count.
    assert root(path="/data/t", **storage_options_of(Table("/data/t"))) == "/data/t"


_SITE = """<configuration>
<property><name>my.secret</name><value>{secret}</value></property>
<property><name>fs.s3a.secret.key</name><value>${{my.secret}}</value></property>
<property><name>fs.s3a.endpoint</name><value>{endpoint}</value></property>
<property><name>fs.s3a.path.style.access</name><value>true</value></property>
</configuration>"""
_SCRIPT = """
import sys
from pyspark.sql import SparkSession
from pyspark_lance import LanceTable, hadoop_options
folder, path, key = sys.argv[3], sys.argv[1], sys.argv[2]
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.dir", "file:" + folder + "/log")
    .config("spark.eventLog.compress", "false").config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", folder + "/warehouse")
    .config("spark.sql.catalog.lance", "org.pysparklance.LanceCatalog")
    .config("spark.hadoop.fs.s3a.access.key", key)
    .config("spark.hadoop.fs.s3a.endpoint.region", "us-east-1").getOrCreate())
def use(path, options, modes):
    for mode in modes:
        spark.range(3).write.format("lance").mode(mode).options(**options).save(path)
    read = spark.read.format("lance").options(**options).load(path)
    assert read.where("id > 0").count() == 2
    table = LanceTable.forPath(spark, path)
    table.update("id = 1", {"id": "10"})
    table.toDF().createOrReplaceTempView("v")
    print(spark.sql("EXPLAIN EXTENDED SELECT * FROM v WHERE id > 1").collect()[0][0])
    print(table, spark.table("v")._jdf.queryExecution().toString())
    rows = spark.readStream.format("lance").options(**options).option("readChangeFeed", "true")
    rows = rows.option("startingVersion", "0").load(path).select("id")
    query = (rows.writeStream.format("lance").options(**options)
        .option("checkpointLocation", folder + "/c" + str(len(options)))
        .trigger(availableNow=True).start(path + "2"))
    query.awaitTermination()
    print(query.lastProgress)
use(path, hadoop_options(spark, path), ("append", "overwrite"))
path += "-of-the-session"
use(path, {}, ("error", "append", "overwrite", "ignore"))
spark.sql(f"CREATE TABLE lance.`{path}3` AS SELECT * FROM lance.`{path}`")
spark.sql(f"DELETE FROM lance.`{path}3` WHERE id = 0")
spark.sql(f"CALL lance.system.compact('{path}3')").show()
try:
    spark.read.format("lance").load(path + "none").count()
except Exception as error:
    print(error)
    assert "LANCE_TABLE_NOT_FOUND" in str(error), error
spark.stop()
"""


def test_hadoop_settings_are_hidden(
    s3_server,  # noqa: F811
    path,
    tmp_path,
    monkeypatch,
):
    """As options that ``hadoop_options`` returns, and where no option is given; without pandas."""
    secret, key = "MARKER/secret+key", "MARKERkey"
    (tmp_path / "log").mkdir()
    (tmp_path / "core-site.xml").write_text(
        _SITE.format(secret=secret, endpoint=s3_server.endpoint)
    )
    for name, value in {"HADOOP_CONF_DIR": str(tmp_path), **hidden_pandas(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    s3_server.access_keys.clear()
    command = [sys.executable, "-c", _SCRIPT, path, key, tmp_path]
    shown = "".join(run_command(*command, cwd=tmp_path))
    assert set(s3_server.access_keys) == {key}
    log = "".join(part.read_text() for part in (tmp_path / "log").rglob("*") if part.is_file())
    assert "SparkListenerSQLExecutionStart" in log
    assert "MARKER" not in shown + log
