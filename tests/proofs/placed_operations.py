"""Operations that meet in one row, in one fragment, or in different fragments.

The rows are those of ``interleaving.base_table``: ids 0 to 3, 4 to 7 and 8 to 11 in a fragment
each, 5 deleted.  The first writer always changes row 2.
"""

from __future__ import annotations

from functools import partial

import interleaved_operations as plain
import pyarrow as pa
import pyarrow.compute as pc
from interleaved_operations import counts, open_dataset, rows, write
from interleaving import NEWEST
from local_changes import delete_rows, merge_rows, update_rows
from row_changes import insert, matched_delete, matched_update

from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.refs import create_branch, set_tag
from pyspark_lance.table.unit_of_work import restore, set_properties
from pyspark_lance.table.version.snapshot import LATEST, VersionSpec
from pyspark_lance.table.version.table import Table

PLACES = {"same row": 2, "same fragment": 1, "other fragment": 9}


# Of one row --------------------------------------------------------------------------------


def delete(row, path, who):
    return counts(delete_rows(path, f"id = {row}"))


def update(row, path, who):
    return counts(update_rows(path, f"id = {row}", ["n"], _plus))


def _plus(batch):
    return {"n": pc.add(batch["n"], pa.scalar(100, batch["n"].type))}


def merge(row, path, who):
    source = rows([row, 70 + who], 200 + who)
    names = source.column_names
    return counts(merge_rows(path, source, ["id"], [matched_update(names), insert(names)]))


def merge_deletes(row, path, who):
    source = rows([row, 80 + who], 300 + who)
    clauses = [matched_delete(), insert(source.column_names)]
    return counts(merge_rows(path, source, ["id"], clauses))


def update_column_files(row, path, who):
    return plain.update_in_place(path, f"id = {row}")


def sql_update(row, path, who):
    plain.sql_change(path, "UPDATE", f"id = {row}", _plus)


def sql_delete(row, path, who):
    plain.sql_change(path, "DELETE", f"id = {row}", lambda batch: {})


def sql_merge(row, path, who):
    plain.sql_change(path, "MERGE", f"id = {row}", _plus, rows([85 + who], who))


def replace_where(row, path, who):
    return write(path, rows([row], 20 + who), overwrite=True, replace_where=f"id = {row}")


def their_update(row, path, who):
    open_dataset(path).update({"n": "n + 300"}, where=f"id = {row}")


def their_delete(row, path, who):
    open_dataset(path).delete(f"id = {row}")


def their_merge(row, path, who):
    builder = open_dataset(path).merge_insert("id")
    builder.when_matched_update_all().when_not_matched_insert_all()
    builder.execute(rows([row, 90 + who], 400 + who))


# Of the whole table ------------------------------------------------------------------------


def compaction(path, who):
    options = {"target_rows_per_fragment": 100, "materialize_deletions_threshold": 0.0}
    compact(Table(path), CompactionRequest(**options))


def restored(path, who):
    restore(Table(path), VersionSpec(version=1))


def cleanup(path, who):
    cleanup_old_versions(Table(path), CleanupPolicy(older_than_s=0, error_if_tagged=False))


def tag_newest(path, who):
    set_tag(Table(path), f"{NEWEST}{who}", LATEST)


def tag_oldest(path, who):
    set_tag(Table(path), f"oldest{who}", VersionSpec(version=1))


def branch_newest(path, who):
    create_branch(Table(path), f"{NEWEST}{who}", LATEST)


def branch_oldest(path, who):
    create_branch(Table(path), f"oldest{who}", VersionSpec(version=1))


def properties(path, who):
    set_properties(Table(path), {f"k{who}": "v"})


OURS_OF_ROWS = (
    delete, update, merge, merge_deletes, update_column_files, sql_update, sql_delete, sql_merge,
    replace_where,
)  # fmt: skip
PYLANCE_ROW_OPERATIONS = (their_update, their_delete, their_merge)
OURS_OF_TABLES = (
    plain.append, plain.append_once, plain.append_with_column, plain.overwrite,
    plain.overwrite_columns, plain.delete_all, plain.merge_sync, plain.add_values, plain.add_nulls,
    plain.drop_column, plain.rename, plain.widen, plain.not_null, compaction, restored, cleanup,
    tag_newest, tag_oldest, branch_newest, branch_oldest, properties,
)  # fmt: skip
PYLANCE_TABLE_OPERATIONS = (
    plain.their_append, plain.their_overwrite, plain.their_compaction, plain.their_restore,
    plain.their_cleanup, plain.their_index, plain.their_column, plain.their_drop,
    plain.their_rename, plain.their_config,
)  # fmt: skip


def placed(operation, place):
    """The name of an operation at a place."""
    return f"{operation.__name__} @ {place}"


PLACED = {
    placed(operation, place): partial(operation, row)
    for operation in (*OURS_OF_ROWS, *PYLANCE_ROW_OPERATIONS)
    for place, row in PLACES.items()
} | {operation.__name__: operation for operation in (*OURS_OF_TABLES, *PYLANCE_TABLE_OPERATIONS)}
