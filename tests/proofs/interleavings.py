"""Every ordered pair of operations, the first one stopped at every point of its commit.

    python tests/proofs/interleavings.py                  all
    python tests/proofs/interleavings.py --runs 200       some, chosen by the seed
    python tests/proofs/interleavings.py --only restored  pairs with this operation
    python tests/proofs/interleavings.py --part 2/12      the second of twelve parts of all
    python tests/proofs/interleavings.py --swept          commits and cleanups at every call

While the first is stopped (planned, files written, before the put of the manifest, after it) the
second one runs whole: on the same row, on another row of the same fragment, or in another fragment.
The table must end as after one of the two orders, or the first must report a typed conflict and
leave no trace.  Anything else is an anomaly: a lost update, a resurrected row, a row id that is
there twice, half a commit.  Nothing is left to chance, so the same cases always run equally.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    _TESTS = Path(__file__).parents[1]
    sys.path[:0] = [str(one) for one in (_TESTS / "support", _TESTS, _TESTS.parent)]

import interleaving
from interleaving import Case, Setup, every_call, remove_workplace, run, sweep, sweep_by_ours
from proofs.placed_operations import (
    OURS_OF_ROWS,
    OURS_OF_TABLES,
    PLACED,
    PLACES,
    PYLANCE_ROW_OPERATIONS,
    PYLANCE_TABLE_OPERATIONS,
    placed,
)
from proofs.proof_report import Report, arguments

POINTS = ("planned", "files written", "before the put", "after the put")
SETUP = Setup(other_rows_first=True)
FIRST_PLACE = "same row"


def all_cases() -> Iterator[Case]:
    """Where one of the two is about the whole table, its place says nothing."""
    of_tables = [operation.__name__ for operation in (*OURS_OF_TABLES, *PYLANCE_TABLE_OPERATIONS)]
    of_rows = (*OURS_OF_ROWS, *PYLANCE_ROW_OPERATIONS)
    pairs = [
        (placed(first, FIRST_PLACE), second)
        for first in OURS_OF_ROWS
        for second in (*(placed(one, place) for one in of_rows for place in PLACES), *of_tables)
    ]
    pairs += [
        (first.__name__, second)
        for first in OURS_OF_TABLES
        for second in (*(placed(one, FIRST_PLACE) for one in of_rows), *of_tables)
    ]
    for first, second in pairs:
        for point in POINTS:
            yield Case(SETUP, first, (second,), point)


def swept_cases() -> Iterator[Case]:
    """Every operation of ours; around every store call other writers commit and clean up."""
    firsts = [placed(one, FIRST_PLACE) for one in OURS_OF_ROWS]
    firsts += [one.__name__ for one in OURS_OF_TABLES]
    for first in firsts:
        for point in every_call(SETUP, first):
            for second in (
                (),
                ("delete_fragment",),
                (placed(PYLANCE_ROW_OPERATIONS[1], FIRST_PLACE),),
            ):
                for by in (sweep, sweep_by_ours):
                    yield Case(SETUP, first, second, point, by)


def prove(cases: list[Case], seed: int = 0) -> Report:
    """Run the cases."""
    report = Report("interleavings", seed)
    report.counts["ordered pairs"] = len({(case.first, case.second) for case in cases})
    report.counts["interleavings"] = len(cases)
    interleaving.OPERATIONS.update(PLACED)
    try:
        for case in cases:
            try:
                ended = run(case)
            except Exception as error:  # noqa: BLE001
                report.anomalies.append(f"{case}\n{type(error).__name__}: {error}")
                ended = "anomaly"
            report.counts[ENDS.get(ended, ended)] += 1
    finally:
        remove_workplace()
    return report


ENDS = {
    None: "without such a point",
    "after 0": "as the first, then the second",
    "after 1": "as the second, then the first",
    "conflict": "a typed conflict",
    "doubt": "no evidence is left",
}


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--only", default="", help="pairs with an operation whose name has this")
    parser.add_argument("--swept", action="store_true", help="commits and cleanups at every call")
    parser.add_argument("--part", default="1/1", help="number of a part, and of how many")
    given = parser.parse_args()
    interleaving.OPERATIONS.update(PLACED)
    every = swept_cases() if given.swept else all_cases()
    cases = [case for case in every if given.only in f"{case.first} {case.second}"]
    number, parts = map(int, given.part.split("/"))
    cases = cases[len(cases) * (number - 1) // parts : len(cases) * number // parts]
    if given.runs is not None:
        cases = random.Random(given.seed).sample(cases, min(given.runs, len(cases)))
    return prove(cases, given.seed).show()


if __name__ == "__main__":
    sys.exit(main())
