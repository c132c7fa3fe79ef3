"""Batch reads and writes as the JVM plugin plans and commits them."""

from __future__ import annotations

import io
import json
import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType
from random_tables import random_table
from table_access import read_pylance, write_table
from table_files import files_of

from pyspark_lance.errors import TableAlreadyExistsError
from pyspark_lance.spark.service.methods import methods
from pyspark_lance.spark.service.server import encode_frame, read_frame, write_frame
from pyspark_lance.spark.source.early_worker import reads, writes
from pyspark_lance.spark.types.spark_types import arrow_schema_of

COLUMNS = StructType([StructField("id", LongType()), StructField("name", StringType())])


def sent(message: dict) -> dict:
    """A message as it arrives."""
    stream = io.BytesIO()
    write_frame(stream, encode_frame(message))
    stream.seek(0)
    return read_frame(stream)


def call(method: str, **params) -> dict:
    """The result of a method as the plugin gets it."""
    message = {"session": params.pop("session", {}), "options": params.pop("options", {})}
    return sent(methods()[method](sent(message | {"params": params})))


SESSION = {"application": "app-7"}


def plan_write(path: str, *, overwrite: bool = False, **params: object) -> dict:
    """The plan of a write of ``COLUMNS``."""
    params |= {"columns": COLUMNS.json(), "overwrite": overwrite}
    return call("plan_write", session=SESSION, options={"path": path}, **params)


def plan_read(path: str, columns: StructType, **params: object) -> dict:
    """The plan of a read."""
    params |= {"columns": columns.json()}
    return call("plan_read", session=SESSION, options={"path": path}, **params)


def function_of(plan: dict):
    """The function that tasks are sent."""
    return pickle.loads(plan["function"])[0]


def written(plan: dict, *parts: pa.Table) -> list[bytes]:
    """Run the tasks of a write; return their messages to the commit."""
    messages = []
    for part in parts:
        (batch,) = function_of(plan)(iter(part.to_batches()))
        messages += batch.column(0).to_pylist()
    return messages


def rows_of(path: str, columns: StructType, **params: object) -> pa.Table:
    """Run the tasks of a read; return their rows."""
    plan = plan_read(path, columns, **params)
    task, batches = function_of(plan), []
    for one in plan["partitions"]:
        given = pa.RecordBatch.from_arrays([pa.array([one])], ["partition"])
        batches += task(iter([given]))
    return pa.Table.from_batches(batches, arrow_schema_of(columns))


def ids(*numbers: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": pa.array([str(one) for one in numbers], pa.string()),
        }
    )


@pytest.mark.interop
def test_planned_write_and_read_agree_with_pylance(tmp_path):
    path = str(tmp_path / "t")
    for turn in range(2):
        plan = plan_write(path)
        messages = written(plan, ids(*range(10 * turn, 10 * turn + 4)), ids(10 * turn + 7))
        call("commit", writer=plan["writer"], messages=messages)
    from_pylance = read_pylance(path)
    assert sorted(from_pylance["id"].to_pylist()) == [0, 1, 2, 3, 7, 10, 11, 12, 13, 17]
    assert rows_of(path, COLUMNS).equals(from_pylance.select(COLUMNS.names))


def test_planned_overwrite_leaves_only_its_rows(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, ids(1, 2, 3))
    plan = plan_write(path, overwrite=True)
    call("commit", writer=plan["writer"], messages=written(plan, ids(9)))
    assert rows_of(path, COLUMNS)["id"].to_pylist() == [9]


def test_abort_removes_task_files_despite_missing_message(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, ids(1, 2, 3))
    before = files_of(path)
    plan = plan_write(path)
    messages = [*written(plan, ids(4), ids(5)), None]
    assert files_of(path) != before
    call("abort", writer=plan["writer"], messages=messages)
    assert files_of(path) == before


@pytest.mark.parametrize("seed", range(6))
def test_planned_read_applies_pushed_filter(tmp_path, seed):
    path = str(tmp_path / "t")
    table = random_table(seed, 40, "2.1", columns=3).drop_columns("id")
    write_table(path, table.append_column("id", pa.array(range(40))), max_rows_per_file=9)
    condition = {"op": "<", "args": [{"column": ["id"]}, {"literal": 25, "type": "bigint"}]}
    found = rows_of(path, COLUMNS[:1], filter=json.dumps(condition))
    assert sorted(found["id"].to_pylist()) == list(range(25))


def test_planned_read_uses_analyzed_version(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, ids(1, 2))
    described = call("describe", options={"path": path})
    pinned = {name: described[name] for name in ("root", "version", "base")}
    plan = plan_write(path)
    call("commit", writer=plan["writer"], messages=written(plan, ids(3)))
    assert rows_of(path, COLUMNS, **pinned)["id"].to_pylist() == [1, 2]
    assert sorted(rows_of(path, COLUMNS)["id"].to_pylist()) == [1, 2, 3]


def test_empty_table_is_read_by_one_empty_task(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, ids())
    assert len(plan_read(path, COLUMNS)["partitions"]) == 1
    assert rows_of(path, COLUMNS).num_rows == 0


def test_forbidden_write_fails_during_planning(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, ids(1))
    with pytest.raises(TableAlreadyExistsError):
        plan_write(path, create=True)


@pytest.mark.parametrize("command", [reads, writes])
def test_early_worker_consumes_input_and_returns_nothing(command):
    function, kind = pickle.loads(pickle.dumps(command()))
    batches = iter([pa.RecordBatch.from_arrays([pa.array([b"N."])], ["partition"])])
    assert list(function(batches)) == [] and list(batches) == []
    assert kind == command()[1]
