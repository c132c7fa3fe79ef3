"""Break one rule after another, and check that the tests that guard it fail.

    python tests/mutants/run.py                  all mutants, each killed or survived
    python tests/mutants/run.py rebase feed      those whose name or file has one of these words

A mutant is the package with one text replaced by another; it lives in a temporary folder that
comes before the installed package.  Those whose tests may start a JVM come last, then the tests
without any mutant.  Not part of the tests: all take about an hour of one core.  If you change a
line that a mutant replaces, give the mutant the new line.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "pyspark_lance"
KILLED, SURVIVED = "killed", "SURVIVED"

# Processes are forked from one that has imported what most tests import: half of their time.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    [
        "py",
        "pytest",
        "_pytest.doctest",
        "_pytest.junitxml",
        "_pytest.pytester",
        "asyncio",
        "execnet",
        "fsspec",
        "google.protobuf.message",
        "hypothesis.stateful",
        "numpy.random",
        "pandas",
        "pyarrow.compute",
        "pyarrow.dataset",
        "pyspark.sql.functions",
        "unittest.mock",
    ]
)

# pytest's exit code where no test is left of those that were named.
_NOT_RUN = 5


def main(words: list[str]) -> int:
    """Run the chosen mutants; 1 if one of them survives or cannot be made."""
    chosen = [one for one in MUTANTS if not words or any(w in one.name + one.file for w in words)]
    if not chosen:
        print(__doc__, f"no mutant's name or file has {' or '.join(words)}", sep="\n")
        return 2
    chosen.sort(key=lambda one: any(test.startswith("tests/spark") for test in one.tests))
    width = max(len(one.name) for one in chosen)
    killed = 0
    with ThreadPoolExecutor(int(os.environ.get("MUTANTS_AT_A_TIME", "2"))) as pool:
        outcomes = pool.map(outcome_of, chosen)
        sound = pool.submit(run_tests, PACKAGE.parent, sorted({t for m in chosen for t in m.tests}))
        for one, (outcome, seconds, test) in zip(chosen, outcomes, strict=True):
            killed += outcome == KILLED
            what = f"{one.name:{width}}  {one.file}  {test}"
            print(f"{outcome:9} {seconds:5.0f} s  {what}".rstrip(), flush=True)
    code, output = sound.result()
    if code == _NOT_RUN:  # all of them are slow
        code = 0
    if code:
        print(output, "tests fail without any mutant, so the results are invalid", sep="\n")
    print(f"{killed} of {len(chosen)} killed")
    return int(code != 0 or killed < len(chosen))


def outcome_of(mutant: Mutant) -> tuple[str, float, str]:
    """Return the outcome of a mutant, its seconds, and the test that failed."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder) / "pyspark_lance"
        shutil.copytree(PACKAGE, copy)  # With compiled modules, which saves most of the time.
        file = copy / mutant.file
        source = file.read_text()
        if source.count(mutant.old) != 1:
            return f"no place: its text is there {source.count(mutant.old)} times", 0.0, ""
        file.write_text(source.replace(mutant.old, mutant.new))
        code, output = run_tests(Path(folder), mutant.tests, are_slow=mutant.are_slow)
    # 1: tests failed. Up to 5: pytest's own trouble, such as a test that is not there. Any other
    # code: the package ended the process of the tests.
    outcome = {0: SURVIVED, 1: KILLED}.get(code, f"pytest {code}: {output[-400:]}")
    if not 0 <= code <= _NOT_RUN:
        outcome = KILLED
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return outcome, time.monotonic() - started, failed[1] if failed else ""


def run_tests(
    source: Path, tests: list[str] | tuple[str, ...], *, are_slow: bool = False
) -> tuple[int, str]:
    """Return pytest's exit code and output, with the package that is in a folder."""
    words = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--assert=plain"]
    if are_slow:
        words += ["-m", "slow"]
    with tempfile.NamedTemporaryFile() as log:
        process = _PROCESSES.Process(target=_run_pytest, args=(source, [*words, *tests], log.name))
        process.start()
        process.join()
        return process.exitcode, Path(log.name).read_text(errors="replace")


def _run_pytest(source: Path, words: list[str], log: str) -> None:
    """Run pytest in a process that has not imported the package yet."""
    assert "pyspark_lance" not in sys.modules
    output = os.open(log, os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = str(source)
    sys.path.insert(0, str(source))
    import pytest

    code = pytest.main(words)
    atexit._run_exitfuncs()  # Processes of multiprocessing do not, so Spark's JVM would stay.
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
