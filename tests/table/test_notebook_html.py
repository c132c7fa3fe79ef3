"""What notebooks show of tables and results: escaped, without secrets, and never an error."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from html.parser import HTMLParser

import pytest
from row_changes import set_to
from table_access import append

from pyspark_lance import LanceTable
from pyspark_lance.notebook_html import (
    details_as_html,
    html_or_text,
    show_in_notebooks,
    without_secrets,
)
from pyspark_lance.table.dml.row_change import ChangeResult


class Shown(HTMLParser):
    """The texts of a piece of HTML by the tag around them, which must be closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_details_say_none_of_empty_collections():
    shown = Shown(details_as_html("Result", {"version": None, "findings": (), "files": {}}))
    assert shown.texts == ["Result", "findings", "none", "files", "none"]


def test_table_html_shows_newest_versions(tmp_path):
    path = str(tmp_path / "t")
    for start in range(0, 60, 10):
        append(path, start, 10)
    set_to(path, "id = 5", id=105)
    shown = Shown(LanceTable(None, path)._repr_html_())
    assert f"Lance table {path}" in shown.texts
    assert [text for text in shown.texts if text in ("Append", "Update", "Overwrite")] == [
        "Update", *["Append"] * 4
    ]  # fmt: skip
    assert shown.texts.count("60") == 3  # of the table, and of its two newest versions
    held = Shown(LanceTable(None, path, version=2)._repr_html_())
    assert held.texts[held.texts.index("rows") + 1] == "20"


@pytest.mark.parametrize("path", ["/nowhere/<i>t</i>", "nowhere://key:hunter2@bucket/t?sig=abc"])
def test_unopenable_table_html_shows_name_and_reason(path):
    html = LanceTable(None, path)._repr_html_()
    shown = Shown(html)
    assert "i" not in shown.tags
    assert "LanceTable(" in shown.texts[0]
    assert len(shown.texts) == 2
    assert not [word for word in ("hunter2", "sig=abc") if word in html]


def test_slow_html_falls_back_to_text():
    goes_on = threading.Event()
    shown = Shown(html_or_text(lambda: str(goes_on.wait()), "a <table>", max_seconds=0.01))
    goes_on.set()
    assert shown.texts == ["a <table>", "the table did not respond within 0.01 seconds"]


def test_result_html_escapes_fields():
    @show_in_notebooks
    @dataclass(frozen=True)
    class Result:
        version: int
        names: tuple[str, ...]
        note: str | None = None

    shown = Shown(Result(1234567, ("<script>alert(1)</script>", "b"))._repr_html_())
    assert shown.tags == {"table", "caption", "b", "tr", "th", "td", "br"}
    assert shown.texts == [
        "Result", "version", "1,234,567", "names", "<script>alert(1)</script>", "b"
    ]  # fmt: skip


def test_delete_result_html_uses_result_names():
    shown = Shown(ChangeResult(3, numDeletedRows=12)._repr_html_())
    assert shown.texts[shown.texts.index("numDeletedRows") + 1] == "12"


def test_long_values_are_truncated():
    html = details_as_html("t", {"all": list(range(100)), "text": "x" * 999})
    assert ("… 92 more" in html, html.count("x") < 250) == (True, True)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://AKIA:pw@bucket/t", "s3://***@bucket/t"),
        ("az://c/t?sv=1&sig=pw of", "az://c/t?*** of"),
        ("LanceTable('az://c/t?sig=pw', version=2)", "LanceTable('az://c/t?***', version=2)"),
        ("/data/a@b?c", "/data/a@b?c"),
    ],
)
def test_uris_show_no_secrets(text, shown):
    assert without_secrets(text) == shown
