"""What the documents show is what happens."""

from __future__ import annotations

import os
import re

import pytest
from conftest import WITH_COMPANION
from documents import NEEDS_COMPANION, ROOT, Block, blocks_of, documents, run_document

_PAGES = documents()


@pytest.mark.spark
@pytest.mark.parametrize("page", _PAGES, ids=[str(page.relative_to(ROOT)) for page in _PAGES])
def test_every_block_of_a_document_runs_and_prints_what_it_shows(page, spark, tmp_path):
    needs = NEEDS_COMPANION in page.read_text()
    if needs != (os.environ.get(WITH_COMPANION) == "true"):
        pytest.skip("the run with the companion reads the pages that need it, the other the rest")
    run_document(page, spark, str(tmp_path))


def test_blocks_are_found_with_what_they_print():
    text = "a\n```python\nprint(1)\n```\n\n```text\n1\n```\n"
    text += "<!-- hidden\nx = 1\n-->\n  ```sql\n  A;\n  ```\n"
    assert blocks_of(text) == [
        Block("python", "print(1)\n", 3, "1\n"),
        Block("python", "x = 1\n", 10),
        Block("sql", "A;\n", 13),
    ]


def test_a_block_that_prints_something_else_fails(tmp_path):
    wrong = tmp_path / "wrong.md"
    wrong.write_text("```python\nprint(1)\n```\n```text\n2\n```\n")
    with pytest.raises(AssertionError, match=r"wrong\.md:2 prints"):
        run_document(wrong, None, str(tmp_path))


@pytest.mark.parametrize("page", _PAGES, ids=[str(page.relative_to(ROOT)) for page in _PAGES])
def test_links_between_documents_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_tables_of_options_procedures_and_errors_are_those_of_the_code():
    from pyspark_lance.errors import errors_as_markdown
    from pyspark_lance.spark.options.option_table import options_as_markdown
    from pyspark_lance.spark.procedures import procedures_as_markdown

    assert procedures_as_markdown() in (ROOT / "docs" / "sql.md").read_text()
    assert options_as_markdown() in (ROOT / "docs" / "options.md").read_text()
    assert errors_as_markdown() in (ROOT / "docs" / "errors.md").read_text()
