"""Run a script in a process of its own, as a user starts one: its Spark has a JVM of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from jars_of_spark import home_without_jar
from spark_releases import has

# Whether the workers of a session, which have had tasks without Python Data Sources, use Unix
# sockets: part of scripts.
SOCKET_OF_WORKERS = f"UNIX_SOCKETS = {str(has('Unix sockets of Python workers')).lower()!r}\n"
SOCKET_OF_WORKERS += """
def _kinds(batches):
    import os, pyarrow as pa
    for _ in batches:
        kind = os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "false")
        yield pa.RecordBatch.from_arrays([pa.array([kind.lower()])], names=["kind"])

def socket_of_workers(spark):
    sums = spark.sparkContext.accumulator(0)
    spark.sparkContext.parallelize(range(10), 2).foreach(lambda x: sums.add(x))
    assert sums.value == 45, sums
    return spark.range(1).mapInArrow(_kinds, "kind string").collect()[0].kind
"""


# For the script and all of Spark's processes there is no pandas; each import of it is recorded,
# since Arrow does so whenever it is given Python objects, and finding out takes a worker long.
_NO_PANDAS = """
import os, sys, traceback


class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "pandas":
            return None
        files = [frame.filename for frame in traceback.extract_stack()]
        if any("pyspark_lance" in file for file in files):
            with open(os.environ["PANDAS_IS_ASKED_FOR"], "a") as notes:
                notes.write("".join(traceback.format_stack()[-4:]))
        raise ModuleNotFoundError("No module named 'pandas'", name=name)


sys.meta_path.insert(0, Finder())
"""


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


def hidden_pandas(folder: Path) -> dict[str, str]:
    """Variables of a script without pandas, which records imports of it in a file ``notes``."""
    (folder / "sitecustomize.py").write_text(_NO_PANDAS)
    return {"PYTHONPATH": str(folder), "PANDAS_IS_ASKED_FOR": str(folder / "notes")}


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
