"""Columns, and members of structs, that differ by case only: SQL, DataFrames and LanceTable."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError

from .conftest import sql

pytestmark = [pytest.mark.spark, pytest.mark.interop]


@pytest.fixture
def sensitive(plugin):
    """The session, where names differ by case."""
    plugin.conf.set("spark.sql.caseSensitive", "true")
    yield plugin
    plugin.conf.unset("spark.sql.caseSensitive")


def rows(path):
    """The rows as pylance sees them, in order of the column ``id``."""
    dataset = lance.dataset(path)
    dataset.validate()
    return sorted(dataset.to_table().to_pylist(), key=lambda row: row["id"])


def as_rows(*values, names=("id", "Name", "NAME")):
    return [dict(zip(names, one, strict=True)) for one in values]


def test_statements_distinguish_columns_by_case(sensitive, path):
    name = f"lance.`{path}`"
    sensitive.sql(f"CREATE TABLE {name} (id bigint, Name string, NAME string)")
    sensitive.sql(f"INSERT INTO {name} VALUES (1, 'a', 'A'), (2, 'b', 'B'), (3, 'c', 'C')")
    sensitive.sql(f"INSERT INTO {name} (NAME, id, Name) VALUES ('D', 4, 'd')")
    assert sql(sensitive, f"SELECT NAME, Name FROM {name} WHERE Name = 'd'") == [("D", "d")]
    sensitive.sql(f"UPDATE {name} SET NAME = 'X' WHERE Name = 'a'")
    sensitive.sql(f"DELETE FROM {name} WHERE NAME = 'B'")
    source = "(SELECT 3 AS id, 'M' AS NAME, 'm' AS Name UNION ALL SELECT 5, 'N', 'n')"
    sensitive.sql(
        f"MERGE INTO {name} t USING {source} s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert rows(path) == as_rows((1, "a", "X"), (3, "m", "M"), (4, "d", "D"), (5, "n", "N"))


def test_alter_table_distinguishes_columns_by_case(sensitive, path):
    name = f"lance.`{path}`"
    sensitive.sql(f"CREATE TABLE {name} (id bigint, Name string, s struct<Part: int>)")
    sensitive.sql(f"INSERT INTO {name} VALUES (1, 'a', named_struct('Part', 7))")
    sensitive.sql(f"ALTER TABLE {name} ADD COLUMNS (NAME string DEFAULT 'A')")
    sensitive.sql(f"ALTER TABLE {name} ADD COLUMNS (s.PART int)")
    sensitive.sql(f"ALTER TABLE {name} RENAME COLUMN Name TO name")
    sensitive.sql(f"INSERT INTO {name} VALUES (2, 'b', named_struct('Part', 8, 'PART', 9), 'B')")
    names = ("id", "name", "s", "NAME")
    first = (1, "a", {"Part": 7, "PART": None}, "A")
    second = (2, "b", {"Part": 8, "PART": 9}, "B")
    assert rows(path) == as_rows(first, second, names=names)
    sensitive.sql(f"UPDATE {name} SET s.PART = s.Part + 1 WHERE id = 1")
    sensitive.sql(f"ALTER TABLE {name} DROP COLUMN name")
    sensitive.sql(f"ALTER TABLE {name} DROP COLUMN s.Part")
    assert rows(path) == as_rows(
        (1, {"PART": 8}, "A"), (2, {"PART": 9}, "B"), names=("id", *names[2:])
    )


def test_data_frames_distinguish_columns_by_case(sensitive, path):
    frame = sensitive.createDataFrame([("A", 1, "a"), ("B", 2, "b")], ["NAME", "id", "Name"])
    frame.write.format("lance").save(path)
    frame.selectExpr("id + 2 AS id", "Name", "NAME").write.format("lance").mode("append").save(path)
    table = LanceTable.forPath(sensitive, path)
    table.update("Name = 'a' AND id = 3", {"NAME": "'Z'"})
    source = sensitive.createDataFrame([("Y", 2, "y"), ("W", 9, "w")], ["NAME", "id", "Name"])
    merge = table.merge(source, "target.id = source.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    expected = as_rows((1, "a", "A"), (2, "y", "Y"), (3, "a", "Z"), (4, "b", "B"), (9, "w", "W"))
    assert [{n: r[n] for n in expected[0]} for r in rows(path)] == expected
    table.renameColumn("NAME", "name")
    table.addColumns("NAME string")
    with pytest.raises(
        InvalidInputError, match="'nAME' is ambiguous, it could be name, Name, NAME"
    ):
        table.dropColumns("nAME")


def test_case_insensitive_session_adds_no_similar_columns(plugin, path):
    name = f"lance.`{path}`"
    pair = pa.array([{"Part": 1, "PART": 2}])
    lance.write_dataset(pa.table({"id": [1], "Name": ["a"], "NAME": ["A"], "s": pair}), path)
    plugin.sql(f"INSERT INTO {name} SELECT * FROM {name}")
    again = plugin.read.format("lance").load(path)
    again.write.format("lance").mode("append").save(path)
    assert sql(plugin, f"SELECT id FROM {name}") == [(1,)] * 4
    plugin.sql(f"UPDATE {name} SET id = 2")
    table = LanceTable.forPath(plugin, path)
    table.update("id = 2", {"NAME": "'B'"})
    one = {"id": 2, "Name": "a", "NAME": "B", "s": {"Part": 1, "PART": 2}}
    assert rows(path) == [one] * 4
    with pytest.raises(AnalysisException, match="AMBIGUOUS"):
        plugin.sql(f"SELECT Name FROM {name}")
    for columns in ("nAmE string", "ID int"):
        with pytest.raises(InvalidInputError, match=r"differ by case only[\s\S]*caseSensitive"):
            table.addColumns(columns)
