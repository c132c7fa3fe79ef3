"""Log lines of the Python process in Spark's log."""

from __future__ import annotations

import re

import pytest


@pytest.fixture
def spark_log(plugin):
    """What Spark logs while a test runs: the package at level INFO, and failed writes."""
    jvm = plugin._jvm
    core = jvm.org.apache.logging.log4j.core
    writer = jvm.java.io.StringWriter()
    layout = core.layout.PatternLayout.newBuilder().withPattern("%p %c %m%n").build()
    appender = core.appender.WriterAppender.createAppender(
        layout, None, writer, "log lines", False, True
    )
    appender.start()
    level = jvm.org.apache.logging.log4j.Level
    root = jvm.org.apache.logging.log4j.LogManager.getRootLogger()
    root.addAppender(appender)
    writes = "org.apache.spark.sql.execution.datasources.v2"
    core.config.Configurator.setLevel("pyspark_lance", level.INFO)
    core.config.Configurator.setLevel(writes, level.ERROR)
    yield writer.toString
    core.config.Configurator.setLevel("pyspark_lance", level.OFF)
    core.config.Configurator.setLevel(writes, level.OFF)
    root.removeAppender(appender)


def test_each_commit_logs_one_line(plugin, spark_log, tmp_path):
    path = str(tmp_path / "t")
    plugin.range(5).write.format("lance").save(path)
    plugin.sql(f"DELETE FROM lance.`{path}` WHERE id < 2")
    plugin.sql(f"SELECT * FROM lance.`{path}`").collect()
    lines = [line for line in spark_log().splitlines() if "pyspark_lance.commit" in line]
    pattern = r"INFO pyspark_lance\.commit\.commit_loop committed version (\d) of (\S+): (\w+),"
    assert [re.match(pattern, line).groups() for line in lines] == [
        ("1", path, "Overwrite"),
        ("2", path, "Delete"),
    ]


def test_stages_of_procedures_are_logged_and_described(plugin, spark_log, tmp_path):
    path = str(tmp_path / "t")
    for _ in range(2):
        plugin.range(5).coalesce(1).write.format("lance").mode("append").save(path)
    plugin.sql(f"CALL lance.system.compact('{path}')").collect()
    title = f"compact of {path}: rewrite fragments"
    lines = [line for line in spark_log().splitlines() if "spark.sql.procedures" in line]
    assert lines == [f"INFO pyspark_lance.spark.sql.procedures {title}, 1 task"]
    context = plugin.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    jobs = context._jsc.sc().statusStore().jobsList(None)
    descriptions = [jobs.apply(at).description() for at in range(jobs.size())]
    assert [found.get() for found in descriptions if found.isDefined()].count(title) == 1
    assert context.getLocalProperty("spark.job.description") is None
    context.setJobDescription("nightly")
    try:
        plugin.sql(f"CALL lance.system.create_index('{path}', 'id')").collect()
        assert context.getLocalProperty("spark.job.description") == "nightly"
    finally:
        context.setLocalProperty("spark.job.description", None)


def test_log_of_failed_write_names_its_table(plugin, spark_log, tmp_path):
    path = str(tmp_path / "t")
    plugin.range(3).write.format("lance").save(path)
    failing = "id / assert_true(id < 3) IS NULL"
    with pytest.raises(Exception, match="is not true"):
        plugin.range(5).where(failing).write.format("lance").mode("append").save(path)
    lines = [line for line in spark_log().splitlines() if "Data source write support" in line]
    assert [line.partition("support ")[2] for line in lines] == [
        f"lance.`{path}` is aborting.",
        f"lance.`{path}` aborted.",
    ]


def test_jobs_of_saves_are_named_by_caller(plugin, tmp_path):
    context = plugin.sparkContext
    names = {}
    # Py4J's calls of a method have a file in the stack only until Java compiles them.
    for _ in range(20):
        plugin.range(0).write.format("noop").mode("append").save()
    for source in ("parquet", "lance"):
        context._jsc.sc().listenerBus().waitUntilEmpty()
        before = context._jsc.sc().statusStore().jobsList(None).size()
        for mode in ("error", "append", "overwrite"):
            plugin.range(5).write.format(source).mode(mode).save(str(tmp_path / source))
        context._jsc.sc().listenerBus().waitUntilEmpty()
        jobs = context._jsc.sc().statusStore().jobsList(None)
        names[source] = {jobs.apply(at).name() for at in range(jobs.size() - before)}
        assert context.getLocalProperty("callSite.short") is None
    assert names["lance"] == names["parquet"] != set()
    context.setLocalProperty("callSite.short", "my job")
    try:
        plugin.range(5).write.format("lance").mode("append").save(str(tmp_path / "lance"))
        context._jsc.sc().listenerBus().waitUntilEmpty()
        assert context._jsc.sc().statusStore().jobsList(None).apply(0).name() == "my job"
    finally:
        context.setLocalProperty("callSite.short", None)
