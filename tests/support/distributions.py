"""Build wheels and source distributions of this package, as installers do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build(kind: str, tree: Path, folder: Path) -> Path:
    """Build a distribution as pip does, where there is neither a JDK nor a network."""
    environment = {**os.environ, "PATH": str(folder), "JAVA_HOME": "", "SPARK_HOME": ""}
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=tree, env=environment, check=True, capture_output=True)
    (made,) = folder.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return made
