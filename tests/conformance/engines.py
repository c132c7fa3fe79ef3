"""Engines of the runner: this package, or a command with its protocol."""

from __future__ import annotations

import itertools
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from conformance.model import CHANGE_KINDS, Answer

from pyspark_lance.errors import (
    CorruptFileError,
    LanceError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.column_names import CREATED_AT, LAST_UPDATED_AT, ROW_ADDRESS, ROW_ID
from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.metafile.manifest_file import list_versions
from pyspark_lance.table.cdf.change_feed import ChangeRequest, plan_changes
from pyspark_lance.table.cdf.change_window import Bound, Deduplication, resolve_window
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.tasks import run_local
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

Ask = Callable[[Mapping[str, Any]], Answer]


class EngineError(Exception):
    """A command does not start, exits too early, or sends an invalid response."""


@contextmanager
def opened(engine: str) -> Iterator[Ask]:
    """Open an engine: ``ours``, ``pylance`` or a shell command.

    Raises EngineError: the command does not exist, exits, or sends an invalid response.
    """
    if engine == "ours":
        yield answer
        return
    pylance = [sys.executable, str(Path(__file__).with_name("pylance_engine.py"))]
    command = pylance if engine == "pylance" else shlex.split(engine)
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
    except OSError as error:
        raise EngineError(f"{engine}: {error.strerror}") from error
    assert process.stdin is not None
    assert process.stdout is not None
    to, back = process.stdin, process.stdout
    try:
        yield lambda request: _asked(to, back, request)
    finally:
        process.terminate()
        process.wait()


def _asked(to: IO[str], back: IO[str], request: Mapping[str, Any]) -> Answer:
    try:
        to.write(json.dumps(request) + "\n")
        to.flush()
    except OSError as error:
        raise EngineError("the command ended without reading a request") from error
    line = back.readline()
    if not line:
        raise EngineError(f"the command ended without an answer to {json.dumps(request)}")
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise EngineError(f"no JSON object is the answer {line.strip()!r}")
    return found


_LINEAGE = (ROW_ID, ROW_ADDRESS, CREATED_AT, LAST_UPDATED_AT)
_COLUMNS = ("key", "n", "s")
_ERRORS: tuple[tuple[type[LanceError], str], ...] = (
    (TableNotFoundError, "not found"),
    (CorruptFileError, "corrupt"),
    (UnsupportedFeatureError, "unsupported"),
)


def answer(request: Mapping[str, Any]) -> Answer:
    """Return the response of this package."""
    table = Table(request["table"], branch=request.get("branch"))
    try:
        match request["ask"]:
            case "versions":
                return {"versions": [one.version for one in list_versions(table.store())]}
            case "rows":
                return {"rows": _rows(table, request["version"])}
            case "changes":
                return {"changes": _changes(table, request["start"], request["end"])}
            case other:
                return {"error": f"no such request: {other}"}
    except LanceError as error:
        known = (name for kind, name in _ERRORS if isinstance(error, kind))
        return {"error": next(known, error.code), "message": str(error)}


def _rows(table: Table, version: int) -> list[list[Any]]:
    snapshot = Snapshot.open(table, VersionSpec(version=version))
    tasks = plan_scan(snapshot, ScanRequest(system_columns=_LINEAGE))
    batches = itertools.chain.from_iterable(run_local(tasks))
    rows = itertools.chain.from_iterable(batch.to_pylist() for batch in batches)
    found = ([*(row[n] for n in _LINEAGE), [row[n] for n in _COLUMNS]] for row in rows)
    return sorted(found, key=itemgetter(0))


def _changes(table: Table, start: int, end: int) -> dict[str, list[list[Any]]]:
    shown = logical_schema(Snapshot.open(table, VersionSpec(version=end)).schema).fields
    window = resolve_window(table, Bound(version=start), Bound(version=end))
    request = ChangeRequest(window=window, mode=Deduplication.DROP_CARRYOVERS, columns=shown)
    found: dict[str, list[list[Any]]] = {kind: [] for kind in CHANGE_KINDS}
    for task in plan_changes(table, shown, request):
        for row in itertools.chain.from_iterable(one.to_pylist() for one in task.run()):
            change = [row["_commit_version"], row[ROW_ID], [row[name] for name in _COLUMNS]]
            found[row["_change_type"]].append(change)
    return {kind: sorted(rows, key=itemgetter(0, 1)) for kind, rows in found.items()}
