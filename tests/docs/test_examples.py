"""The examples run, do what they say, and print nothing else."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest
from documents import ROOT, no_answers
from script_process import run_command

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1100)]

EXAMPLES = ("search_documents.py", "change_feed.py", "follow_a_table.py")
# What needs a package of its own, which may not be there.
WITH_DIGITS = "similar_images.py"
HAS_DIGITS = find_spec("sklearn") is not None


@pytest.fixture(scope="module")
def ended(run_documents):
    # The processes of streams may still say something when others run, so these come last.
    return run_documents("plain", [*([WITH_DIGITS] if HAS_DIGITS else []), *EXAMPLES])


def test_totals_and_vectors_follow_the_changes_alone(ended):
    seen = ended.result("change_feed.py")
    assert (seen["wrong totals"], seen["stale vectors"]) == (0, 0)
    assert 1 <= seen["looked at again"] < seen["carriers"] / 2
    assert seen["vectors at first"] == 3
    assert (seen["vectors computed again"], seen["vectors made once more"]) == (1, 0)


def test_a_copy_and_a_history_follow_a_table(ended):
    seen = ended.result("follow_a_table.py")
    assert seen["rows in which the copy differs"] == 0
    apart = [value for name, value in seen.items() if name.startswith("rows apart")]
    assert apart == [0, 0, 0, 0, 0]
    assert seen["versions of the copy"] == 4
    assert seen["states in the history"] > seen["rows in the table"]


def test_documents_are_found_by_their_texts_of_now(ended):
    seen = ended.result("search_documents.py")
    assert (seen["embedded at first"], seen["embedded again"]) == (8, 1)
    for way in ("by words", "by meaning", "by both"):
        assert set(seen[f"a fisherman's boat, {way}"]) == {"Harbour", "Market"}
        assert seen[f"later, {way}"] == ["Library", "Harbour"]
    assert seen["bread in the mountains, by both"][0] == "Hut"
    assert dict(seen["several questions"]) == {"who fishes": "Library", "fresh bread": "Bakery"}


@pytest.mark.skipif(not HAS_DIGITS, reason="needs scikit-learn: pip install -e '.[examples]'")
def test_pictures_that_were_corrected_are_found_by_new_vectors(ended):
    seen = ended.result(WITH_DIGITS)
    assert seen["vectors made at first"] == seen["rows in the index"] == 1797
    corrected = seen["pictures corrected"]
    assert 0 < corrected < 200
    assert seen["vectors computed again"] == seen["rows added to the index"] == corrected
    assert seen["same digit, corrected"] > seen["same digit, upside down"]
    assert seen["points of the picture"] == 6 * 8 * 10 * 10 * 16


def test_the_quickstart_comes_to_its_end(tmp_path):
    """It starts and stops a session of its own."""
    # As the console entry runs it, which needs no clone.
    command = (sys.executable, "-m", "pyspark_lance", "quickstart", tmp_path / "kept")
    printed = run_command(*command)
    assert ("update_preimage" in printed[0], "What to try next" in printed[0]) == (True, True)
    assert [no_answers(one) for one in printed] == [{}, {}]
    assert "\033" not in printed[0]  # no terminal
    # Its figures would be wrong in a table that it has written already.
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == f"{tmp_path}/kept/flights exists: name another folder, or none\n"


def test_no_example_is_left_out():
    others = {path.name for path in (ROOT / "examples").glob("*.py")} - {*EXAMPLES, WITH_DIGITS}
    # One that is above, and what all of them use.
    assert others == {"quickstart.py", "flights.py", "printing.py"}
