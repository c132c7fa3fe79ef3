"""Which versions there are: of this package, and of what it is checked with."""

from __future__ import annotations

import re
from pathlib import Path

from svg import Picture

ROOT = Path(__file__).resolve().parents[1]
_HEIGHT, _LETTER, _PADDING = 22, 6.9, 16


def facts() -> dict[str, str]:
    """What stands in each badge, by its title."""
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


def draw() -> str:
    """The picture, as SVG."""
    widths = [
        (len(title) * _LETTER + _PADDING, len(text) * _LETTER + _PADDING)
        for title, text in facts().items()
    ]
    picture = Picture(round(sum(map(sum, widths)) + 8 * (len(widths) - 1)), _HEIGHT, "Versions")
    left = 0.0
    for (title, text), (own, other) in zip(facts().items(), widths, strict=True):
        picture.box(left, 0, own + other, _HEIGHT, "head")
        picture.box(left + own, 0, other, _HEIGHT, "mark")
        picture.text(left + own / 2, 15, title, 11.5, fill="soft", at="middle")
        picture.text(left + own + other / 2, 15, text, 11.5, bold=True, at="middle")
        left += own + other + 8
    return picture.svg()
