"""Every operation of ours, stopped at every point of its commit while another one runs whole.

Where it is stopped, and what must come of it, is said in ``interleaving.py``.  By default a share
of all cases runs, always the same; all by

    pytest -m slow tests/table/work/test_interleavings.py

and those of one operation with ``-k`` and its name besides.
"""

from __future__ import annotations

import zlib

import pytest
from interleaved_operations import FIRST, SECOND
from interleaving import POINTS, Case, Setup, remove_workplace, run

pytestmark = pytest.mark.interop

SETUPS = (
    Setup(),
    Setup(indices=True),
    Setup(stable_row_ids=False),
    Setup(stable_row_ids=False, indices=True),
    Setup(primary_key=True),
)
NOTHING = Setup(exists=False)
CREATING = ("append", "append_once", "overwrite", "create", "create_with_rows", "their_append")
SHARE = 1000


@pytest.fixture(autouse=True, scope="module")
def _workplace():
    yield
    remove_workplace()


def cases_of(first):
    cases = [
        Case(setup, first, (second,), point)
        for setup in SETUPS
        for second in SECOND
        for point in POINTS
    ]
    if first in CREATING:
        cases += [Case(NOTHING, first, (second,), point) for second in CREATING for point in POINTS]
    return cases


def is_in_share(case):
    """The same in every process; fewer of those in which a writer asks again for some seconds."""
    share = SHARE * (50 if POINTS[case.point].unknown_outcome else 1)
    return zlib.crc32(str(case).encode()) % share == 0


def check(cases):
    """Run all cases; failures are reported together."""
    failures = []
    for case in cases:
        try:
            run(case)
        except Exception as error:  # noqa: BLE001
            failures.append(f"{case}\n{type(error).__name__}: {error}")
    assert not failures, f"{len(failures)} of {len(cases)} cases\n" + "\n\n".join(failures)


@pytest.mark.parametrize("first", FIRST)
def test_sampled_interleavings_are_serializable(first):
    check([case for case in cases_of(first) if is_in_share(case)])


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("first", FIRST)
def test_all_interleavings_are_serializable(first):
    check(cases_of(first))
