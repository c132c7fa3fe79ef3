"""Short forms of our own delete, update and merge in this process, for tests."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from local_changes import merge_rows, update_all, update_rows

from pyspark_lance.commit.commit_handler import ConditionalPutCommitHandler
from pyspark_lance.commit.retries import Environment
from pyspark_lance.table.dml.merge import Match, MergeClause
from pyspark_lance.table.dml.row_change import RowAction


def set_to(path, condition, **arguments):
    """Give columns constant values where ``condition``: ``set_to(p, "id = 1", val="x")``."""
    settings = arguments.pop("_arguments", {})
    types = {}

    def values(batch):
        types.update({name: batch.schema.field(name).type for name in arguments})
        return {
            name: pa.array([value] * batch.num_rows, types[name])
            for name, value in arguments.items()
        }

    return update_rows(path, condition, list(arguments), values, **settings)


def add_to(path, condition, column, amount, **arguments):
    """Add a number to a column."""
    return update_rows(
        path,
        condition,
        [column],
        lambda batch: {column: pc.add(batch[column], amount)},
        **arguments,
    )


def matched_update(columns, condition=None):
    return MergeClause(Match.MATCHED, RowAction.UPDATE, condition, update_all(columns))


def matched_delete(condition=None):
    return MergeClause(Match.MATCHED, RowAction.DELETE, condition)


def insert(columns, condition=None):
    return MergeClause(Match.NOT_MATCHED, RowAction.INSERT, condition, update_all(columns))


def delete_by_source(condition=None):
    return MergeClause(Match.NOT_MATCHED_BY_SOURCE, RowAction.DELETE, condition)


def upsert(path, source, key="id", **arguments):
    """Update what is there and inserts what is not, with the columns that the source has."""
    names = source.column_names
    return merge_rows(path, source, [key], [matched_update(names), insert(names)], **arguments)


class _Interrupted(ConditionalPutCommitHandler):
    """Lets another writer in before the first put: the worst moment."""

    def __init__(self, *actions):
        self.actions = list(actions)

    def put(self, store, location, data, *, uuid):
        if self.actions:
            self.actions.pop(0)()
        return super().put(store, location, data, uuid=uuid)


def interrupted_by(*actions):
    """Have each of ``actions`` done before one of the puts of the change that gets this."""
    return {"environment": Environment(handler=_Interrupted(*actions), sleep=lambda seconds: None)}
