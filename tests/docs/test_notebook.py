"""The notebook runs, shows what it is kept with, and says nothing else."""

from __future__ import annotations

import json
import sys

import pytest
from documents import ROOT, no_answers
from script_process import run_command

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1100)]
NOTEBOOK = ROOT / "examples" / "tour.ipynb"


def shown(path):
    """What each cell prints or gives as text, and the kinds of pictures and tables it shows."""
    cells = json.loads(path.read_text())["cells"]
    found = []
    for outputs in (cell["outputs"] for cell in cells if cell["cell_type"] == "code"):
        printed = "".join("".join(one["text"]) for one in outputs if one["output_type"] == "stream")
        results = [one["data"] for one in outputs if one["output_type"] != "stream"]
        texts = ["".join(data["text/plain"]) for data in results]
        found.append((printed, texts, [sorted(data) for data in results]))
    return found


def test_notebook_reproduces_stored_output(tmp_path):
    again = tmp_path / "again.ipynb"
    run_command(sys.executable, ROOT / "tests" / "support" / "notebooks.py", NOTEBOOK, again)
    assert shown(again) == shown(NOTEBOOK)
    assert no_answers(again.read_text()) == {}


def test_notebook_contains_tables_and_picture():
    kinds = {kind for _, _, results in shown(NOTEBOOK) for data in results for kind in data}
    assert {"text/html", "image/svg+xml"} <= kinds
    assert "/tmp" not in NOTEBOOK.read_text()
