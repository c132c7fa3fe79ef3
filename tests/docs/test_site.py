"""The site as a browser shows it: nothing cut off, nothing blank, nothing from elsewhere."""

from __future__ import annotations

import functools
import json
import os
import pkgutil
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest
from browser import browser, chromium
from documents import ROOT

import pyspark_lance
from pyspark_lance import LanceTable

pytestmark = pytest.mark.skipif(
    find_spec("mkdocs") is None, reason="needs mkdocs: pip install -e '.[docs]'"
)

WIDTH = 1400
PHONE_WIDTH = 390
# The appendix of the format has lines of 170 characters, which are wrapped there.
_PAGES = """
(() => {
  const cut = (element) => element.scrollWidth > element.clientWidth + 1;
  const text = (element) => element.textContent.trim().slice(0, 60);
  const pictures = [...document.querySelectorAll("article img, article svg.picture")];
  return {
    cut: [...document.querySelectorAll("article pre, article pre > code")].filter(cut).map(text),
    blank: pictures.filter((one) => !one.complete || !one.naturalWidth).map((one) => one.src),
    tiny: pictures.filter((one) => one.clientWidth < 100).map((one) => one.src),
    pictures: pictures.length,
    source: [...document.querySelectorAll(".mermaid")].map(text),
    marks: [...document.querySelectorAll("article p, article blockquote")]
      .map(text).filter((one) => one.startsWith(">>>") || one.startsWith("|||")),
    quotes: document.querySelectorAll("blockquote blockquote").length,
    wide: cut(document.documentElement),
  };
})()
"""

# What the search shows first, once its worker has answered.
_FIRST_RESULT = """
new Promise((resolve) => {
  const look = () => {
    const first = document.querySelector(".md-search-result__list a.md-search-result__link");
    const count = document.querySelector(".md-search-result__meta").textContent;
    if (first) resolve(first.pathname);
    else if (/^No /.test(count.trim())) resolve(null);
    else setTimeout(look, 20);
  };
  look();
})
"""
# Elements that reach beyond the right edge, unless an element around them scrolls.
_WIDE = """
[...document.querySelectorAll("article *")].filter((element) => {
  const right = element.getBoundingClientRect().right;
  if (right <= document.documentElement.clientWidth + 1) return false;
  for (let outer = element; outer; outer = outer.parentElement)
    if (["auto", "scroll", "hidden"].includes(getComputedStyle(outer).overflowX)) return false;
  return true;
}).map((element) => `${element.tagName}: ${element.textContent.trim().slice(0, 60)}`)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The built site; mkdocs itself fails on links between pages that lead nowhere."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    command += ["-f", str(ROOT / ".mkdocs.yml"), "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def address(site):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    program = chromium()
    if program is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    with browser(program, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def pages(site: Path) -> list[str]:
    return sorted(str(page.relative_to(site)) for page in site.rglob("*.html"))


class _Links(HTMLParser):
    """What a page refers to, and the places in it that other pages can refer to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.wanted: set[str] = set()
        self.names: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.names |= {given[key] or "" for key in ("id", "name") if key in given}
        # A reference to another host that a reader follows by a click is none that the page makes.
        of_tag = {"a": "href", "link": "href"}.get(tag, "src")
        if given.get(of_tag):
            self.wanted.add(str(given[of_tag]))


def test_site_links_lead_to_existing_anchors(site):
    links = {name: _Links(site / name) for name in pages(site)}
    assert len(links) > 25
    broken = []
    for name, page in links.items():
        for target in page.wanted:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or name == "404.html":
                continue
            there = (site / name).parent / unquote(parts.path) if parts.path else site / name
            if there.is_dir():
                there /= "index.html"
            known = links.get(str(there.resolve().relative_to(site.resolve())))
            if not there.exists() or (
                parts.fragment and known and unquote(parts.fragment) not in known.names
            ):
                broken.append((name, target))
    assert broken == []


# Words that readers look for, and the page that answers first.
_SEARCHED = {
    "upsert": "changing-rows", "merge": "changing-rows", "primary key": "changing-rows",
    "CDC": "change-feed", "change data feed": "change-feed", "Debezium": "change-feed",
    "vacuum": "maintenance", "compaction": "maintenance", "optimize": "maintenance",
    "z-order": "maintenance", "liquid clustering": "maintenance", "time travel": "reading",
    "schema evolution": "columns-and-types", "add column": "columns-and-types",
    "vector search": "vectors", "nearest neighbours": "vectors", "full text search": "search",
    "row lineage": "lineage", "exactly once": "streams", "S3": "storage",
    "secondary index": "indices", "replaceWhere": "writing", "catalog": "sql",
    "Databricks": "installation", "GDPR": "recipes/gdpr", "erasure": "recipes/gdpr",
    "slowly changing dimension": "recipes/slowly-changing-dimension",
    "duplicates": "recipes/deduplicate-on-write", "ETL": "recipes/incremental-etl",
    "embeddings": "recipes/embeddings", "PyTorch": "recipes/train-on-a-version",
    "images": "recipes/images", "rollback": "recipes/restore", "small files": "recipes/tune",
    "benchmark": "benchmarks", "slow": "performance",
    "Parquet": "recipes/migrate", "which rows changed": "tutorial",
}  # fmt: skip


def test_search_finds_words_at_their_pages(site):
    """Ranks entries as the site's search does first of all: by tags, titles and texts."""
    index = json.loads((site / "search" / "search_index.json").read_text())
    boosts = {name: one["boost"] for name, one in index["config"]["fields"].items()}
    assert boosts["tags"] > 30 * boosts["title"] > 900 * boosts["text"]

    def words(text):
        plain = re.sub("<[^>]+>", " ", " ".join(text) if isinstance(text, list) else text)
        return {word.strip(".,:;()").lower() for word in re.split(r"[\s\-]+", plain)}

    entries = [
        (one["location"].partition(".html")[0], {name: words(one.get(name, "")) for name in boosts})
        for one in index["docs"]
    ]
    wrong = {}
    for asked, page in _SEARCHED.items():
        scores: dict[str, float] = {}
        for found, own in entries:
            score = sum(boosts[name] * len(words(asked) & own[name]) for name in boosts)
            scores[found] = max(score, scores.get(found, 0))
        best = max(scores.values())
        first = [found for found, score in scores.items() if score == best]
        if first != [page]:
            wrong[asked] = first
    assert wrong == {}


def test_pages_are_titled_by_their_headings(site):
    for page in sorted((ROOT / "docs" / "recipes").glob("*.md")):
        html = (site / "recipes" / f"{page.stem}.html").read_text()
        (heading,) = re.findall(r"^# (.+)$", page.read_text(), re.MULTILINE)[:1]
        assert f"<title>{heading} - " in html


def test_reference_lists_methods_under_imported_names(site):
    html = (site / "api.html").read_text()
    names = set(re.findall(r'id="(pyspark_lance\.[\w.]+)"', html))
    public = {name for name in dir(LanceTable) if not name.startswith("_")}
    assert {f"pyspark_lance.LanceTable.{name}" for name in public} <= names
    assert {f"pyspark_lance.{name}" for name in pyspark_lance.__all__} - names == {
        "pyspark_lance.DefaultSource",  # which Spark looks for
        "pyspark_lance.errors",  # has a page of its own
        "pyspark_lance.plugin_jar",  # both stand in pyspark_lance.plugin
        "pyspark_lance.enable",
    }
    for name in names | set(re.findall(r'href="[^"]*#(pyspark_lance\.[\w.]+)"', html)):
        known = r"pyspark_lance\.([A-Z]|plugin\b|hadoop_options\b|spark\.(threads|redaction)\b)"
        assert re.match(known, name), name
        pkgutil.resolve_name(name)


def test_pages_are_complete_and_load_nothing_external(site, address, tab):
    wrong: dict[str, object] = {}
    count = 0
    for name in pages(site):
        asked = tab.open(f"{address}/{name}", WIDTH)
        found = tab.evaluate(_PAGES)
        found["elsewhere"] = [
            url for url in asked if not url.startswith((address, "data:", "blob:"))
        ]
        count += found.pop("pictures")
        found = {key: value for key, value in found.items() if value}
        if found:
            wrong[name] = found
    assert wrong == {}
    assert count >= 4


@pytest.mark.slow
def test_search_in_browser_shows_pages_first(address, tab):
    wrong = {}
    for asked, page in _SEARCHED.items():
        tab.open(f"{address}/index.html?q={quote(asked)}", WIDTH)
        found = tab.evaluate(_FIRST_RESULT)
        if found != f"/{page}.html":
            wrong[asked] = found
    assert wrong == {}


@pytest.mark.slow
def test_pages_fit_a_phone(site, address, tab):
    wrong: dict[str, object] = {}
    for name in pages(site):
        tab.open(f"{address}/{name}", PHONE_WIDTH)
        if found := tab.evaluate(_WIDE):
            wrong[name] = found
        elif tab.evaluate(_PAGES)["wide"]:
            wrong[name] = "scrolls"
    assert wrong == {}
