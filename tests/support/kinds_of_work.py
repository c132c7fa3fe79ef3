"""What Spark has its Python processes do for a table, each alone in a process, and what it imports.

``python kinds_of_work.py KIND FOLDER [DAEMON]`` prints JSON; ``prepare FOLDER`` comes first.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

# The module of PySpark that a process runs, by the kind of work.
PROCESSES = {
    "look up the source": "pyspark.sql.worker.lookup_data_sources",
    "find the schema": "pyspark.sql.worker.create_data_source",
    "describe for the plugin": "pyspark.sql.datasource",
    "plan a scan": "pyspark.sql.worker.plan_data_source_read",
    "scan": "pyspark.worker",
    "plan a write": "pyspark.sql.worker.write_into_data_source",
    "write": "pyspark.worker",
    "commit": "pyspark.sql.worker.commit_data_source_write",
}


def work(kind: str, folder: Path) -> None:
    """Do it, with what another process left in the folder."""
    options = {"path": str(folder / "table")}

    def kept(name: str) -> object:
        return pickle.loads((folder / name).read_bytes())

    if kind == "look up the source":
        importlib.import_module("pyspark_lance")
    elif kind == "find the schema":
        pickle.dumps(_source(options))
    elif kind == "describe for the plugin":
        methods = importlib.import_module("pyspark_lance.spark.service.methods").methods()
        assert methods["describe"]({"options": options})["rows"] == 10
    elif kind == "plan a scan":
        pickle.dumps(kept("source").reader(kept("schema")).partitions())
    elif kind == "scan":
        assert sum(batch.num_rows for batch in kept("reader").read(kept("partition"))) == 10
    elif kind == "plan a write":
        pickle.dumps(kept("target").writer(kept("schema"), False))
    elif kind == "write":
        pickle.dumps(kept("writer").write(iter([ten_rows()])))
    else:
        kept("writer").commit([kept("message")])


def _source(options: dict[str, str]) -> object:
    source = importlib.import_module("pyspark_lance").DefaultSource(options)
    source.schema()
    return source


def ten_rows():
    """A batch as Spark gives it, from memory: an array of Python objects would import pandas."""
    import numpy as np
    import pyarrow as pa

    numbers = pa.py_buffer(np.arange(10))
    offsets, text = pa.py_buffer(np.arange(11, dtype=np.int32)), pa.py_buffer(b"abcdefghij")
    return pa.RecordBatch.from_arrays(
        [
            pa.Array.from_buffers(pa.int64(), 10, [None, numbers]),
            pa.Array.from_buffers(pa.string(), 10, [None, offsets, text]),
        ],
        names=["id", "name"],
    )


def prepare(folder: Path) -> None:
    """A table of ten rows, and what drivers and tasks are sent for another ten."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    from pyspark_lance import DefaultSource

    schema = StructType([StructField("id", LongType()), StructField("name", StringType())])
    options = {"path": str(folder / "table")}
    writer = DefaultSource(options).writer(schema, False)
    writer.commit([writer.write(iter([ten_rows()]))])
    source, target = DefaultSource(options), DefaultSource(options)
    reader, appender = source.reader(schema), target.writer(schema, False)
    message = appender.write(iter([ten_rows()]))
    (partition,) = reader.partitions()
    for name, value in {
        "schema": schema,
        "source": source,
        "reader": reader,
        "partition": partition,
        "target": target,
        "writer": appender,
        "message": message,
    }.items():
        (folder / name).write_bytes(pickle.dumps(value))


def run(kind: str, folder: Path, daemon: str = "") -> dict:
    """Do it in a process of its own; with ``daemon``, in one that this module has forked.

    Returns:
        ``spark``, ``own``: seconds of the processor for the imports of Spark's part, and for ours
        with the work itself; ``modules``: names of what the work imported.
    """
    command = [sys.executable, __file__, kind, str(folder), *([daemon] if daemon else [])]
    # No path of the caller: a folder of tests is none that Spark's processes have.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]) if kind != "prepare" else {}


def _is_forked(daemon: str, module: str) -> bool:
    """Go on in a process that a daemon forks: one of ours that was asked, or PySpark's."""
    made = importlib.import_module(daemon)
    sys.argv[1:] = [module]
    if hasattr(made, "prepare"):
        made.prepare()
        signal.raise_signal(signal.SIGUSR1)
    return os.fork() != 0 and os.wait()[1] == 0


def _main(kind: str, folder: Path, daemon: str = "") -> None:
    if kind == "prepare":
        prepare(folder)
        return
    importlib.import_module("pyspark.daemon")
    if daemon and _is_forked(daemon, PROCESSES[kind]):
        return
    importlib.import_module(PROCESSES[kind])
    spark, before = time.process_time(), set(sys.modules)
    work(kind, folder)
    own = time.process_time() - spark
    found = sorted(name for name in sys.modules if name not in before)
    sys.stdout.write(json.dumps({"spark": spark, "own": own, "modules": found}) + "\n")


if __name__ == "__main__":
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    _main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
