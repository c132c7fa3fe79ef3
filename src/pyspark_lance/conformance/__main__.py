"""``python -m pyspark_lance.conformance``: run the conformance set against an engine.

Exit codes: 0 all responses are right, 1 some are wrong, 2 the engine fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pyspark_lance.conformance.cases import (
    SEED,
    Case,
    case_names,
    make_case,
    read_cases,
    write_cases,
)
from pyspark_lance.conformance.engines import Ask, EngineError, opened
from pyspark_lance.conformance.report import Comparison, as_markdown, compare_response


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the set and return the exit code.

    Args:
        arguments: Without the name of the program; None for those of the process.
    """
    given = _parser().parse_args(arguments)
    if given.write is not None:
        write_cases(given.write, given.seed)
        return 0
    if given.cases is None:
        cases: Iterable[Case] = (make_case(name, given.seed) for name in case_names())
    else:
        cases = read_cases(given.cases)
    try:
        with opened(given.engine) as ask:
            results = list(_results(ask, cases, is_verbose=given.tells))
    except EngineError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if not results:
        sys.stderr.write(f"there are no cases in {given.cases}\n")
        return 2
    sys.stdout.write(as_markdown(results))
    return int(any(one.differs for one in results))


def _results(ask: Ask, cases: Iterable[Case], *, is_verbose: bool) -> Iterator[Comparison]:
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="lance-conformance-") as folder:
            path = case.unpack(Path(folder))
            for question in case.questions:
                found = ask({**question.request, "table": path})
                result = compare_response(case.name, question, found)
                if is_verbose and result.differs:
                    for part in (question.request, question.answer, found):
                        sys.stderr.write(json.dumps(part, ensure_ascii=False) + "\n")
                yield result


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pyspark_lance.conformance",
        description="Checks a reader of Lance tables with tables whose contents are known.",
    )
    add = parser.add_argument
    add("--engine", default="ours", help="ours, pylance, or a command that answers requests")
    add("--cases", type=Path, metavar="FOLDER", help="stored cases; default: from the seed")
    add("--seed", type=int, default=SEED, help="the seed of generated cases")
    add("--tells", action="store_true", help="every wrong answer, with request and expectation")
    add("--write", type=Path, metavar="FOLDER", help="regenerate the stored cases")
    return parser


if __name__ == "__main__":
    sys.exit(main())
