"""Spark sessions in processes of their own, which take turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession

COMMON = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "4g",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.python.unix.domain.socket.enabled": "true",
}


def setting_of_jar(jar: str) -> str:
    """The setting of Spark that takes a class path, a file, or coordinates."""
    if jar.endswith("*"):
        return "spark.driver.extraClassPath"
    return "spark.jars" if os.path.exists(jar) else "spark.jars.packages"


def start_session(settings: Mapping[str, str], folder: str) -> SparkSession:
    """A quiet session on two cores; ``{folder}`` in a setting is where its tables are."""
    builder = SparkSession.builder.master("local[2]")
    for key, value in {**COMMON, **settings}.items():
        builder = builder.config(key, value.format(folder=folder))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def serve(answer: Callable[..., object]) -> None:
    """Answer what comes in, a JSON list of arguments a line, until there is no more."""
    print("ready", flush=True)
    for line in sys.stdin:
        # Dates and decimals in rows become texts.
        print(json.dumps(answer(*json.loads(line)), default=str), flush=True)


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


class Served:
    """A process that serves.

    Args:
        command: The script and its arguments.
        python: Another interpreter, with another Spark.
    """

    def __init__(self, *command: str, python: str = sys.executable) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 as long as the process
        self._process = subprocess.Popen(
            [python, *command], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip
        self._answer("ready")

    def ask(self, *what: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return json.loads(self._answer())

    def _answer(self, expected: str = "") -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # Spark prints what it downloads, and the JVM warns after a time in brackets.
            is_answer = not expected and line[:1] in "[n" and _is_json(line)
            if line.strip() == expected or is_answer:
                return line
        self._errors.seek(0)
        why = "".join(self._errors.readlines()[-30:])
        sys.exit(f"a session ended: {self._process.args}\n{why}")

    def close(self) -> None:
        self._process.communicate()
