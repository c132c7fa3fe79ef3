"""UPDATE, MERGE and DELETE of tables with blob columns, beside a dict of rows."""

from __future__ import annotations

from datetime import timedelta

import lance
import numpy as np
import pyarrow as pa
import pytest
from managed_blobs import blob_rows, referenced
from pyspark.errors import AnalysisException, UnsupportedOperationException
from random_seeds import cases
from spark_releases import has, needs
from table_access import write_table

from pyspark_lance import LanceTable

from .conftest import sql

pytestmark = [pytest.mark.spark, pytest.mark.interop]

LARGE = np.random.default_rng(0).bytes(100_000)
BLOBS = {0: b"zero", 1: None, 2: LARGE, 3: b"", 4: LARGE[1:], 5: b"five"}
KINDS = ("2.0", "2.1", "2.2", "managed")


def new_table(path, blobs, kind="2.2"):
    """Rows of an id, the same number as ``n``, and a blob, in files of three rows."""
    version = "2.2" if kind == "managed" else kind
    rows = blob_rows(blobs, managed=kind == "managed")
    if version < "2.2":
        blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        schema = pa.schema([*list(rows.schema)[:2], blob])
        rows = pa.table([*rows.columns[:2], list(blobs.values())], schema=schema)
    write_table(path, rows, file_version=version, max_rows_per_file=3)
    return f"lance.`{path}`"


def pylance_rows(path):
    """(n, blob) of each id, as ``take_blobs`` of pylance reads them, and lineage."""
    dataset = lance.dataset(path, session=lance.Session())
    dataset.validate()
    lineage = ["_row_created_at_version", "_row_last_updated_at_version"]
    rows = dataset.to_table(columns=["id", "n", "b", *lineage], with_row_id=True)
    row_ids = rows["_rowid"].to_pylist()
    binary = dataset.to_table(columns=["id", "b"], blob_handling="all_binary")
    blobs = dict(zip(binary["id"].to_pylist(), binary["b"].to_pylist(), strict=True))
    there = [row for row, key in zip(row_ids, rows["id"].to_pylist(), strict=True) if blobs[key]]
    taken = dict(zip(there, dataset.take_blobs("b", ids=there), strict=True)) if there else {}
    found = {}
    for row in rows.to_pylist():
        blob = blobs[row["id"]]
        assert not blob or taken[row["_rowid"]].readall() == blob
        stamps = row["_rowid"], *(row[name] for name in lineage)
        found[row["id"]] = (row["n"], blob, stamps)
    return found


def check(spark, path, expected):
    """``expected``: (n, blob, (row id, created at, last updated at)) of each id."""
    assert pylance_rows(path) == expected
    read = spark.read.format("lance").option("blobColumns", "b").load(path).collect()
    assert {row.id: (row.n, row.b and bytes(row.b)) for row in read} == {
        key: (n, blob or (None if blob is None else bytearray()))
        for key, (n, blob, _) in expected.items()
    }
    assert LanceTable.forPath(spark, path).verify(readData=True).findings == ()


@pytest.mark.parametrize("kind", cases(KINDS, in_ci=("2.1", "managed")))
def test_unnamed_blobs_are_kept(plugin, path, kind):
    table = new_table(path, BLOBS, kind)
    rows = {key: (key, blob, (key, 1, 1)) for key, blob in BLOBS.items()}
    before = referenced(path) if kind == "managed" else set()
    plugin.sql(f"UPDATE {table} SET n = 20 WHERE b.size > 90000 OR b IS NULL")
    rows |= {key: (20, BLOBS[key], (key, 1, 2)) for key in (1, 2, 4)}
    check(plugin, path, rows)
    plugin.sql(
        f"""MERGE INTO {table} t USING (SELECT explode(array(0, 2, 3, 9)) AS id) s ON t.id = s.id
        WHEN MATCHED AND t.b.size = 0 THEN DELETE
        WHEN MATCHED THEN UPDATE SET n = 30
        WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, 31)
        WHEN NOT MATCHED BY SOURCE AND t.id = 5 THEN UPDATE SET n = 32"""
    )
    rows |= {key: (30, BLOBS[key], (key, 1, 3)) for key in (0, 2)}
    rows |= {5: (32, BLOBS[5], (5, 1, 3)), 9: (31, None, (6, 3, 3))}
    del rows[3]
    check(plugin, path, rows)
    plugin.sql(
        f"MERGE INTO {table} t USING (SELECT 10L AS id) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    rows[10] = (None, None, (7, 4, 4))
    plugin.sql(f"DELETE FROM {table} WHERE b IS NULL AND id IN (SELECT 9L)")
    del rows[9]
    check(plugin, path, rows)
    if kind == "managed":
        assert referenced(path) == before
    target = LanceTable.forPath(plugin, path)
    target.compact()
    target.cleanupOldVersions(retainVersions=1)
    lance.dataset(path).cleanup_old_versions(timedelta(0))
    check(plugin, path, rows)


@pytest.mark.parametrize("kind", cases(KINDS, in_ci=("2.2", "managed")))
def test_assigned_blob_bytes_are_stored(plugin, path, kind):
    table = new_table(path, BLOBS, kind)
    rows = {key: (key, blob, (key, 1, 1)) for key, blob in BLOBS.items()}
    plugin.sql(f"UPDATE {table} SET b = X'05', n = n + 10 WHERE b IS NULL OR b.size = 0")
    rows |= {key: (key + 10, b"\5", (key, 1, 2)) for key in (1, 3)}
    check(plugin, path, rows)
    plugin.sql(
        f"UPDATE {table} SET b = CASE WHEN id = 0 THEN NULL WHEN id = 1 THEN X'06' ELSE b END "
        "WHERE id < 3"
    )
    for key, blob in ((0, None), (1, b"\6"), (2, LARGE)):
        rows[key] = (rows[key][0], blob, (key, 1, 3))
    check(plugin, path, rows)
    source = plugin.createDataFrame(
        [(0, bytearray(LARGE[2:])), (1, None), (2, bytearray(b"x")), (5, bytearray(b"y")),
         (9, bytearray(LARGE)), (10, None)],
        "id bigint, b binary",
    )  # fmt: skip
    source.createOrReplaceTempView("new_blobs")
    plugin.sql(
        f"""MERGE INTO {table} t USING new_blobs s ON t.id = s.id
        WHEN MATCHED AND t.b IS NULL THEN UPDATE SET b = coalesce(t.b, s.b)
        WHEN MATCHED AND t.id = 1 THEN UPDATE SET b = coalesce(s.b, t.b), n = 40
        WHEN MATCHED AND t.id = 2 THEN UPDATE SET n = 40
        WHEN MATCHED THEN UPDATE SET b = NULL
        WHEN NOT MATCHED THEN INSERT (id, b) VALUES (s.id, s.b)
        WHEN NOT MATCHED BY SOURCE AND t.id = 4 THEN UPDATE SET b = X'44'"""
    )
    rows |= {
        0: (0, LARGE[2:], (0, 1, 4)), 1: (40, b"\6", (1, 1, 4)), 2: (40, LARGE, (2, 1, 4)),
        5: (5, None, (5, 1, 4)), 4: (4, b"\x44", (4, 1, 4)),
    }  # fmt: skip
    found = pylance_rows(path)
    rows |= {9: (None, LARGE, found[9][2]), 10: (None, None, found[10][2])}
    assert sorted(found[key][2] for key in (9, 10)) == [(6, 4, 4), (7, 4, 4)]
    check(plugin, path, rows)


@pytest.mark.parametrize("kind", ["2.1", "2.2"])
def test_clauses_remove_blobs_from_some_rows(plugin, path, kind):
    table = new_table(path, BLOBS, kind)
    plugin.sql(f"UPDATE {table} SET b = if(id = 0, NULL, coalesce(b, NULL)) WHERE id < 2")
    plugin.sql(
        f"""MERGE INTO {table} t USING (SELECT 2L AS id) s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET b = CASE WHEN t.id = 2 THEN NULL ELSE t.b END
        WHEN NOT MATCHED BY SOURCE AND t.id = 4 THEN UPDATE SET b = if(t.n > 9, NULL, t.b)"""
    )
    rows = plugin.read.format("lance").option("blobColumns", "b").load(path).collect()
    found = {row.id: None if row.b is None else bytes(row.b) for row in rows}
    assert found == {key: None if key in (0, 2) else blob for key, blob in BLOBS.items()}


@pytest.mark.parametrize(("kind", "other"), [("2.1", "2.2"), ("managed", "2.0"), ("2.2", "2.2")])
def test_blobs_of_other_table_are_copied(plugin, tmp_path, kind, other):
    path = str(tmp_path / "target")
    table = new_table(path, BLOBS, kind)
    source = new_table(str(tmp_path / "source"), {1: LARGE[3:], 4: None, 7: b"seven"}, other)
    rows = {key: (key, blob, (key, 1, 1)) for key, blob in BLOBS.items()}
    plugin.sql(
        f"MERGE INTO {table} t USING {source} s ON t.id = s.id AND s.b IS NOT NULL "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND s.b IS NOT NULL THEN INSERT *"
    )
    rows |= {1: (1, LARGE[3:], (1, 1, 2)), 7: (7, b"seven", (6, 2, 2))}
    check(plugin, path, rows)
    plugin.sql(
        f"""MERGE INTO {table} t USING (
          SELECT id + 1 AS id, b AS blob FROM {source} WHERE id < 7
          UNION ALL SELECT id - 7, b FROM {source} WHERE id = 7) s ON t.id = s.id
        WHEN MATCHED AND t.id > 0 THEN UPDATE SET b = s.blob
        WHEN MATCHED THEN UPDATE SET n = 50"""
    )
    rows |= {
        2: (2, LARGE[3:], (2, 1, 3)), 5: (5, None, (5, 1, 3)), 0: (50, b"zero", (0, 1, 3)),
    }  # fmt: skip
    check(plugin, path, rows)
    plugin.sql(f"UPDATE {table} SET b = (SELECT b FROM {source} WHERE id = 7) WHERE id IN (3, 4)")
    rows |= {key: (key, b"seven", (key, 1, 4)) for key in (3, 4)}
    plugin.sql(
        f"MERGE INTO {table} t USING (SELECT id + 4 AS id, b FROM {source}) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, b) VALUES (s.id, s.b)"
    )
    found = pylance_rows(path)
    rows |= {8: (None, None, found[8][2]), 11: (None, b"seven", found[11][2])}
    check(plugin, path, rows)


def test_unresolvable_descriptors_are_refused(plugin, tmp_path):
    table = new_table(str(tmp_path / "t"), BLOBS)
    source = new_table(str(tmp_path / "s"), {1: b"one"})
    for text in (
        f"(SELECT id, max(b) AS b FROM {source} GROUP BY id)",
        f"(SELECT id, if(id > 0, b, NULL) AS b FROM {source})",
        f"(SELECT id, b FROM {source} WHERE b.size > 1)",
    ):
        with pytest.raises(UnsupportedOperationException, match="blobColumns"):
            plugin.sql(
                f"MERGE INTO {table} t USING {text} s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET b = s.b"
            )
    with pytest.raises(Exception, match="CANNOT_SAFELY_CAST"):
        plugin.sql(f"UPDATE {table} SET b = 'text'")
    assert lance.dataset(str(tmp_path / "t")).version == 1


def test_merge_reads_only_needed_blobs(plugin, path):
    table = new_table(path, BLOBS)
    merge = f"MERGE INTO {table} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN"
    plan = plugin.sql(f"EXPLAIN {merge} UPDATE SET n = 5").first()[0]
    assert "b:" not in plan.split("reads: ")[1].split(">")[0]
    plan = plugin.sql(f"EXPLAIN {merge} UPDATE SET b = X'00'").first()[0]
    assert "b:" not in plan.split("reads: ")[1].split(">")[0]


@needs("MERGE WITH SCHEMA EVOLUTION")
def test_columns_are_added_beside_blobs(plugin, path):
    table = new_table(path, BLOBS)
    plugin.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO {table} t USING (SELECT 1L AS id, 7L AS n, 5 AS more) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert sql(plugin, f"SELECT id, n, more FROM {table} WHERE more > 0") == [(1, 7, 5)]
    assert {key: row[1] for key, row in pylance_rows(path).items()} == BLOBS


def test_merge_into_view_with_binary_blobs_is_supported(plugin, path):
    table = new_table(path, BLOBS)
    options = f"OPTIONS (path '{path}', blobColumns 'b')"
    plugin.sql(f"CREATE OR REPLACE TEMPORARY VIEW blobs_seen USING lance {options}")
    source = "USING (SELECT 1L AS id, X'01' AS b) s ON t.id = s.id"
    plugin.sql(f"MERGE INTO blobs_seen t {source} WHEN MATCHED THEN UPDATE SET n = length(s.b)")
    plugin.sql(f"MERGE INTO blobs_seen t {source} WHEN MATCHED THEN UPDATE SET b = s.b")
    rows = {key: (key, blob, (key, 1, 1)) for key, blob in BLOBS.items()}
    check(plugin, path, rows | {1: (1, b"\1", (1, 1, 3))})
    path = f"{path}-without-nulls"
    table = f"lance.`{path}`"
    plugin.sql(
        f"CREATE TABLE {table} (id bigint, n bigint, b binary NOT NULL) "
        "TBLPROPERTIES ('b.blob' = 'true')"
    )
    source = "USING (SELECT explode(array(1L, 2L)) AS id, X'01' AS b) s ON t.id = s.id"
    plugin.sql(f"MERGE INTO {table} t {source} WHEN NOT MATCHED THEN INSERT (id, b) VALUES (id, b)")
    plugin.sql(
        f"MERGE INTO {table} t {source} WHEN MATCHED AND t.id = 1 THEN UPDATE SET n = 5 "
        "WHEN MATCHED THEN UPDATE SET b = X'02'"
    )
    found = pylance_rows(path)
    assert {key: row[:2] for key, row in found.items()} == {1: (5, b"\1"), 2: (None, b"\2")}
    with pytest.raises(Exception, match=r"(?i)null"):
        plugin.sql(f"UPDATE {table} SET b = NULL")


def test_structs_with_blobs_are_kept_or_replaced_whole(plugin, path):
    blob = {"lance-encoding:blob": "true"}
    kind = pa.struct([("a", pa.int64()), pa.field("x", pa.large_binary(), metadata=blob)])
    values = [{"a": key, "x": value} for key, value in BLOBS.items()]
    rows = pa.table({"id": range(6), "n": range(6), "st": pa.array(values, kind)})
    write_table(path, rows.cast(pa.schema([*list(rows.schema)[:2], ("st", kind)])))
    table = f"lance.`{path}`"
    source = "USING (SELECT explode(array(1L, 2L, 9L)) AS id) s ON t.id = s.id"
    plugin.sql(
        f"MERGE INTO {table} t {source} WHEN MATCHED THEN UPDATE SET n = 7 "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    plugin.sql(f"UPDATE {table} SET st = named_struct('a', 8L, 'x', X'08') WHERE id = 4")
    with pytest.raises(UnsupportedOperationException, match="blobColumns"):
        plugin.sql(f"UPDATE {table} SET st.a = 1 WHERE id = 5")
    read = plugin.read.format("lance").option("blobColumns", "st").load(path).collect()
    found = {row.id: (row.n, row.st and (row.st.a, row.st.x and bytes(row.st.x))) for row in read}
    expected = {key: (key, (key, blob or None)) for key, blob in BLOBS.items()}
    expected |= {key: (7, (key, BLOBS[key])) for key in (1, 2)}
    expected |= {9: (None, None), 4: (4, (8, b"\x08"))}
    assert {key: (n, st and (st[0], st[1] or None)) for key, (n, st) in found.items()} == expected


def inserts(table):
    """Statements that give the blob column ``b`` the bytes of their row's id, and these ids."""
    return {
        1: f"INSERT INTO {table} VALUES (1, 1, X'01')",
        2: f"INSERT INTO {table} (b, id, n) VALUES (X'02', 2, 2)",
        3: f"INSERT INTO {table} BY NAME SELECT 3 AS n, X'03' AS B, 3L AS id",
        4: f"INSERT INTO {table} SELECT 4L, 4, CASE WHEN rand() < 2 THEN X'04' END",
        5: f"WITH c AS (SELECT X'05' AS x) INSERT INTO {table} (id, n, b) SELECT 5, 5, x FROM c",
        6: f"INSERT INTO {table} VALUES (6, 6, DEFAULT), (7, DEFAULT, X'07')",
        8: f"FROM (SELECT 8L AS id) INSERT INTO {table} SELECT id, 8, X'08' "
        f"INSERT INTO {table} SELECT id + 1, 9, X'09'",
        10: f"INSERT INTO {table} REPLACE WHERE id = 1 VALUES (1, 1, X'0A')",
    }


@pytest.mark.parametrize("kind", cases(KINDS, in_ci=("2.0", "managed")))
def test_inserts_store_bytes_in_blob_columns(plugin, path, kind):
    table = new_table(path, {0: LARGE}, kind)
    for text in inserts(table).values():
        plugin.sql(text)
    values, arguments = "11, 11, X'617267'", None
    if has("parameters that the parser replaces"):
        values, arguments = ":id, :id, :b", {"id": 11, "b": b"arg"}
    plugin.sql(f"INSERT INTO {table} (id, n, b) VALUES ({values})", args=arguments)
    plugin.sql(f"INSERT INTO {table} SELECT id + 20, n, b FROM {table} WHERE id IN (0, 4)")
    rows = plugin.createDataFrame([(12, 12, LARGE[1:])], "id bigint, n bigint, b binary")
    rows.writeTo(table).append()
    rows.selectExpr("id + 1", "n", "b").write.insertInto(table)
    rows.selectExpr("id + 2 AS id", "n", "b").write.mode("append").saveAsTable(table)
    expected = {key: bytes([key]) for key in (2, 3, 4, 5, 7, 8, 9)}
    expected |= {0: LARGE, 1: b"\x0a", 6: None, 11: b"arg", 20: LARGE, 24: b"\4"}
    expected |= dict.fromkeys((12, 13, 14), LARGE[1:])
    assert {key: row[1] for key, row in pylance_rows(path).items()} == expected
    for text in ("'text'", "5", "named_struct('a', 1)"):
        with pytest.raises(AnalysisException, match="INCOMPATIBLE_DATA_FOR_TABLE"):
            plugin.sql(f"INSERT INTO {table} SELECT 9L, 9L, {text}")
    plugin.sql(f"INSERT OVERWRITE {table} VALUES (1, 1, X'01'), (2, 2, NULL)")
    rows.writeTo(table).overwritePartitions()
    assert {key: row[1] for key, row in pylance_rows(path).items()} == {12: LARGE[1:]}
    assert LanceTable.forPath(plugin, path).verify(readData=True).findings == ()


def test_inserts_store_bytes_in_structs_with_blobs(plugin, path):
    blob = {"lance-encoding:blob": "true"}
    kind = pa.struct([("a", pa.int64()), pa.field("x", pa.large_binary(), metadata=blob)])
    schema = pa.schema([("id", pa.int64()), ("st", kind)])
    write_table(path, pa.table([[0], pa.array([{"a": 0, "x": b"zero"}], kind)], schema=schema))
    table = f"lance.`{path}`"
    plugin.sql(f"INSERT INTO {table} VALUES (1, named_struct('a', 1, 'x', X'01'))")
    plugin.sql(f"INSERT INTO {table} SELECT id + 2, st FROM {table}")
    for keys in ([0, 1, 2, 3], [7]):
        read = plugin.read.format("lance").option("blobColumns", "st").load(path)
        found = {row.id: bytes(row.st.x) for row in read.collect()}
        values = {0: b"zero", 1: b"\1", 2: b"zero", 3: b"\1", 7: b"\7"}
        assert found == {key: values[key] for key in keys}
        assert lance.dataset(path).schema.field("st").type.field("x").metadata
        plugin.sql(f"INSERT OVERWRITE {table} VALUES (7, named_struct('a', 1, 'x', X'07'))")


@needs("schema evolution of other writes than MERGE")
def test_schema_evolution_stores_bytes_in_blob_columns(plugin, path):
    table = new_table(path, {0: LARGE, 1: b"one", 2: b"two"})
    rows = plugin.createDataFrame([(3, b"three", 1)], "id bigint, b binary, more int")
    rows.writeTo(table).option("mergeSchema", "true").append()
    source = "(SELECT explode(array(1L, 4L)) AS id, X'04' AS b, 'x' AS text)"
    plugin.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO {table} t USING {source} s ON t.id = s.id "
        "WHEN MATCHED AND s.b IS NOT NULL THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    source = "(SELECT explode(array(2L, 5L)) AS id, X'05' AS b, 7 AS last)"
    plugin.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO {table} t USING {source} s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET last = s.last, b = s.b "
        "WHEN NOT MATCHED THEN INSERT (id, b) VALUES (s.id, s.b)"
    )
    assert {key: row[1] for key, row in pylance_rows(path).items()} == {
        0: LARGE, 1: b"\4", 2: b"\5", 3: b"three", 4: b"\4", 5: b"\5"
    }  # fmt: skip
    assert sql(plugin, f"SELECT id, more, text, last FROM {table} WHERE id > 0") == [
        (1, None, "x", None), (2, None, None, 7), (3, 1, None, None), (4, None, "x", None),
        (5, None, None, None),
    ]  # fmt: skip
