"""Run benchmarks, each in a process of its own; those of ``ALL`` unless some are named.

    python benchmarks/run.py [name ...] [option of these ...]
    python benchmarks/run.py --chart [lance_spark row_changes] [--rows 300000 ...]

With ``--chart`` the tables of the benchmarks beside other formats become
``benchmarks/figures.json`` and ``docs/pictures/benchmarks.svg``, with the machine and the date.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

ALL = (
    "table", "many_fragments", "indices sorted-rows", "small_appends", "many_versions",
    "many_writers", "spark canned", "spark plugin", "spark columnar", "merge", "nearest", "search",
    "compaction", "compaction cleanup", "streams", "memory", "data_files read",
    "data_files write", "data_files take",
)  # fmt: skip
SIDE_BY_SIDE = ("lance_spark", "row_changes")
FOLDER = Path(__file__).resolve().parent


def run(names: tuple[str, ...], options: list[str], environment: dict[str, str]) -> int:
    """Return the first exit code that is not 0."""
    code = 0
    for name in names:
        script, *which = name.split()
        command = [sys.executable, FOLDER / f"{script}.py", *which, *options]
        done = subprocess.run(command, env={**os.environ, **environment}, check=False)
        code = code or done.returncode
    return code


def chart(names: tuple[str, ...], options: list[str]) -> int:
    """Run benchmarks that compare formats, and draw what they print."""
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "notes"
        code = run(names, options, {"PYSPARK_LANCE_FIGURES": str(notes)})
        if code:
            return code
        groups = [_group(json.loads(line)) for line in notes.read_text().splitlines()]
    now = datetime.now(UTC)
    figures = {"machine": _machine(), "date": f"{now:%Y-%m-%d}", "groups": groups}
    (FOLDER / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")
    draw = FOLDER.parent / "docs" / "pictures" / "draw.py"
    return subprocess.run([sys.executable, draw, "benchmarks"], check=False).returncode


def _group(table: dict[str, object]) -> dict[str, object]:
    """The seconds by the clock of a table: columns called ``<format> s``, medians."""
    header, rows = table["header"], table["rows"]
    places = [
        place for place, name in enumerate(header) if re.fullmatch(r"(?!.*processor).+ s", name)
    ]

    def seconds(cell: str) -> float | None:
        found = re.match(r"[\d.]+", cell)
        return float(found[0]) if found else None

    return {
        "title": table["title"],
        "names": [header[place].removesuffix(" s") for place in places],
        "rows": [[row[0], *(seconds(row[place]) for place in places)] for row in rows],
    }


def _machine() -> str:
    """What the figures were taken on."""
    cpus = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", cpus.read_text()) if cpus.exists() else None
    name = found[1].strip() if found else "processor"
    return f"{os.cpu_count()} cores ({name}), load {os.getloadavg()[0]:.1f}, medians of seconds"


def main() -> int:
    """Return the first exit code that is not 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--chart", action="store_true", help="draw docs/pictures/benchmarks.svg")
    parser.add_argument("names", nargs="*")
    given, options = parser.parse_known_args()
    if given.chart:
        return chart(tuple(given.names) or SIDE_BY_SIDE, options)
    return run(tuple(given.names) or ALL, options, {})


if __name__ == "__main__":
    sys.exit(main())
