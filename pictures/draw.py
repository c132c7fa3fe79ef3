"""Draws the pictures of the documents into docs/pictures: python pictures/draw.py [name ...]."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
_OF_TABLES = ("lineage", "history", "tutorial")


def main() -> None:
    """Draws those that are named, or all."""
    names = sys.argv[1:] or ["architecture", "versions", "benchmarks", *_OF_TABLES]
    for name in names:
        for file, picture in _drawn(name).items():
            (FOLDER / f"{file}.svg").write_text(picture)


def _drawn(name: str) -> dict[str, str]:
    """The pictures that a module draws, by their names; most draw one, named as they are."""
    module = __import__(name)
    if name not in _OF_TABLES:
        return {name: module.draw()}
    from pyspark.sql import SparkSession

    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    folder = tempfile.mkdtemp(prefix="pyspark-lance-")
    try:
        drawn = module.draw(spark, folder)
        return drawn if isinstance(drawn, dict) else {name: drawn}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
