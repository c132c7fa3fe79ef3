"""A few seconds of each proof, and that it fails where a rule is broken; the commands do it all."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import interleaving
import pytest
from interleaving import Outcome, compare
from proofs import interleavings, model
from proofs.interleavings import all_cases, swept_cases
from proofs.placed_operations import PLACED

from pyspark_lance.commit.conflict_check import ConflictChecks
from pyspark_lance.table import refs

pytestmark = pytest.mark.interop

# Operations that refer to an old version, beside operations that remove it.
OLD = [
    case
    for case in all_cases()
    if {case.first, *case.second} & {"restored", "tag_oldest", "branch_oldest"}
    and {case.first, *case.second} & {"cleanup", "their_cleanup"}
]


def test_old_versions_hold_during_cleanup():
    report = interleavings.prove(OLD)
    assert len(OLD) == 36
    assert report.anomalies == []


def test_sampled_interleavings_have_no_anomalies():
    report = interleavings.prove(random.Random(3).sample(list(all_cases()), 12))
    assert report.anomalies == []
    assert report.counts["interleavings"] == 12


def test_newest_references_hold_under_concurrent_commits():
    interleaving.OPERATIONS.update(PLACED)
    cases = [case for case in swept_cases() if case.first in ("tag_newest", "branch_newest")]
    report = interleavings.prove(random.Random(3).sample(cases, 40))
    assert report.anomalies == []


def test_newest_reference_must_match_some_intermediate_version():
    expected = Outcome({}, (), (), {}, {"tag newest0": 4, "tag oldest0": 1})
    for newest, oldest, fits in [(4, 1, True), (6, 1, True), (7, 1, False), (3, 1, False),
                                 (5, 5, False)]:  # fmt: skip
        references = {"tag newest0": newest, "tag oldest0": oldest}
        found = replace(expected, references=references, newest={0: range(4, 7)})
        assert (compare(expected, found) is None) == fits


@pytest.mark.parametrize(
    ("owner", "name", "broken", "pair"),
    [
        (ConflictChecks, "check", lambda *_: set(), ("update @ same row",) * 2),
        (refs, "check_not_removed", lambda *a: None, ("tag_oldest", "cleanup")),
    ],
)
def test_interleavings_reveal_broken_rule(monkeypatch, owner, name, broken, pair):
    monkeypatch.setattr(owner, name, broken)
    cases = [case for case in all_cases() if (case.first, *case.second) == pair]
    assert len(interleavings.prove(cases).anomalies) >= 2


@pytest.mark.parametrize(
    "kinds", [("append", "update", "cleanup"), ("restore", "cleanup", "cleanup")]
)
def test_model_has_no_anomalies(kinds):
    states, schedules = model.explore(kinds)
    assert states > 1000
    assert schedules > 10**6


@pytest.mark.parametrize("mutant", model.MUTANTS)
def test_model_reveals_broken_rule(mutant):
    triples = [
        ("append", "update", "update"), ("append", "append", "append"),
        ("append", "restore", "cleanup"), ("append", "append", "cleanup"),
        ("append", "append", "read"),
    ]  # fmt: skip
    assert model.prove(triples, mutant).anomalies


def command(name, *arguments):
    """Run a proof as a user does; what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).parent / name), *arguments],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_sampled_crashes_have_no_anomalies():
    printed = command("crashes.py", "--runs", "8", "--seed", "5")
    assert re.search(r"^kills +8$", printed, re.MULTILINE)
    assert re.search(r"crashes: 0 anomalies, seed 5, \d+ s, commit \w+", printed)


def test_short_soak_has_no_anomalies():
    printed = command("soak.py", "--commits", "6")
    assert re.search(r"^batches of changes applied +[1-9]", printed, re.MULTILINE)
    assert "soak: 0 anomalies" in printed
