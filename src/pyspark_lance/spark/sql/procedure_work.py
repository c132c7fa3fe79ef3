"""Procedures with distributed work, which the driver plans and commits and executors run.

The plugin passes the state of the work from one request to the next.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import partial
from typing import Any, Final, TypeAlias

from pyspark.sql.types import ArrayType, LongType, StringType

from pyspark_lance.commit.retries import Retries
from pyspark_lance.errors import InvalidInputError, RetryableCommitError
from pyspark_lance.format.operation import RewriteGroup
from pyspark_lance.spark.options.times import parse_timestamp
from pyspark_lance.spark.sql.metadata_tables import Rows, columns
from pyspark_lance.table.compaction.compact import (
    CompactionPlan,
    CompactionResult,
    commit_round,
    compact,
    plan_compaction,
    without_properties,
)
from pyspark_lance.table.compaction.compaction_plan import CONFIGURABLE, CompactionRequest
from pyspark_lance.table.compaction.remap_indices import plan_remap
from pyspark_lance.table.dml.row_change import ChangeSettings, DmlPlan
from pyspark_lance.table.index_build.column_indices import IndexResult, commit_index, drop_index
from pyspark_lance.table.index_build.index_plan import (
    ROWS_PER_JOINED_SEGMENT,
    IndexPlan,
    IndexRequest,
    plan_index,
    plan_index_refresh,
)
from pyspark_lance.table.index_build.text_build import index_kind, tokenizer_options
from pyspark_lance.table.index_build.vector_build import (
    ROWS_OF_SEGMENT,
    VectorBuild,
    VectorIndexRequest,
    VectorIndexResult,
    parse_kind,
    plan_vector_index,
    plan_vector_refresh,
    temporary_folder,
    vector_indices_named,
    with_vectors,
)
from pyspark_lance.table.index_build.zone_maps import (
    ZoneMapPlan,
    ZoneMapResult,
    commit_zone_maps,
    plan_refresh,
    plan_zone_maps,
)
from pyspark_lance.table.nearest.vectors import Metric
from pyspark_lance.table.tasks import MaintenanceTask
from pyspark_lance.table.unit_of_work import UnitOfWork
from pyspark_lance.table.version.snapshot import LATEST, Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

logger = logging.getLogger(__name__)

_LONG: Final = LongType()
COMPACTED = columns(
    fragments_removed=_LONG,
    fragments_added=_LONG,
    files_removed=_LONG,
    files_added=_LONG,
    num_rows=_LONG,
    conflicting_bins=_LONG,
    version=_LONG,
)
ZONE_MAPS = columns(
    columns=ArrayType(StringType()), num_fragments=_LONG, num_zones=_LONG, version=_LONG
)

INDEXED = columns(names=ArrayType(StringType()), num_segments=_LONG, num_rows=_LONG, version=_LONG)


TOKENIZER_ARGUMENTS: Final[dict[str, type[int | str]]] = {
    "with_position": bool,
    "base_tokenizer": str,
    "language": str,
    "max_token_length": int,
    "lower_case": bool,
    "stem": bool,
    "remove_stop_words": bool,
    "custom_stop_words": str,
    "ascii_folding": bool,
    "min_ngram_length": int,
    "max_ngram_length": int,
    "prefix_only": bool,
}
"""Of inverted indices; stop words have commas between them."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a procedure."""

    table: Table  # The table, or a branch of it.
    arguments: Mapping[str, str]  # The given arguments, by name.
    settings: ChangeSettings
    zone: tzinfo  # For times without a time zone.

    def text(self, name: str) -> str:
        """Return a required argument."""
        return self.arguments[name]

    def names(self, name: str) -> tuple[str, ...]:
        """Return a required comma-separated list of names."""
        return tuple(one.strip() for one in self.text(name).split(","))

    def argument(self, name: str, kind: type[int | float | str]) -> Any:
        """A number, a text or, for ``bool``, yes or no; None if it was not given."""
        text = self.arguments.get(name)
        if text is None:
            return None
        return text == "true" if kind is bool else kind(text)

    def number(self, name: str) -> int | None:
        """Return a whole number; None if it was not given."""
        number: int | None = self.argument(name, int)
        return number

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a ``bool``."""
        given: bool | None = self.argument(name, bool)
        return default if given is None else given

    def at(self) -> VersionSpec:
        """Return the version that ``version``, ``tag`` or ``timestamp`` selects."""
        text = self.arguments.get("timestamp")
        try:
            moment = None if text is None else parse_timestamp(text, zone=self.zone)
        except ValueError as error:
            raise InvalidInputError(f"{text!r} is not a time", hint=str(error)) from error
        tag = self.arguments.get("tag")
        return VersionSpec(version=self.number("version"), tag=tag, timestamp_ns=moment)

    def version(self) -> int | None:
        """Return the number of that version; None for the latest."""
        at = self.at()
        if at == LATEST or at.version is not None:
            return at.version
        return Snapshot.open(self.table, at).version

    def unit_of_work(self, retries: str) -> UnitOfWork:
        """Return a unit of work with the attempts that earlier requests have left."""
        settings = self.settings
        left = Retries.from_text(retries, settings.retries, settings.timeout_s)
        return UnitOfWork(self.table, settings, retries=left)


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction in progress; picklable."""

    plan: CompactionPlan
    request: CompactionRequest
    done: CompactionResult = field(
        default_factory=CompactionResult
    )  # The result of earlier commits.
    retries: str = ""  # The retry state of earlier requests; empty for none.

    @property
    def tasks(self) -> Sequence[MaintenanceTask[Any]]:
        """Return the tasks of the executors."""
        return self.plan.tasks

    def go_on(self, call: Call, done: list[Any]) -> Rows | Compaction | IndexBuild:
        """Commit; plan bins again that conflict with other commits."""
        if not self.plan.is_last:
            return replace(self, plan=self.plan.after(done))
        return _commit(call, self, self.plan.groups(done))


# Compaction ----------------------------------------------------------------------------------


def start_compaction(call: Call) -> Rows | Compaction:
    """Plan a compaction, or describe it for a dry run."""
    options = {name: call.argument(name, kind) for name, kind in CONFIGURABLE.items()}
    for name in ("cluster_by", "split_files_by"):
        names = call.arguments.get(name)
        options[name] = None if names is None else tuple(json.loads(names))
    request = CompactionRequest(**options, order=call.arguments.get("order"))
    if call.flag("dry_run"):
        return _compaction_rows(compact(call.table, request, call.settings, dry_run=True))
    return _plan_compaction(call, request, CompactionResult(), "")


def _plan_compaction(
    call: Call, request: CompactionRequest, done: CompactionResult, retries: str
) -> Rows | Compaction:
    plan = plan_compaction(call.table, request, call.settings)
    if plan.change.is_done or not plan.tasks:
        return _compaction_rows(replace(done, conflictingBins=0))
    return Compaction(plan, request, done, retries)


def _commit(
    call: Call, work: Compaction, groups: Sequence[RewriteGroup]
) -> Rows | Compaction | IndexBuild:
    """Commit rewritten bins; plan those again that conflict with other commits."""
    unit = call.unit_of_work(work.retries)
    done, conflict = unit.once(partial(commit_round, work.done, work.plan, groups))
    if conflict is None:
        return _continue_with_indices(call, work, groups, done)
    try:
        unit.wait_for_retry(conflict)
    except RetryableCommitError:
        if done.version is None:
            raise
        return _continue_with_indices(call, work, groups, done)
    plan_rest = partial(_plan_rest, work.request, done, unit.retries.to_text())
    return _indices_of_moved(call, work, groups, done, plan_rest)


def _continue_with_indices(
    call: Call, work: Compaction, groups: Sequence[RewriteGroup], done: CompactionResult
) -> Rows | Compaction | IndexBuild:
    """Continue with the indices of the rows that moved, and return the result."""
    return _indices_of_moved(call, work, groups, done, partial(_then_rows, _compaction_rows(done)))


def _indices_of_moved(
    call: Call,
    work: Compaction,
    groups: Sequence[RewriteGroup],
    done: CompactionResult,
    then: Callable[[Call, Any], Rows | Compaction],
) -> Rows | Compaction | IndexBuild:
    """Refresh the zone maps of sorted rows, or remap indices; a failure is a warning."""
    kind: _BuildKind | None = None
    if work.plan.clusters:
        plan = _plan_remapping
        kind = _BuildKind(plan, commit_zone_maps, then, ZoneMapResult(), is_needed=False)
    elif work.plan.moves_addresses(groups):
        remap = partial(_plan_remap, work.plan.change, groups)
        kind = _BuildKind(remap, commit_index, then, IndexResult(), is_needed=False)
    if kind is None or done.version is None:
        return then(call, None)
    try:
        return kind.start(call)  # type: ignore[return-value]
    except Exception as error:  # noqa: BLE001 - the compaction is committed
        logger.warning(_NOT_REFRESHED, call.table.uri, error)
        return then(call, None)


_NOT_REFRESHED: Final = "indices of %s do not cover compacted rows: %s"


def _plan_remapping(call: Call) -> ZoneMapPlan:
    return plan_refresh(call.table, without_properties(call.settings))


def _plan_remap(base: DmlPlan, groups: Sequence[RewriteGroup], call: Call) -> IndexPlan:
    return plan_remap(base, groups, without_properties(call.settings))


def _then_rows(rows: Rows, call: Call, result: object) -> Rows:
    return rows


def _plan_rest(
    request: CompactionRequest, done: CompactionResult, retries: str, call: Call, result: object
) -> Rows | Compaction:
    return _plan_compaction(call, request, done, retries)


def _compaction_rows(result: CompactionResult) -> Rows:
    return [tuple(getattr(result, name) for name in COMPACTED.names)]


# Zone maps and other indices -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IndexBuild:
    """A build of indices in progress; picklable."""

    plan: ZoneMapPlan | IndexPlan
    kind: _BuildKind  # How it is planned, committed and shown.
    retries: str = ""  # The retry state of earlier requests; empty for none.

    @property
    def tasks(self) -> Sequence[MaintenanceTask[Any]]:
        """Return the tasks of the executors."""
        return self.plan.tasks

    def go_on(self, call: Call, done: list[Any]) -> Rows | IndexBuild | VectorWork | Compaction:
        """Commit; plan rows again that other commits moved or changed."""
        unit = call.unit_of_work(self.retries)
        try:
            result = unit.once(partial(self.kind.commit, self.plan, done))
        except RetryableCommitError as error:
            try:
                unit.wait_for_retry(error)
            except RetryableCommitError:
                if self.kind.is_needed:
                    raise
                return self.kind.then(call, self.kind.nothing)
            return replace(self, plan=self.kind.plan(call), retries=unit.retries.to_text())
        except Exception as error:
            if self.kind.is_needed:
                raise
            logger.warning(_NOT_REFRESHED, call.table.uri, error)
            return self.kind.then(call, self.kind.nothing)
        return self.kind.then(call, result)


@dataclass(frozen=True, slots=True)
class _BuildKind:
    """The steps of a build; picklable functions."""

    plan: Callable[[Call], ZoneMapPlan | IndexPlan]
    commit: Callable[..., Any]
    then: Callable[[Call, Any], Rows | VectorWork | Compaction]
    nothing: ZoneMapResult | IndexResult
    is_needed: bool = True  # Whether too many conflicts are an error.

    def start(self, call: Call) -> Rows | IndexBuild | VectorWork | Compaction:
        """Plan the build, if there is something to do."""
        plan = self.plan(call)
        has_work = plan.wanted and not plan.change.is_done
        return IndexBuild(plan, self) if has_work else self.then(call, self.nothing)


@dataclass(frozen=True, slots=True)
class VectorWork:
    """A build of vector index segments in progress; picklable."""

    build: VectorBuild
    # Segments of less than half as many rows are merged; None to merge none.
    joined_rows: int | None = None
    is_new: bool = False  # Whether an index is created rather than refreshed.
    before: IndexResult = field(default_factory=IndexResult)  # The result of scalar indices.
    retries: str = ""  # The retry state of earlier requests; empty for none.

    @property
    def tasks(self) -> Sequence[MaintenanceTask[Any]]:
        """Return the tasks of the next stage."""
        return self.build.tasks

    def go_on(self, call: Call, done: list[Any]) -> Rows | VectorWork:
        """Run the next stage, or commit; plan again on conflicts with other commits."""
        if not self.build.is_last:
            return replace(self, build=self.build.after(done))
        unit = call.unit_of_work(self.retries)
        try:
            made = unit.once(partial(_commit_vectors, call.table, self.build, done))
        except RetryableCommitError as error:
            unit.wait_for_retry(error)
            again = _plan_vectors(call, is_new=self.is_new, joined_rows=self.joined_rows)
            if again is None:
                return _index_rows(self.before)
            return replace(self, build=again, retries=unit.retries.to_text())
        return _index_rows(with_vectors(self.before, made))


def _commit_vectors(
    table: Table, build: VectorBuild, done: list[Any], work: UnitOfWork
) -> tuple[VectorIndexResult, ...]:
    with temporary_folder(table, build.folder, work):
        return build.commit(done, work)


def start_zone_maps(call: Call) -> Rows | Work:
    """Create zone maps of the given columns, or refresh the existing ones."""
    return _BuildKind(_plan_zone_maps, commit_zone_maps, _zone_map_rows, ZoneMapResult()).start(
        call
    )


def start_create_index(call: Call) -> Rows | Work:
    """Create indices of the given columns."""
    return _of_columns(_plan_create, _only_columns).start(call)


def start_create_vector_index(call: Call) -> Rows | VectorWork:
    """Create an index of a vector column."""
    build = _plan_vectors(call, is_new=True)
    return _index_rows(IndexResult()) if build is None else VectorWork(build, is_new=True)


def start_refresh_indices(call: Call) -> Rows | Work:
    """Add uncovered rows to indices."""
    if _names_vectors(call):
        return _then_vectors(None, call, IndexResult())
    return _of_columns(_plan_refresh, partial(_then_vectors, None)).start(call)


def start_optimize_indices(call: Call) -> Rows | Work:
    """Refresh indices and merge small segments."""
    then = partial(_then_vectors, ROWS_OF_SEGMENT)
    if _names_vectors(call):
        return then(call, IndexResult())
    return _of_columns(_plan_optimize, then).start(call)


def _names_vectors(call: Call) -> bool:
    name = call.arguments.get("name")
    return name is not None and bool(vector_indices_named(call.table, name))


def _only_columns(call: Call, result: IndexResult) -> Rows:
    return _index_rows(result)


def _then_vectors(joined_rows: int | None, call: Call, result: IndexResult) -> Rows | VectorWork:
    """Continue with vector indices after scalar indices."""
    build = _plan_vectors(call, joined_rows=joined_rows)
    return _index_rows(result) if build is None else VectorWork(build, joined_rows, before=result)


def _plan_vectors(
    call: Call, *, is_new: bool = False, joined_rows: int | None = None
) -> VectorBuild | None:
    if not is_new:
        names = vector_indices_named(call.table, call.arguments.get("name"))
        return plan_vector_refresh(call.table, names, call.settings, joined_rows)
    given = call.arguments
    request = VectorIndexRequest(
        given.get("column"),
        parse_kind(given.get("kind", "ivf_pq")),
        Metric.parse(given.get("metric", "l2")),
        call.number("num_partitions"),
        call.number("num_sub_vectors"),
        _or_else(call.number("sample_rate"), 256),
        call.number("seed"),
        given.get("name"),
        call.flag("replace"),
    )
    return plan_vector_index(call.table, request, call.settings)


def _or_else(given: int | None, usual: int) -> int:
    return usual if given is None else given


def drop_named_index(call: Call) -> Rows:
    """Drop an index."""
    return [(drop_index(call.table, call.text("name"), call.settings).version,)]


def _of_columns(
    plan: Callable[[Call], IndexPlan], then: Callable[[Call, IndexResult], Rows | VectorWork]
) -> _BuildKind:
    return _BuildKind(plan, commit_index, then, IndexResult())


def _plan_zone_maps(call: Call) -> ZoneMapPlan:
    if "columns" not in call.arguments:
        return plan_refresh(call.table, call.settings)
    return plan_zone_maps(
        call.table, call.names("columns"), call.number("rows_per_zone"), call.settings
    )


def _zone_map_rows(call: Call, result: ZoneMapResult) -> Rows:
    return [(list(result.columns), result.numFragments, result.numZones, result.version)]


def _plan_create(call: Call) -> IndexPlan:
    kind = index_kind(call.arguments.get("kind", "btree"))
    request = IndexRequest(
        call.names("columns"),
        kind,
        call.arguments.get("name"),
        call.flag("replace"),
        rows_per_zone=call.number("rows_per_zone"),
        text=tokenizer_options(kind, _tokenizer_arguments(call)),
    )
    return plan_index(call.table, request, call.settings)


def _tokenizer_arguments(call: Call) -> dict[str, object]:
    """Return the arguments of inverted indices; None for missing ones."""
    given = {name: call.argument(name, kind) for name, kind in TOKENIZER_ARGUMENTS.items()}
    if given["custom_stop_words"] is not None:
        given["custom_stop_words"] = call.names("custom_stop_words")
    return given


def _plan_refresh(call: Call) -> IndexPlan:
    return plan_index_refresh(call.table, call.arguments.get("name"), call.settings)


def _plan_optimize(call: Call) -> IndexPlan:
    name = call.arguments.get("name")
    return plan_index_refresh(
        call.table, name, call.settings, rows_per_joined=ROWS_PER_JOINED_SEGMENT
    )


def _index_rows(result: IndexResult) -> Rows:
    return [(list(result.names), result.numSegments, result.numRows, result.version)]


Work: TypeAlias = Compaction | IndexBuild | VectorWork
