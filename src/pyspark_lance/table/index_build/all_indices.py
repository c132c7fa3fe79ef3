"""Brings indices up to date, those of columns and those of vectors: one version for either."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.index_build.column_indices import (
    IndexResult,
    build_part,
    optimize_indices,
    refresh_indices,
)
from pyspark_lance.table.index_build.vector_indices import (
    RunTasks,
    is_vector_index,
    refresh_vector_indices,
    run_here,
)
from pyspark_lance.table.index_build.vector_request import VectorIndexResult
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table


def refresh_all_indices(
    table: Table,
    name: str | None = None,
    settings: ChangeSettings | None = None,
    *,
    run: RunTasks = run_here,
    joins_segments: bool = False,
) -> IndexResult:
    """Adds segments over what indices do not cover.

    ``name``: Of one index; None for all. ``joins_segments``: Whether small segments become few
    large ones.
    """
    settings = settings or ChangeSettings()
    result = IndexResult()
    vectors = vector_indices_named(table, name)
    if name is None or not vectors:
        of_columns = optimize_indices if joins_segments else refresh_indices
        result = of_columns(table, name, settings, build=partial(run, build_part))
    if not vectors:
        return result
    made = refresh_vector_indices(table, vectors, settings, run=run, joins_segments=joins_segments)
    return with_vectors(result, made)


def vector_indices_named(table: Table, name: str | None) -> list[str]:
    """The vector indices of this name, or all of them."""
    entries = Snapshot.open(table).indices
    names = {entry.name for entry in entries if is_vector_index(entry)}
    return sorted(one for one in names if name in (None, one))


def with_vectors(result: IndexResult, made: Sequence[VectorIndexResult]) -> IndexResult:
    """What became of indices of columns, and then of vectors."""
    if not made:
        return result
    return IndexResult(
        made[0].version,
        (*result.names, *(one.name for one in made)),
        result.numSegments + len(made),
        result.numRows + sum(one.numRows for one in made),
    )
