"""What the documents show is what happens; the examples do what they say."""

from __future__ import annotations

import functools
import re
from importlib.util import find_spec

import pytest
from documents import (
    EXAMPLES,
    NEEDS_PLUGIN,
    ROOT,
    WITH_DIGITS,
    Block,
    blocks_of,
    documents,
    no_answers,
    run_document,
)

_PAGES = documents()
HAS_DIGITS = find_spec("sklearn") is not None

_NAMES = [str(page.relative_to(ROOT)) for page in _PAGES]
_WITHOUT_PLUGIN = [name for name in _NAMES if NEEDS_PLUGIN not in (ROOT / name).read_text()]


@pytest.fixture(scope="module")
def ended(run_documents):
    """All documents and examples, as users have them; without the plugin those that need none."""
    # The processes of streams may still say something when other documents run, so these come last.
    examples = [*([WITH_DIGITS] if HAS_DIGITS else []), *EXAMPLES]

    @functools.cache
    def of_kind(kind):
        pages = _NAMES if kind == "plugin" else _WITHOUT_PLUGIN
        return run_documents(kind, pages + examples)

    return of_kind


@pytest.mark.spark
@pytest.mark.timeout(1100)
@pytest.mark.parametrize(
    ("kind", "page"),
    [
        *(("plugin", name) for name in _NAMES),
        *(pytest.param("plain", name, marks=pytest.mark.slow) for name in _WITHOUT_PLUGIN),
    ],
)
def test_document_blocks_print_what_they_show(kind, page, ended):
    count = ended(kind).result(page)
    languages = [block.language for block in blocks_of((ROOT / page).read_text())]
    assert count == languages.count("python") + languages.count("sql")


@pytest.mark.spark
@pytest.mark.timeout(1100)
def test_example_change_feed(ended):
    seen = ended("plugin").result("change_feed.py")
    assert (seen["wrong totals"], seen["stale vectors"]) == (0, 0)
    assert 1 <= seen["looked at again"] < seen["carriers"] / 2
    assert seen["vectors at first"] == 3
    assert (seen["vectors computed again"], seen["vectors made once more"]) == (1, 0)


@pytest.mark.spark
@pytest.mark.timeout(1100)
def test_follow_a_table_example_keeps_copy_equal(ended):
    seen = ended("plugin").result("follow_a_table.py")
    assert seen["rows in which the copy differs"] == 0
    apart = [value for name, value in seen.items() if name.startswith("rows apart")]
    assert apart == [0, 0, 0, 0, 0]
    assert seen["versions of the copy"] == 4
    assert seen["states in the history"] > seen["rows in the table"]


@pytest.mark.spark
@pytest.mark.timeout(1100)
def test_example_search_documents(ended):
    seen = ended("plugin").result("search_documents.py")
    assert (seen["embedded at first"], seen["embedded again"]) == (8, 1)
    for way in ("by words", "by meaning", "by both"):
        assert set(seen[f"a fisherman's boat, {way}"]) == {"Harbour", "Market"}
        assert seen[f"later, {way}"] == ["Library", "Harbour"]
    assert seen["bread in the mountains, by both"][0] == "Hut"
    assert dict(seen["several questions"]) == {"who fishes": "Library", "fresh bread": "Bakery"}


@pytest.mark.spark
@pytest.mark.skipif(not HAS_DIGITS, reason="needs scikit-learn: pip install -e '.[examples]'")
@pytest.mark.timeout(1100)
def test_example_similar_images(ended):
    seen = ended("plugin").result(WITH_DIGITS)
    assert seen["vectors made at first"] == seen["rows in the index"] == 1797
    corrected = seen["pictures corrected"]
    assert 0 < corrected < 200
    assert seen["vectors computed again"] == seen["rows added to the index"] == corrected
    assert seen["same digit, corrected"] > seen["same digit, upside down"]
    assert seen["points of the picture"] == 6 * 8 * 10 * 10 * 16


@pytest.mark.spark
@pytest.mark.timeout(1100)
@pytest.mark.parametrize("kind", ["plugin", pytest.param("plain", marks=pytest.mark.slow)])
def test_session_starts_and_stops_silently(kind, ended):
    assert ended(kind).printed_elsewhere() == []


def test_unexpected_output_is_attributed_to_preceding_block():
    printed = """26/11/23 19:21:38 WARN NativeCodeLoader: Unable to load native-hadoop library
== a.md:3
an answer about errors
== a.md:9
{"ts": "2026-11-23", "level": "ERROR", "logger": "SQLQueryContextLogger"}
BrokenPipeError: [Errno 32] Broken pipe
== b.md:1
x.py:16: FutureWarning: PySpark does not yet fully support pandas >= 3.0.0.
x.py:17: UserWarning: pkg_resources is deprecated
== b.md:5
26/11/23 19:33:46 WARN ProcessingTimeExecutor: Current batch is falling behind
26/11/23 19:33:47 WARN LanceScan: something is odd
"""
    found = no_answers(printed)
    assert {where: text.splitlines()[0][:30] for where, text in found.items()} == {
        "a.md:9": '{"ts": "2026-11-23", "level": ',
        "b.md:1": "x.py:17: UserWarning: pkg_reso",
        "b.md:5": "26/11/23 19:33:47 WARN LanceSc",
    }


def test_blocks_are_parsed_with_expected_output():
    text = "a\n```python\nprint(1)\n```\n\n```text\n1\n```\n"
    text += "<!-- hidden\nx = 1\n-->\n  ```sql\n  A;\n  ```\n"
    assert blocks_of(text) == [
        Block("python", "print(1)\n", 3, "1\n"),
        Block("python", "x = 1\n", 10),
        Block("sql", "A;\n", 13),
    ]


def test_block_with_wrong_output_fails(tmp_path):
    wrong = tmp_path / "wrong.md"
    wrong.write_text("```python\nprint(1)\n```\n```text\n2\n```\n")
    with pytest.raises(AssertionError, match=r"wrong\.md:2 prints"):
        run_document(wrong, None, str(tmp_path))


@pytest.mark.parametrize("page", _PAGES, ids=[str(page.relative_to(ROOT)) for page in _PAGES])
def test_links_between_documents_resolve(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", _PAGES, ids=[str(page.relative_to(ROOT)) for page in _PAGES])
def test_code_lines_fit_the_page(page):
    blocks = blocks_of(page.read_text())
    assert [line for one in blocks for line in one.code.splitlines() if len(line) > 104] == []


def test_generated_tables_in_documents_equal_code():
    from pyspark_lance.errors import errors_as_markdown, reasons_as_markdown
    from pyspark_lance.format.feature_flags import flags_as_markdown
    from pyspark_lance.spark.options.option_table import options_as_markdown
    from pyspark_lance.spark.sql.procedures import procedures_as_markdown

    assert procedures_as_markdown() in (ROOT / "docs" / "sql.md").read_text()
    assert options_as_markdown() in (ROOT / "docs" / "options.md").read_text()
    assert flags_as_markdown() in (ROOT / "docs" / "limits.md").read_text()
    assert errors_as_markdown() in (ROOT / "docs" / "errors.md").read_text()
    assert reasons_as_markdown() in (ROOT / "docs" / "errors.md").read_text()
