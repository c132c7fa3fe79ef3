"""Compare responses with those of the model and report the differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from pyspark_lance.conformance.cases import Question
from pyspark_lance.conformance.model import CHANGE_KINDS, Answer

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
