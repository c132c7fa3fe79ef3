"""References lead somewhere, and catalogues are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORMATS = {path.name: path.read_text() for path in (ROOT / "docs" / "format").glob("*.md")}
_REFERENCE = re.compile(
    r"docs/format/([a-z-]+\.md), sections? ((?:[\d.]+|[A-D]\b|[,()\s]|and|to|levels)+)"
)


def references() -> list[tuple[str, str, str]]:
    """Each section that the code refers to: file, document, number."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = re.sub(r"\s*\n\s*", " ", path.read_text())
        for document, sections in _REFERENCE.findall(text):
            numbers = re.sub(r"\([^)]*\)", "", sections)
            found += [
                (path.name, document, n.rstrip(".")) for n in re.findall(r"\d[\d.]*", numbers)
            ]
    return found


def test_code_references_format_sections():
    assert len(references()) > 150


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_referenced_format_sections_exist(name):
    headings = set(re.findall(r"^#+ (\d[\d.]*)", FORMATS[name], re.MULTILINE))
    headings = {number.rstrip(".") for number in headings}
    missing = {one for one in references() if one[1] == name and one[2] not in headings}
    assert not missing


def test_catalogue_lists_all_support_modules():
    catalogue = (ROOT / "tests" / "support" / "README.md").read_text()
    helpers = {f"tests/support/{path.name}" for path in (ROOT / "tests" / "support").glob("*.py")}
    assert helpers == set(re.findall(r"^\| `(tests/support/\w+\.py)` ", catalogue, re.MULTILINE))
