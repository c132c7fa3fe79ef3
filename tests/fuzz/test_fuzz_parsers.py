"""A few of the inputs of the fuzz command, and that it notices what it looks for."""

from __future__ import annotations

import random
import time

import pytest
from fuzz.targets import Target, make_targets

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    return make_targets(tmp_path_factory.mktemp("corpus"), every=6)


@pytest.fixture
def run_all():
    # It prepares this process's imports only; the limits are those of its children.
    from fuzz.fuzz_parsers import run_all

    return run_all


def test_valid_inputs_are_read(targets):
    for target in targets:
        for sample in target.samples:
            target.read(sample, random.Random(1))


def test_damaged_inputs_are_read_or_refused(targets, run_all):
    tally = run_all(targets, seed=5, numbers=range(300))
    assert not tally.failures, tally.examples
    assert sum(tally.inputs.values()) == 300
    assert 50 < sum(tally.refused.values()) < 300


def read_badly(number: int, rng: random.Random) -> None:
    match number:
        case 0:
            raise IndexError("wrong error")
        case 1:
            bytearray(1 << 40)
        case 2:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGSEGV)
        case 3:
            from fuzz import fuzz_parsers

            fuzz_parsers.signal.setitimer(fuzz_parsers.signal.ITIMER_REAL, 0.05)
            while True:
                time.sleep(0.01)


def test_unexpected_errors_crashes_and_hangs_are_failures(run_all):
    numbers = iter([0, 1, 2, 3])

    def damage(rng):
        # A child counts on from where its parent was.
        return next(numbers, 9)

    target = Target("bad", 1, damage, read_badly, [])
    tally = run_all([target], seed=1, numbers=range(3))
    assert any("crash" in what for what in tally.failures)
    numbers = iter([0, 1, 3, 9])
    tally = run_all([target], seed=1, numbers=range(4))
    kinds = " ".join(tally.failures)
    assert "IndexError" in kinds
    assert "MemoryError" in kinds
    assert "TookTooLong" in kinds
    assert tally.inputs["bad"] == 4
