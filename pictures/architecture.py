"""The layers of the package: as import-linter holds them, and what the documents say of them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from svg import Picture

ROOT = Path(__file__).resolve().parents[1]
# What every layer may use, and what is not worth a row.
_HELPERS = ("__main__", "plugin", "proto")
_WIDTH, _LEFT, _ROW, _GAP = 860, 20, 54, 12


def layers() -> list[list[str]]:
    """The rows of layers, the highest first, as the contract of import-linter has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (rows,) = (
        one["layers"] for one in contracts["contracts"] if one["name"] == "Layers point downwards"
    )
    named = [[name.strip(" ()") for name in re.split(r"[|:]", row)] for row in rows]
    return [row for row in named if row[0] not in _HELPERS]


def knowledge() -> dict[str, str]:
    """What each layer knows, by the table of the document."""
    text = (ROOT / "docs" / "how-it-works" / "architecture.md").read_text()
    table = text.split("| layer |")[1].split("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", table, re.MULTILINE))


def draw() -> str:
    """The picture, as SVG."""
    rows, known = layers(), knowledge()
    height = 118 + len(rows) * (_ROW + _GAP) + 34
    picture = Picture(_WIDTH, height, "The layers of pyspark-lance")
    inner = _WIDTH - 2 * _LEFT
    picture.box(_LEFT, 18, inner * 0.62, 40, "card")
    picture.text(_LEFT + inner * 0.31, 43, "DataFrame, SQL, LanceTable, shell", 13, at="middle")
    right = _LEFT + inner * 0.66
    picture.box(right, 18, inner * 0.34, 40, "card")
    picture.text(right + inner * 0.17, 36, "plugin (a jar in the JVM)", 13, at="middle")
    picture.text(right + inner * 0.17, 51, "plans for Spark SQL, reads no file", 10.5,
                 fill="soft", at="middle")  # fmt: skip
    top = 92.0
    picture.line([(_LEFT + inner * 0.31, 60), (_LEFT + inner * 0.31, top - 3)], "soft")
    picture.line([(right + inner * 0.17, 60), (right + inner * 0.17, top - 3)], "soft", dashed=True)
    picture.text(right + inner * 0.17 + 8, 79, "asks", 10.5, fill="soft")
    for row in rows:
        width = (inner - _GAP * (len(row) - 1)) / len(row)
        for place, name in enumerate(row):
            left = _LEFT + place * (width + _GAP)
            picture.box(left, top, width, _ROW, "mark" if name == "spark" else "card")
            picture.text(left + width / 2, top + 22, name, 13.5, bold=True, at="middle", mono=True)
            picture.text(left + width / 2, top + 41, known[name], 11, fill="soft", at="middle")
        top += _ROW + _GAP
    picture.text(
        _WIDTH / 2, top + 16, "A layer imports what is below it, and nothing beside or above it.",
        11.5, fill="soft", at="middle",
    )  # fmt: skip
    return picture.svg()
