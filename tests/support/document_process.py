"""Run documents and examples in a process of their own, and say in a file how each of them ended.

    document_process.py plain|plugin ended.json folder page.md|example.py ...

A session as users have it: its log shows warnings.  All that is printed, by this process, by the
JVM and by workers, goes where this process prints, with a line ``== page:line`` before each block.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path

from documents import ROOT, mark, run_document
from pyspark.sql import SparkSession


def start_session(kind: str, folder: Path) -> SparkSession:
    """A session with the settings of Spark, and of the documents about the plugin."""
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    )
    if kind == "plugin":
        builder = builder.config(
            "spark.sql.catalog.folder", "org.pysparklance.LanceCatalog"
        ).config("spark.sql.catalog.folder.path", str(folder / "folder"))
    else:
        builder = builder.config("spark.sql.lance.plugin", "off")
    return builder.getOrCreate()


def run_example(name: str, spark: SparkSession, folder: str) -> object:
    """What an example returns."""
    mark(f"{name}.py")
    return importlib.import_module(name).main(spark, folder)


def main(kind: str, ended: str, folder: str, *names: str) -> None:
    """Run one after another; a failure of one does not keep the others from running."""
    sys.path.insert(0, str(ROOT / "examples"))
    spark = start_session(kind, Path(folder))
    results: dict[str, dict[str, object]] = {}
    for number, name in enumerate(names):
        own = Path(folder) / str(number)
        own.mkdir(parents=True)
        try:
            if name.endswith(".py"):
                returned = run_example(name.removesuffix(".py"), spark, str(own))
            else:
                returned = run_document(ROOT / name, spark, str(own))
            results[name] = {"returned": returned}
        except BaseException:  # noqa: BLE001 - an assertion or any error of a block
            results[name] = {"error": traceback.format_exc()}
    mark("the end")
    spark.stop()
    Path(ended).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
