"""The conformance set: our own answers, those of engines that are wrong, and the stored files."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from conformance.cases import SEED, as_json, build_questions, case_names, read_cases
from conformance.run import compare_response, main

CASES = Path(__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"

# Our own answers, of each kind of request something wrong.
WRONG_ENGINE = """
import json, sys
sys.path.insert(0, {tests!r})
from conformance.engines import answer
for line in sys.stdin:
    request = json.loads(line)
    found = answer(request)
    if "error" in found:
        found = {"rows": []}
    elif request["ask"] == "versions":
        found["versions"].pop()
    elif request["ask"] == "rows":
        found["rows"][-1][1] += 1
    elif found["changes"]["delete"]:
        found["changes"]["delete"].pop()
    print(json.dumps(found), flush=True)
"""


@pytest.fixture(scope="module")
def cases():
    return {case.name: case for case in read_cases(CASES)}


def test_package_answers_all_cases(capsys):
    assert main(["--cases", str(CASES)]) == 0
    shown = capsys.readouterr().out
    count = sum(len(build_questions(name, SEED)) for name in case_names())
    assert shown == f"{count} of {count} answers are right.\n"


def test_stored_answers_equal_model(cases):
    assert set(cases) == set(case_names())
    for name in cases:
        stored = (CASES / f"{name}.json").read_text(encoding="utf-8")
        assert stored == as_json(build_questions(name, SEED)), name


def test_case_archives_are_small(cases):
    assert all(len(case.archive) < 20_000 for case in cases.values())


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    folder = tmp_path_factory.mktemp("few")
    for path in [*CASES.glob("merge.*"), *CASES.glob("wrong-flag-overlays.*")]:
        shutil.copy(path, folder)
    return folder


def test_wrong_engine_fails_every_request_kind(few, tmp_path, capsys):
    script = tmp_path / "wrong engine.py"
    script.write_text(WRONG_ENGINE.replace("{tests!r}", repr(str(CASES.parent))))
    assert main(["--cases", str(few), "--engine", f"'{sys.executable}' '{script}'"]) == 1
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| merge | versions | 1 of 1 | versions |",
        "| merge | rows | 3 of 3 | addresses |",
        "| merge | changes | 5 of 6 | delete |",
        "| wrong-flag-overlays | rows | 1 of 1 | an answer for unsupported |",
        "",
        "1 of 11 answers are right.",
    ]


@pytest.mark.parametrize("part", range(5))
def test_comparison_covers_every_part_of_rows(part, cases):
    names = ["row ids", "addresses", "created", "last updated", "values"]
    for question in cases["merge"].questions:
        if question.request["ask"] == "rows":
            found = json.loads(json.dumps(question.answer))
            assert compare_response("merge", question, found).differs == []
            found["rows"][0][part] = [None] if part == 4 else 10**6
            assert compare_response("merge", question, found).differs == [names[part]]
            if part in (1, 2, 3):
                found["rows"][0][part] = None
                assert compare_response("merge", question, found).differs == []


@pytest.mark.parametrize("kind", ["insert", "update_preimage", "update_postimage", "delete"])
def test_comparison_covers_every_change_type_and_allows_omission(kind, cases):
    questions = [one for one in cases["merge"].questions if one.answer.get("changes", {}).get(kind)]
    assert questions
    for question in questions:
        found = json.loads(json.dumps(question.answer))
        found["changes"][kind][0][2] = [None, None, None]
        assert compare_response("merge", question, found).differs == [kind]
        del found["changes"][kind]
        result = compare_response("merge", question, found)
        assert (result.differs, result.left_out) == ([], [kind])


def test_engine_without_change_feed_passes_refused_windows():
    asked = [(case, one) for case in read_cases(CASES) for one in case.questions]
    refused = [
        (case.name, one)
        for case, one in asked
        if one.request["ask"] == "changes" and "error" in one.answer
    ]
    assert refused
    for name, question in refused:
        assert compare_response(name, question, {"changes": {}}).differs == ()
        assert compare_response(name, question, {"changes": {"insert": []}}).differs


@pytest.mark.parametrize(
    ("engine", "shown"),
    [
        ("/nowhere/engine", "/nowhere/engine: No such file or directory"),
        (f"'{sys.executable}' -c 'pass'", "the command ended without"),
        ("sh -c 'read request; echo rows'", "no JSON object is the answer 'rows'"),
    ],
)
def test_unusable_engine_has_own_exit_code(engine, shown, few, capsys):
    assert main(["--cases", str(few), "--engine", engine]) == 2
    assert shown in capsys.readouterr().err


def test_missing_cases_are_reported(tmp_path, capsys):
    assert main(["--cases", str(tmp_path)]) == 2
    assert "there are no cases" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_package_answers_other_seeds(seed):
    assert main(["--seed", str(seed)]) == 0


@pytest.mark.slow
@pytest.mark.interop
def test_conformance_page_lists_pylance_differences(capsys):
    assert main(["--cases", str(CASES), "--engine", "pylance"]) == 1
    assert PAGE.read_text().split("<!-- pylance -->\n")[1] == capsys.readouterr().out
