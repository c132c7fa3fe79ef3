"""The benchmarks: all show their help, documents name only known ones, cheap ones run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
# One process for all of them, since each import of Spark and pylance takes a second.
HELP = """
import contextlib, io, json, runpy, sys
folder, *names = sys.argv[1:]
sys.path.insert(0, folder)
helps = {}
for name in names:
    sys.argv = [f"{folder}/{name}.py", "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as exit:
            assert not exit.code, name
    helps[name] = shown.getvalue()
print(json.dumps(helps))
"""


def runnable():
    scripts = {
        path.stem for path in FOLDER.glob("*.py") if '__name__ == "__main__"' in path.read_text()
    }
    return scripts - {"submitted"}  # which first_query gives to spark-submit


def test_benchmarks_show_help():
    command = [sys.executable, "-c", HELP, str(FOLDER), *sorted(runnable())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    helps = json.loads(done.stdout)
    assert len(helps) > 20
    assert not [name for name, shown in helps.items() if "usage: " not in shown]


def test_command_and_documents_name_only_benchmarks_that_exist(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import run

    named = {name.split()[0] for name in (*run.ALL, *run.SIDE_BY_SIDE)}
    assert named <= runnable()
    pages = [FOLDER.parent / "README.md", FOLDER / "README.md"]
    pages += (FOLDER.parent / "docs").rglob("*.md")
    shown = {
        name
        for page in pages
        for line in page.read_text().splitlines()
        for name in _named_scripts(line, is_own=page.parent == FOLDER)
    }
    assert shown <= {"harness.py", *(f"{name}.py" for name in runnable())}


def _named_scripts(line, *, is_own):
    """Scripts of this folder that a line names; its own page leaves the folder out."""
    words = line.replace("`", " ").replace("|", " ").replace(",", " ").split()
    for word in words:
        if word.startswith("benchmarks/") and word.endswith(".py"):
            yield word.removeprefix("benchmarks/")
        elif is_own and word.endswith(".py") and "/" not in word:
            yield word


@pytest.fixture
def quick(tmp_path):
    """Run a benchmark; return what it notes of its tables."""

    def run(script, *arguments):
        notes = tmp_path / "notes"
        command = [sys.executable, FOLDER / script, *arguments]
        environment = {**os.environ, "PYSPARK_LANCE_FIGURES": str(notes)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=200, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads(line) for line in notes.read_text().splitlines()]

    return run


def test_cheap_benchmark_prints_a_row_for_each_version(quick):
    found = quick("memory.py", "--scale=0.01", "--versions=2.0,2.2", "--only=1,000,000")
    assert [[row[:3] for row in table["rows"]] for table in found] == [
        [
            [version, action, "1,000,000 rows of 10 columns"]
            for version in ("2.0", "2.2")
            for action in ("write", "scan")
        ]
    ]


def test_options_of_second_function_are_its_own(quick):
    (table,) = quick("data_files.py", "take", "--rows=100", "--take=5", "--runs=1", "--cases=int64")
    assert [row[:4] for row in table["rows"]] == [
        ["int64", version, "100", "5"] for version in ("2.0", "2.1", "2.2")
    ]
