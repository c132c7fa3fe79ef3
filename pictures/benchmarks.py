"""The figures of benchmarks/figures.json as bars: ours beside other formats, line by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from svg import Picture

FIGURES = Path(__file__).resolve().parents[1] / "benchmarks" / "figures.json"
_WIDTH, _LEFT, _NAMES, _BAR, _GAP = 880, 20, 230, 11, 9
_FILLS = ("ours", "other1", "other2", "other3")


def draw() -> str:
    """The picture, as SVG."""
    figures = json.loads(FIGURES.read_text())
    height = 52.0 + sum(_height(group) for group in figures["groups"])
    picture = Picture(_WIDTH, round(height), "Seconds beside Parquet, Delta, Iceberg, lance-spark")
    top = 34.0
    for group in figures["groups"]:
        _group(picture, top, group)
        top += _height(group)
    note = f"{figures['machine']}, {figures['date']}. Each line has a scale of its own."
    picture.text(_LEFT, top - 2, note, 11, fill="soft")
    return picture.svg()


def _height(group: dict[str, Any]) -> float:
    lines = sum(len(_bars(group, row)) * _BAR + _GAP for row in group["rows"])
    return lines + 62


def _bars(group: dict[str, Any], row: list[Any]) -> list[tuple[int, float]]:
    """Which of the names has a figure, and which."""
    return [(place, value) for place, value in enumerate(row[1:]) if value is not None]


def _group(picture: Picture, top: float, group: dict[str, Any]) -> None:
    picture.text(_LEFT, top, group["title"], 14, bold=True)
    left = float(_LEFT)
    for fill, name in zip(_FILLS, group["names"], strict=False):
        picture.box(left, top + 11, 10, 10, fill)
        picture.text(left + 15, top + 20, name, 11.5)
        left += 32 + 6.4 * len(name)
    top += 38
    room = _WIDTH - _NAMES - 2 * _LEFT - 50
    for row in group["rows"]:
        bars = _bars(group, row)
        most = max(value for _, value in bars)
        middle = top + len(bars) * _BAR / 2 + 4
        picture.text(_LEFT + _NAMES - 10, middle, row[0], 11.5, at="end")
        for number, (place, value) in enumerate(bars):
            bar = top + number * _BAR
            width = max(2.0, value / most * room)
            picture.box(_LEFT + _NAMES, bar, width, _BAR - 2, _FILLS[place], 1)
            picture.text(_LEFT + _NAMES + width + 5, bar + 8.5, f"{value:.2f} s", 9.5, fill="soft")
        top += len(bars) * _BAR + _GAP
