"""Pictures of tables: their rows by version, their change feed, and their fragments by version."""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession
from svg import Picture

from pyspark_lance import LanceTable
from pyspark_lance.command_line.main import main

ROOT = Path(__file__).resolve().parents[2]
_CREATED, _UPDATED = "_row_created_at_version", "_row_last_updated_at_version"
# Title and width of each column.
_Columns = dict[str, tuple[str, int]]


def draw_tables(names: Sequence[str]) -> dict[str, str]:
    """Draw the named ones of ``lineage``, ``history`` and ``tutorial``, as SVG by name of file."""
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    pictures: dict[str, str] = {}
    for name in names:
        folder = tempfile.mkdtemp(prefix="pyspark-lance-")
        try:
            match name:
                case "lineage":
                    pictures["lineage"] = _draw_lineage(spark, folder)
                case "history":
                    pictures["history"] = _draw_history(spark, folder)
                case _:
                    pictures |= _draw_tutorial(spark, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return pictures


def _draw_history(spark: SparkSession, folder: str) -> str:
    """Draw fragments of a table with appends, an update, deletes and a compaction."""
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
    return _plot(folder, "orders")


def _plot(folder: str, name: str) -> str:
    """Return the SVG of ``info --plot`` for the table ``name`` below ``folder``."""
    picture = Path(folder) / "plot.svg"
    # The title of the picture is the table as it was given, so it has to be a relative path.
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        if main(["info", name, "--plot", str(picture)]):
            raise SystemExit("the picture was not drawn")
    return picture.read_text()


def _fill(row: Row, version: int) -> str:
    if row[_CREATED] == version:
        return "inserted"
    return "updated" if row[_UPDATED] == version else "text"


def _draw_head(picture: Picture, left: float, bottom: float, columns: _Columns) -> None:
    titles = {name: title for name, (title, _) in columns.items()}
    _draw_row(picture, left, bottom, columns, titles, "soft")


def _draw_row(
    picture: Picture, left: float, bottom: float, columns: _Columns, row: Any, fill: str
) -> None:
    for name, (_, width) in columns.items():
        picture.text(left + 8, bottom, str(row[name]), 11.5, fill=fill, mono=True)
        left += width


_EVENT = {
    "_rowid": ("_rowid", 52),
    "id": ("id", 28),
    "kind": ("kind", 46),
    "price": ("price", 46),
    _CREATED: ("created", 54),
    _UPDATED: ("changed", 58),
}
_FEED = {
    "_commit_version": ("_commit_version", 170),
    "_change_type": ("_change_type", 180),
    "_rowid": ("_rowid", 90),
    "id": ("id", 60),
    "kind": ("kind", 80),
    "price": ("price", 0),
}
_WIDTH, _LEFT, _GAP, _LINE = 940, 20, 24, 24


def _draw_lineage(spark: SparkSession, folder: str) -> str:
    """Draw the versions of the table of the first page, and its change feed."""
    path = f"{folder}/events"
    rows = [(1, "click", 0.5), (2, "view", 1.5), (3, "click", 2.5)]
    events = spark.createDataFrame(rows, "id bigint, kind string, price double").coalesce(1)
    events.write.format("lance").mode("append").save(path)
    table = LanceTable.forPath(spark, path)
    table.update("id = 2", {"price": "price * 10"})
    table.delete("id = 3")
    picture = Picture(_WIDTH, 356, "A Lance table: its versions, its rows with ids, and its feed")
    card = (_WIDTH - 2 * _LEFT - 2 * _GAP) / 3
    for number, title in enumerate(("append", "update id = 2", "delete id = 3")):
        left = _LEFT + number * (card + _GAP)
        version = number + 1
        picture.box(left, 16, card, 154, "card")
        picture.text(left + 8, 36, f"version {version}", 13, bold=True)
        picture.text(left + card - 8, 36, title, 12, fill="soft", at="end", mono=True)
        picture.box(left, 46, card, _LINE, "head", 0)
        _draw_head(picture, left, 62, _EVENT)
        found = table.scan(list(_EVENT), version=version).orderBy("_rowid").collect()
        for line, row in enumerate(found, start=1):
            _draw_row(picture, left, 62 + _LINE * line, _EVENT, row, _fill(row, version))
        if number:
            picture.line([(left - _GAP + 3, 90), (left - 4, 90)], "soft")
    _draw_feed(picture, table)
    return picture.svg()


def _draw_feed(picture: Picture, table: LanceTable) -> None:
    top = 200
    picture.text(_LEFT, top, "Change feed of versions 2 and 3", 13, bold=True)
    picture.text(_WIDTH - _LEFT, top, "table.changes(2)", 12, fill="soft", at="end", mono=True)
    picture.box(_LEFT, top + 12, _WIDTH - 2 * _LEFT, 4 * _LINE + 2, "card")
    picture.box(_LEFT, top + 12, _WIDTH - 2 * _LEFT, _LINE, "head", 0)
    _draw_head(picture, _LEFT, top + 28, _FEED)
    changes = table.changes(2).orderBy("_commit_version", "_change_type").collect()
    fills = {"insert": "inserted", "delete": "deleted"}
    for line, row in enumerate(changes, start=1):
        fill = fills.get(row["_change_type"], "updated")
        _draw_row(picture, _LEFT, top + 28 + line * _LINE, _FEED, row, fill)
    for number, fill in enumerate(("inserted", "updated", "deleted")):
        left = _LEFT + 200 * number
        picture.box(left, top + 131, 10, 10, fill)
        picture.text(left + 16, top + 140, f"{fill} by the version", 11.5, fill="soft")


_ORDER = {
    "_rowid": ("_rowid", 58),
    "id": ("id", 30),
    "customer": ("customer", 76),
    "status": ("status", 58),
    _CREATED: ("created", 66),
    _UPDATED: ("changed", 62),
}
_STEPS = ("insert 1 to 4", "append 5 and 6", "update order 2", "merge 3 and 7", "delete order 4")


def _draw_tutorial(spark: SparkSession, folder: str) -> dict[str, str]:
    """Draw the table of the tutorial after each step; the page runs as in its test."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from documents import run_document

    with contextlib.redirect_stdout(io.StringIO()):
        run_document(ROOT / "docs" / "tutorial.md", spark, folder)
    table = LanceTable.forPath(spark, f"{folder}/orders")
    versions = [
        table.scan(list(_ORDER), version=version).orderBy("_rowid").collect()
        for version in range(1, len(_STEPS) + 1)
    ]
    pictures = {
        f"tutorial-{number}": _draw_step(number, versions[max(0, number - 2) : number])
        for number in range(1, len(_STEPS) + 1)
    }
    return {**pictures, "tutorial-fragments": _plot(folder, "orders")}


def _draw_step(version: int, shown: list[list[Row]]) -> str:
    """Draw a version beside the one before it."""
    card, margin, gap, line_height, top = 354, 16, 40, 22, 16
    height = top + 30 + line_height * (1 + max(map(len, shown))) + 44
    width = 2 * margin + len(shown) * card + (len(shown) - 1) * gap
    title = _STEPS[version - 1]
    picture = Picture(width, height, f"Version {version}: {title}")
    *_, after = shown
    deleted = {row["_rowid"] for row in shown[0]} - {row["_rowid"] for row in after}
    for number, rows in enumerate(shown):
        left = margin + number * (card + gap)
        is_new = rows is after
        picture.box(left, top, card, height - top - 40, "card")
        shown_version = version - len(shown) + 1 + number
        picture.text(left + 8, top + 20, f"version {shown_version}", 13, bold=True)
        if is_new:
            picture.text(left + card - 8, top + 20, title, 12, fill="soft", at="end", mono=True)
        if number:
            picture.line([(left - gap + 6, top + 41), (left - 6, top + 41)], "soft")
        picture.box(left, top + 30, card, line_height, "head", 0)
        _draw_head(picture, left, top + 45, _ORDER)
        for line, row in enumerate(rows, start=1):
            before = "deleted" if row["_rowid"] in deleted else "text"
            fill = _fill(row, version) if is_new else before
            _draw_row(picture, left, top + 45 + line_height * line, _ORDER, row, fill)
    kinds = sorted({_fill(row, version) for row in after} - {"text"})
    for number, kind in enumerate([*kinds, "deleted"] if deleted else kinds):
        left = margin + 166 * number
        picture.box(left, height - 28, 10, 10, kind)
        text = f"{kind} by version {version}"
        picture.text(left + 16, height - 19, text, 11.5, fill="soft")
    return picture.svg()
