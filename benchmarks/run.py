"""Runs every benchmark, each in a process of its own: python benchmarks/run.py [name ...]."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ALL = (
    "table",
    "planning",
    "pruning",
    "small_fragments",
    "small_appends",
    "many_versions",
    "many_writers",
    "spark",
    "companion",
    "columnar",
    "merge",
    "nearest",
    "compaction",
    "streams",
    "memory",
    "data_file_read",
    "data_file_write",
    "take",
)


def main() -> int:
    """Returns the first exit code that is not 0."""
    folder = Path(__file__).parent
    code = 0
    for name in sys.argv[1:] or ALL:
        code = (
            subprocess.run([sys.executable, folder / f"{name}.py"], check=False).returncode or code
        )
    return code


if __name__ == "__main__":
    sys.exit(main())
