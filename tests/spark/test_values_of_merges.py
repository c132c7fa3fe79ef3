"""Values of merges that are only names go to Spark as texts: the same rows as Columns give."""

from __future__ import annotations

import shutil

import lance
import numpy as np
import pyarrow as pa
import pytest
from py4j.clientserver import ClientServerConnection
from pyspark.sql import functions as sf
from random_seeds import seeds
from table_access import assert_same_rows, read_ours, read_pylance, write_table

from pyspark_lance import LanceTable

pytestmark = pytest.mark.spark

# Column of the table -> columns of the source that may become its value; some are cast.
VALUES = {
    "a": ("s.a", "s.`b c`", "s.small", "source_only"),
    "b c": ("s.`b c`", "s.a", "source_only"),
    "t": ("s.t", "s.a", "s.other"),
    "st": ("s.st", "s.turned"),
    "d": ("s.d", "s.small", "s.half"),
}


def make(path, rows=60):
    ids = np.arange(rows)
    parts = {"x": pa.array(ids), "y": pa.array([f"y{i}" for i in ids])}
    table = {
        "id": pa.array(ids),
        "a": pa.array(ids * 2, pa.int64(), mask=ids % 7 == 0),
        "b c": pa.array(ids * 3, pa.int32()),
        "t": pa.array([f"t{i}" for i in ids]),
        "st": pa.StructArray.from_arrays(list(parts.values()), list(parts)),
        "d": pa.array(ids / 4),
    }
    write_table(path, pa.table(table), max_rows_per_file=25)


def source(spark):
    rows = spark.range(30, 90, 1, 2)
    return rows.selectExpr(
        "id",
        "-id AS a",
        "CAST(id * 5 AS INT) AS `b c`",
        "CAST(id % 100 AS TINYINT) AS small",
        "id + 1000 AS source_only",
        "IF(id % 5 = 0, NULL, concat('n', id)) AS t",
        "named_struct('x', id, 'y', 'new') AS st",
        "named_struct('y', 'turned', 'x', -id) AS turned",
        "id / 8 AS d",
        "id / 2 AS half",
        "concat('o', id) AS other",
    ).alias("s")


def random_clauses(rng):
    """(method of the builder, condition, column -> value), in order."""

    def values(*, of_target):
        names = rng.permutation(list(VALUES))[: rng.integers(1, len(VALUES) + 1)]
        given = {str(name): str(rng.choice(VALUES[name])) for name in names}
        if of_target and rng.random() < 0.3:
            given["a"] = "t.`b c`"
        return {f"`{name}`": value for name, value in given.items()}

    clauses = []
    if rng.random() < 0.6:
        clauses.append(("whenMatchedUpdate", "t.id % 3 = 0", values(of_target=True)))
    if rng.random() < 0.3:
        clauses.append(("whenMatchedDelete", "t.id % 3 = 1", None))
    clauses.append(("whenMatchedUpdate", None, values(of_target=True)))
    if rng.random() < 0.6:
        clauses.append(("whenNotMatchedInsert", None, values(of_target=False) | {"id": "s.id"}))
    if rng.random() < 0.3:
        given = {"a": "t.`b c`", "t": "t.t"}
        clauses.append(("whenNotMatchedBySourceUpdate", "t.id < 10", given))
    return clauses


WAYS = {
    "names": lambda value, place: value,
    "columns": lambda value, place: sf.col(value),
    "texts": lambda value, place: f"({value})",
    "mixed": lambda value, place: value if place % 2 else sf.col(value),
    "with a comment": lambda value, place: f"{value} -- the {place}th",
}


@pytest.mark.interop
@pytest.mark.parametrize("seed", seeds(24, in_ci=1, first=8))
def test_names_columns_and_texts_give_same_rows(spark, tmp_path, seed):
    rng = np.random.default_rng(seed)
    clauses = random_clauses(rng)
    rewrite = str(rng.choice(["auto", "rows"]))
    make(str(tmp_path / "given"))
    results = {}
    for way, written in WAYS.items():
        path = str(tmp_path / way)
        shutil.copytree(tmp_path / "given", path)
        table = LanceTable.forPath(spark, path)
        merge = table.alias("t").merge(source(spark), "t.id = s.id", rewrite=rewrite)
        for number, (method, condition, values) in enumerate(clauses):
            named = {} if condition is None else {"condition": condition}
            if values is not None:
                given = {
                    key: written(value, number + place)
                    for place, (key, value) in enumerate(values.items())
                }
                named["values" if method == "whenNotMatchedInsert" else "set"] = given
            merge = getattr(merge, method)(**named)
        result = merge.execute()
        rows = read_ours(path)
        assert_same_rows(rows, read_pylance(path))
        lance.dataset(path).validate()
        results[way] = result, rows.sort_by("_rowaddr").to_pylist()
    for way in WAYS:
        assert results[way] == results["names"], (way, clauses)
    assert results["names"][0].version > 1


@pytest.mark.parametrize("call", ["upsert", "assignments", "by columns"])
def test_merge_jvm_calls_grow_slowly_with_columns(spark, tmp_path, monkeypatch, call):
    calls = 0
    send = ClientServerConnection.send_command

    def counted(self, *arguments):
        nonlocal calls
        calls += 1
        return send(self, *arguments)

    def calls_of(columns):
        nonlocal calls
        path = str(tmp_path / f"{columns}")
        names = [f"c{number}" for number in range(columns)]
        write_table(path, pa.table({name: pa.array(range(20)) for name in ["id", *names]}))
        new = spark.range(10, 30).selectExpr("id", *(f"id * 2 AS {name}" for name in names))
        rewrite = "columns" if call == "by columns" else "auto"
        table = LanceTable.forPath(spark, path)
        merge = table.merge(new, "target.id = source.id", rewrite=rewrite)
        if call == "upsert":
            merge = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()
        elif call == "by columns":
            merge = merge.whenMatchedUpdateAll()
        else:
            given = {name: f"source.{name}" for name in names}
            merge = merge.whenMatchedUpdate("source.id > 12", given)
            merge = merge.whenMatchedUpdate(set=given).whenNotMatchedInsert(values=given)
        calls = 0
        merge.execute()
        return calls

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    calls_of(3)  # the first merge of a session asks for more
    assert calls_of(30) - calls_of(10) < 30 * 20
