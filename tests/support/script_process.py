"""Runs a script in a process of its own, as a user starts one: its Spark has a JVM of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from jars_of_spark import home_without_jar


def environment(*, jar: bool = True) -> dict[str, str]:
    """Ours without what a running JVM left in it; workers are this Python.

    Without ``jar``, Spark is one that has not the plugin's jar.
    """
    inherited = {name: text for name, text in os.environ.items() if "PYSPARK_GATE" not in name}
    if not jar:
        inherited["SPARK_HOME"] = home_without_jar()
    return inherited | {
        # Spark starts workers with the python3 of PATH when it looks for data sources.
        "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"],
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def run_command(
    *command: object, cwd: object = None, seconds: int = 400, jar: bool = True
) -> tuple[str, str]:
    """What a command prints, and its errors; one that fails is a failure of the test."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, env=environment(jar=jar),
        timeout=seconds, check=False, cwd=cwd,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout, done.stderr


def run_script(
    code: str, *arguments: object, cwd: object = None, seconds: int = 400, jar: bool = True
) -> str:
    """What a script in Python prints."""
    return run_command(sys.executable, "-c", code, *arguments, cwd=cwd, seconds=seconds, jar=jar)[0]
