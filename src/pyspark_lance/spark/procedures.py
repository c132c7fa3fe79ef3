"""Stored procedures: ``CALL lance.system.compact('/data/t')``, by way of the JVM companion.

The companion asks which procedures there are, and hands over the arguments as texts.  A procedure
answers with its rows; one whose work is long answers with tasks first, which Spark then runs on the
executors, and goes on with what became of them.

Arguments and columns are named as in lance-spark's OPTIMIZE, VACUUM and SHOW, where those have
them.
"""

from __future__ import annotations

import base64
import json
import logging
import pickle
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pyspark_lance.commit.retries import Retries
from pyspark_lance.errors import InvalidInputError, RetryableCommitError
from pyspark_lance.format.operation import RewriteGroup
from pyspark_lance.spark.options.option_table import INTERNAL_PREFIX
from pyspark_lance.spark.options.parse_options import ReadOptions, WriteOptions, parse_timestamp
from pyspark_lance.spark.options.write_settings import change_settings
from pyspark_lance.spark.source.clean_errors import clean_errors, clean_iterator
from pyspark_lance.spark.source.metadata_tables import (
    BRANCHES,
    DETAIL,
    FRAGMENTS,
    HISTORY,
    TAGS,
    Rows,
    branch_rows,
    columns,
    detail_rows,
    fragment_rows,
    history_rows,
    tag_rows,
)
from pyspark_lance.table.change.row_change import ChangeSettings
from pyspark_lance.table.cleanup.auto_cleanup import parse_duration
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.upkeep.branches import create_branch, remove_branch
from pyspark_lance.table.upkeep.compact import (
    CompactionPlan,
    CompactionResult,
    commit_bins,
    compact,
    plan_compaction,
    together,
)
from pyspark_lance.table.upkeep.compaction_task import CompactionTask, rewrite_bin
from pyspark_lance.table.upkeep.metadata_commits import restore
from pyspark_lance.table.upkeep.stable_row_ids import enable_stable_row_ids
from pyspark_lance.table.upkeep.verify import verify
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.tags import remove_tag, set_tag
from pyspark_lance.table.version.time_travel import VersionSpec
from pyspark_lance.table.work.unit_of_work import UnitOfWork

logger = logging.getLogger(__name__)

STATE = f"{INTERNAL_PREFIX}state"
"""Of a procedure whose tasks are run; it is known to this package alone."""
BIN_RESULTS = StructType([StructField("done", StringType())])
"""What the tasks give."""
_NAME, _ARGUMENTS = f"{INTERNAL_PREFIX}procedure", f"{INTERNAL_PREFIX}arguments"
_DONE = f"{INTERNAL_PREFIX}done"

_LONG, _TEXT, _FLAG, _REAL = LongType(), StringType(), BooleanType(), DoubleType()
# Arguments of lance-spark that have nothing to choose here.
_WITHOUT_EFFECT = ("max_rows_per_group", "num_threads", "batch_size")
_COMPACTED = columns(
    fragments_removed=_LONG,
    fragments_added=_LONG,
    files_removed=_LONG,
    files_added=_LONG,
    num_rows=_LONG,
    lost_bins=_LONG,
    version=_LONG,
)
_CLEANED = columns(
    bytes_removed=_LONG, old_versions=_LONG, files_removed=_LONG, versions=ArrayType(_LONG)
)
_FINDINGS = columns(severity=_TEXT, kind=_TEXT, what=_TEXT, where=_TEXT, remedy=_TEXT)
_NAMED = columns(name=_TEXT, version=_LONG)
_VERSION = columns(version=_LONG)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a procedure.

    Attributes:
        table: The table, or a branch of it.
        arguments: What was given, by name.
        settings: How to commit.
    """

    table: Table
    arguments: Mapping[str, str]
    settings: ChangeSettings

    def text(self, name: str) -> str:
        """An argument that must be there."""
        return self.arguments[name]

    def number(self, name: str) -> int | None:
        """A whole number; None if it was not given."""
        return int(self.arguments[name]) if name in self.arguments else None

    def real(self, name: str) -> float | None:
        """A number; None if it was not given."""
        return float(self.arguments[name]) if name in self.arguments else None

    def flag(self, name: str, default: bool = False) -> bool:
        """Yes or no."""
        return self.arguments[name] == "true" if name in self.arguments else default

    def at(self) -> VersionSpec:
        """The version that ``version``, ``tag`` or ``timestamp`` asks for."""
        text = self.arguments.get("timestamp")
        try:
            moment = None if text is None else parse_timestamp(text)
        except ValueError as error:
            raise InvalidInputError(f"{text!r} is not a time", hint=str(error)) from error
        tag = self.arguments.get("tag")
        return VersionSpec(version=self.number("version"), tag=tag, timestamp_ns=moment)


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction whose bins are rewritten; picklable.

    Attributes:
        plan: The bins.
        options: What they were planned by.
        done: What landed before.
        retries: The attempts that were spent; empty for none.
    """

    plan: CompactionPlan
    options: Mapping[str, Any]
    done: CompactionResult = field(default_factory=CompactionResult)
    retries: str = ""


@dataclass(frozen=True, slots=True)
class Procedure:
    """One procedure.

    Attributes:
        description: One line.
        parameters: After the table, which is the first of all; those that may be left out are
            nullable.
        result: Columns of its rows.
        run: Does it; gives rows, or the work for the executors.
        go_on: Takes up the work after the executors.
    """

    description: str
    parameters: StructType
    result: StructType
    run: Callable[[Call], Rows | Compaction]
    go_on: Callable[[Call, Compaction, list[RewriteGroup]], Rows | Compaction] | None = None


# Answers -------------------------------------------------------------------------------------


def list_procedures() -> dict[str, Any]:
    """All procedures, as the companion wants to know them."""
    return {name: _as_companion_wants(procedure) for name, procedure in PROCEDURES.items()}


def _as_companion_wants(procedure: Procedure) -> dict[str, str]:
    parameters = StructType([_TABLE, *procedure.parameters.fields, *_ALWAYS.fields])
    # DESCRIBE PROCEDURE shows nothing but the description.
    return {
        "description": f"{procedure.description} Arguments: {', '.join(parameters.names)}.",
        "parameters": parameters.json(),
    }


def run_procedure(options: Mapping[str, str]) -> dict[str, Any]:
    """Runs a procedure, or goes on with it; its rows, or what is to be done on the executors."""
    procedure = PROCEDURES[options[_NAME]]
    arguments: dict[str, str] = json.loads(options[_ARGUMENTS])
    for name in _WITHOUT_EFFECT:
        if name in arguments:
            logger.warning("the argument %s has no effect here", name)
    note = arguments.get("user_metadata")
    write = WriteOptions.parse({**options, **({"userMetadata": note} if note else {})})
    table = ReadOptions.parse(options).table
    branch = arguments.get("branch")
    call = Call(table.on_branch(branch) if branch else table, arguments, change_settings(write))
    if STATE in options:
        assert procedure.go_on is not None
        groups = [_unpacked(group) for group in options.get(_DONE, "").split()]
        done = procedure.go_on(call, _unpacked(options[STATE]), groups)
    else:
        done = procedure.run(call)
    if isinstance(done, Compaction):
        return {"state": _packed(done)}
    names = procedure.result.names
    rows = [dict(zip(names, row, strict=True)) for row in done]
    return {"schema": procedure.result.json(), "rows": json.dumps(rows, default=_as_json)}


def _packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value), 1)).decode()


def _unpacked(text: str) -> Any:
    return pickle.loads(zlib.decompress(base64.b64decode(text)))


def _as_json(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} in the rows of a procedure")


class BinPartition(InputPartition):
    """One bin of a compaction."""

    def __init__(self, task: CompactionTask) -> None:
        self.task = task


class LanceTaskReader(DataSourceReader):
    """Runs the tasks of a procedure: rewrites bins, one in each task of Spark.

    Args:
        state: What ``run_procedure`` answered.
    """

    def __init__(self, state: str) -> None:
        self._state = state

    @clean_errors
    def partitions(self) -> Sequence[InputPartition]:
        """One for each bin."""
        work: Compaction = _unpacked(self._state)
        return [BinPartition(task) for task in work.plan.tasks]

    @clean_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rewrites a bin, and tells what became of it."""
        if isinstance(partition, BinPartition):
            done = pa.array([_packed(rewrite_bin(partition.task))])
            yield pa.RecordBatch.from_arrays([done], names=BIN_RESULTS.names)


# Compaction and cleanup ----------------------------------------------------------------------


def _compact(call: Call) -> Rows | Compaction:
    options = {
        "target_rows_per_fragment": call.number("target_rows_per_fragment"),
        "max_bytes_per_file": call.number("max_bytes_per_file"),
        "materialize_deletions": _flag_or_none(call, "materialize_deletions"),
        "materialize_deletions_threshold": call.real("materialize_deletions_threshold"),
        "max_source_fragments": call.number("max_source_fragments"),
        "max_source_rows": call.number("max_source_rows"),
        "defer_index_remap": _flag_or_none(call, "defer_index_remap"),
    }
    if call.flag("dry_run"):
        return _compacted(compact(call.table, options, call.settings, dry_run=True))
    return _planned(call, options, CompactionResult(), "")


def _flag_or_none(call: Call, name: str) -> bool | None:
    return call.flag(name) if name in call.arguments else None


def _planned(
    call: Call, options: Mapping[str, Any], done: CompactionResult, retries: str
) -> Rows | Compaction:
    plan = plan_compaction(call.table, options, call.settings)
    if plan.change.is_done or not plan.tasks:
        return _compacted(replace(done, lost_bins=0))
    return Compaction(plan, options, done, retries)


def _commit(call: Call, work: Compaction, groups: list[RewriteGroup]) -> Rows | Compaction:
    """Commits rewritten bins; those that others changed meanwhile are planned again."""
    settings = call.settings
    retries = (
        Retries.from_text(work.retries, settings.retries, settings.timeout_s)
        if work.retries
        else None
    )
    unit = UnitOfWork(call.table, settings, retries=retries)
    conflict: RetryableCommitError | None = None
    try:
        landed = unit.once(partial(commit_bins, work.plan, groups))
    except RetryableCommitError as error:
        landed, conflict = CompactionResult(), error
    if landed.lost_bins:
        conflict = RetryableCommitError(f"others changed {landed.lost_bins} bins", call.table.uri)
    done = together(work.done, landed)
    if conflict is None:
        return _compacted(done)
    try:
        unit.spend_attempt(conflict)
    except RetryableCommitError:
        if done.version is None:
            raise
        return _compacted(done)
    return _planned(call, work.options, done, unit.retries.to_text())


def _compacted(result: CompactionResult) -> Rows:
    return [tuple(getattr(result, name) for name in _COMPACTED.names)]


def _cleanup(call: Call) -> Rows:
    ages = []
    if "older_than" in call.arguments:
        ages.append(parse_duration(call.text("older_than")))
    before_ms = call.number("before_timestamp_millis")
    if before_ms is not None:
        ages.append(max(0.0, time.time() - before_ms / 1000))
    policy = CleanupPolicy(
        older_than_s=max(ages, default=None),
        before_version=call.number("before_version"),
        retain_versions=call.number("retain_versions"),
        delete_unverified=call.flag("delete_unverified"),
        error_if_tagged=call.flag("error_if_tagged_old_versions", default=True),
    )
    done = cleanup_old_versions(call.table, policy, dry_run=call.flag("dry_run"))
    return [(done.num_bytes, len(done.versions), done.num_files, list(done.versions))]


def _verify(call: Call) -> Rows:
    found = verify(call.table, call.number("version"), read_data=call.flag("read_data"))
    return [
        (finding.severity.value, finding.kind, finding.what, finding.where, finding.remedy)
        for finding in found.findings
    ]


# Versions, tags, branches --------------------------------------------------------------------


def _restore(call: Call) -> Rows:
    return [(restore(call.table, call.at(), call.settings).version,)]


def _enable_stable_row_ids(call: Call) -> Rows:
    return [(enable_stable_row_ids(call.table, call.settings).version,)]


def _create_tag(call: Call) -> Rows:
    tag = set_tag(call.table, call.text("name"), call.at())
    return [(tag.name, tag.version)]


def _replace_tag(call: Call) -> Rows:
    tag = set_tag(call.table, call.text("name"), call.at(), replaces=True)
    return [(tag.name, tag.version)]


def _drop_tag(call: Call) -> Rows:
    remove_tag(call.table, call.text("name"))
    return [(call.text("name"), None)]


def _create_branch(call: Call) -> Rows:
    branch = create_branch(call.table, call.text("name"), call.at())
    return [(branch.name, branch.parent_version)]


def _drop_branch(call: Call) -> Rows:
    remove_branch(call.table, call.text("name"))
    return [(call.text("name"), None)]


def _snake_case(schema: StructType) -> StructType:
    """The same columns, named as those of procedures are."""
    return StructType(
        [
            StructField(
                re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", field.name),
                field.dataType,
            )
            for field in schema.fields
        ]
    )


_TABLE = StructField("table", _TEXT, nullable=False)
_REQUIRED_NAME = StructField("name", _TEXT, nullable=False)
_ALWAYS = columns(branch=_TEXT)
_AT = columns(version=_LONG, tag=_TEXT, timestamp=_TEXT).fields
_NOTE = StructField("user_metadata", _TEXT)
_NOTHING = StructType([])

PROCEDURES: Mapping[str, Procedure] = {
    "compact": Procedure(
        "Joins small fragments and rewrites those with many deleted rows, on the executors.",
        columns(
            target_rows_per_fragment=_LONG,
            max_bytes_per_file=_LONG,
            materialize_deletions=_FLAG,
            materialize_deletions_threshold=_REAL,
            max_source_fragments=_LONG,
            max_source_rows=_LONG,
            defer_index_remap=_FLAG,
            dry_run=_FLAG,
            user_metadata=_TEXT,
            **dict.fromkeys(_WITHOUT_EFFECT, _LONG),
        ),
        _COMPACTED,
        _compact,
        _commit,
    ),
    "cleanup": Procedure(
        "Removes old versions, and the files that nothing but them refers to.",
        columns(
            before_version=_LONG,
            before_timestamp_millis=_LONG,
            older_than=_TEXT,
            retain_versions=_LONG,
            delete_unverified=_FLAG,
            error_if_tagged_old_versions=_FLAG,
            dry_run=_FLAG,
        ),
        _CLEANED,
        _cleanup,
    ),
    "verify": Procedure(
        "Looks for everything that is wrong with a version; no row is good news.",
        columns(version=_LONG, read_data=_FLAG),
        _FINDINGS,
        _verify,
    ),
    "restore": Procedure(
        "Makes an old version the newest again, as one new version.",
        StructType([*_AT, _NOTE]),
        _VERSION,
        _restore,
    ),
    "create_tag": Procedure(
        "Names a version, which no cleanup removes then.",
        StructType([_REQUIRED_NAME, *_AT]),
        _NAMED,
        _create_tag,
    ),
    "replace_tag": Procedure(
        "Moves a tag to another version.",
        StructType([_REQUIRED_NAME, *_AT]),
        _NAMED,
        _replace_tag,
    ),
    "drop_tag": Procedure(
        "Forgets a tag; its version stays until a cleanup.",
        StructType([_REQUIRED_NAME]),
        _NAMED,
        _drop_tag,
    ),
    "create_branch": Procedure(
        "Forks a line of versions off a version.",
        StructType([_REQUIRED_NAME, *_AT]),
        _NAMED,
        _create_branch,
    ),
    "drop_branch": Procedure(
        "Removes a branch and all that was written on it.",
        StructType([_REQUIRED_NAME]),
        _NAMED,
        _drop_branch,
    ),
    "enable_stable_row_ids": Procedure(
        "Gives the rows of a table that was made without them stable ids, in place.",
        StructType([_NOTE]),
        _VERSION,
        _enable_stable_row_ids,
    ),
    "history": Procedure(
        "The versions that are left, the newest first: what made them, when, and who.",
        columns(limit=_LONG),
        _snake_case(HISTORY),
        lambda call: history_rows(call.table, call.number("limit")),
    ),
    "detail": Procedure(
        "Counts, sizes, properties, and advice on the shape of the table.",
        _NOTHING,
        _snake_case(DETAIL),
        lambda call: detail_rows(call.table),
    ),
    "fragments": Procedure(
        "The layout of a version, fragment by fragment.",
        columns(version=_LONG),
        _snake_case(FRAGMENTS),
        lambda call: fragment_rows(call.table, call.at()),
    ),
    "tags": Procedure("All tags.", _NOTHING, _snake_case(TAGS), lambda call: tag_rows(call.table)),
    "branches": Procedure(
        "All branches but main.",
        _NOTHING,
        _snake_case(BRANCHES),
        lambda call: branch_rows(call.table),
    ),
}
"""By name."""


def procedures_as_markdown() -> str:
    """The table of docs/sql.md."""
    lines = ["| procedure | arguments after the table | result |", "|---|---|---|"]
    for name, procedure in PROCEDURES.items():
        given = [
            word.name if not word.nullable else f"[{word.name}]"
            for word in procedure.parameters.fields
            if word.name not in _WITHOUT_EFFECT
        ]
        listed = ", ".join(f"`{name}`" for name in procedure.result.names)
        lines.append(f"| `{name}` | {', '.join(f'`{word}`' for word in given)} | {listed} |")
    return "\n".join(lines)
