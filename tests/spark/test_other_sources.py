"""A session that uses no Lance table is the same with the plugin's jar as without it."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from other_sources import FILES
from script_process import run_command

pytestmark = pytest.mark.spark
SCRIPT = Path(__file__).parents[1] / "support" / "other_sources.py"


def came(folder: Path, step: int, files: tuple[str, ...], *, jar: bool) -> dict[str, object]:
    """What came of statements in a session of its own."""
    data, written = folder / "data", folder / f"{jar}.json"
    data.mkdir()
    run_command(sys.executable, SCRIPT, written, data, step, *files, seconds=1200, jar=jar)
    shutil.rmtree(data)  # Both use one path, since plans show only the beginning of long ones.
    return json.loads(written.read_text())


@pytest.mark.parametrize(
    ("step", "files", "least"),
    [(8, FILES[:1], 40), pytest.param(1, FILES, 320, marks=pytest.mark.slow)],
    ids=["an eighth of the statements", "all"],
)
def test_other_sources_are_unaffected_by_jar(step, files, least, tmp_path):
    """Rows, columns, plans and errors; what views keep of the session; rules and processes."""
    without, with_it = (came(tmp_path, step, files, jar=jar) for jar in (False, True))
    assert len(without["came"]) >= least
    analyzed = {text: came for text, came in without["came"] if "analyzed" in came}
    assert "UpdateTable" in analyzed["plan: UPDATE files SET a = 1"]["analyzed"]
    assert len(analyzed) == 18 and all("error" in came for came in analyzed.values())
    differing = [
        (text, plain, other)
        for (text, plain), (_, other) in zip(without["came"], with_it["came"], strict=True)
        if plain != other
    ]
    assert not differing, differing[0]
    assert without == with_it
    assert with_it["rules"] == 0
    assert with_it["processes"] == []
