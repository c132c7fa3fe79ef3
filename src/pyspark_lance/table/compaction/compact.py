"""Compaction: plan bins, rewrite them and commit one version.

A bin whose fragments were changed concurrently is dropped; the other bins are committed, and the
dropped one is planned again on the newest version. The caller decides where bins are rewritten.
Indices that name the moved rows by their addresses are remapped in a version of its own.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark_lance.commit.manifest_committer import CommitResult
from pyspark_lance.errors import ConflictReason, InvalidInputError, RetryableCommitError
from pyspark_lance.format.clustering import ClusterBy, Clustering
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.index_metadata import reuse_index_of
from pyspark_lance.format.logical_view import moving_rows_schema
from pyspark_lance.format.operation import ReserveFragments, Rewrite, RewriteGroup
from pyspark_lance.result_names import also_snake_case
from pyspark_lance.table.columns.cluster_by import check_kept
from pyspark_lance.table.compaction.clustering import ClusteringStage, choose_order, clustering_of
from pyspark_lance.table.compaction.compaction_plan import (
    Bin,
    CompactionOptions,
    CompactionRequest,
    CompactionTask,
    plan_bins,
    rows_per_fragment,
)
from pyspark_lance.table.compaction.remap_indices import (
    current_indices,
    file_of_entry,
    needs_reuse_entry,
    next_reuse_index,
    remap_indices,
)
from pyspark_lance.table.dml.row_change import ChangeSettings, DmlPlan, plan_change
from pyspark_lance.table.rows.write_fragments import WriteFragmentsRequest
from pyspark_lance.table.tasks import MaintenanceTask, RunTasks, run_local
from pyspark_lance.table.unit_of_work import UnitOfWork, commit_on_newest, remove_files
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """One attempt to compact one version of a table.

    ``tasks``: one for each bin, in the order of their fragments; or the next tasks of a clustering.
    """

    change: DmlPlan
    tasks: tuple[MaintenanceTask[Any], ...]
    bins: tuple[Bin, ...]
    rows_per_file: tuple[int, ...]  # Maximum rows of the new fragments of each bin.
    clustering: ClusteringStage | None = None  # The current stage, if rows are sorted.
    sorted_by: Clustering | None = None  # The clustering to record for the new fragments.

    @property
    def clusters(self) -> bool:
        """Whether rows are sorted."""
        return self.sorted_by is not None

    @property
    def is_last(self) -> bool:
        """Whether the results of these tasks can be committed."""
        return self.clustering is None or self.clustering.is_last

    def after(self, results: Sequence[Any]) -> CompactionPlan:
        """Return the next stage, given the task results of this one, in order."""
        assert self.clustering is not None, "other plans have one stage"
        clustering = self.clustering.after(results)
        return replace(self, clustering=clustering, tasks=clustering.tasks)

    def groups(self, results: Sequence[Any]) -> Sequence[RewriteGroup]:
        """Return the groups to commit, given the results of the last tasks, in order."""
        return results if self.clustering is None else self.clustering.groups(results)

    def moves_addresses(self, groups: Sequence[RewriteGroup]) -> bool:
        """Return whether indices are remapped: rows keep their order, and no map is recorded."""
        return not self.clusters and all(group.row_addresses is None for group in groups)

    @property
    def passing(self) -> tuple[Fragment, ...]:
        """Temporary files passed between tasks."""
        return () if self.clustering is None else self.clustering.passing


@also_snake_case
@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The result of a compaction, or its estimate in a dry run.

    Attributes:
        version: The committed version; None if there is none.
        fragmentsRemoved: Fragments that were rewritten.
        fragmentsAdded: New fragments; an estimate in a dry run.
        filesRemoved: Data and deletion files of the rewritten fragments; they stay on disk until
            a cleanup.
        filesAdded: New data files.
        numRows: Live rows that moved.
        conflictingBins: Bins with conflicts in every attempt.
    """

    version: int | None = None
    fragmentsRemoved: int = 0  # noqa: N815
    fragmentsAdded: int = 0  # noqa: N815
    filesRemoved: int = 0  # noqa: N815
    filesAdded: int = 0  # noqa: N815
    numRows: int = 0  # noqa: N815
    conflictingBins: int = 0  # noqa: N815

    @property
    def lost_bins(self) -> int:
        """``conflictingBins`` under its former name."""
        return self.conflictingBins


def compact(
    table: Table,
    request: CompactionRequest | None = None,
    settings: ChangeSettings | None = None,
    *,
    run: RunTasks = run_local,
    dry_run: bool = False,
) -> CompactionResult:
    """Compact a table; commit nothing if there is nothing to compact.

    ``request``: None for a compaction as the table is configured. ``dry_run``: only return an
    estimate.
    """
    request, settings = request or CompactionRequest(), settings or ChangeSettings()
    if dry_run:
        return _dry_run_result(plan_compaction(table, request, settings))
    done, clusters = CompactionResult(), False

    def attempt(work: UnitOfWork) -> CompactionResult:
        nonlocal done, clusters
        plan = plan_compaction(table, request, settings)
        clusters = plan.clusters
        if plan.change.is_done or not plan.tasks:
            return replace(done, conflictingBins=0)
        results = list(run(plan.tasks))
        while not plan.is_last:
            plan = plan.after(results)
            work.register(plan.passing)
            results = list(run(plan.tasks))
        groups = plan.groups(results)
        done, conflict = commit_round(done, plan, groups, work)
        if done.version is not None and plan.moves_addresses(groups):
            _remap_indices(plan, groups, settings, run)
        if conflict is not None:
            raise conflict
        return done

    try:
        done = UnitOfWork(table, settings).run(attempt)
    except Exception as error:
        if done.version is None:
            raise
        if not isinstance(error, RetryableCommitError):
            logger.warning("%s was compacted in part: %s", table.uri, error)
    if done.version is not None and clusters:
        _refresh_zone_maps(table, settings, run)
    return done


def _remap_indices(
    plan: CompactionPlan, groups: Sequence[RewriteGroup], settings: ChangeSettings, run: RunTasks
) -> None:
    """Remap the indices of the rows that a round moved, in a separate version."""
    change = plan.change
    try:
        remap_indices(change, groups, without_properties(settings), run)
    except Exception as error:  # noqa: BLE001 - the compaction is committed
        logger.warning("indices of %s do not cover compacted rows: %s", change.table.uri, error)


def _refresh_zone_maps(table: Table, settings: ChangeSettings, run: RunTasks) -> None:
    """Refresh zone maps after a clustering, in a separate version."""
    from pyspark_lance.table.index_build.zone_maps import refresh_zone_maps  # noqa: PLC0415

    try:
        refresh_zone_maps(table, without_properties(settings), run=run)
    except Exception as error:  # noqa: BLE001 - the compaction is committed
        logger.warning("the zone maps of %s are as they were: %s", table.uri, error)


def without_properties(settings: ChangeSettings) -> ChangeSettings:
    """Drop properties, whose (application, version) pair would turn later commits into no-ops."""
    return ChangeSettings(retries=settings.retries, timeout_s=settings.timeout_s)


def plan_compaction(
    table: Table, request: CompactionRequest, settings: ChangeSettings
) -> CompactionPlan:
    """Plan a compaction of the newest version; write nothing."""
    change = plan_change(table, settings)
    snapshot = change.snapshot()
    chosen = CompactionOptions.of(snapshot.manifest.config, request)
    if chosen.defer_index_remap and snapshot.uses_stable_row_ids:
        raise InvalidInputError(
            "deferIndexRemap is for tables without stable row ids; compaction leaves this table's "
            "indices valid",
            where=table.uri,
            hint="compact without deferIndexRemap",
        )
    if chosen.split_files_by and not chosen.cluster_by:
        raise InvalidInputError(
            "files are split by columns that rows are not sorted by",
            where=table.uri,
            hint="name these columns in clusterBy as well",
        )
    if chosen.defer_index_remap and chosen.cluster_by:
        raise InvalidInputError(
            "a fragment reuse index knows no rows that change their order",
            where=table.uri,
            hint="compact with clusterBy or with deferIndexRemap; clusterBy=() does without the "
            "columns that the table is clustered by",
        )
    write = replace(change.write_request(), max_items_per_file=chosen.max_items_per_file)
    if snapshot.schema.manages_blobs:
        write = replace(write, schema=moving_rows_schema(write.schema))
    if chosen.max_bytes_per_file is not None:
        write = replace(write, max_bytes_per_file=chosen.max_bytes_per_file)
    if chosen.cluster_by:
        if request.cluster_by is None:
            check_kept(snapshot.schema, ClusterBy.of(snapshot.manifest.config), table.uri)
        return _plan_clustering(change, chosen, write)
    indices = current_indices(snapshot)
    bins = plan_bins(snapshot.manifest.fragments, indices, chosen)
    moved = frozenset(fragment.id for group in bins for fragment in group)
    records_addresses = chosen.defer_index_remap and needs_reuse_entry(indices, moved)
    rows = tuple(rows_per_fragment(group, chosen) for group in bins)
    tasks = tuple(
        CompactionTask(
            snapshot.files,
            group,
            replace(write, max_rows_per_file=most),
            snapshot.uses_stable_row_ids,
            records_addresses,
        )
        for group, most in zip(bins, rows, strict=True)
    )
    return CompactionPlan(change, tasks, bins, rows)


def _plan_clustering(
    change: DmlPlan, chosen: CompactionOptions, write: WriteFragmentsRequest
) -> CompactionPlan:
    snapshot = change.snapshot()
    order, bins = choose_order(snapshot, chosen)
    rows = tuple(rows_per_fragment(group, chosen) for group in bins)
    writes = [replace(write, max_rows_per_file=most) for most in rows]
    stage = ClusteringStage.first(snapshot, bins, writes, order, chosen.sort_bytes)
    return CompactionPlan(change, stage.tasks, bins, rows, stage, clustering_of(order))


def commit_round(
    before: CompactionResult, plan: CompactionPlan, groups: Sequence[RewriteGroup], work: UnitOfWork
) -> tuple[CompactionResult, RetryableCommitError | None]:
    """Commit rewritten bins; return the total result and the conflict of dropped bins, if any."""
    try:
        committed = commit_bins(plan, groups, work)
    except RetryableCommitError as error:
        return before, error
    conflict = None
    if committed.conflictingBins:
        conflict = RetryableCommitError(
            f"other commits changed all {committed.conflictingBins} groups of fragments that were "
            "compacted",
            plan.change.table.uri,
            conflict=ConflictReason.CONCURRENT_ROW_CHANGE,
        )
    return _together(before, committed), conflict


def commit_bins(
    plan: CompactionPlan, groups: Sequence[RewriteGroup], work: UnitOfWork
) -> CompactionResult:
    """Commit the version that replaces old fragments by rewritten bins.

    Bins that were changed concurrently are dropped. Raises StorageError: the outcome of the commit
    is unknown.
    """
    change = plan.change
    work.register(plan.passing)
    for group in groups:
        work.register(group.new_fragments)
    kept = sorted(groups, key=lambda group: group.old_fragments[0].id)
    if any(group.row_addresses is not None for group in kept):
        kept = _with_reserved_ids(change, kept)
    while kept:
        operation = _operation(plan, kept)
        try:
            result = work.commit(work.propose(change.base, operation, uuid=change.transaction_uuid))
        except RetryableCommitError:
            _remove_reuse_file(change, operation)
            unchanged = _unchanged_groups(change, kept)
            if len(unchanged) == len(kept) and not _has_concurrent_reuse_entry(change, operation):
                raise
            logger.info(
                "%d of %d bins were changed concurrently", len(kept) - len(unchanged), len(kept)
            )
            kept = unchanged
        else:
            if result is None:
                return CompactionResult()
            return _committed_result(result, kept, conflicting_bins=len(groups) - len(kept))
    return CompactionResult(conflictingBins=len(groups))


def _with_reserved_ids(change: DmlPlan, groups: Sequence[RewriteGroup]) -> list[RewriteGroup]:
    """Reserve ids for the new fragments, which a fragment reuse index must contain.

    As in Lance, this needs a separate version.
    """
    count = sum(len(group.new_fragments) for group in groups)
    settings = without_properties(change.settings)
    reserved = commit_on_newest(change.table, lambda snapshot: ReserveFragments(count), settings)
    assert reserved is not None, "there are fragments to reserve ids for"
    ids = itertools.count((reserved.manifest.max_fragment_id or 0) - count + 1)
    return [
        replace(
            group,
            new_fragments=tuple(
                replace(fragment, id=next(ids)) for fragment in group.new_fragments
            ),
        )
        for group in groups
    ]


def _operation(plan: CompactionPlan, groups: Sequence[RewriteGroup]) -> Rewrite:
    """Return the rewrite, with a fragment reuse index if the groups have row addresses."""
    if any(group.row_addresses is None for group in groups):
        return Rewrite(tuple(groups), clustering=plan.sorted_by)
    newest = Snapshot.open(plan.change.table)
    known = reuse_index_of(newest.indices)
    return Rewrite(
        tuple(groups),
        reuse_index=next_reuse_index(newest, groups),
        replaces=None if known is None else known.uuid,
    )


def _remove_reuse_file(change: DmlPlan, operation: Rewrite) -> None:
    """Remove the file of an uncommitted fragment reuse index."""
    file = operation.reuse_index and file_of_entry(operation.reuse_index)
    if file:
        remove_files(change.table.store(), {file})


def _has_concurrent_reuse_entry(change: DmlPlan, operation: Rewrite) -> bool:
    """Return whether a concurrent compaction added a fragment reuse index entry."""
    if operation.reuse_index is None:
        return False
    known = reuse_index_of(Snapshot.open(change.table).indices)
    return (None if known is None else known.uuid) != operation.replaces


def _unchanged_groups(change: DmlPlan, groups: Sequence[RewriteGroup]) -> list[RewriteGroup]:
    """Return the groups whose old fragments are unchanged in the newest version."""
    newest = Snapshot.open(change.table)
    there = {fragment.id: fragment for fragment in newest.manifest.fragments}
    return [
        group
        for group in groups
        if all(there.get(fragment.id) == fragment for fragment in group.old_fragments)
    ]


def _committed_result(
    result: CommitResult, groups: Sequence[RewriteGroup], conflicting_bins: int
) -> CompactionResult:
    old = [fragment for group in groups for fragment in group.old_fragments]
    new = [fragment for group in groups for fragment in group.new_fragments]
    return CompactionResult(
        version=result.version,
        fragmentsRemoved=len(old),
        fragmentsAdded=len(new),
        filesRemoved=_num_files(old),
        filesAdded=_num_files(new),
        numRows=sum(fragment.num_rows for fragment in old),
        conflictingBins=conflicting_bins,
    )


def _num_files(fragments: Iterable[Fragment]) -> int:
    return sum(len(fragment.files) + (fragment.deletion_file is not None) for fragment in fragments)


def _together(before: CompactionResult, after: CompactionResult) -> CompactionResult:
    """Sum both results; conflicts are those of the second."""
    return CompactionResult(
        version=before.version if after.version is None else after.version,
        fragmentsRemoved=before.fragmentsRemoved + after.fragmentsRemoved,
        fragmentsAdded=before.fragmentsAdded + after.fragmentsAdded,
        filesRemoved=before.filesRemoved + after.filesRemoved,
        filesAdded=before.filesAdded + after.filesAdded,
        numRows=before.numRows + after.numRows,
        conflictingBins=after.conflictingBins,
    )


def _dry_run_result(plan: CompactionPlan) -> CompactionResult:
    old = [fragment for group in plan.bins for fragment in group]
    live = [sum(fragment.num_rows for fragment in group) for group in plan.bins]
    added = sum(-(-rows // most) for rows, most in zip(live, plan.rows_per_file, strict=True))
    return CompactionResult(
        fragmentsRemoved=len(old),
        fragmentsAdded=added,
        filesRemoved=_num_files(old),
        filesAdded=added,
        numRows=sum(live),
    )
