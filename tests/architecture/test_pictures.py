"""The pictures of the documents show what is there."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
_TEXT = "{http://www.w3.org/2000/svg}text"


def lines_of(name: str) -> list[list[str]]:
    """The texts of a picture that stand on one line, line by line."""
    lines: dict[float, list[tuple[float, str]]] = {}
    for text in ElementTree.parse(ROOT / "docs" / "pictures" / name).getroot().iter(_TEXT):
        at = float(text.get("y", "")), float(text.get("x", ""))
        lines.setdefault(at[0], []).append((at[1], text.text or ""))
    return [[text for _, text in sorted(line)] for _, line in sorted(lines.items())]


@pytest.fixture
def draw(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "pictures"))
    import draw

    return draw


@pytest.mark.parametrize("name", ["architecture", "versions", "benchmarks"])
def test_pictures_of_files_are_up_to_date(name, draw):
    drawn = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text()
    assert getattr(draw, f"draw_{name}")() == drawn, f"python docs/pictures/draw.py {name}"


def test_architecture_picture_shows_every_subpackage(draw):
    named = {name for row in draw.layers() for name in row}
    package = ROOT / "src" / "pyspark_lance"
    assert named >= {path.parent.name for path in package.glob("*/__init__.py")} - {"proto"}


def test_lineage_picture_shows_feed_of_index_page():
    printed = (ROOT / "docs" / "index.md").read_text().split("update_preimage")[0].rsplit("\n", 1)
    table = (ROOT / "docs" / "index.md").read_text()[len(printed[0]) - 400 :]
    feed = [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in re.findall(r"^\|.*(?:image|delete)\|.*$", table, re.MULTILINE)
    ]
    assert len(feed) == 3
    shown = [line for line in lines_of("lineage.svg") if line[1] in {row[3] for row in feed}]
    assert [[line[3], line[5], line[2], line[1], line[0]] for line in shown] == feed


def test_tutorial_pictures_show_tables_of_tutorial():
    printed = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (ROOT / "docs" / "tutorial.md").read_text().splitlines()
        if line.startswith("|") and line.endswith("|") and "---" not in line
    ]
    rows = [[row[3], *row[:3], *row[4:]] for row in printed[1:5]]
    assert [line for line in lines_of("tutorial-1.svg") if line[0].isdigit()] == rows
    # What the feed says of the newest state of each row stands in the picture of its version.
    states = [
        row
        for row in printed
        if row[-1] in "345" and row[4:5] in (["update_postimage"], ["insert"])
    ]
    assert len(states) == 3
    for number, customer, status, row_id, _, version in states:
        lines = lines_of(f"tutorial-{version}.svg")
        after = [line[-6:] for line in lines if len(line) in (6, 12)]
        assert any(
            line[:4] == [row_id, number, customer, status] and line[5] == version for line in after
        )


@pytest.mark.parametrize("path", PICTURES, ids=[path.name for path in PICTURES])
def test_pictures_have_background_and_load_nothing_external(path):
    root = ElementTree.parse(path).getroot()
    first = next(one for one in root.iter("{http://www.w3.org/2000/svg}rect"))
    assert first.get("width") in (root.get("width"), "100%")
    assert not re.search(r"(?:href|src)=|url\((?!#)|@import|<script", path.read_text())


def test_all_pictures_appear_in_documents():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {
        name for page in pages for name in re.findall(r"pictures/([\w-]+\.svg)\)", page.read_text())
    }
    assert shown == {path.name for path in PICTURES}


def test_benchmark_chart_matches_performance_tables():
    figures = json.loads((ROOT / "benchmarks" / "figures.json").read_text())
    tables = [
        re.findall(r"(?<=\| )\d+\.\d\d(?= |\b)", row)
        for row in (ROOT / "docs" / "benchmarks.md").read_text().splitlines()
        if row.startswith("| ")
    ]
    for group in figures["groups"]:
        for name, *seconds in group["rows"]:
            shown = [f"{one:.2f}" for one in seconds if one is not None]
            assert any(row[: len(shown)] == shown for row in tables), (name, shown)
