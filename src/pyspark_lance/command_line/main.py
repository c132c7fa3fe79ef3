"""``pyspark-lance COMMAND TABLE``: arguments in, one command, its exit code out.

Exit codes: 0 success, 1 verification found errors or a file holds a value, 2 the command failed or
is invalid, 130 it was interrupted before its end.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from pyspark_lance.command_line.commands import (
    show_changes,
    show_cleanup,
    show_compaction,
    show_files_with_value,
    show_fragments,
    show_history,
    show_info,
    show_verification,
    tail,
)
from pyspark_lance.command_line.output import Output, prepare_streams, printable
from pyspark_lance.errors import InvalidInputError, LanceError
from pyspark_lance.table.cdf.change_window import Deduplication
from pyspark_lance.table.cleanup.auto_cleanup import parse_duration
from pyspark_lance.table.version.table import Table, suggest_paths
from pyspark_lance.version import __version__

_INTERRUPTED = 128 + signal.SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    ``arguments``: without the name of the program; None for those of the process. Returns the exit
    code.
    """
    prepare_streams()
    parser = _parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help(sys.stderr)
        return 2
    given, unknown = parser.parse_known_args(arguments)
    if unknown:  # shows the usage of the command
        given.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        _check_values(given)
        if given.run is None:
            return run_quickstart(given.folder)
        storage = dict(_option(text) for text in given.storage)
        table = Table(given.table, storage, given.branch)
        with suggest_paths(table):
            return int(given.run(table, given, Output.of(given.output)))
    except LanceError as error:
        _print_error(error)
        return 2
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # the reader of our output has closed the pipe
            sys.stderr.close()
            return 0
        _print_error(error)
        return 2
    except KeyboardInterrupt:
        # To follow a table has no other end; what else was interrupted has not succeeded.
        return 0 if given.run is tail else _INTERRUPTED


def _check_values(given: argparse.Namespace) -> None:
    """Check for ``--option=--``, which argparse parses as an empty list."""
    for name, value in vars(given).items():
        if [] in value if name in ("storage", "value") else value == []:
            raise InvalidInputError(f"the option --{name.replace('_', '-')} needs a value, not --")


def _print_error(error: Exception) -> None:
    lines = str(error).split("\n")
    sys.stderr.write("".join(f"{printable(line)}\n" for line in lines))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print the error and exit."""
        super().error(printable(message))


def _parser() -> argparse.ArgumentParser:
    module = "python -m pyspark_lance"
    called = module if Path(sys.argv[0]).name == "__main__.py" else "pyspark-lance"
    parser = _Parser(prog=called, description="Lance tables from the command line, without Spark.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    common = _Parser(add_help=False)
    common.add_argument("table", help="path or URI of the table")
    common.add_argument("--branch", help="a branch of the table; main unless given")
    common.add_argument(
        "--output", choices=("text", "json"), default="text", help="how to print; text unless given"
    )
    common.add_argument(
        "--storage",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a storage option; may be repeated",
    )

    def add(name: str, run: object, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, parents=[common], help=text, description=text)
        command.set_defaults(run=run, parser=command)
        return command

    info = add(
        "info", show_info, "counts, sizes, properties, and advice on the layout of the table"
    )
    info.add_argument("--plot", metavar="FILE", help="draw fragments over versions, as .svg")
    history = add("history", show_history, "the versions, the newest first, and who made them")
    history.add_argument("--limit", type=_count, metavar="N", help="only the newest N versions")
    fragments = add("fragments", show_fragments, "the layout of a version")
    fragments.add_argument("--version", type=_count, metavar="N", help="the newest unless given")
    verify = add("verify", show_verification, "check for damage and inconsistencies")
    verify.add_argument("--version", type=_count, metavar="N", help="the newest unless given")
    verify.add_argument("--read-data", action="store_true", help="also decode every value")
    find = add("find", show_files_with_value, "the files that still hold a value of a column")
    find.add_argument("--column", required=True, metavar="NAME", help="a.b for a field of a struct")
    find.add_argument(
        "--value", required=True, action="append", help="what to look for; may be repeated"
    )
    _add_compact(add("compact", show_compaction, "merge small fragments, drop deleted rows"))
    _add_cleanup(add("cleanup", show_cleanup, "remove old versions and what only they need"))
    changes = add("changes", show_changes, "the rows that versions changed")
    changes.add_argument("first", type=_whole, help="first version; 0 is the beginning")
    changes.add_argument(
        "last", type=_count, nargs="?", help="last version; the newest unless given"
    )
    changes.add_argument(
        "--mode",
        choices=[mode.value for mode in Deduplication],
        default="dropCarryovers",
        help="none keeps updates that change no value, netChanges has one change per row",
    )
    changes.add_argument("--counts", action="store_true", help="only counts, one line per version")
    follow = add("tail", tail, "follow new versions as they come")
    follow.add_argument(
        "--start", type=_count, metavar="N", help="first version; the next one unless given"
    )
    follow.add_argument("--count", type=_count, metavar="N", help="stop after N versions")
    follow.add_argument(
        "--interval",
        type=_interval,
        default=2.0,
        metavar="SECONDS",
        help="how often to look; 2 unless given",
    )
    text = "write, change and follow a table of flights, with Spark, in a minute"
    example = commands.add_parser("quickstart", help=text, description=text)
    example.set_defaults(run=None, storage=[], parser=example)
    example.add_argument("folder", nargs="?", help="where the tables stay; else they are removed")
    return parser


def _add_compact(command: argparse.ArgumentParser) -> None:
    def add(name: str, kind: Callable[[str], float], metavar: str, text: str) -> None:
        command.add_argument(name, type=kind, metavar=metavar, help=text)

    add("--target-rows-per-fragment", _count, "N", "fragments with fewer rows are merged")
    add(
        "--materialize-deletions-threshold",
        float,
        "SHARE",
        "rewrite fragments with more than this share of their rows deleted, 0 to 1",
    )
    add("--max-bytes-per-file", _count, "N", "size at which a new data file is started")
    add("--max-source-rows", _count, "N", "stop when N rows are rewritten")
    command.add_argument("--cluster-by", metavar="COLUMNS", help="sort the rows, such as day,user")
    command.add_argument(
        "--split-files-by", metavar="COLUMNS", help="the first of them, whose values get own files"
    )
    command.add_argument("--order", help="linear, zorder or hilbert")
    command.add_argument("--dry-run", action="store_true", help="only print what would be done")


def _add_cleanup(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--older-than",
        type=_seconds,
        metavar="DURATION",
        help="remove versions older than this, such as 14days",
    )
    command.add_argument(
        "--before-version", type=_count, metavar="N", help="remove versions before version N"
    )
    command.add_argument(
        "--retain-versions", type=_count, metavar="N", help="remove all but the newest N versions"
    )
    command.add_argument(
        "--keep-tagged",
        action="store_true",
        help="keep old versions that are tagged, instead of an error",
    )
    command.add_argument(
        "--delete-unverified",
        action="store_true",
        help="also remove young files that no version names: only safe without writers",
    )
    command.add_argument("--dry-run", action="store_true", help="only print what would be removed")


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except InvalidInputError as error:
        raise argparse.ArgumentTypeError(f"{error.what}: {error.hint}") from error


def _whole(text: str, least: int = 0) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
    return number


def _count(text: str) -> int:
    return _whole(text, 1)


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return seconds


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidInputError("a storage option is given as KEY=VALUE")
    return name, value


_PACKAGE = Path(__file__).resolve().parents[1]
# In a wheel; in a clone, of which only src is on the path.
_FOLDERS = (_PACKAGE / "examples", _PACKAGE.parents[1] / "examples")


def run_quickstart(folder: str | None) -> int:
    """Run the quickstart in a separate process and return its exit code.

    ``folder``: where its tables stay; None for a temporary folder.
    Raises ``InvalidInputError`` without Java, for which Spark only prints a traceback.
    """
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        raise InvalidInputError(
            "Spark needs Java 17 or newer, and no java was found",
            hint="install a JDK or JRE, and put it on PATH or set JAVA_HOME",
        )
    script = next(one for one in _FOLDERS if one.is_dir()) / "quickstart.py"
    # Spark would start the first python3 on PATH, which may lack this package.
    environment = {"PYSPARK_PYTHON": sys.executable, **os.environ}
    command = [sys.executable, str(script), *([folder] if folder else [])]
    return subprocess.run(command, env=environment, check=False).returncode
