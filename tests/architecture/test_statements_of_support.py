"""The pages of support, limits and indices say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documents import blocks_of

from pyspark_lance.datafile.file_metadata import _VERSION_OF_NUMBERS
from pyspark_lance.datafile.version_support import WRITABLE_VERSIONS
from pyspark_lance.table.index import segments
from pyspark_lance.table.index.lookups import _OPENERS
from pyspark_lance.table.index_build.index_plan import INDEX_KINDS
from pyspark_lance.table.nearest.ivf_file import INDEX_NAMES

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = (ROOT / "docs" / "support.md").read_text()
LIMITS = (ROOT / "docs" / "limits.md").read_text()
INDICES = (ROOT / "docs" / "indices.md").read_text()
WORDS = {
    segments.ZONEMAP: "zone map",
    segments.BTREE: "B-tree",
    segments.BITMAP: "bitmap",
    segments.LABEL_LIST: "labels",
    segments.BLOOMFILTER: "bloom",
    segments.NGRAM: "ngram",
    segments.INVERTED: "text",
    segments.MINHASH: "near-duplicates",
}
USED_BY_SCANS = {segments.ZONEMAP, *_OPENERS}
BUILT = set(INDEX_KINDS)
VECTOR_INDICES = set(INDEX_NAMES.values())


def row_of(start: str) -> list[str]:
    """The cells of a row of the table of support."""
    (row,) = re.findall(rf"^\| {start} \|.*$", SUPPORT, re.MULTILINE)
    return [cell.strip() for cell in row.strip("|").split("|")]


def listed(cell: str, word: str) -> set[str]:
    assert cell.startswith(f"{word}: "), cell
    return set(cell.removeprefix(f"{word}: ").split(", "))


def test_scalar_indices_have_words():
    assert set(WORDS) == USED_BY_SCANS | BUILT


def test_support_names_used_and_built_indices():
    _, used, built = row_of("scalar indices")
    assert listed(used, "used") == {WORDS[kind] for kind in USED_BY_SCANS}
    assert listed(built, "built") == {WORDS[kind] for kind in BUILT}
    _, used, built = row_of("vector indices")
    assert listed(built, "built") == VECTOR_INDICES
    assert listed(used, "used") == VECTOR_INDICES | {"IVF_RQ"}


def test_limits_page_names_exactly_unbuilt_indices():
    (sentence,) = re.findall(r"Not built: ([^.]*)\.", LIMITS)
    for kind, word in WORDS.items():
        assert (word in sentence) == (kind not in BUILT), word
    assert not [name for name in VECTOR_INDICES if name in sentence]


def test_index_page_lists_indices_used_by_scans():
    table = INDICES.split("| kind |")[1].split("\n\n")[0]
    names = {name.lower() for name in re.findall(r"^\| `(\w+)`", table, re.MULTILINE)}
    assert names == USED_BY_SCANS


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2", "2.3"])
def test_support_names_readable_and_writable_file_versions(version):
    _, read, write = row_of(f"data files {re.escape(version)}")
    assert read.startswith("yes") == (version in _VERSION_OF_NUMBERS.values())
    # 0.1 is chosen by no option: rows are appended to tables that have it.
    assert write.startswith("yes") == (version in ("0.1", *WRITABLE_VERSIONS))


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_documented_releases_are_tested(page):
    text = (ROOT / page).read_text()
    project = (ROOT / "pyproject.toml").read_text()
    (lance,) = re.findall(r'"pylance==([\d.]+)"', project)
    assert f"pylance up to {lance}" in text
    sparks = re.findall(r"[\"'= ](4\.\d)\b", (ROOT / ".ci" / "other-sparks").read_text())
    first, last = re.search(r"Spark (4\.\d) to (4\.\d)", text).groups()
    assert (first, f'"pyspark>={first}"' in project) == (min(sparks), True)
    assert last > max(sparks)  # the newest one is what all tests run with


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/installation.md"])
def test_package_index_installation_is_documented_only_after_release(page):
    """Until the changelog has one, what is shown is what works: a clone, or the repository."""
    released = re.search(r"^## \d+\.\d+\.\d+, \d{4}-", (ROOT / "CHANGELOG.md").read_text(), re.M)
    shown = [one.code for one in blocks_of((ROOT / page).read_text()) if one.language == "bash"]
    from_index = [one for one in shown if re.search(r'pip install "?pyspark-lance', one)]
    assert bool(released) or not from_index
