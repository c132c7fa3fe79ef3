"""Enable stable row ids for an existing table: in place, or as a copy.

The in-place variant is one commit that writes no data: every physical row gets an id, including
deleted ones, and is considered created by that version. Existing indices contain addresses, which
would be misread as ids, so a table with indices is rejected.

Source: docs/format/table-format.md, sections 6.3, 7.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pyspark_lance.commit.apply_operation import CreateOptions
from pyspark_lance.errors import InvalidInputError, TableAlreadyExistsError, UnsupportedFeatureError
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.operation import Merge, Operation, Overwrite
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.result_names import also_snake_case
from pyspark_lance.table.compaction.compaction_plan import CompactionTask
from pyspark_lance.table.dml.row_change import ChangeSettings, plan_change
from pyspark_lance.table.rows.write_fragments import DEFAULT_MAX_ROWS_PER_FILE
from pyspark_lance.table.tasks import RunTasks, run_local
from pyspark_lance.table.unit_of_work import (
    CommitSettings,
    MetadataResult,
    UnitOfWork,
    change_metadata,
)
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table


@also_snake_case
@dataclass(frozen=True, slots=True)
class CopyResult:
    """The result of a copy.

    Attributes:
        version: Its version.
        numRows: Its rows.
        numFragments: Its fragments.
    """

    version: int
    numRows: int  # noqa: N815
    numFragments: int  # noqa: N815


def enable_stable_row_ids(table: Table, settings: CommitSettings | None = None) -> MetadataResult:
    """Assign stable ids to all rows of a table, in one commit that writes no data."""

    def plan(newest: Snapshot) -> Operation | None:
        if newest.uses_stable_row_ids:
            return None
        if any(index.fields for index in newest.indices):
            raise UnsupportedFeatureError(
                "the table has indices, which hold addresses of rows",
                where=table.uri,
                hint="drop the indices first, or copy the table: copyWithStableRowIds(target)",
            )
        if not newest.manifest.fragments:
            # Readers detect stable ids by the ids of rows.
            raise InvalidInputError(
                "the table has no rows to give ids",
                where=table.uri,
                hint="append some first, or create the table again",
            )
        fragments = _with_lineage(newest.manifest.fragments, newest.version + 1)
        return Merge(tuple(fragments), newest.schema)

    return change_metadata(table, plan, settings)


def _with_lineage(fragments: Iterable[Fragment], version: int) -> Iterator[Fragment]:
    """Assign ids from 0 on, in address order, and ``version`` as created-at of every row."""
    next_row_id = 0
    for fragment in fragments:
        rows = fragment.physical_rows
        versions = RowDatasetVersionSequence.constant(rows, version).to_bytes()
        yield replace(
            fragment,
            row_ids=RowIdSequence.consecutive(next_row_id, rows).to_bytes(),
            created_at=versions,
            last_updated_at=versions,
        )
        next_row_id += rows


def copy_with_stable_row_ids(
    table: Table,
    target: Table,
    settings: ChangeSettings | None = None,
    *,
    run: RunTasks = run_local,
) -> CopyResult:
    """Copy the newest version to a new table whose rows have stable ids.

    The copy has one version, the same schema with the same field ids, the same configuration, no
    indices, and full fragments.

    ``target``: location of the copy; no table may exist there.
    """
    settings = settings or ChangeSettings()
    if open_existing(target) is not None:
        raise TableAlreadyExistsError("there is a table already", where=target.uri)
    plan = plan_change(table, settings)
    snapshot = plan.snapshot()
    if not snapshot.manifest.fragments:
        raise InvalidInputError("the table has no rows", hint="create a new one", where=table.uri)
    request = replace(plan.write_request(), table=target)
    tasks = [
        CompactionTask(snapshot.files, group, request, stable_row_ids=False)
        for group in _in_groups(snapshot.manifest.fragments)
    ]

    def attempt(work: UnitOfWork) -> CopyResult:
        groups = sorted(run(tasks), key=lambda group: group.old_fragments[0].id)
        fragments = tuple(fragment for group in groups for fragment in group.new_fragments)
        work.register(fragments)
        operation = Overwrite(fragments, snapshot.schema, dict(snapshot.manifest.config))
        create = CreateOptions(data_storage_version=snapshot.manifest.file_version)
        result = work.commit(replace(work.propose(None, operation), create=create))
        assert result is not None  # nothing can have been committed before
        rows = sum(fragment.physical_rows for fragment in fragments)
        return CopyResult(result.version, rows, len(fragments))

    return UnitOfWork(target, settings).once(attempt)


def _in_groups(fragments: Iterable[Fragment]) -> Iterator[tuple[Fragment, ...]]:
    """Yield groups of adjacent fragments that fill a file."""
    buffered: list[Fragment] = []
    rows = 0
    for fragment in fragments:
        if buffered and rows + fragment.num_rows > DEFAULT_MAX_ROWS_PER_FILE:
            yield tuple(buffered)
            buffered, rows = [], 0
        buffered.append(fragment)
        rows += fragment.num_rows
    if buffered:
        yield tuple(buffered)
