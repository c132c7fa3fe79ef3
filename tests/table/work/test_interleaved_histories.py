"""Three writers at once, many times, at random; ``interleaved_history.py`` says how.

A few histories run by default, always the same; many by

    pytest -m slow tests/table/work/test_interleaved_histories.py

other ones with ``PYSPARK_LANCE_SEED=7``, more with ``PYSPARK_LANCE_HISTORIES=5000``.
"""

from __future__ import annotations

import os

import pytest
from interleaved_history import history_of, run_history
from interleaving import remove_workplace

pytestmark = pytest.mark.interop

SEED = int(os.environ.get("PYSPARK_LANCE_SEED", "0"))
HISTORIES = int(os.environ.get("PYSPARK_LANCE_HISTORIES", "2000"))
PARTS = 4
SHARE = 20


@pytest.fixture(autouse=True, scope="module")
def _workplace():
    yield
    remove_workplace()


def check(seeds):
    """Run the histories; failures are reported together."""
    failures = []
    for seed in seeds:
        try:
            run_history(seed)
        except Exception as error:  # noqa: BLE001
            failures.append(f"{history_of(seed)}\n{type(error).__name__}: {error}")
    assert not failures, f"{len(failures)} of {len(seeds)} histories\n" + "\n\n".join(failures)


def test_sampled_histories_of_three_writers_are_serializable():
    check(range(SEED * 1_000_000, SEED * 1_000_000 + SHARE))


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
def test_many_histories_of_three_writers_are_serializable(part):
    check(range(SEED * 1_000_000 + part, SEED * 1_000_000 + HISTORIES, PARTS))
