"""Names of options and parameters: one style, other spellings, and those of lance-spark."""

from __future__ import annotations

import inspect
import logging
import subprocess
import sys

import lance
import pyarrow as pa
import pytest
from spark_sessions import session_settings

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError, VersionNotFoundError
from pyspark_lance.spark.options.option_table import (
    COLUMN_TYPES,
    OPTIONS,
    WITHOUT_EFFECT,
    canonical_options,
    check_properties,
    split_table_properties,
)
from pyspark_lance.spark.options.parse_options import (
    ReadOptions,
    WriteOptions,
    WriteParameters,
    check_full_overwrite,
    split_names,
)
from pyspark_lance.spark.options.stream_options import StreamOptions
from pyspark_lance.spark.options.times import parse_timestamp
from pyspark_lance.table.cdf.change_window import Bound
from pyspark_lance.table.cdf.stream_offset import StreamLimits, StreamSettings, Updates
from pyspark_lance.table.version.snapshot import version_at
from pyspark_lance.table.version.table import Table

# What the documents, lance-spark and earlier releases call options, and how the option is called.
ALIASES = {
    "versionAsOf": "version", "readChangeData": "readChangeFeed", "batch_size": "batchSize",
    "BATCH_SIZE": "batchSize", "batchsize": "batchSize",
    "enable_stable_row_ids": "enableStableRowIds", "max_row_per_file": "maxRowsPerFile",
    "max_rows_per_file": "maxRowsPerFile", "max_bytes_per_file": "maxBytesPerFile",
    "file_format_version": "fileFormatVersion", "data_storage_version": "fileFormatVersion",
    "dataStorageVersion": "fileFormatVersion", "write_mode": "writeMode",
    "merge_schema": "mergeSchema", "replace-where": "replaceWhere",
}  # fmt: skip
LANCE_SPARK = (
    "block_size", "index_cache_size", "max_rows_per_group", "metadata_cache_size",
    "pushDownFilters", "queue_depth", "topN_push_down", "use_large_var_types",
    "use_queued_write_buffer",
)  # fmt: skip
COLUMN_NAMES = {
    ("v.arrow.fixed-size-list.size", "128"): ("v.fixed_size_list", "128"),
    ("v.arrow.float16", "true"): ("v.float16", "true"),
    ("v.arrow.large_var_char", "true"): ("v.large_string", "true"),
    ("v.lance.encoding", "BLOB"): ("v.blob", "true"),
    ("v.lance.compression", "zstd"): ("v.compression", "zstd"),
    ("v.lance.compression-level", "3"): ("v.compression_level", "3"),
    ("v.lance.structural-encoding", "fullzip"): ("v.structural_encoding", "fullzip"),
    ("v.lance.rle-threshold", "0.5"): ("v.rle_threshold", "0.5"),
    ("v.lance.bss", "on"): ("v.byte_stream_split", "on"),
    ("v.lance.dict-values-compression-level", "3"): ("v.dict_values_compression_level", "3"),
    ("v.fixedSizeList", "8"): ("v.fixed_size_list", "8"),
    ("v.arrow.FLOAT16", "true"): ("v.float16", "true"),
    ("a.b.float16", "true"): ("a.b.float16", "true"),
}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_option_names_follow_spark_style(option):
    assert "_" not in option.name or option.name.startswith("storage.")
    for spelling in (option.name.upper(), *option.aliases):
        if not option.name.startswith("storage."):
            side = "read" if option.side == "read" else "write"
            assert canonical_options({spelling: "1"}, side)[0] == {option.name: "1"}


@pytest.mark.parametrize("spelling", ALIASES)
def test_option_aliases_are_equivalent(spelling):
    name = ALIASES[spelling]
    side = next(option.side for option in OPTIONS if option.name == name)
    assert canonical_options({spelling: "1"}, side)[0] == {name: "1"}
    if spelling.lower() != name.lower():
        with pytest.raises(InvalidInputError, match="given twice"):
            canonical_options({spelling: "1", name: "2"}, side)


def test_option_aliases_set_values():
    write = WriteOptions.parse(
        {
            "path": "p", "enable_stable_row_ids": "false", "max_row_per_file": "7",
            "max_bytes_per_file": "9", "data_storage_version": "2.0",
        }
    )  # fmt: skip
    assert (write.enable_stable_row_ids, write.max_rows_per_file) == (False, 7)
    assert (write.max_bytes_per_file, write.file_format_version) == (9, "2.0")
    assert ReadOptions.parse({"path": "p", "batch_size": "8"}).batch_rows == 8


@pytest.mark.parametrize("side", ["read", "write"])
def test_ineffective_lance_spark_options_are_logged_once(side, caplog):
    parse = {"read": ReadOptions, "write": WriteOptions}[side].parse
    options = {"path": f"nowhere/{side}", **dict.fromkeys(LANCE_SPARK, "1")}
    with caplog.at_level(logging.WARNING):
        assert parse(options) == parse({"path": f"nowhere/{side}"})
        parse(options)
    assert len(caplog.messages) == 1
    assert all(name in caplog.text for name in LANCE_SPARK)
    assert len(LANCE_SPARK) == len(WITHOUT_EFFECT)


def test_effective_options_are_not_logged(caplog):
    with caplog.at_level(logging.WARNING):
        WriteOptions.parse({"path": "p", "batchSize": "1", "v.arrow.float16": "true"})
    assert caplog.messages == []


@pytest.mark.parametrize(("given", "meant"), COLUMN_NAMES.items())
def test_lance_spark_column_options_are_accepted(given, meant):
    assert canonical_options(dict([given]), "write")[0] == dict([meant])
    assert canonical_options(dict([given]), "read")[0] == {}


@pytest.mark.parametrize("kind", COLUMN_TYPES)
def test_column_option_names_are_canonical(kind):
    assert canonical_options({f"a.{kind}": "x"}, "write")[0] == {f"a.{kind}": "x"}


def test_two_names_of_one_column_option_must_agree():
    with pytest.raises(InvalidInputError, match="given twice"):
        canonical_options({"v.arrow.float16": "true", "v.float16": "false"}, "write")


@pytest.mark.parametrize(
    "name", ["v.arrow.nonsense", "arrow.float16.size", "lance.bss", "full_text", "v.lance"]
)
def test_unknown_options_are_refused(name):
    with pytest.raises(InvalidInputError, match="there is no option"):
        canonical_options({name: "1"}, "write")


@pytest.mark.parametrize("name", ["aws_secret_access_key", "region", "AZURE_STORAGE_SAS_TOKEN"])
def test_store_option_without_prefix_error_suggests_prefix(name):
    with pytest.raises(InvalidInputError, match=rf"there is no option .*\n.*storage\.{name}$"):
        canonical_options({name: "1"}, "read")


def test_encoding_other_than_blob_is_refused():
    with pytest.raises(InvalidInputError, match="cannot be 'pages'"):
        canonical_options({"v.lance.encoding": "pages"}, "write")


@pytest.mark.parametrize(
    ("text", "version"),
    [("STABLE", None), ("LEGACY", "0.1"), ("2.2", "2.2"), ("V2_1", "2.1"), ("0.1", "0.1")],
)
def test_file_versions_may_be_named(text, version):
    options = WriteOptions.parse({"path": "p", "data_storage_version": text})
    assert options.file_format_version == version


def test_unknown_file_version_is_refused():
    with pytest.raises(InvalidInputError, match="fileFormatVersion cannot be '9'"):
        WriteOptions.parse({"path": "p", "file_format_version": "9"})


@pytest.mark.parametrize(("given", "retries"), [({}, 10), ({"commitRetries": "0"}, 0)])
def test_retries_zero_means_one_attempt(given, retries):
    assert WriteOptions.parse({"path": "p", **given}).commit_retries == retries


def test_negative_retries_are_refused():
    with pytest.raises(InvalidInputError, match="commitRetries cannot be '-1'"):
        WriteOptions.parse({"path": "p", "commitRetries": "-1"})


def test_write_mode_may_be_option():
    modes = {"append": (False, False), "OVERWRITE": (False, True), "create": (True, False)}
    for mode, expected in modes.items():
        options = WriteOptions.parse({"path": "p", "write_mode": mode})
        assert (options.must_create, options.must_overwrite) == expected
    with pytest.raises(InvalidInputError, match="writeMode cannot be"):
        WriteOptions.parse({"path": "p", "write_mode": "merge"})


def test_method_parameters_have_one_style():
    for name, method in inspect.getmembers(LanceTable, inspect.isfunction):
        if not name.startswith("_") or name == "__init__":
            for parameter in inspect.signature(method).parameters.values():
                if parameter.kind is not parameter.VAR_KEYWORD:
                    assert "_" not in parameter.name, (name, parameter.name)


@pytest.mark.parametrize(
    ("zone", "hours"), [(None, 0), ("UTC", 0), ("Europe/Berlin", 2), ("+02:00", 2), ("GMT-3", -3)]
)
def test_timestamp_options_use_session_zone_with_plugin(zone, hours):
    given = {"path": "p", "timestampAsOf": "2026-07-01 12:00:00"}
    if zone is not None:
        given["_lance.time_zone"] = zone
    instant = f"2026-07-01T{12 - hours:02}:00:00Z"
    expected = ReadOptions.parse({"path": "p", "timestampAsOf": instant})
    assert ReadOptions.parse(given).at == expected.at
    feed, asked = {"path": "p", "readChangeFeed": "true"}, dict(given)
    text = asked.pop("timestampAsOf")
    for name in ("startingTimestamp", "endingTimestamp"):
        expected = ReadOptions.parse({**feed, name: instant})
        assert ReadOptions.parse({**asked, **feed, name: text}).changes == expected.changes
    read = ReadOptions.parse({"path": "p"})
    stream = StreamOptions.parse({"path": "p", "startingTimestamp": instant}, read)
    assert StreamOptions.parse({**asked, "startingTimestamp": text}, read) == stream


@pytest.mark.spark
@pytest.mark.parametrize("zone", ["America/New_York", "+05:30"])
def test_condition_timestamps_use_session_zone(spark, session_kind, tmp_path, zone):
    path, text = str(tmp_path / "t"), "ts >= '1970-01-02 03:00:00' AND ts < '1970-01-02 20:00:00'"
    columns = (
        "id", "timestamp_seconds(id * 3600) AS ts", "array(CAST(id AS float), 0F) AS v"
    )  # fmt: skip
    writer = spark.range(0, 72, 1, 2).selectExpr(*columns).write.format("lance").mode("append")
    kept = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        writer.option("v.fixed_size_list", 2).save(path)
        table = LanceTable.forPath(spark, path)
        expected = sorted(row.id for row in table.toDF().where(text).collect())
        assert len(expected) == 17
        found = {
            "scan": table.scan(filter=text),
            "day": table.scan(filter=f"CAST(ts AS date) = '1970-01-02' AND {text}"),
            "nearest": table.nearest([0.0, 0.0], 72, filter=text),
        }
        if session_kind == "plugin":
            view = spark.read.format("lance").option("filter", text)
            found["option"] = view.load(path)
            found["both options"] = view.option("nearest", '{"key": [0, 0], "k": 72}').load(path)
        for name, rows in found.items():
            assert sorted(row.id for row in rows.collect()) == expected, name
        if session_kind == "plugin":
            new = table.toDF().where(text).selectExpr("id + 1000 AS id", "ts", "v")
            writer = new.localCheckpoint().write.format("lance").mode("overwrite")
            writer.option("replaceWhere", text).save(path)
            ids = sorted(row.id for row in table.toDF().collect())
            assert ids == sorted({*range(72)} - {*expected}) + [1000 + one for one in expected]
    finally:
        spark.conf.set("spark.sql.session.timeZone", kept)


LOOSE_TEXT = "CAST(s AS int) > 5 OR i NOT IN ('01', 2) AND i * 2147483647 <> 0 AND 1 / 0 IS NULL"


@pytest.mark.spark
def test_conditions_follow_session_ansi_mode(spark, session_kind, tmp_path):
    path, loose = str(tmp_path / "t"), {"spark.sql.ansi.enabled": "false"}
    source = spark.sql(
        "SELECT * FROM VALUES (0, 1, 'x'), (1, 2, '7.5'), (2, 3, '4'), (3, 2, '') AS t(id, i, s)"
    )
    rows = source.selectExpr("*", "array(0F, CAST(id AS float)) AS v").coalesce(1)
    write = rows.write.format("lance").mode("append")
    write.option("v.fixed_size_list", 2).save(path)
    table = LanceTable.forPath(spark, path)
    with pytest.raises(Exception, match="'x' is not a valid int"):
        table.scan(filter=LOOSE_TEXT).collect()
    with session_settings(spark, loose):
        expected = sorted(row.id for row in table.toDF().where(LOOSE_TEXT).collect())
        assert expected == [0, 1, 2]
        found = {
            "scan": table.scan(filter=LOOSE_TEXT),
            "nearest": table.nearest([0.0, 0.0], 9, filter=LOOSE_TEXT),
        }
        if session_kind == "plugin":
            view = spark.read.format("lance").option("filter", LOOSE_TEXT)
            found["option"] = view.load(path)
            found["both options"] = view.option("nearest", '{"key": [0, 0], "k": 9}').load(path)
        for name, frame in found.items():
            assert sorted(row.id for row in frame.collect()) == expected, name
        is_no_date = "CAST(s AS date) IS NULL"
        assert table.toDF().where(is_no_date).count() == 4
        assert table.nearest([0.0, 0.0], 9, filter=is_no_date).count() == 4
        if session_kind == "plugin":
            replaced = table.toDF().where("id = 1").selectExpr("9 AS id", "i", "s", "v")
            writer = replaced.write.format("lance").mode("overwrite")
            writer.option("replaceWhere", "CAST(s AS int) > 5").save(path)
            assert sorted(row.id for row in table.toDF().collect()) == [0, 2, 3, 9]
        # The part of a condition that our scan evaluates means the same in both modes.
        assert table.delete("i NOT IN ('01', 2)").numDeletedRows == 2


def test_column_lists_accept_any_name():
    names = split_names("a , `b,c`,`g``h`,```d```,` e`,`*`")
    assert names == ("a", "b,c", "g`h", "`d`", " e", "*")


def test_early_timestamp_error_shows_given_time(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [1]}), path)
    with pytest.raises(VersionNotFoundError, match=r"at or before 2020-01-01T00:00:00\+00:00\n"):
        version_at(Table(path).store(), parse_timestamp("2020-01-01"))


def test_package_dir_lists_public_names():
    script = """
import pyspark_lance
names = [name for name in dir(pyspark_lance) if not name.startswith("_")]
assert names == sorted(pyspark_lance.__all__), names
for name in names: getattr(pyspark_lance, name)
from pyspark_lance import *
print(LanceTable.__name__, plugin_jar.__name__, errors.LanceError.__name__)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "LanceTable plugin_jar LanceError\n", done.stderr


@pytest.mark.spark
def test_writes_and_reads_accept_lance_spark_names(spark, tmp_path):
    path = str(tmp_path / "t")
    frame = spark.createDataFrame([(1, [0.5, 1.5], "x")], "id int, v array<float>, s string")
    named = {
        "v.arrow.fixed-size-list.size": 2, "v.arrow.float16": True, "s.lance.compression": "zstd",
        "max_rows_per_group": 1024, "use_queued_write_buffer": True,
        "data_storage_version": "STABLE",
    }  # fmt: skip
    frame.write.format("lance").mode("append").options(**named).save(path)
    schema = lance.dataset(path).schema
    assert str(schema.field("v").type) == "fixed_size_list<item: halffloat>[2]"
    assert schema.field("s").metadata == {b"lance-encoding:compression": b"zstd"}
    write = frame.write.format("lance").mode("append")
    write.option("write_mode", "overwrite").save(path)
    read = spark.read.format("lance").option("pushDownFilters", "true").option("batch_size", "1")
    assert read.load(path).count() == 1
    rows = LanceTable.forPath(spark, path).scan(["id"], metadataColumns="_rowid").collect()
    assert [row.id for row in rows] == [1]
    assert rows[0].__fields__ == ["id", "_rowid"]
    with pytest.raises(Exception, match="LANCE_TABLE_ALREADY_EXISTS"):
        write.option("write_mode", "create").save(path)


def test_lance_spark_properties_become_column_options(caplog):
    given = {word: value for word, value in COLUMN_NAMES if ".arrow." in word or ".lance." in word}
    own = {"team": "web", "team.json": "x", "lance.encoding": "blob", "arrow.float16": "1"}
    with caplog.at_level("INFO"):
        for _ in range(2):
            kept, options = split_table_properties({**given, **own}, "/of/properties")
    assert kept == own
    assert options == {COLUMN_NAMES[pair][0]: COLUMN_NAMES[pair][1] for pair in given.items()}
    (line,) = [record.message for record in caplog.records]
    assert "/of/properties" in line
    assert all(word in line for word in given)
    with pytest.raises(InvalidInputError, match=r"v.lance.encoding cannot be 'plain'"):
        split_table_properties({"v.lance.encoding": "plain"}, "/t")


def test_creation_properties_become_options():
    given = {"file_format_version": "2.0", "enableStableRowIds": "false", "version": "7"}
    kept, options = split_table_properties(given, "/t")
    assert kept == {"version": "7"}
    assert options == {"fileFormatVersion": "2.0", "enableStableRowIds": "false"}
    for word in ("mergeSchema", "commit_retries", "storage.secret", "Storage.key"):
        with pytest.raises(InvalidInputError, match=rf"{word} is an option.*\n.*/t\n.*OPTIONS"):
            split_table_properties({word: "true"}, "/t")
    stated = WriteParameters(properties={"fileFormatVersion": "9"})
    with pytest.raises(InvalidInputError, match="fileFormatVersion cannot be '9'"):
        WriteOptions.parse({"path": "/t"}, stated)


def test_unusable_property_of_new_table_is_refused():
    stated = WriteParameters(properties={"lance.row_lineage.inline_max_bytes": "abc"})
    with pytest.raises(InvalidInputError, match="abc"):
        WriteOptions.parse({"path": "/t"}, stated)


def test_column_properties_become_options_for_known_columns():
    properties = {"v.fixed_size_list": "3", "team.json": "x", "V.Compression": "zstd", "v": "1"}
    given = WriteParameters(properties=properties)
    parsed = WriteOptions.parse({"path": "/t", "v.compression": "lz4"}, given)
    options = parsed.for_columns(["id", "v"])
    assert dict(options.table_properties) == {"team.json": "x", "v": "1"}
    assert options.column_types["v.fixed_size_list"] == "3"
    assert options.column_types["v.compression"] == "lz4"


def test_option_names_are_refused_as_properties():
    kept = dict.fromkeys(["version", "team.json"], "x") | {"lance.auto_cleanup.interval": "2"}
    check_properties(kept, ["id"], "/t")
    for word in ("fileFormatVersion", "id.json", "ID.float16", "v.arrow.float16", "storage.key"):
        with pytest.raises(InvalidInputError, match=f"{word} is an option"):
            check_properties({word: "x"}, ["id"], "/t")


@pytest.mark.parametrize(
    "name", ["version", "versionAsOf", "timestampAsOf", "tag", "nearest", "search"]
)
def test_read_options_of_other_rows_refuse_writes(name):
    with pytest.raises(InvalidInputError, match="shows other rows than the newest version"):
        WriteOptions.parse({"path": "/t", name: "1"})


@pytest.mark.parametrize("name", ["filter", "columns"])
def test_partial_view_options_refuse_full_overwrite(name):
    given = {"path": "/t", name: "id"}
    with pytest.raises(InvalidInputError, match=f"the option {name} shows a part of the table"):
        check_full_overwrite(given)
    assert WriteOptions.parse(given).table.root == "/t"
    check_full_overwrite({"path": "/t", "replaceWhere": "id = 1"})


def test_change_feed_options_refuse_writes():
    with pytest.raises(InvalidInputError, match="with readChangeFeed is read-only"):
        WriteOptions.parse({"path": "/t", "readChangeFeed": "true", "startingVersion": "3"})
    assert WriteOptions.parse({"path": "/t", "readChangeFeed": "false"}).table.root == "/t"


@pytest.mark.parametrize(
    ("given", "what", "value"),
    [
        ({"maxBytesPerTrigger": "9"}, "limits", StreamLimits(num_bytes=9)),
        ({"maxVersionsPerTrigger": "2", "maxrowspertrigger": "7"}, "limits", StreamLimits(2, 7)),
        ({"failOnDataLoss": "false"}, "settings", StreamSettings(fails_on_data_loss=False)),
        ({"skipChangeCommits": "true"}, "settings", StreamSettings(updates=Updates.SKIPPED)),
        ({"ignoreDeletes": "true"}, "settings", StreamSettings(updates=Updates.DELETES_IGNORED)),
        ({"startingVersion": "latest"}, "settings", StreamSettings(begins_after_newest=True)),
        ({"startingVersion": "3"}, "settings", StreamSettings(starting=Bound(3))),
    ],
)
def test_stream_options_are_parsed(given, what, value):
    plain = StreamOptions.parse({"path": "p"}, ReadOptions.parse({"path": "p"}))
    options = {"path": "p", **given}
    parsed = StreamOptions.parse(options, ReadOptions.parse(options))
    assert getattr(parsed, what) == value != getattr(plain, what)
