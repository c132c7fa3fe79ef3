"""What `info --plot` draws of a table with a history: appends, an update, deletes, a compaction."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_lance import LanceTable
from pyspark_lance.command_line.main import main


def draw(spark: SparkSession, folder: str) -> str:
    """The picture, as SVG; the table is made below ``folder``."""
    path = f"{folder}/orders"

    def append(first: int, end: int) -> None:
        rows = spark.range(first, end).selectExpr("id", "id % 7 AS kind", "id * 1.5 AS price")
        rows.coalesce(1).write.format("lance").mode("append").save(path)

    append(0, 400)
    append(400, 700)
    append(700, 900)
    table = LanceTable.forPath(spark, path)
    table.update("id BETWEEN 300 AND 420", {"price": "0"})
    table.delete("kind = 3")
    table.createTag("month-end")
    append(900, 1200)
    table.compact()
    table.delete("id < 100")
    append(1200, 1300)
    return plot(folder, "orders")


def plot(folder: str, name: str) -> str:
    """What `info --plot` draws of the table ``name`` below ``folder``, as SVG."""
    picture = Path(folder) / "plot.svg"
    # The picture is named by the table as it was given, which should be the same everywhere.
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        if main(["info", name, "--plot", str(picture)]):
            raise SystemExit("the picture was not drawn")
    return picture.read_text()
