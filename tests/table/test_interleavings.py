"""Every operation of ours, stopped at every point of its commit while another one runs whole.

Where it is stopped, and what must come of it, is said in ``interleaving.py``.  By default a share
of all cases runs, always the same; all by

    pytest -m slow tests/table/test_interleavings.py

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
SHARE = 80


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
    return [case for case in cases if not is_open(case)]


def number(case):
    """The same in every process."""
    return zlib.crc32(str(case).encode())


def check(cases):
    """Runs all cases; what failed is told together."""
    failures = []
    for case in cases:
        try:
            run(case)
        except Exception as error:  # noqa: BLE001
            failures.append(f"{case}\n{type(error).__name__}: {error}")
    assert not failures, f"{len(failures)} of {len(cases)} cases\n" + "\n\n".join(failures)


@pytest.mark.parametrize("first", FIRST)
def test_a_share_of_all_interleavings_ends_as_an_order_or_as_a_conflict(first):
    check([case for case in cases_of(first) if number(case) % SHARE == 0])


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("first", FIRST)
def test_all_interleavings_end_as_an_order_or_as_a_conflict(first):
    check(cases_of(first))


# What does not hold yet ----------------------------------------------------------------------

NEW_TABLES = ("make_anew", "make_anew_like", "their_new_table")
INSERTING = ("merge", "merge_where", "merge_insert_only", "merge_sync", "their_merge")


def is_open(case):
    """Known to fail, see the cases below."""
    (second,) = case.second
    return (
        "swept" in case.point
        or second in NEW_TABLES
        or (case.first == second == "replace_nothing")
        or (case.first in (*INSERTING, "delete_all") and second in (*INSERTING, "delete_all"))
        or (not case.setup.exists and second == "their_append")
    )


HOLES = {
    "two replaceWhere into one empty range both add their rows": [
        Case(Setup(), "replace_nothing", ("replace_nothing",), "files written"),
        Case(Setup(), "replace_nothing", ("replace_nothing",), "before the put"),
    ],
    "a put lands in the gap that a cleanup made, below newer versions": [
        Case(Setup(), "delete", ("append",), "before the put, swept"),
        Case(Setup(), "append", ("their_update",), "before the put, swept"),
    ],
    "a lost answer is taken for a lost race when the version was cleaned up": [
        Case(Setup(), "append", ("update",), "answer lost, swept"),
        Case(Setup(), "append", ("update",), "told no, swept"),
        Case(Setup(), "delete", ("append",), "answer lost, swept"),
        Case(Setup(), "overwrite", ("append",), "answer lost, swept"),
        Case(Setup(), "sql_update", ("append",), "answer lost, swept"),
        Case(Setup(), "drop_column", ("append",), "answer lost, swept"),
    ],
    "work goes into another table that took the place of its own": [
        Case(Setup(), "append", ("make_anew",), "files written"),
        Case(Setup(), "append", ("make_anew_like",), "before the put"),
        Case(Setup(), "overwrite", ("make_anew",), "before the put"),
        Case(Setup(), "delete_all", ("make_anew",), "planned"),
        Case(Setup(), "sql_update", ("their_new_table",), "files written"),
    ],
    "two merges insert one key": [
        Case(Setup(), "merge", ("merge",), "before the put"),
        Case(Setup(), "merge_insert_only", ("their_merge",), "planned"),
    ],
    "a version that is cleaned up while it is read is an error of the caller": [
        Case(Setup(), "delete", ("append",), "planned, swept"),
        Case(Setup(), "sql_update", ("append",), "files written, swept"),
    ],
    "a race of two writers is an error of the data": [
        Case(NOTHING, "append", ("their_append",), "before the put"),
    ],
    "a row that another merge inserted is deleted in neither order": [
        Case(Setup(), "delete_all", ("merge_insert_only",), "before the put"),
        Case(Setup(), "merge_insert_only", ("delete_all",), "put fails"),
    ],
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.xfail(strict=True, reason=reason), id=str(case))
        for reason, cases in HOLES.items()
        for case in cases
    ],
)
def test_what_does_not_hold_yet(case):
    run(case)
