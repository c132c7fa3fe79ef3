"""Documents and examples run in processes of their own, each kind of session in one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from documents import ROOT, no_answers
from script_process import run_command

# All documents and examples, on a machine that does other things too.
MAX_SECONDS = 1000
_COMMAND = ROOT / "tests" / "support" / "document_process.py"


class Ended:
    """How documents and examples ended, and what was printed besides their answers."""

    def __init__(self, kind: str, folder: Path, names: list[str]) -> None:
        ended = folder / "ended.json"
        command = [sys.executable, _COMMAND, kind, ended, folder / "run", *names]
        printed = run_command(*command, seconds=MAX_SECONDS)
        self._results = json.loads(ended.read_text())
        self._besides = [no_answers(one) for one in printed]

    def result(self, name: str) -> object:
        """What one of them returned; any other output is a failure."""
        result = self._results[name]
        assert "error" not in result, result["error"]
        own = [
            f"{where} prints:\n{text}"
            for besides in self._besides
            for where, text in besides.items()
            if where.partition(":")[0] == Path(name).name
        ]
        assert not own, "\n".join(own)
        return result["returned"]

    def printed_elsewhere(self) -> list[str]:
        """What was printed besides answers before the first and behind the last of them."""
        names = {Path(name).name for name in self._results}
        return [
            f"{where}: {text}"
            for besides in self._besides
            for where, text in besides.items()
            if where.partition(":")[0] not in names
        ]


@pytest.fixture(scope="session")
def run_documents(tmp_path_factory):
    """Run documents in a session of a kind, without the plugin or with it."""

    def run(kind: str, names: list[str]) -> Ended:
        return Ended(kind, tmp_path_factory.mktemp(kind), names)

    return run
