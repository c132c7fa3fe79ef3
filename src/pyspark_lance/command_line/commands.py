"""The commands: call the table layer and print the results as rows."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark_lance.command_line.output import Output, Progress, counted
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.plain_values import python_rows
from pyspark_lance.result_names import snake_case
from pyspark_lance.table.cdf.change_feed import ChangeRequest, count_changes, plan_changes
from pyspark_lance.table.cdf.change_window import Bound, Deduplication, resolve_window
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.history.history import HistoryEntry, detail, fragments, history
from pyspark_lance.table.tasks import MaintenanceTask
from pyspark_lance.table.verify.find_value import find_value
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

FOUND_ERRORS = 1
FOUND_VALUES = 1


def show_info(table: Table, given: argparse.Namespace, output: Output) -> int:
    """``info``."""
    if given.plot:
        _plot(table, Path(given.plot))
    output.row(asdict(detail(table)))
    return 0


def _plot(table: Table, file: Path) -> None:
    """Draw the table; check the path before drawing."""
    if file.suffix.lower() != ".svg":
        raise InvalidInputError(
            f"pictures are drawn as SVG, and {str(file)!r} does not end with .svg",
            hint=f"name it {file.stem + '.svg'!r}; browsers and image editors "
            "open it and can convert it",
        )
    if not file.parent.is_dir():
        raise InvalidInputError(
            f"there is no folder {str(file.parent)!r} for the picture", hint="create it first"
        )
    from pyspark_lance.command_line.picture import draw_table, to_svg

    file.write_bytes(to_svg(draw_table(table)).encode())


def show_history(table: Table, given: argparse.Namespace, output: Output) -> int:
    """``history``."""
    output.rows(_history_row(entry, output) for entry in history(table, given.limit))
    return 0


def _history_row(entry: HistoryEntry, output: Output) -> dict[str, Any]:
    row = asdict(entry)
    if not output.as_json:
        for name in ("metrics", "application_id", "writer", "manifest_bytes"):
            del row[name]
    return row


def show_fragments(table: Table, given: argparse.Namespace, output: Output) -> int:
    """``fragments``."""
    rows = (asdict(fragment) for fragment in fragments(table, VersionSpec(version=given.version)))
    output.rows(row if output.as_json else _without(row, "files") for row in rows)
    return 0


def _without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def show_verification(table: Table, given: argparse.Namespace, output: Output) -> int:
    """``verify``."""
    result = verify(table, given.version, read_data=given.read_data)
    output.rows(
        {**asdict(finding), "severity": finding.severity.value} for finding in result.findings
    )
    output.note(
        f"version {result.version}: {counted(result.numFragments, 'fragment')}, "
        f"{counted(result.numFiles, 'file')}, {counted(result.numRows, 'row')}; "
        f"{counted(len(result.errors), 'error')}, "
        f"{counted(len(result.findings) - len(result.errors), 'warning')}"
    )
    if result.basePaths:
        output.note(f"it has files outside of its folder, in {', '.join(result.basePaths)}")
    return 0 if result.isSound else FOUND_ERRORS


def show_files_with_value(table: Table, given: argparse.Namespace, output: Output) -> int:
    """``find``."""
    result = find_value(table, given.column, given.value)
    rows = [
        *({**row_of(file), "note": None} for file in result.files),
        *(
            {"path": path, "kind": "not searched", "num_values": None, "versions": (),
             "branches": (), "note": why}
            for path, why in sorted(result.notSearched.items())
        ),
    ]  # fmt: skip
    output.rows(rows)
    count = sum(file.numValues or 0 for file in result.files)
    output.note(
        f"{counted(result.numFiles, 'file')} searched: {len(result.files)} with a value, "
        f"{len(result.notSearched)} not searched completely; "
        f"{counted(count, 'value')} in columns and indices"
    )
    return FOUND_VALUES if result.isFound else 0


def show_compaction(table: Table, given: argparse.Namespace, output: Output) -> int:
    """``compact``."""
    request = CompactionRequest(
        target_rows_per_fragment=given.target_rows_per_fragment,
        materialize_deletions_threshold=given.materialize_deletions_threshold,
        max_bytes_per_file=given.max_bytes_per_file,
        max_source_rows=given.max_source_rows,
        cluster_by=_names(given.cluster_by),
        split_files_by=_names(given.split_files_by),
        order=given.order,
    )
    result = compact(table, request, run=_run_with_progress, dry_run=given.dry_run)
    output.row(row_of(result))
    return 0


def _names(given: str | None) -> tuple[str, ...] | None:
    """Split a comma-separated list; None if there is no list."""
    return None if given is None else tuple(name for name in given.split(",") if name)


def _run_with_progress(tasks: Sequence[MaintenanceTask[Any]]) -> Iterable[Any]:
    for done, task in enumerate(tasks, 1):
        yield task.run()
        Progress(f"tasks done: {task.title}")(done, len(tasks))


def show_cleanup(table: Table, given: argparse.Namespace, output: Output) -> int:
    """``cleanup``."""
    policy = CleanupPolicy(
        older_than_s=given.older_than,
        before_version=given.before_version,
        retain_versions=given.retain_versions,
        delete_unverified=given.delete_unverified,
        error_if_tagged=not given.keep_tagged,
    )
    result = cleanup_old_versions(
        table, policy, dry_run=given.dry_run, progress=Progress("files removed")
    )
    row = row_of(result)
    output.row(row if output.as_json or given.dry_run else _without(row, "paths"))
    return 0


def show_changes(table: Table, given: argparse.Namespace, output: Output) -> int:
    """``changes``."""
    window = resolve_window(table, Bound(version=given.first), Bound(version=given.last))
    if given.counts:
        output.rows(row_of(counts) for counts in count_changes(table, window))
        return 0
    snapshot = Snapshot.open(table, VersionSpec(version=window.end))
    columns = logical_schema(snapshot.schema).fields
    request = ChangeRequest(window=window, mode=Deduplication(given.mode), columns=columns)
    tasks = plan_changes(table, columns, request)
    output.rows(row for task in tasks for batch in task.run() for row in python_rows(batch))
    return 0


def tail(table: Table, given: argparse.Namespace, output: Output) -> int:
    """``tail``."""
    for entry in _follow_versions(table, given.start, given.count, given.interval):
        output.rows([_history_row(entry, output)])
    return 0


def _follow_versions(
    table: Table, start: int | None, count: int | None, interval_s: float
) -> Iterator[HistoryEntry]:
    """Yield versions from ``start`` on, the oldest first, as they are committed."""
    following = Snapshot.open(table).version + 1 if start is None else start
    left = count
    while left is None or left > 0:
        newest = Snapshot.open(table).version
        if newest < following:
            time.sleep(interval_s)
            continue
        new = [
            entry for entry in history(table, newest - following + 1) if entry.version >= following
        ]
        for entry in reversed(new):
            if left is not None:
                if left <= 0:
                    return
                left -= 1
            yield entry
        following = newest + 1


def row_of(result: Any) -> dict[str, Any]:
    """Return the fields of a result with names in snake case."""
    return {snake_case(name): value for name, value in asdict(result).items()}
