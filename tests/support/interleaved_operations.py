"""What two writers do to one table at once: our operations, and pylance's.

Each takes the path and which of two writers it is (0 or 1), so that one operation can meet itself;
it returns what it reports to its caller.
"""

from __future__ import annotations

import datetime
import shutil

import lance
import pyarrow as pa
import pyarrow.compute as pc
from local_changes import SOURCE_PREFIX, delete_rows, matching_rows, merge_rows, update_rows
from pyspark.sql.types import LongType, StructField, StructType
from row_changes import delete_by_source, insert, matched_delete, matched_update
from table_access import write_table

from pyspark_lance.commit.application_versions import ApplicationVersion
from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID
from pyspark_lance.spark.options.parse_options import WriteOptions
from pyspark_lance.spark.source.change_writer import LanceChangeWriter
from pyspark_lance.table.columns.change_columns import (
    add_columns,
    add_null_columns,
    change_nullability,
    compute_columns,
    copy_column,
    drop_columns,
    has_nulls,
    rename_column,
    widen_column,
)
from pyspark_lance.table.dml.moved_rows import CHANGED_ADDRESS, CHANGED_ROW_ID, CLAUSE, as_changes
from pyspark_lance.table.dml.read_set import condition_read_set
from pyspark_lance.table.dml.rewrite_columns import commit_rewrite, plan_rewrite, rewrite_columns
from pyspark_lance.table.dml.row_change import plan_change
from pyspark_lance.table.index_build.column_indices import create_index, refresh_indices
from pyspark_lance.table.index_build.index_plan import IndexRequest
from pyspark_lance.table.unit_of_work import CommitSettings, UnitOfWork
from pyspark_lance.table.version.snapshot import open_to_write
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import (
    WriteSettings,
    abort_write,
    commit_write,
    create_table,
    plan_write,
    write_rows,
)

COLUMNS = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("s", pa.string())])


def rows(ids, n, columns=COLUMNS):
    """Rows of the table with these ids; ``n`` is the same in all."""
    values = {"id": list(ids), "n": [n] * len(ids), "s": [f"s{one}-{n}" for one in ids]}
    return pa.table([pa.array(values[one.name], one.type) for one in columns], schema=columns)


def open_dataset(path, **where):
    return lance.dataset(path, session=lance.Session(), **where)


def counts(result):
    """What a change of rows reports."""
    return (result.num_inserted_rows, result.num_updated_rows, result.num_deleted_rows)


# Ours: writes ------------------------------------------------------------------------------


def write(path, table, **settings):
    """As Spark does it: what fails is aborted."""
    plan = plan_write(
        Table(path), table.schema, WriteSettings(**settings), existing=open_to_write(Table(path))
    )
    fragments = write_rows(plan, table.to_batches())
    try:
        return commit_write(plan, fragments) is not None
    except Exception:
        abort_write(plan, fragments)
        raise


def append(path, who):
    return write(path, rows([30 + 2 * who, 31 + 2 * who], who))


def append_once(path, who):
    """The same numbered work by both."""
    once = ApplicationVersion("job", 7).properties()
    return write(path, rows([40, 41], 7), properties=once)


def append_with_column(path, who):
    table = rows([35 + who], who)
    return write(path, table.append_column("w", pa.array([who], pa.int64())), merge_schema=True)


def overwrite(path, who):
    return write(path, rows([60 + 3 * who, 61 + 3 * who, 62 + 3 * who], who), overwrite=True)


def overwrite_columns(path, who):
    other = pa.schema([("s", pa.string()), ("id", pa.int64())])
    return write(path, rows([66, 67], who, other), overwrite=True, overwrite_schema=True)


def replace_some(path, who):
    return write(path, rows([2, 3], 20 + who), overwrite=True, replace_where="id >= 2 AND id < 6")


def replace_nothing(path, who):
    """A range that is empty so far: a job for a new day."""
    return write(path, rows([50, 51], 50 + who), overwrite=True, replace_where="id >= 50")


def replace_by_none(path, who):
    """Remove everything."""
    return write(path, rows([], 0), overwrite=True, replace_where="id >= 8 AND id < 32")


# Ours: rows --------------------------------------------------------------------------------


def delete(path, who):
    return counts(delete_rows(path, f"id IN ({2 + who}, {8 + who})"))


def delete_fragment(path, who):
    return counts(delete_rows(path, "id < 4"))


def delete_all(path, who):
    return counts(delete_rows(path))


def _plus(batch):
    return {"n": pc.add(batch["n"], pa.scalar(100, batch["n"].type))}


def update(path, who):
    return counts(update_rows(path, f"id IN ({1 + who}, {2 + who})", ["n"], _plus))


def swap(path, who):
    """Each makes of its own rows what the other looks for."""
    condition, to = ("n = 0", 5) if who == 0 else ("n = 5", 0)
    return counts(
        update_rows(
            path, condition, ["n"],
            lambda batch: {"n": pa.array([to] * batch.num_rows, batch["n"].type)},
        )
    )  # fmt: skip


def update_columns(path, who):
    return update_in_place(path, f"id IN ({3 + who}, {9 + who})")


def update_in_place(path, condition):
    """As the job that writes only the column that changes, in a file of its own."""

    def attempt(work):
        plan = plan_change(Table(path))
        names = [field.name for field in plan.schema.fields]
        found = list(matching_rows(plan, condition, columns=names, system=(ROW_ADDRESS,)))
        request = plan_rewrite(plan.snapshot(), ["n"])
        batches = [
            pa.RecordBatch.from_pydict({ROW_ADDRESS: one[ROW_ADDRESS], **_plus(one)})
            for one in found
            if one.num_rows
        ]
        done = list(rewrite_columns(request, batches))
        return commit_rewrite(
            plan, request, done, work, reads=condition_read_set(plan.snapshot(), condition)
        )

    return counts(UnitOfWork(Table(path), CommitSettings()).run(attempt))


def merge(path, who):
    source = rows([2 + 6 * who, 70], 200 + who)
    names = source.column_names
    return counts(merge_rows(path, source, ["id"], [matched_update(names), insert(names)]))


def merge_where(path, who):
    source = rows([1, 2, 71], 210 + who)
    names = source.column_names
    clauses = [
        matched_delete(lambda joined: pc.greater(joined["n"], 100)),
        matched_update(names, lambda joined: pc.less(joined["n"], joined[SOURCE_PREFIX + "n"])),
        insert(names, lambda joined: pc.greater(joined[SOURCE_PREFIX + "id"], 70)),
    ]
    return counts(merge_rows(path, source, ["id"], clauses))


def merge_insert_only(path, who):
    source = rows([0, 70, 72], 220 + who)
    return counts(merge_rows(path, source, ["id"], [insert(source.column_names)]))


def merge_sync(path, who):
    source = rows([0, 1, 2, 3, 4, 73], 230 + who)
    names = source.column_names
    clauses = [matched_update(names), insert(names), delete_by_source()]
    return counts(merge_rows(path, source, ["id"], clauses))


# Ours: UPDATE, MERGE and DELETE of Spark SQL, below the JVM -----------------------------------


def sql_change(path, command, condition, values, inserted=None):
    """The rows that Spark's plan would send, by way of the writer that gets them."""
    plan = plan_change(Table(path))
    names = [field.name for field in plan.schema.fields]
    batches = []
    for one in matching_rows(plan, condition, columns=names, system=(ROW_ID, ROW_ADDRESS)):
        given = {name: one[name] for name in names} | values(one)
        batches.append(as_changes(one, 1 if command == "DELETE" else 2, given))
    if inserted is not None:
        given = {name: inserted[name].combine_chunks() for name in names if name in COLUMNS.names}
        nulls = pa.nulls(inserted.num_rows, pa.uint64())
        new = pa.RecordBatch.from_pydict({ROW_ID: nulls, ROW_ADDRESS: nulls})
        batches.append(as_changes(new, 3, {name: given.get(name, nulls) for name in names}))
    schema = StructType(
        [
            StructField(name, LongType())
            for name in (CLAUSE, CHANGED_ROW_ID, CHANGED_ADDRESS, *names)
        ]
    )
    writer = LanceChangeWriter(
        WriteOptions.parse({"path": path}), (path, plan.read_version), schema, command
    )
    messages = [writer.write(iter(batches))]
    try:
        writer.commit(messages)
    except Exception:
        writer.abort(messages)
        raise


def sql_update(path, who):
    sql_change(path, "UPDATE", f"id IN ({1 + who}, {10 + who})", _plus)


def sql_delete(path, who):
    sql_change(path, "DELETE", f"id IN ({2 + who}, {11 - who})", lambda batch: {})


def sql_merge(path, who):
    sql_change(path, "MERGE", f"id = {2 + who}", _plus, rows([80 + who], who))


# Ours: columns and tables --------------------------------------------------------------------


def _changed(result):
    return result.version is not None


def add_values(path, who):
    plus = compute_columns(["id"], lambda batch: [pc.add(batch.column("id"), 1)])
    return _changed(add_columns(Table(path), pa.schema([(f"x{who}", pa.int64())]), plus))


def add_nulls(path, who):
    return _changed(add_null_columns(Table(path), pa.schema([("y", pa.string())])))


def drop_column(path, who):
    return _changed(drop_columns(Table(path), ["s"]))


def rename(path, who):
    return _changed(rename_column(Table(path), "s", f"t{who}"))


def widen(path, who):
    return _changed(widen_column(Table(path), "n", pa.int64(), copy_column("n")))


def not_null(path, who):
    return _changed(change_nullability(Table(path), "n", nullable=False, has_nulls=has_nulls))


def make_index(path, who):
    request = IndexRequest(("id",), name="by_id", replace=True)
    return _changed(create_index(Table(path), request))


def refresh_index(path, who):
    return _changed(refresh_indices(Table(path)))


def create(path, who):
    return create_table(Table(path), COLUMNS, WriteSettings()).version == 1


def create_with_rows(path, who):
    """The first write of a table, also when another one comes first."""
    return write(path, rows([90 + who], who))


def recreate(path, who):
    """The folder goes, and a table of other columns takes its place, with more versions."""
    shutil.rmtree(path, ignore_errors=True)
    columns = pa.schema([("s", pa.string()), ("n", pa.int32()), ("id", pa.int64())])
    write_table(path, rows([21], who, columns))
    for number in range(7):
        write_table(path, rows([22 + number], who, columns))


def recreate_like(path, who):
    """A new table that looks like the old one, with as many versions."""
    shutil.rmtree(path, ignore_errors=True)
    for number in range(3):
        write_table(path, rows([22 + number], who))


# pylance's ---------------------------------------------------------------------------------


def their_append(path, who):
    lance.write_dataset(rows([33 + 3 * who], who), path, mode="append")


def their_overwrite(path, who):
    lance.write_dataset(rows([68 + who], who), path, mode="overwrite")


def their_compaction(path, who):
    open_dataset(path).optimize.compact_files(
        target_rows_per_fragment=100, materialize_deletions_threshold=0.0
    )


def their_restore(path, who):
    open_dataset(path, version=1).restore()


def their_update(path, who):
    open_dataset(path).update({"n": "n + 300"}, where=f"id IN ({2 + who}, {6 + who})")


def their_delete(path, who):
    open_dataset(path).delete(f"id IN ({3 + who}, {10 + who})")


def their_merge(path, who):
    builder = open_dataset(path).merge_insert("id")
    builder.when_matched_update_all().when_not_matched_insert_all()
    builder.execute(rows([4, 70], 400 + who))


def their_cleanup(path, who):
    open_dataset(path).cleanup_old_versions(older_than=datetime.timedelta(0))


def their_index(path, who):
    open_dataset(path).create_scalar_index("s", "BTREE", name="by_s")


def their_optimized_indices(path, who):
    open_dataset(path).optimize.optimize_indices()


def their_column(path, who):
    open_dataset(path).add_columns({f"z{who}": "id * 2"})


def their_drop(path, who):
    open_dataset(path).drop_columns(["s"])


def their_rename(path, who):
    open_dataset(path).alter_columns({"path": "s", "name": f"u{who}"})


def their_widening(path, who):
    open_dataset(path).alter_columns({"path": "n", "data_type": pa.int64()})


def their_config(path, who):
    open_dataset(path).update_config({f"k{who}": "v"})


def their_new_table(path, who):
    shutil.rmtree(path, ignore_errors=True)
    for number in range(4):
        mode = "append" if number else "create"
        lance.write_dataset(rows([25 + number], who), path, mode=mode, enable_stable_row_ids=True)


OURS = (
    append, append_once, append_with_column, overwrite, overwrite_columns, replace_some,
    replace_nothing, replace_by_none, delete, delete_fragment, delete_all, update, swap,
    update_columns, merge, merge_where, merge_insert_only, merge_sync, sql_update, sql_delete,
    sql_merge, add_values, add_nulls, drop_column, rename, widen, not_null, make_index,
    refresh_index, create, create_with_rows,
)  # fmt: skip
THEIRS = (
    their_append, their_overwrite, their_compaction, their_restore, their_update, their_delete,
    their_merge, their_cleanup, their_index, their_optimized_indices, their_column, their_drop,
    their_rename, their_widening, their_config, their_new_table,
)  # fmt: skip
FIRST = {one.__name__: one for one in OURS}
SECOND = FIRST | {one.__name__: one for one in (recreate, recreate_like, *THEIRS)}
