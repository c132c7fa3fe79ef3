"""What is known of a table, read as a table of its own: /path$history and the like."""

from __future__ import annotations

import re

import lance
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf
from table_access import append, write_table

from pyspark_lance import LanceTable

pytestmark = [pytest.mark.spark, pytest.mark.interop]


@pytest.fixture
def path(tmp_path):
    """Two appends, a delete; version 2 is tagged, there is a branch."""
    path = str(tmp_path / "table")
    append(path, 0)
    append(path, 10)
    lance.dataset(path).tags.create("two", 2)
    lance.dataset(path).create_branch("trial", 2)
    lance.dataset(path).delete("id = 0")
    return path


def read(spark, path, **options):
    return spark.read.format("lance").options(**options).load(path)


def test_metadata_tables_equal_methods(spark, path):
    table = LanceTable.forPath(spark, path)
    for name, frame in (
        ("history", table.history()),
        ("fragments", table.fragments()),
        ("indices", table.indices()),
        ("detail", table.detail()),
        ("tags", table.tags()),
        ("branches", table.branches()),
    ):
        found = read(spark, f"{path}${name}")
        assert found.schema == frame.schema
        assert found.collect() == frame.collect()
        assert found.count() == frame.count()
        assert frame.count() > 0 or name == "indices"  # the table has none
    versions = read(spark, f"{path}$versions")
    assert [row.version for row in versions.collect()] == [3, 2, 1]
    assert versions.where("array_contains(tags, 'two')").first().version == 2
    assert "operation" not in versions.columns


def test_detail_html_is_escaped_and_omits_properties(spark, path):
    table = LanceTable.forPath(spark, path)
    table.setProperties({"password": "hunter2 <b>"})
    detail = table.detail()
    html = detail._repr_html_()
    cells = re.findall(r"<tr><th[^>]*>(\w+)</th><td>(.*?)</td></tr>", html)
    row = detail.first().asDict()
    shown = ["location", "version", "numRows", "numDeletedRows", "numFragments", "stableRowIds"]
    expected = {name: f"{row[name]}".lower().replace("file:", "") for name in shown}
    assert {name: value.lower() for name, value in cells if name in shown} == expected
    assert html == (
        "<table><caption><b>Detail of a Lance table</b></caption>"
        + "".join(
            f'<tr><th style="text-align:left">{name}</th><td>{value}</td></tr>'
            for name, value in cells
        )
        + "</table>"
    )
    assert "hunter2" not in html and "branch" not in dict(cells)  # a property; and there is none
    assert "_repr_html_" not in vars(detail.where("version > 1"))  # other rows show as usual


def test_metadata_tables_support_columns_and_conditions(spark, path):
    history = read(spark, path + "$history")
    picked = history.where("version > 1").select("operation", "version").orderBy("version")
    assert [tuple(row) for row in picked.collect()] == [("Append", 2), ("Delete", 3)]
    joined = (
        read(spark, path, metadataColumns="all")
        .join(history, history.version == sf.col("_row_created_at_version"))
        .groupBy("operation")
        .count()
    )
    counts = {row["operation"]: row["count"] for row in joined.collect()}
    assert sum(counts.values()) == lance.dataset(path).count_rows()


def test_old_versions_and_branches(spark, path):
    assert read(spark, path + "$fragments", version=1).count() == 1
    assert read(spark, path + "$fragments", tag="two").count() == 2
    assert read(spark, path + "$detail", version=2).first().version == 2
    lance.dataset(path).checkout_version(("trial", None)).delete("id = 1")
    assert read(spark, path + "$history", branch="trial").first().operation == "Delete"
    assert read(spark, path + "$tags").first()["name"] == "two"
    with pytest.raises(Exception, match="history covers all versions"):
        read(spark, path + "$history", version=1).collect()


def test_unknown_metadata_table_error_lists_names(spark, path):
    with pytest.raises(
        Exception, match=r"(?s)there is no \$files of a table.*\$history, \$versions"
    ):
        read(spark, path + "$files").collect()
    with pytest.raises(Exception, match="LANCE_TABLE_NOT_FOUND"):
        read(spark, path + "-none$history").collect()


def test_folder_with_dollar_name_is_table(spark, path):
    for name in ("$history", "$other", "$a$b"):
        write_table(path + name, pa.table({"own": [1, 2]}))
        assert read(spark, path + name).columns == ["own"]
    assert read(spark, path + "$a$b$history").count() == 1


def test_metadata_tables_are_read_only(spark, path):
    for mode in ("append", "overwrite"):
        with pytest.raises(Exception, match=r"\$history is a read-only metadata table"):
            spark.range(1).write.format("lance").mode(mode).save(path + "$history")
    spark.range(1).write.format("lance").mode("append").save(path + "$files")
    assert read(spark, path + "$files").count() == 1
    with pytest.raises(Exception, match=r"\$history cannot be read as a stream"):
        stream = spark.readStream.format("lance").load(path + "$history")
        stream.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()
    assert lance.dataset(path).version == 3
