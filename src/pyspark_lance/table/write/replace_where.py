"""replaceWhere: replace the rows that match a condition, in one version.

The new rows must also match the condition, so the write is idempotent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.commit.manifest_committer import CommitResult
from pyspark_lance.errors import InvalidInputError, SchemaMismatchError
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.predicate.conditions import Predicate, columns_of, evaluate
from pyspark_lance.predicate.json import predicate_from_json
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.columns.schema_change import match_columns
from pyspark_lance.table.dml.commit_changes import commit_row_changes
from pyspark_lance.table.dml.read_set import predicate_read_set
from pyspark_lance.table.dml.row_change import ChangeSettings, DmlPlan, plan_change_of
from pyspark_lance.table.dml.run_changes import rows_deleted
from pyspark_lance.table.rows.conform import conform_batch
from pyspark_lance.table.unit_of_work import UnitOfWork
from pyspark_lance.table.version.snapshot import Snapshot


def parse_condition(text: str, columns: LanceSchema, time_zone: str, ansi: bool) -> Predicate:
    """Parse the condition over columns that both the table and the data have.

    ``time_zone``: of its timestamps; ``ansi``: whether ANSI mode applies.
    """
    schema = columns.to_arrow()
    if text.startswith("{"):  # a typed predicate from Spark
        predicate = predicate_from_json(text, schema, time_zone=time_zone)
    else:
        predicate = parse_predicate(text, schema, time_zone=time_zone, ansi=ansi)
    missing = columns_of(predicate) - set(columns.names)
    if missing:
        raise InvalidInputError(
            f"replaceWhere names {min(missing)!r}; it can only name columns that the data have"
        )
    return predicate


def check_matching(
    batches: Iterable[pa.RecordBatch], predicate: Predicate, text: str, columns: LanceSchema
) -> Iterator[pa.RecordBatch]:
    """Yield the batches in the table's types; raise an error if a row does not match."""
    for given in batches:
        batch = conform_batch(given, columns.fields)
        matches = pc.fill_null(evaluate(predicate, batch), False)
        if not pc.all(matches, min_count=0).as_py():
            count = batch.num_rows - int(pc.sum(matches).as_py() or 0)
            condition = f"replaceWhere: {text}"
            if text.startswith("{"):  # JSON, which the user has not written
                names = ", ".join(sorted(columns_of(predicate)))
                condition = f"the condition of the overwrite, on {names}"
            raise SchemaMismatchError(
                f"{count} of {batch.num_rows} rows of a batch do not match {condition}",
                hint="filter the data by the same condition before they are written",
            )
        yield batch


def plan_replacement(
    newest: Snapshot, properties: Mapping[str, str], transaction_uuid: str
) -> DmlPlan:
    """Plan the removal of rows from the newest version.

    ``transaction_uuid``: of the write, which identifies the commit if its outcome is unknown.
    """
    change = plan_change_of(newest, ChangeSettings(properties))
    return replace(change, transaction_uuid=transaction_uuid)


def replace_rows(
    change: DmlPlan,
    newest: Snapshot,
    text: str,
    rules: tuple[str, bool],
    written: pa.Schema,
    files: tuple[Fragment, ...],
    work: UnitOfWork,
) -> CommitResult | None:
    """Remove the matching rows and add the written ones, in one version.

    ``rules``: the time zone of the condition ``text``, and whether ANSI mode applies.
    """

    def condition(snapshot: Snapshot) -> Predicate:
        return parse_condition(text, match_columns(snapshot.schema, written), *rules)

    changes = replace(
        rows_deleted(change, condition(newest), text),
        new_fragments=files,
        # As in Lance's merge_insert, every column of the new rows counts as assigned.
        assigned=frozenset(field.name for field in newest.schema.fields),
        only_deletes=False,
        reads=predicate_read_set(newest, condition),
    )
    return commit_row_changes(changes, work)
