"""``pyspark-lance quickstart``: runs the example of that name, which comes with the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from pyspark_lance.errors import InvalidInputError

_PACKAGE = Path(__file__).resolve().parents[1]
# In a wheel; in a clone, of which only src is on the path.
_FOLDERS = (_PACKAGE / "examples", _PACKAGE.parents[1] / "examples")


def run_quickstart(folder: str | None) -> int:
    """Runs it in a process of its own, whose exit code it returns.

    ``folder``: Where its tables stay; None for a folder that is removed in the end.
    Without Java, for which Spark ends in a traceback, an ``InvalidInputError``.
    """
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        raise InvalidInputError(
            "Spark needs Java 17 or newer, and no java was found",
            hint="install a JDK or JRE, and put it on PATH or set JAVA_HOME",
        )
    script = next(one for one in _FOLDERS if one.is_dir()) / "quickstart.py"
    # Spark would start the first python3 on PATH, which may lack this package.
    environment = {"PYSPARK_PYTHON": sys.executable, **os.environ}
    command = [sys.executable, str(script), *([folder] if folder else [])]
    return subprocess.run(command, env=environment, check=False).returncode
