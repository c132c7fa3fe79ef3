"""Whom the runner asks: this package, or a command that speaks its protocol."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pyspark_lance.conformance.answers import answer
from pyspark_lance.conformance.model import Answer

Ask = Callable[[Mapping[str, Any]], Answer]

_HERE = Path(__file__).resolve().parent
# In a wheel; in a clone, whose package imports no pylance and so has no such file.
_PYLANCE = (
    _HERE / "pylance_engine.py",
    _HERE.parents[2] / "tests" / "conformance" / "pylance_engine.py",
)


class EngineError(Exception):
    """A command that does not start, ends too early, or answers what is no answer."""


@contextmanager
def opened(engine: str) -> Iterator[Ask]:
    """The engine of a name: ``ours``, ``pylance`` or a command of the shell's form.

    Raises:
        EngineError: There is no such command; or, while asking, it has ended or talks nonsense.
    """
    if engine == "ours":
        yield answer
        return
    command = _pylance_command() if engine == "pylance" else shlex.split(engine)
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


def _pylance_command() -> list[str]:
    return [sys.executable, str(next(path for path in _PYLANCE if path.is_file()))]


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
