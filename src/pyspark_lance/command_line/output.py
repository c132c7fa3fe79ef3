"""Output of commands: a table of rows, or one JSON object per line.

Tables are drawn with rich if it is installed (``pip install pyspark-lance[cli]``).
"""

from __future__ import annotations

import base64
import importlib
import io
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import Any, TextIO

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a command."""

    as_json: bool  # One JSON object per line instead of tables.

    @classmethod
    def of(cls, name: str) -> Output:
        """Parse ``text`` or ``json``."""
        return cls(name == "json")

    def rows(self, rows: Iterable[Row]) -> None:
        """Print rows with the same columns."""
        if self.as_json:
            for row in rows:
                self._line(row)
            return
        every = [dict(row) for row in rows]
        if every:
            lines = [
                list(every[0]),
                *([format_value(value) for value in row.values()] for row in every),
            ]
            _write_table([[printable(cell) for cell in line] for line in lines])

    def row(self, row: Row) -> None:
        """Print one row as a list of its columns."""
        if self.as_json:
            self._line(row)
            return
        width = max(map(len, row), default=0)
        for name, value in row.items():
            sys.stdout.write(f"{name.ljust(width)}  {printable(format_value(value))}\n")

    def note(self, text: str) -> None:
        """Print a remark, but not with JSON."""
        if not self.as_json:
            sys.stdout.write(f"{printable(text)}\n")

    def _line(self, row: Row) -> None:
        sys.stdout.write(_json_line(row) + "\n")
        sys.stdout.flush()


class Progress:
    """A progress line on the terminal; silent if the stream is none.

    ``what``: the unit of the count. ``stream``: the terminal; None for standard error.
    """

    def __init__(self, what: str, stream: TextIO | None = None) -> None:
        self._what = what
        self._stream = stream or sys.stderr

    def __call__(self, done: int, total: int) -> None:
        """Print the progress."""
        if self._stream.isatty():
            end = "\n" if done >= total else ""
            self._stream.write(f"\r{done} of {total} {self._what}{end}")
            self._stream.flush()


def format_value(value: Any) -> str:
    """Return a readable text of a value."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={format_value(item)}" for key, item in value.items()) or "-"
    if isinstance(value, tuple | list):
        return ", ".join(map(format_value, value)) or "-"
    return str(value)


def printable(text: str) -> str:
    """Return ``text`` on one line without terminal control characters.

    A value must not look like another line, or like the prompt: control characters are escaped as
    in ``repr``. So are lone surrogates, which come from file names that are not UTF-8.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 file", "2 files"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def prepare_streams() -> None:
    """Let commands print any text to the standard streams, and to none if they are closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # the encoding may lack a character


def _is_encodable(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _json_line(row: Row) -> str:
    encode = partial(json.dumps, default=_as_json, allow_nan=False)
    try:
        line = encode(row, ensure_ascii=False)
    except ValueError:  # NaN or an infinity, for which JSON has no numbers
        row = _with_named_numbers(row)
        line = encode(row, ensure_ascii=False)
    return line if _is_encodable(line) else encode(row)


def _with_named_numbers(value: Any) -> Any:
    """Replace numbers that JSON lacks by their names, as Spark's ``to_json`` does."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _with_named_numbers(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_with_named_numbers(item) for item in value]
    return value


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def _write_table(lines: Sequence[Sequence[str]]) -> None:
    if sys.stdout.isatty() and _write_rich(lines):
        return
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def _write_rich(lines: Sequence[Sequence[str]]) -> bool:
    """Draw a table with rich; return False if it is not installed."""
    try:
        console = importlib.import_module("rich.console")
        tables = importlib.import_module("rich.table")
        text = importlib.import_module("rich.text")
    except ImportError:
        return False
    # Not as str, in which [brackets] are markup.
    table = tables.Table(*map(text.Text, lines[0]))
    for line in lines[1:]:
        table.add_row(*(text.Text(cell) for cell in line))
    console.Console().print(table)
    return True
