"""Stored procedures: ``CALL lance.system.compact('/data/t')``, through the JVM plugin.

The plugin requests the list of procedures, and sends arguments as strings.  A procedure returns its
rows; one with distributed work first returns tasks, which Spark runs on the executors, and then
continues with their results.

Arguments and columns have the names of lance-spark's OPTIMIZE, VACUUM and SHOW, if those have them.
"""

from __future__ import annotations

import base64
import difflib
import json
import logging
import pickle
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

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

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.options.parse_options import WriteOptions
from pyspark_lance.spark.options.times import session_time_zone
from pyspark_lance.spark.options.write_settings import change_settings
from pyspark_lance.spark.sessions import count_tasks
from pyspark_lance.spark.source.clean_errors import clean_errors, clean_iterator
from pyspark_lance.spark.sql.metadata_tables import (
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
from pyspark_lance.spark.sql.plugin_requests import ProcedureRequest, UnknownProcedureRequest
from pyspark_lance.spark.sql.plugin_responses import ProcedureDescription, ProcedureResponse
from pyspark_lance.spark.sql.procedure_work import (
    COMPACTED,
    INDEXED,
    TOKENIZER_ARGUMENTS,
    ZONE_MAPS,
    Call,
    Work,
    drop_named_index,
    start_compaction,
    start_create_index,
    start_create_vector_index,
    start_optimize_indices,
    start_refresh_indices,
    start_zone_maps,
)
from pyspark_lance.table.cleanup.auto_cleanup import parse_duration
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.columns.change_columns import set_primary_key
from pyspark_lance.table.compaction.compaction_plan import CONFIGURABLE
from pyspark_lance.table.compaction.stable_row_ids import enable_stable_row_ids
from pyspark_lance.table.refs import create_branch, remove_branch, remove_tag, set_tag
from pyspark_lance.table.tasks import Task
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.table import suggest_paths

logger = logging.getLogger(__name__)

BIN_RESULTS = StructType([StructField("done", StringType())])
"""The result column of tasks."""

_LONG, _TEXT, _FLAG = LongType(), StringType(), BooleanType()
_TYPES = {int: _LONG, bool: _FLAG, float: DoubleType()}
# Arguments of lance-spark without a counterpart, which are ignored.
_WITHOUT_EFFECT = ("max_rows_per_group", "num_threads", "batch_size")
_CLEANED = columns(
    bytes_removed=_LONG, old_versions=_LONG, files_removed=_LONG, versions=ArrayType(_LONG)
)
_FINDINGS = columns(severity=_TEXT, kind=_TEXT, what=_TEXT, where=_TEXT, remedy=_TEXT)
_NAMED = columns(name=_TEXT, version=_LONG)
_VERSION = columns(version=_LONG)


@dataclass(frozen=True, slots=True)
class Procedure:
    """A stored procedure."""

    description: str
    # The parameters after the table, which is always first; optional ones are nullable.
    parameters: StructType
    result: StructType
    run: Callable[[Call], Rows | Work]  # Returns rows, or work for the executors.
    rewrites: bool = False  # Whether it changes rows or their hidden columns.


# Responses -----------------------------------------------------------------------------------


def list_procedures() -> dict[str, ProcedureDescription]:
    """Describe all procedures for the plugin."""
    return {name: _describe_procedure(procedure) for name, procedure in PROCEDURES.items()}


def refuse_unknown(request: UnknownProcedureRequest) -> NoReturn:
    """Raise an error that lists the procedures, for a CALL of an unknown one."""
    requested = request.procedure
    like = difflib.get_close_matches(requested.rpartition(".")[2].lower(), PROCEDURES, n=1)
    near = f"did you mean system.{like[0]}? " if like else ""
    raise InvalidInputError(
        f"there is no procedure {requested}",
        hint=f"{near}there are, in the namespace system: {', '.join(sorted(PROCEDURES))}",
    )


def _describe_procedure(procedure: Procedure) -> ProcedureDescription:
    parameters = StructType([_TABLE, *procedure.parameters.fields, *_ALWAYS.fields])
    # DESCRIBE PROCEDURE only shows the description.
    return ProcedureDescription(
        description=f"{procedure.description} Arguments: {', '.join(parameters.names)}.",
        parameters=parameters.json(),
        rewrites=procedure.rewrites,
    )


def run_procedure(request: ProcedureRequest) -> ProcedureResponse:
    """Run or continue a procedure; return its rows, or the work for the executors."""
    procedure, arguments = PROCEDURES[request.procedure], dict(request.arguments)
    for name in _WITHOUT_EFFECT:
        if name in arguments:
            logger.warning("the argument %s has no effect here", name)
    note = arguments.get("user_metadata")
    write = WriteOptions.parse(
        {**request.options, **({"userMetadata": note} if note else {})}, request.write_parameters()
    )
    table = request.read_options().table
    branch = arguments.get("branch")
    line = table.on_branch(branch) if branch else table
    call = Call(line, arguments, change_settings(write), session_time_zone(request.options))
    if request.state is not None:
        work: Work = _unpack(request.state)
        done = work.go_on(call, list(map(_unpack, request.results)))
    else:
        with suggest_paths(table):
            done = procedure.run(call)
    if isinstance(done, Work):
        # A plan after a conflict may have nothing left but the commit.
        stage = done.tasks[0].title if done.tasks else "commit"
        title = f"{request.procedure} of {line.uri}: {stage}"
        logger.info("%s, %s", title, count_tasks(len(done.tasks)))
        return ProcedureResponse(state=_pack(done), title=title)
    names = procedure.result.names
    rows = [dict(zip(names, row, strict=True)) for row in done]
    return ProcedureResponse(
        schema=procedure.result.json(), rows=json.dumps(rows, default=_as_json)
    )


def _pack(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value), 1)).decode()


def _unpack(text: str) -> Any:
    return pickle.loads(zlib.decompress(base64.b64decode(text)))


def _as_json(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} in the rows of a procedure")


class WorkPartition(InputPartition):
    """One task."""

    def __init__(self, task: Task[Any]) -> None:
        self.task = task


class LanceTaskReader(DataSourceReader):
    """Reader that runs the tasks of a procedure, one in each Spark task.

    ``state``: the state that ``run_procedure`` returned.
    """

    def __init__(self, state: str) -> None:
        self._state = state

    @clean_errors
    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for each task."""
        work: Work = _unpack(self._state)
        return [WorkPartition(task) for task in work.tasks]

    @clean_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run a task and return its result."""
        if isinstance(partition, WorkPartition):
            task = partition.task
            done = pa.array([_pack(task.run())])
            yield pa.RecordBatch.from_arrays([done], names=BIN_RESULTS.names)


# Cleanup and verification ----------------------------------------------------------------------


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
    return [(done.numBytes, len(done.versions), done.numFiles, list(done.versions))]


def _verify(call: Call) -> Rows:
    found = verify(call.table, call.version(), read_data=call.flag("read_data"))
    return [
        (finding.severity.value, finding.kind, finding.what, finding.where, finding.remedy)
        for finding in found.findings
    ]


# Versions, tags, branches --------------------------------------------------------------------


def _restore(call: Call) -> Rows:
    return [(restore(call.table, call.at(), call.settings).version,)]


def _enable_stable_row_ids(call: Call) -> Rows:
    return [(enable_stable_row_ids(call.table, call.settings).version,)]


def _set_primary_key(call: Call) -> Rows:
    return [(set_primary_key(call.table, call.names("columns"), call.settings).version,)]


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
    return [(branch.name, branch.parentVersion)]


def _drop_branch(call: Call) -> Rows:
    remove_branch(call.table, call.text("name"))
    return [(call.text("name"), None)]


def _snake_case(schema: StructType) -> StructType:
    """Return the columns with names in snake case."""
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
_REQUIRED_COLUMNS = StructField("columns", _TEXT, nullable=False)
_ALWAYS = columns(branch=_TEXT)
_AT = columns(version=_LONG, tag=_TEXT, timestamp=_TEXT).fields
_NOTE = StructField("user_metadata", _TEXT)
_NOTHING = StructType([])

PROCEDURES: Mapping[str, Procedure] = {
    "compact": Procedure(
        "Merges small fragments, rewrites those with many deleted rows, or sorts rows.",
        columns(
            **{name: _TYPES[kind] for name, kind in CONFIGURABLE.items()},
            cluster_by=ArrayType(_TEXT),
            split_files_by=ArrayType(_TEXT),
            order=_TEXT,
            dry_run=_FLAG,
            user_metadata=_TEXT,
            **dict.fromkeys(_WITHOUT_EFFECT, _LONG),
        ),
        COMPACTED,
        start_compaction,
        rewrites=True,
    ),
    "create_zonemap": Procedure(
        "Creates a zone map on each of the comma-separated columns, on the executors.",
        StructType([_REQUIRED_COLUMNS, *columns(rows_per_zone=_LONG).fields, _NOTE]),
        ZONE_MAPS,
        start_zone_maps,
    ),
    "refresh_zonemaps": Procedure(
        "Adds rows that were written since the last refresh to all zone maps.",
        StructType([_NOTE]),
        ZONE_MAPS,
        start_zone_maps,
    ),
    "create_index": Procedure(
        "Creates an index on each of the comma-separated columns, on the executors.",
        StructType(
            [
                _REQUIRED_COLUMNS,
                *columns(kind=_TEXT, name=_TEXT, replace=_FLAG, rows_per_zone=_LONG).fields,
                *columns(**{n: _TYPES.get(kind, _TEXT) for n, kind in TOKENIZER_ARGUMENTS.items()}),
                _NOTE,
            ]
        ),
        INDEXED,
        start_create_index,
    ),
    "create_vector_index": Procedure(
        "Creates an index on a vector column, on the executors.",
        StructType(
            [
                *columns(
                    column=_TEXT,
                    kind=_TEXT,
                    metric=_TEXT,
                    num_partitions=_LONG,
                    num_sub_vectors=_LONG,
                    sample_rate=_LONG,
                    seed=_LONG,
                    name=_TEXT,
                    replace=_FLAG,
                ).fields,
                _NOTE,
            ]
        ),
        INDEXED,
        start_create_vector_index,
    ),
    "refresh_indices": Procedure(
        "Adds rows that were written since the last refresh to indices.",
        StructType([*columns(name=_TEXT).fields, _NOTE]),
        INDEXED,
        start_refresh_indices,
    ),
    "optimize_indices": Procedure(
        "Refreshes indices and merges small segments.",
        StructType([*columns(name=_TEXT).fields, _NOTE]),
        INDEXED,
        start_optimize_indices,
    ),
    "drop_index": Procedure(
        "Drops an index of any kind.",
        StructType([_REQUIRED_NAME, _NOTE]),
        _VERSION,
        drop_named_index,
    ),
    "cleanup": Procedure(
        "Removes old versions, and the files that only these refer to.",
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
        "Checks a version for damage; returns one row per finding.",
        StructType([*_AT, *columns(read_data=_FLAG).fields]),
        _FINDINGS,
        _verify,
    ),
    "restore": Procedure(
        "Restores an old version as a new version.",
        StructType([*_AT, _NOTE]),
        _VERSION,
        _restore,
        rewrites=True,
    ),
    "create_tag": Procedure(
        "Tags a version, so that no cleanup removes it.",
        StructType([_REQUIRED_NAME, *_AT]),
        _NAMED,
        _create_tag,
    ),
    "replace_tag": Procedure(
        "Moves a tag to another version.", StructType([_REQUIRED_NAME, *_AT]), _NAMED, _replace_tag
    ),
    "drop_tag": Procedure(
        "Deletes a tag; its version stays until a cleanup.",
        StructType([_REQUIRED_NAME]),
        _NAMED,
        _drop_tag,
    ),
    "create_branch": Procedure(
        "Creates a branch from a version.",
        StructType([_REQUIRED_NAME, *_AT]),
        _NAMED,
        _create_branch,
    ),
    "drop_branch": Procedure(
        "Deletes a branch and everything that was written to it.",
        StructType([_REQUIRED_NAME]),
        _NAMED,
        _drop_branch,
    ),
    "enable_stable_row_ids": Procedure(
        "Adds stable row ids, in place, to a table that was created without them.",
        StructType([_NOTE]),
        _VERSION,
        _enable_stable_row_ids,
        rewrites=True,
    ),
    "set_primary_key": Procedure(
        "Declares the primary key, which cannot be changed later.",
        StructType([StructField("columns", _TEXT, nullable=False), _NOTE]),
        _VERSION,
        _set_primary_key,
    ),
    "history": Procedure(
        "The remaining versions, the newest first: operation, time and author.",
        columns(limit=_LONG),
        _snake_case(HISTORY),
        lambda call: history_rows(call.table, call.number("limit")),
    ),
    "detail": Procedure(
        "Counts, sizes, properties, and advice on the layout of the table.",
        _NOTHING,
        _snake_case(DETAIL),
        lambda call: detail_rows(call.table),
    ),
    "fragments": Procedure(
        "The layout of a version, fragment by fragment.",
        StructType(_AT),
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
"""The procedures by name."""


def procedures_as_markdown() -> str:
    """Return the table of docs/sql.md."""
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
