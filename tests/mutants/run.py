"""Break one rule after another, and check that the tests that guard it fail.

    python tests/mutants/run.py                  all mutants, each killed or survived
    python tests/mutants/run.py rebase feed      those whose name or file has one of these words

A mutant is the package with one text replaced by another; it lives in a temporary folder that
comes before the installed package.  Not part of the tests: it takes a few minutes.  If you
change a line that a mutant replaces, give the mutant the new line.
"""

from __future__ import annotations

import os
import shutil
import subprocess
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

# pytest's exit code where no test is left of those that were named.
_NOT_RUN = 5


def main(words: list[str]) -> int:
    """Run the chosen mutants; 1 if one of them survives or cannot be made."""
    chosen = [one for one in MUTANTS if not words or any(w in one.name + one.file for w in words)]
    if not chosen:
        print(__doc__, f"no mutant's name or file has {' or '.join(words)}", sep="\n")
        return 2
    width = max(len(one.name) for one in chosen)
    killed = 0
    with ThreadPoolExecutor(int(os.environ.get("MUTANTS_AT_A_TIME", "2"))) as pool:
        sound = pool.submit(run_tests, PACKAGE.parent, sorted({t for m in chosen for t in m.tests}))
        for one, (outcome, seconds) in zip(chosen, pool.map(outcome_of, chosen), strict=True):
            killed += outcome == KILLED
            print(f"{outcome:9} {seconds:5.0f} s  {one.name:{width}}  {one.file}", flush=True)
    code, output = sound.result()
    if code == _NOT_RUN:  # all of them are slow
        code = 0
    if code:
        print(output, "tests fail without any mutant, so the results are invalid", sep="\n")
    print(f"{killed} of {len(chosen)} killed")
    return int(code != 0 or killed < len(chosen))


def outcome_of(mutant: Mutant) -> tuple[str, float]:
    """What became of a mutant, and after how many seconds."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder) / "pyspark_lance"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        file = copy / mutant.file
        source = file.read_text()
        if source.count(mutant.old) != 1:
            return f"no place: its text is there {source.count(mutant.old)} times", 0.0
        file.write_text(source.replace(mutant.old, mutant.new))
        code, output = run_tests(Path(folder), mutant.tests, are_slow=mutant.are_slow)
    # 1: tests failed. Anything else is pytest's own trouble, such as a test that is not there.
    outcome = {0: SURVIVED, 1: KILLED}.get(code, f"pytest {code}: {output[-400:]}")
    return outcome, time.monotonic() - started


def run_tests(
    source: Path, tests: list[str] | tuple[str, ...], *, are_slow: bool = False
) -> tuple[int, str]:
    """pytest's exit code and output, with the package that is in a folder."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    if are_slow:
        command += ["-m", "slow"]
    done = subprocess.run(
        [*command, *tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
