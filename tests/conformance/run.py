"""Run the conformance set against an engine: ``python tests/conformance/run.py``.

Exit codes: 0 all responses are right, 1 some are wrong, 2 the engine fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance.cases import SEED, Case, Question, case_names, make_case, read_cases, write_cases
from conformance.engines import Ask, EngineError, opened
from conformance.model import CHANGE_KINDS, Answer


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
            results = list(_results(ask, cases, is_verbose=given.verbose))
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
        prog="python tests/conformance/run.py",
        description="Checks a reader of Lance tables with tables whose contents are known.",
    )
    add = parser.add_argument
    add("--engine", default="ours", help="ours, pylance, or a command that answers requests")
    add("--cases", type=Path, metavar="FOLDER", help="stored cases; default: from the seed")
    add("--seed", type=int, default=SEED, help="the seed of generated cases")
    add("--verbose", action="store_true", help="print wrong answers, with request and expectation")
    add("--write", type=Path, metavar="FOLDER", help="regenerate the stored cases")
    return parser


# Comparing responses ---------------------------------------------------------------------

_PARTS = ("addresses", "created", "last updated", "values")


@dataclass(frozen=True)
class Comparison:
    """The result of one request."""

    case: str
    question: Question
    differs: Sequence[str]  # Names of wrong parts of the response; none if it is right.
    left_out: Sequence[str] = ()  # Kinds of changes that the engine does not report.


def compare_response(case: str, question: Question, found: Answer) -> Comparison:
    """Compare a response with the expected one."""
    wanted = question.answer
    if question.request["ask"] == "changes" and found.get("changes") == {}:
        # An engine without change feeds cannot report empty windows either.
        return Comparison(case, question, (), CHANGE_KINDS)
    if "error" in wanted or "error" in found:
        if wanted.get("error") == found.get("error"):
            return Comparison(case, question, ())
        return Comparison(
            case, question, [f"{found.get('error', 'an answer')} for {_expected(wanted)}"]
        )
    match question.request["ask"]:
        case "versions":
            same = found.get("versions") == wanted["versions"]
            return Comparison(case, question, () if same else ["versions"])
        case "rows":
            return Comparison(case, question, rows_differ(wanted["rows"], found.get("rows", [])))
        case _:
            results = found.get("changes", {})
            wrong = [
                kind for kind in CHANGE_KINDS
                if kind in results and not _same_changes(wanted["changes"][kind], results[kind])
            ]  # fmt: skip
            left_out = [kind for kind in CHANGE_KINDS if kind not in results]
            return Comparison(case, question, wrong, left_out)


def _expected(wanted: Answer) -> str:
    return str(wanted["error"]) if "error" in wanted else "an answer"


def rows_differ(wanted: Sequence[Any], found: Sequence[Any]) -> Sequence[str]:
    """Return which parts of rows are wrong; null in ``found`` means not reported."""
    by_id = {row[0]: row[1:] for row in found}
    if len(by_id) != len(found) or by_id.keys() != {row[0] for row in wanted}:
        return ["row ids"]
    return [
        part for place, part in enumerate(_PARTS)
        if any(by_id[row[0]][place] not in (row[1 + place], None) for row in wanted)
    ]  # fmt: skip


def _same_changes(wanted: Sequence[Any], found: Sequence[Any]) -> bool:
    """Return whether changes are equal; null values mean not reported."""
    found = sorted(found, key=itemgetter(0, 1))
    return len(wanted) == len(found) and all(
        one[:2] == other[:2] and other[2] in (one[2], None)
        for one, other in zip(wanted, found, strict=True)
    )


def as_markdown(results: Sequence[Comparison]) -> str:
    """Return a table of the cases and kinds of requests with differences."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for one in results:
        groups.setdefault((one.case, one.question.request["ask"]), []).append(one)
    wrong = {key: [one for one in group if one.differs] for key, group in groups.items()}
    lines = [
        f"| {case} | {ask} | {len(found)} of {len(groups[case, ask])} | {_what(found)} |"
        for (case, ask), found in wrong.items()
        if found
    ]
    if lines:
        lines = ["| case | asked for | wrong | what differs |", "|---|---|---|---|", *lines, ""]
    total = sum(map(len, wrong.values()))
    lines.append(f"{len(results) - total} of {len(results)} answers are right.")
    left_out = [k for k in CHANGE_KINDS if any(k in one.left_out for one in results)]
    if left_out:
        lines.append(f"Not reported, and not counted: {', '.join(left_out)}.")
    return "\n".join(lines) + "\n"


def _what(found: Iterable[Comparison]) -> str:
    counts: Mapping[str, None] = dict.fromkeys(name for one in found for name in one.differs)
    return ", ".join(counts)


if __name__ == "__main__":
    sys.exit(main())
