"""Paths with odd names lead where Parquet's lead: Hadoop's rule, by which text has no escapes."""

from __future__ import annotations

import os

import lance
import pytest
from session_kinds import PLUGIN

from pyspark_lance import LanceTable
from pyspark_lance.store.fsspec_store import open_fsspec_store
from pyspark_lance.store.open_store import split_uri

pytestmark = [pytest.mark.spark, pytest.mark.interop]

NAMES = [
    "per%cent", "enc%20oded", "100%", "%41", "%2F", "%zz", "a b", "trail ", "a+b", "a#b", "a?b=c",
    "a&b", "a;b", "a,b", "a:b", "a@b", "a'b", 'a"b', "a(b)", "a~b", "a!b", "a$b", "ä", "日本",
    "e\u0301", "a\\b", "a\tb", "a|b", "a<b>", "a^b", "a`b", "a..b", "a%25b", "x/../y%20",
    "x//y%", "x/./z%7e",
]  # fmt: skip
SAMPLE = ["per%cent", "enc%20oded", "a#b?c d'`", "trail "]
PREFIXES = ["", "file:", "file://", "FILE:///"]


@pytest.mark.parametrize("name", NAMES)
def test_paths_equal_hadoop_interpretation(spark, name):
    path_of = spark._jvm.org.apache.hadoop.fs.Path
    for prefix in PREFIXES:
        text = f"{prefix}/data/{name}"
        assert split_uri(text) == ("file", path_of(text).toUri().getPath()), text
    for uri in (f"s3a://bucket/data/{name}", f"gs://bucket/{name}/t"):
        store = open_fsspec_store(uri.partition(":")[0], uri, {"anon": "true"})
        key = store.uri.partition("://")[2].partition("/")[2]
        assert f"/{key}" == path_of(uri).toUri().getPath(), uri


def names_below(folder):
    """The folders that hold files right in them, of tables or of Parquet."""
    return {
        os.path.relpath(place, folder)
        for place, folders, files in os.walk(folder)
        if "_versions" in folders or any(file.endswith(".parquet") for file in files)
    }


def quoted(path):
    return "`" + path.replace("`", "``") + "`"


def check(spark, tmp_path, names, *, has_plugin):
    """Write and read below two folders by the same names, one of them with Parquet."""
    frame = spark.range(2).coalesce(1)
    for number, name in enumerate(names):
        text = f"file://{tmp_path}/lance/{name}" if number % 2 else f"{tmp_path}/lance/{name}"
        beside = text.replace("/lance/", "/parquet/")
        frame.write.parquet(beside)
        frame.write.format("lance").mode("append").save(text)
        if "\\" not in name:  # an escape of patterns, which Parquet expands where it reads
            assert spark.read.parquet(beside).count() == 2
        assert spark.read.format("lance").load(text).count() == 2
        assert LanceTable.forPath(spark, text).delete("id = 0").num_deleted_rows == 1
        check_stream(spark, text, f"{tmp_path}/c{number}")
        if has_plugin:
            check_statements(spark, text, number)
    folders = [names_below(f"{tmp_path}/{kind}") for kind in ("lance", "parquet")]
    copies = {name for name in folders[0] if name.endswith("-copy")}
    assert folders[0] - copies == folders[1]
    assert {name.removesuffix("-copy") for name in copies} == folders[1]
    for name in folders[0]:
        if "\t" not in name:  # which pylance refuses
            assert lance.dataset(f"{tmp_path}/lance/{name}").count_rows() > 0


def check_stream(spark, text, checkpoint):
    """Follow a table into another one beside it."""
    rows = spark.readStream.format("lance").option("readChangeFeed", "true").load(text)
    written = rows.select("id").writeStream.format("lance").trigger(availableNow=True)
    written.option("checkpointLocation", checkpoint).start(f"{text}-copy").awaitTermination()


def check_statements(spark, text, number):
    """Read, write and CALL by the path, and by a name in the session's catalog."""
    named = f"lance.{quoted(text)}"
    spark.sql(f"INSERT INTO {named} VALUES (7)")
    spark.sql(f"UPDATE {named} SET id = 8 WHERE id = 7")
    assert spark.sql(f"SELECT * FROM {named} WHERE id = 8").count() == 1
    argument = text.replace("\\", "\\\\").replace("'", "\\'")
    assert spark.sql(f"CALL lance.system.history('{argument}')").count() >= 2
    table = f"odd_name_{number}"
    spark.sql(f"CREATE TABLE {table} USING lance LOCATION '{argument}'")
    spark.sql(f"INSERT INTO {table} VALUES (9)")
    assert spark.sql(f"SELECT * FROM {table} WHERE id > 7").count() == 2
    assert LanceTable.forName(spark, table).toDF().count() == 3
    spark.sql(f"DROP TABLE {table}")


def test_tables_and_parquet_share_folders_of_sampled_names(spark, tmp_path, session_kind):
    check(spark, tmp_path, SAMPLE, has_plugin=session_kind == PLUGIN)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(NAMES), 4))
def test_tables_and_parquet_share_folders_of_all_names(spark, tmp_path, session_kind, first):
    names = NAMES[first : first + 4]
    check(spark, tmp_path, names, has_plugin=session_kind == PLUGIN)
