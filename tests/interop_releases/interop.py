# ruff: noqa: T201 - a command
"""Random tables of releases of pylance read by us, and ours by them: ``poe interop``.

Each release gets an environment of its own below ``--environments``; ``newest`` is the newest one
that the package index has, and ``lancedb`` its newest lancedb, which is only asked for our tables.
Ours are the tables of the conformance set.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance.cases import SEED, Case, case_names, make_case
from conformance.engines import answer, opened
from conformance.run import compare_response, rows_differ
from run_matrix import RELEASES, environment

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "compatibility.md"
ENGINES = HERE.parent / "conformance"
LANCEDB = "lancedb"
MARK = "<!-- matrix -->\n"
# 0.22.0 knows no data files of version 2.1.
TRIED = [release for release in RELEASES if release != "0.22.0"]
STEPS = 6


def ours_read_by_them(command: str, cases: list[Case]) -> tuple[Counter[str], set[str]]:
    """How often versions of tables were read rightly, and what else there was."""
    counts: Counter[str] = Counter()
    findings: set[str] = set()
    with opened(command) as ask, tempfile.TemporaryDirectory() as folder:
        for case in cases:
            path = case.unpack(Path(folder))
            for question in case.questions:
                if question.request["ask"] != "rows" or "error" in question.answer:
                    continue
                found = ask({**question.request, "table": path})
                differs = compare_response(case.name, question, found).differs
                counts["wrong" if differs else "right"] += 1
                findings.update(f"{case.name}: {one}" for one in differs)
                if found.get("rows") and found["rows"][0][2] is None:
                    counts["without versions"] += 1
    return counts, findings


def pylance_read_by_us(python: Path, tables: int, seed: int) -> tuple[Counter[str], set[str]]:
    """The same of versions that the release wrote and reads itself."""
    counts: Counter[str] = Counter()
    findings: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(tables):
            path = f"{folder}/{number}"
            command = [python, HERE / "history_worker.py", path, str(seed + number), str(STEPS)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                counts["not written"] += 1
                findings.add(f"not written: {(done.stderr.splitlines() or ['?'])[-1][:90]}")
            for line in done.stdout.splitlines():
                version, rows = json.loads(line)
                if rows is None:
                    counts["not read by themselves"] += 1
                    continue
                ours = answer({"ask": "rows", "table": path, "version": version})
                # Columns that the release does not return are not compared.
                wrong = [ours["message"]] if "error" in ours else rows_differ(ours["rows"], rows)
                counts["wrong" if wrong else "right"] += 1
                findings.update(wrong)
    return counts, findings


def shown(counts: Counter[str]) -> str:
    """Counts in words, none left out."""
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "–"


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(tempfile.gettempdir()) / "pylance_releases"
    parser.add_argument("--environments", type=Path, default=default)
    parser.add_argument("--releases", nargs="*", default=[*TRIED, "newest", LANCEDB])
    parser.add_argument("--tables", type=int, default=6)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    cases = [make_case(name, given.seed) for name in case_names() if not name.startswith("wrong")]
    lines = ["| pylance | ours, read by it | its own, read by us |", "|---|---|---|"]
    notes: list[str] = []
    failed = False
    for release in given.releases:
        python = environment(given.environments, release)
        module = LANCEDB if release == LANCEDB else "lance"
        asked = [python, "-c", f"import {module}; print({module}.__version__)"]
        name = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        name = f"{LANCEDB} {name}" if release == LANCEDB else name
        name += " (the newest)" if release in ("newest", LANCEDB) else ""
        engine = ENGINES / f"{LANCEDB if release == LANCEDB else 'pylance'}_engine.py"
        ours, of_ours = ours_read_by_them(f"'{python}' '{engine}'", cases)
        from_pylance, of_pylance = Counter[str](), set[str]()
        if release != LANCEDB:
            from_pylance, of_pylance = pylance_read_by_us(python, given.tables, given.seed)
        # Differences of old releases are reported; they are no failure.
        failed |= from_pylance["wrong"] > 0
        lines.append(f"| {name} | {shown(ours)} | {shown(from_pylance)} |")
        print(lines[-1], flush=True)
        notes += [f"* {name}, ours: {one}" for one in sorted(of_ours)]
        notes += [f"* {name}, its own: {one}" for one in sorted(of_pylance)]
    head = PAGE.read_text().split(MARK)[0]
    PAGE.write_text("\n".join([head + MARK.rstrip(), *lines, "", *notes]).rstrip() + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
