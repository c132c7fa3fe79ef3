"""Draw the pictures of the documents: ``python docs/pictures/draw.py [name ...]``.

Names: ``architecture``, ``versions``, ``benchmarks``, and with Spark ``lineage``, ``history``,
``tutorial``; all of them by default.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from svg import Picture

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]


def main() -> None:
    """Draw the named pictures, or all."""
    of_tables = ("lineage", "history", "tutorial")
    names = sys.argv[1:] or [*_OF_FILES, *of_tables]
    pictures = {name: _OF_FILES[name]() for name in names if name in _OF_FILES}
    chosen = [name for name in names if name in of_tables]
    if chosen:
        from tables import draw_tables

        pictures |= draw_tables(chosen)
    for name, picture in pictures.items():
        (FOLDER / f"{name}.svg").write_text(picture)


def layers() -> list[list[str]]:
    """Return the rows of layers, the highest first, from the contract of import-linter."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (rows,) = (
        one["layers"] for one in contracts["contracts"] if one["name"] == "Layers point downwards"
    )
    named = [[name.strip(" ()") for name in re.split(r"[|:]", row)] for row in rows]
    # Without those that have no row in the table of layers.
    return [row for row in named if row[0] not in ("__main__", "plugin", "proto")]


def draw_architecture() -> str:
    """Draw the layers of the package, with what the architecture page says of each."""
    rows, width, left, row_height, gap = layers(), 860, 20, 54, 12
    text = (ROOT / "docs" / "how-it-works" / "architecture.md").read_text()
    table = text.split("| layer |")[1].split("\n\n")[0]
    known = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", table, re.MULTILINE))
    height = 118 + len(rows) * (row_height + gap) + 34
    picture = Picture(width, height, "The layers of pyspark-lance")
    inner = width - 2 * left
    picture.box(left, 18, inner * 0.62, 40, "card")
    picture.text(left + inner * 0.31, 43, "DataFrame, SQL, LanceTable, shell", 13, at="middle")
    right = left + inner * 0.66
    plugin = right + inner * 0.17
    picture.box(right, 18, inner * 0.34, 40, "card")
    picture.text(plugin, 36, "plugin (a jar in the JVM)", 13, at="middle")
    picture.text(plugin, 51, "plans for Spark SQL, reads no file", 10.5, fill="soft", at="middle")
    top = 92.0
    picture.line([(left + inner * 0.31, 60), (left + inner * 0.31, top - 3)], "soft")
    picture.line([(plugin, 60), (plugin, top - 3)], "soft", dashed=True)
    picture.text(plugin + 8, 79, "asks", 10.5, fill="soft")
    for row in rows:
        box = (inner - gap * (len(row) - 1)) / len(row)
        for column, name in enumerate(row):
            start = left + column * (box + gap)
            middle = start + box / 2
            picture.box(start, top, box, row_height, "mark" if name == "spark" else "card")
            picture.text(middle, top + 22, name, 13.5, bold=True, at="middle", mono=True)
            picture.text(middle, top + 41, known[name], 11, fill="soft", at="middle")
        top += row_height + gap
    rule = "A layer imports what is below it, and nothing beside or above it."
    picture.text(width / 2, top + 16, rule, 11.5, fill="soft", at="middle")
    return picture.svg()


def _badges() -> dict[str, str]:
    """Return the text of each badge by its title: this release, and what it is tested with."""
    project = (ROOT / "pyproject.toml").read_text()
    package = (ROOT / "src" / "pyspark_lance" / "version.py").read_text()
    pythons = re.findall(r"Python :: (3\.\d+)", project)
    (lance,) = re.findall(r'"pylance==([\d.]+)"', project)
    (spark,) = re.findall(r'"pyspark>=([\d.]+)"', project)
    (newest,) = re.findall(r"Spark [\d.]+ to ([\d.]+\d)", (ROOT / "docs" / "index.md").read_text())
    return {
        "pyspark-lance": re.findall(r'__version__ = "(.+)"', package)[0],
        "Python": f"{pythons[0]} to {pythons[-1]}",
        "Spark": f"{spark} to {newest}",
        "checked with pylance": f"up to {lance}",
        "license": "Apache 2.0",
    }


def draw_versions() -> str:
    """Draw the badges."""
    badges, height, letter, padding = _badges(), 22, 6.9, 16
    widths = [
        (len(title) * letter + padding, len(text) * letter + padding)
        for title, text in badges.items()
    ]
    picture = Picture(round(sum(map(sum, widths)) + 8 * (len(widths) - 1)), height, "Versions")
    left = 0.0
    for (title, text), (first, second) in zip(badges.items(), widths, strict=True):
        picture.box(left, 0, first + second, height, "head")
        picture.box(left + first, 0, second, height, "mark")
        picture.text(left + first / 2, 15, title, 11.5, fill="soft", at="middle")
        picture.text(left + first + second / 2, 15, text, 11.5, bold=True, at="middle")
        left += first + second + 8
    return picture.svg()


_WIDTH, _LEFT, _NAMES, _BAR, _GAP = 880, 20, 230, 11, 9
_FILLS = ("ours", "other1", "other2", "other3")


def draw_benchmarks() -> str:
    """Draw ``benchmarks/figures.json`` as bars, beside those of other formats."""
    figures = json.loads((ROOT / "benchmarks" / "figures.json").read_text())
    heights = [
        sum(len(_bars(row)) * _BAR + _GAP for row in group["rows"]) + 62.0
        for group in figures["groups"]
    ]
    title = "Seconds beside Parquet, Delta, Iceberg, lance-spark"
    picture = Picture(_WIDTH, round(52.0 + sum(heights)), title)
    top = 34.0
    for group, height in zip(figures["groups"], heights, strict=True):
        _draw_group(picture, top, group)
        top += height
    note = f"{figures['machine']}, {figures['date']}. Each line has a scale of its own."
    picture.text(_LEFT, top - 2, note, 11, fill="soft")
    return picture.svg()


def _bars(row: list[Any]) -> list[tuple[int, float]]:
    """Return column and value of the figures that a row has."""
    return [(column, value) for column, value in enumerate(row[1:]) if value is not None]


def _draw_group(picture: Picture, top: float, group: dict[str, Any]) -> None:
    picture.text(_LEFT, top, group["title"], 14, bold=True)
    left = float(_LEFT)
    for fill, name in zip(_FILLS, group["names"], strict=False):
        picture.box(left, top + 11, 10, 10, fill)
        picture.text(left + 15, top + 20, name, 11.5)
        left += 32 + 6.4 * len(name)
    top += 38
    room = _WIDTH - _NAMES - 2 * _LEFT - 50
    for row in group["rows"]:
        bars = _bars(row)
        longest = max(value for _, value in bars)
        middle = top + len(bars) * _BAR / 2 + 4
        picture.text(_LEFT + _NAMES - 10, middle, row[0], 11.5, at="end")
        for number, (column, value) in enumerate(bars):
            bar = top + number * _BAR
            width = max(2.0, value / longest * room)
            picture.box(_LEFT + _NAMES, bar, width, _BAR - 2, _FILLS[column], 1)
            picture.text(_LEFT + _NAMES + width + 5, bar + 8.5, f"{value:.2f} s", 9.5, fill="soft")
        top += len(bars) * _BAR + _GAP


_OF_FILES: dict[str, Callable[[], str]] = {
    "architecture": draw_architecture,
    "versions": draw_versions,
    "benchmarks": draw_benchmarks,
}


if __name__ == "__main__":
    main()
