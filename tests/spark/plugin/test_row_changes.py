"""UPDATE, MERGE and DELETE of Spark SQL: the rows, their lineage, one version each."""

from __future__ import annotations

import random
import shutil
from uuid import uuid4

import lance
import pyarrow as pa
import pytest
from pyspark.errors import UnsupportedOperationException
from pyspark.sql.functions import expr, udf
from table_access import write_table

from pyspark_lance import LanceTable

from .conftest import register_meddler, sql

pytestmark = [pytest.mark.spark, pytest.mark.interop]
LINEAGE = "_rowid, _row_created_at_version, _row_last_updated_at_version"


@pytest.fixture(scope="module")
def written(plugin, tmp_path_factory):
    """100 rows in four fragments, of which each test has a copy."""
    path = str(tmp_path_factory.mktemp("written") / "table")
    plugin.range(0, 100, 1, 1).selectExpr(
        "id", "id % 7 AS m", "cast(id AS string) AS s", "named_struct('a', id, 'b', 'x') AS st"
    ).write.format("lance").option("max_row_per_file", "25").save(path)
    return path


@pytest.fixture
def name(written, path):
    return f"lance.`{shutil.copytree(written, path)}`"


def test_update_writes_only_changed_rows(plugin, path, name):
    plugin.sql(f"UPDATE {name} SET s = concat(s, '!'), st.a = -1 WHERE m = 3 AND length(s) = 2")
    rows = sql(plugin, f"SELECT id, s, st.a, st.b, {LINEAGE} FROM {name} WHERE s LIKE '%!'")
    expected = [(i, f"{i}!", -1, "x", i, 1, 2) for i in range(10, 100) if i % 7 == 3]
    assert rows == sorted(expected, key=repr)
    dataset = lance.dataset(path)
    dataset.validate()
    assert (dataset.version, dataset.count_rows()) == (2, 100)
    assert max(f.physical_rows for f in dataset.get_fragments()[4:]) <= len(expected)
    plugin.sql(f"UPDATE {name} SET s = 'never' WHERE id < 0")
    assert lance.dataset(path).version == 2


def test_update_writes_values_of_spilled_sort(plugin, path):
    plugin.range(0, 3_000, 1, 1).selectExpr("id", "'old' AS s").write.format("lance").save(path)
    conf = plugin.sparkContext._jsc.sc().conf()
    conf.set("spark.shuffle.spill.numElementsForceSpillThreshold", "100")
    try:
        plugin.sql(f"UPDATE lance.`{path}` SET s = concat('row ', id)")
    finally:
        conf.remove("spark.shuffle.spill.numElementsForceSpillThreshold")
    assert sql(plugin, f"SELECT count(*) FROM lance.`{path}` WHERE s = concat('row ', id)") == [
        (3_000,)
    ]


def test_update_reads_only_named_columns(plugin, path, name):
    statement = f"UPDATE {name} SET m = -id WHERE s LIKE '%7%' AND st.a > 20"
    plan = plugin.sql(f"EXPLAIN {statement}").first()[0]
    assert "reads: struct<id:bigint,_row" in plan
    plan = plugin.sql(f"EXPLAIN UPDATE {name} SET s = upper(s), id = id").first()[0]
    assert "reads: struct<s:string,_row" in plan
    plugin.sql(statement)
    rows = sql(plugin, f"SELECT id, m, s, st.a, st.b, _rowid FROM {name}")
    changed = {i for i in range(21, 100) if "7" in str(i)}
    expected = [(i, -i if i in changed else i % 7, str(i), i, "x", i) for i in range(100)]
    assert rows == sorted(expected, key=repr)


def test_explain_says_what_a_statement_writes(plugin, name):
    rows = f"SELECT * FROM {name} WHERE id = 1"
    shown = {
        f"INSERT INTO {name} {rows}": f"append to {name}",
        f"INSERT OVERWRITE {name} {rows}": f"overwrite of {name}",
        f"INSERT INTO {name} REPLACE WHERE id = 1 {rows}": "replace where {",
        f"UPDATE {name} SET m = 3": f"UPDATE of {name}, writes: [m]",
        f"DELETE FROM {name} WHERE id * 2 > 9": f"DELETE of {name}\n",
        f"DELETE FROM {name} WHERE id > 9": f"DeleteFromTable {name}, ",
    }
    for statement, text in shown.items():
        plan = plugin.sql(f"EXPLAIN {statement}").first()[0]
        assert text in plan
        assert "org.pysparklance" not in plan


def test_any_condition_can_delete(plugin, path, name):
    plugin.sql(f"DELETE FROM {name} WHERE id * 2 > 180")
    plugin.sql(f"DELETE FROM {name} WHERE id IN (SELECT id + 1 FROM range(5))")
    plugin.sql(f"DELETE FROM {name} t WHERE EXISTS (SELECT 1 FROM {name} o WHERE o.id = t.id + 50)")
    left = set(range(91)) - set(range(1, 6))
    left -= {i for i in left if i + 50 in left}
    assert {row[0] for row in sql(plugin, f"SELECT id FROM {name}")} == left
    lance.dataset(path).validate()
    assert lance.dataset(path).version == 4


def test_merge_supports_every_clause(plugin, path, name):
    plugin.createDataFrame(
        [(1, "new"), (50, "fifty"), (1000, "k"), (70, None)], "id bigint, s string"
    ).createOrReplaceTempView("news")
    plugin.sql(
        f"""MERGE INTO {name} t USING news ON t.id = news.id
        WHEN MATCHED AND news.s IS NULL THEN DELETE
        WHEN MATCHED THEN UPDATE SET t.s = news.s
        WHEN NOT MATCHED THEN INSERT (id, s) VALUES (news.id, news.s)
        WHEN NOT MATCHED BY SOURCE AND t.id = 10 THEN UPDATE SET s = 'alone'
        WHEN NOT MATCHED BY SOURCE AND t.id = 11 THEN DELETE"""
    )
    rows = sql(
        plugin, f"SELECT id, s, m, {LINEAGE} FROM {name} WHERE id IN (1, 10, 11, 50, 70, 1000)"
    )
    assert rows == sorted(
        [
            (1, "new", 1, 1, 1, 2),
            (10, "alone", 3, 10, 1, 2),
            (50, "fifty", 1, 50, 1, 2),
            (1000, "k", None, 100, 2, 2),
        ],
        key=repr,
    )
    dataset = lance.dataset(path)
    dataset.validate()
    assert (dataset.version, dataset.count_rows()) == (2, 99)
    with pytest.raises(Exception, match="MERGE_CARDINALITY_VIOLATION"):
        plugin.sql(
            f"MERGE INTO {name} t USING (SELECT 50 id UNION ALL SELECT 50) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET s = 'two'"
        )
    assert lance.dataset(path).version == 2


def test_merge_inserts_into_new_managed_table(plugin):
    plugin.sql("CREATE TABLE merged (id bigint, s string) USING lance")
    try:
        source = "(SELECT id, cast(id AS string) AS s FROM range(5))"
        for _ in range(2):
            plugin.sql(
                f"MERGE INTO merged t USING {source} n ON t.id = n.id "
                "WHEN MATCHED THEN UPDATE SET s = 'again' WHEN NOT MATCHED THEN INSERT *"
            )
        assert sql(plugin, "SELECT * FROM merged") == [(i, "again") for i in range(5)]
        plugin.sql("UPDATE merged SET s = 'u' WHERE id = 3")
        assert sql(plugin, "SELECT id FROM merged WHERE s = 'u'") == [(3,)]
    finally:
        plugin.sql("DROP TABLE merged")


def test_sql_changes_equal_lance_table_changes(plugin, tmp_path):
    """The same random changes by SQL and by LanceTable leave the same rows and lineage."""
    rng = random.Random(3)
    paths = [str(tmp_path / "sql"), str(tmp_path / "object")]
    for path in paths:
        plugin.range(0, 60, 1, 1).selectExpr("id", "id % 5 AS m", "'' AS s").write.format(
            "lance"
        ).option("max_row_per_file", "20").save(path)
        LanceTable.forPath(plugin, path).createIndex("id")
    name, table = f"lance.`{paths[0]}`", LanceTable.forPath(plugin, paths[1])
    for step in range(4):
        low = rng.randint(0, 70)
        condition = f"id % 3 = {rng.randint(0, 2)} AND id + 0 < {low + 10}"
        source = plugin.range(low, low + 12).selectExpr("id", "id % 5 m", f"'{step}' s")
        source.createOrReplaceTempView("step_source")
        plugin.sql(f"UPDATE {name} SET s = concat(s, 'u') WHERE {condition}")
        table.update(condition, {"s": "concat(s, 'u')"})
        plugin.sql(
            f"MERGE INTO {name} target USING step_source source ON target.id = source.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        merge = table.merge(source, "target.id = source.id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        plugin.sql(f"DELETE FROM {name} WHERE id + 0 = {low + 3}")
        table.delete(f"id + 0 = {low + 3}")
    columns = "id, m, s, _row_created_at_version, _row_last_updated_at_version"
    found = [sql(plugin, f"SELECT {columns} FROM lance.`{path}`") for path in paths]
    assert found[0] == found[1]
    datasets = [lance.dataset(path) for path in paths]
    assert datasets[0].version == datasets[1].version
    ids = sorted(row[0] for row in found[0] if 20 <= row[0] < 45)
    for dataset in datasets:
        assert "ScalarIndexQuery" in dataset.scanner(filter="id >= 20 AND id < 45").explain_plan()
        by_index = dataset.to_table(filter="id >= 20 AND id < 45")
        assert sorted(by_index["id"].to_pylist()) == ids


def test_failed_change_leaves_table_and_folder_unchanged(plugin, path, name, tmp_path):
    before = sorted(str(one) for one in tmp_path.rglob("*.lance") if one.is_file())
    with pytest.raises(Exception, match="boom"):
        plugin.sql(f"UPDATE {name} SET s = if(id = 77, raise_error('boom'), s) WHERE id + 0 > 5")
    assert lance.dataset(path).version == 1
    assert sorted(str(one) for one in tmp_path.rglob("*.lance") if one.is_file()) == before


@pytest.mark.parametrize(
    "command",
    [
        "UPDATE {name} SET s = meddled(s) WHERE id + 0 BETWEEN 4 AND 6",
        """MERGE INTO {name} t USING (SELECT id FROM range(4, 7)) n ON t.id = n.id
        WHEN MATCHED THEN UPDATE SET s = meddled(t.s)""",
    ],
    ids=["update", "merge"],
)
def test_command_reruns_after_conflicting_change(plugin, path, name, tmp_path, command):
    register_meddler(plugin, path, "s", tmp_path / "meddled")
    plugin.sql(command.format(name=name))
    rows = sql(plugin, f"SELECT id, s, {LINEAGE} FROM {name} WHERE id BETWEEN 3 AND 6")
    assert rows == [
        (3, "3", 3, 1, 1), (4, "4!", 4, 1, 3), (5, "theirs!", 5, 1, 3), (6, "6!", 6, 1, 3),
    ]  # fmt: skip
    lance.dataset(path).validate()
    assert lance.dataset(path).version == 3
    known = {file.path for f in lance.dataset(path).get_fragments() for file in f.data_files()}
    known |= {
        file.path
        for version in (1, 2)
        for f in lance.dataset(path, version=version).get_fragments()
        for file in f.data_files()
    }
    assert {one.name for one in (tmp_path / "table" / "data").iterdir()} == known


def test_command_fails_after_exhausted_retries(plugin, path, name):
    def meddling(text):
        lance.dataset(path).update({"s": "'theirs'"}, where="id = 5")
        return text

    plugin.udf.register("meddling", meddling)
    plugin.conf.set("spark.sql.catalog.hasty", "org.pysparklance.LanceCatalog")
    plugin.conf.set("spark.sql.catalog.hasty.commitRetries", "1")
    with pytest.raises(Exception, match=r"LANCE_COMMIT_RETRY.*conflicted 2 times"):
        plugin.sql(f"UPDATE hasty.`{path}` SET s = meddling(s) WHERE id + 0 = 5")
    # Of the other writer, once for each attempt.
    assert lance.dataset(path).version == 3
    assert sql(plugin, f"SELECT s FROM {name} WHERE id = 5") == [("theirs",)]


@pytest.mark.parametrize(
    ("condition", "theirs", "runs"),
    [
        ("id BETWEEN 4 AND 6", "id = 50", 1),
        ("id BETWEEN 4 AND 6 AND s NOT LIKE '9_' AND id * 2 > 8", "id = 50", 1),
        ("id BETWEEN 40 AND 60 AND length(s) = 2", "id = 90", 1),
        ("id * 2 BETWEEN 8 AND 12", "id = 50", 2),
        ("id = 5 AND 0 < (SELECT count(*) FROM {name} WHERE m = 0)", "id = 50", 2),
        ("id IN (SELECT id FROM {name} WHERE m = 5 AND id < 10)", "id = 50", 2),
        ("id = 5 AND 0 < (SELECT count(*) FROM {name})", "id = 50", 2),
    ],
)
def test_command_reruns_only_for_rows_in_scanned_range(
    plugin, path, name, tmp_path, condition, theirs, runs
):
    marker = tmp_path / "runs"

    def meddled(text):
        if not marker.exists():
            marker.touch()
            lance.dataset(path).update({"s": "'theirs'"}, where=theirs)
        return f"{text}!"

    plugin.udf.register("meddled", meddled)
    chosen = condition.format(name=name)
    expected = sql(plugin, f"SELECT id FROM {name} WHERE {chosen}")
    plugin.sql(f"UPDATE {name} SET s = meddled(s) WHERE {chosen}")
    assert sql(plugin, f"SELECT id FROM {name} WHERE s LIKE '%!'") == expected
    dataset = lance.dataset(path)
    dataset.validate()
    assert dataset.version == 3
    read_version = dataset.read_transaction(3).read_version
    assert read_version == runs


def test_evolving_merge_into_view_is_refused(plugin, path, name):
    plugin.read.format("lance").load(path).createOrReplaceTempView("evolving")
    merge = f"INTO evolving t USING (SELECT *, 5 AS n FROM {name} WHERE id < 2) s ON t.id = s.id"
    merge += " WHEN MATCHED THEN UPDATE SET *"
    with pytest.raises(UnsupportedOperationException, match=f"table itself, {name}"):
        plugin.sql(f"MERGE WITH SCHEMA EVOLUTION {merge}")
    assert lance.dataset(path).version == 1


@pytest.mark.parametrize("view", ["of a DataFrame", "USING", "AS SELECT *"])
def test_view_of_whole_table_can_be_changed(plugin, path, view):
    plugin.sql("SELECT id, 0L AS n FROM range(5)").write.format("lance").save(path)
    if view == "USING":
        plugin.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING lance OPTIONS (path '{path}')")
    elif view == "of a DataFrame":
        plugin.read.format("lance").load(path).createOrReplaceTempView("seen")
    else:
        made = f"CREATE OR REPLACE TEMPORARY VIEW seen AS SELECT * FROM lance.`{path}`"
        plugin.sql(made)
    if view == "AS SELECT *":
        with pytest.raises(
            UnsupportedOperationException, match=r"the view seen is a query.*\n.*itself"
        ):
            plugin.sql("UPDATE seen SET n = 1 WHERE id = 1")
        return
    plugin.sql("UPDATE seen SET n = 1 WHERE id = 1")
    plugin.sql("DELETE FROM seen AS s WHERE s.id + 0 = 2")
    plugin.sql(
        "MERGE INTO seen AS s USING (SELECT 3L AS id) AS other ON s.id = other.id "
        "WHEN MATCHED THEN UPDATE SET n = s.n + 7"
    )
    rows = plugin.read.format("lance").load(path).orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(0, 0), (1, 1), (3, 7), (4, 0)]
    plugin.read.format("lance").load(path).where("id > 1").createOrReplaceTempView("some")
    for statement in ("UPDATE some SET n = 1", "DELETE FROM some WHERE n = 0"):
        with pytest.raises(UnsupportedOperationException, match=path):
            plugin.sql(statement)
    assert plugin.table("seen").count() == 4


def test_null_vectors_are_updated_merged_and_inserted(plugin, path):
    name = f"lance.`{path}`"
    vectors = pa.list_(pa.float32(), 3)
    rows = pa.table({"id": range(6), "emb": pa.array([[i, 0, 1] for i in range(6)], vectors)})
    write_table(path, rows, max_rows_per_file=3)
    plugin.sql(f"UPDATE {name} SET emb = NULL")
    plugin.sql(f"INSERT INTO {name} VALUES (6, NULL), (7, NULL)")
    plugin.sql(
        f"MERGE INTO {name} t USING (SELECT explode(array(5L, 8L)) AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET emb = NULL WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    dataset = lance.dataset(path)
    dataset.validate()
    assert dataset.schema.field("emb").type == vectors
    assert sorted(dataset.to_table()["id"].to_pylist()) == list(range(9))
    assert dataset.to_table()["emb"].null_count == 9
    assert sql(plugin, f"SELECT count(*), count(emb) FROM {name}") == [(9, 0)]
    plugin.sql(f"UPDATE {name} SET emb = array(1f, 2f, 3f) WHERE id = 8")
    assert sql(plugin, f"SELECT id, emb[2] FROM {name} WHERE emb IS NOT NULL") == [(8, 3.0)]


@pytest.mark.parametrize(
    "value",
    ["uuid()", "concat('x', rand())", "string(monotonically_increasing_id())", "differs(id)"],
)
def test_merge_evaluates_values_once_per_row(plugin, path, name, value):
    plugin.udf.register("differs", udf(lambda _: str(uuid4()), "string").asNondeterministic())
    source = f"(SELECT id + 90 AS id, {value} AS u FROM range(20))"
    of_row = value.replace("(id)", "(s.id)")
    plugin.sql(f"""
        MERGE INTO {name} t USING {source} s ON t.id = s.id
        WHEN MATCHED AND t.id < 95 THEN UPDATE SET s = s.u
        WHEN MATCHED THEN UPDATE SET s = concat('m', {of_row})
        WHEN NOT MATCHED AND s.id < 105 THEN INSERT (id, s) VALUES (s.id, {of_row})
        WHEN NOT MATCHED THEN INSERT (id, s) VALUES (s.id, s.u)
        WHEN NOT MATCHED BY SOURCE AND t.id < 5 THEN
          UPDATE SET s = {value.replace("(id)", "(t.id)")}""")
    rows = dict(sql(plugin, f"SELECT id, s FROM {name}"))
    assert sorted(rows) == list(range(110))
    assert all(rows[i] == str(i) for i in range(5, 90))
    assert all(rows[i].startswith("m") for i in range(95, 100))
    parts = [range(5), range(90, 95), range(95, 100), range(100, 105), range(105, 110)]
    for part in parts:
        assert len({rows[i] for i in part}) == 5, "each row has a value of its own"
    assert lance.dataset(path).version == 2


def test_nondeterministic_condition_error_names_method(plugin, path, name):
    for statement, method in (
        (f"DELETE FROM {name} WHERE rand() < 0.5D", "LanceTable.delete"),
        (f"DELETE FROM {name} WHERE id > 3 AND uuid() > '5'", "LanceTable.delete"),
        (f"UPDATE {name} SET m = 0 WHERE rand() < 0.5D", "LanceTable.update"),
    ):
        with pytest.raises(UnsupportedOperationException, match=f"UNSUPPORTED.*\n.*{method}"):
            plugin.sql(statement)
    assert LanceTable.forPath(plugin, path).delete("rand() < 2").numDeletedRows == 100


MERGED = (
    "USING news u ON t._rowid = u.row AND t.s = u.s WHEN MATCHED THEN DELETE "
    "WHEN NOT MATCHED THEN INSERT (id, s) VALUES (u.id, u.s)"
)


@pytest.mark.parametrize(
    "merge",
    [
        f"MERGE INTO {{name}} t {MERGED}",
        f"MERGE INTO seen t {MERGED}",
        f"WITH news AS (SELECT 500L AS id, 'new' AS s, 7L AS row) MERGE INTO {{name}} t {MERGED}",
        f"EXECUTE IMMEDIATE 'MERGE INTO {{name}} t {MERGED}'",
        f"MERGE INTO {{name}} t {MERGED.replace('WHEN MATCHED THEN DELETE', '')}",
        "DataFrame.mergeInto",
    ],
)
def test_merge_naming_hidden_columns_inserts_rows(plugin, path, name, merge):
    news = plugin.sql("SELECT 500L AS id, 'new' AS s, 7L AS row")
    news.createOrReplaceTempView("news")
    plugin.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING lance OPTIONS (path '{path}')")
    shown = plugin.sql(f"SELECT _rowid FROM {name}").schema
    if merge.startswith("MERGE"):
        plan = plugin.sql(f"EXPLAIN {merge.format(name=name)}").first()[0]
        assert "WriteDelta" in plan
    if merge == "DataFrame.mergeInto":
        values = {"id": news.id, "s": news.s}
        condition = expr(f"{name}._rowid = row AND {name}.id < 0")
        news.mergeInto(name, condition).whenMatched().delete().whenNotMatched().insert(
            values
        ).merge()
    else:
        plugin.sql(merge.format(name=name))
    assert sql(plugin, f"SELECT id, s, _rowid FROM {name} WHERE id = 500") == [(500, "new", 100)]
    # A table that is made of these columns would keep a default.
    assert plugin.sql(f"SELECT _rowid FROM {name}").schema == shown
    assert "CURRENT_DEFAULT" not in shown["_rowid"].metadata


def test_insert_only_merge_accepts_several_matches(plugin, path, name):
    rows = plugin.table(name).count()
    merge = (
        f"MERGE INTO {name} t USING (SELECT explode(array(1L, 1L, 900L)) AS row) u "
        "ON t._rowid = u.row WHEN NOT MATCHED AND u.row > 1 THEN INSERT (id, s) VALUES (row, 'new')"
    )
    plugin.sql(merge)
    assert plugin.table(name).count() == rows + 1
    assert sql(plugin, f"SELECT id, s FROM {name} WHERE id = 900") == [(900, "new")]
