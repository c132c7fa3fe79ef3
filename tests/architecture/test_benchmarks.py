"""The benchmarks: each one can be imported, and the command that runs them knows only such."""

import importlib.util
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"
IMPORTS = """
import sys
from importlib import import_module
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    import_module(name)
"""


def test_benchmarks_named_by_command_import():
    spec = importlib.util.spec_from_file_location("run", FOLDER / "run.py")
    command = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(command)
    runnable = {
        path.stem for path in FOLDER.glob("*.py") if '__name__ == "__main__"' in path.read_text()
    }
    named = {*command.ALL, *command.SIDE_BY_SIDE}
    assert named <= runnable
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, str(FOLDER), *sorted(runnable)],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
