"""The table of docs/tutorial.md after each step: what a version did to the rows before it."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

from history import plot
from pyspark.sql import SparkSession
from svg import Picture

from pyspark_lance import LanceTable

ROOT = Path(__file__).resolve().parents[1]
STEPS = ("insert 1 to 4", "append 5 and 6", "update order 2", "merge 3 and 7", "delete order 4")
_COLUMNS = {
    "_rowid": ("_rowid", 58),
    "id": ("id", 30),
    "customer": ("customer", 76),
    "status": ("status", 58),
    "_row_created_at_version": ("created", 66),
    "_row_last_updated_at_version": ("changed", 62),
}
_CARD, _LEFT, _GAP, _LINE, _TOP = 354, 16, 40, 22, 16


def draw(spark: SparkSession, folder: str) -> dict[str, str]:
    """The pictures, as SVG, by name; the page is run below ``folder``, as its test runs it."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from documents import run_document

    with contextlib.redirect_stdout(io.StringIO()):
        run_document(ROOT / "docs" / "tutorial.md", spark, folder)
    table = LanceTable.forPath(spark, f"{folder}/orders")
    versions = [
        table.scan(list(_COLUMNS), version=version).orderBy("_rowid").collect()
        for version in range(1, len(STEPS) + 1)
    ]
    pictures = {
        f"tutorial-{number}": _step(number, versions[max(0, number - 2) : number])
        for number in range(1, len(STEPS) + 1)
    }
    return {**pictures, "tutorial-fragments": plot(folder, "orders")}


def _step(version: int, shown: list[list]) -> str:
    """A card of the version, behind one of the version before."""
    height = _TOP + 30 + _LINE * (1 + max(map(len, shown))) + 44
    width = 2 * _LEFT + len(shown) * _CARD + (len(shown) - 1) * _GAP
    picture = Picture(width, height, f"Version {version}: {STEPS[version - 1]}")
    *_, after = shown
    gone = {row["_rowid"] for row in shown[0]} - {row["_rowid"] for row in after}
    for place, rows in enumerate(shown):
        left = _LEFT + place * (_CARD + _GAP)
        number = version - len(shown) + 1 + place
        is_new = rows is after
        picture.box(left, _TOP, _CARD, height - _TOP - 40, "card")
        picture.text(left + 8, _TOP + 20, f"version {number}", 13, bold=True)
        if is_new:
            title = STEPS[version - 1]
            picture.text(left + _CARD - 8, _TOP + 20, title, 12, fill="soft", at="end", mono=True)
        if place:
            picture.line([(left - _GAP + 6, _TOP + 41), (left - 6, _TOP + 41)], "soft")
        picture.box(left, _TOP + 30, _CARD, _LINE, "head", 0)
        _cells(picture, left, _TOP + 45, [name for name, _ in _COLUMNS.values()], "soft")
        for line, row in enumerate(rows, start=1):
            fill = _fill(row, version) if is_new else "deleted" if row["_rowid"] in gone else "text"
            bottom = _TOP + 45 + _LINE * line
            _cells(picture, left, bottom, [str(row[name]) for name in _COLUMNS], fill)
    left = _LEFT
    for kind in sorted({_fill(row, version) for row in after} - {"text"}):
        left = _legend(picture, left, height - 28, kind, version)
    if gone:
        _legend(picture, left, height - 28, "deleted", version)
    return picture.svg()


def _legend(picture: Picture, left: float, top: float, kind: str, version: int) -> float:
    picture.box(left, top, 10, 10, kind)
    picture.text(left + 16, top + 9, f"{kind} by version {version}", 11.5, fill="soft")
    return left + 166


def _fill(row: dict, version: int) -> str:
    if row["_row_created_at_version"] == version:
        return "inserted"
    return "updated" if row["_row_last_updated_at_version"] == version else "text"


def _cells(picture: Picture, left: float, bottom: float, texts: list[str], fill: str) -> None:
    for text, (_, width) in zip(texts, _COLUMNS.values(), strict=True):
        picture.text(left + 8, bottom, text, 11.5, fill=fill, mono=True)
        left += width
