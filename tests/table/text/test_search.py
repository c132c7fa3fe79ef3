"""Text search by indices of pylance: the same rows with the same scores as pylance finds."""

from __future__ import annotations

import pickle
from dataclasses import replace

import lance
import numpy as np
import pyarrow as pa
import pytest
from local_changes import delete_rows
from random_seeds import grid
from row_changes import set_to
from text_tables import PER_FILE, WORDS, assert_same, from_pylance, make, ours, random_query, texts

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.table.index.inverted import segments
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions
from pyspark_lance.table.index_build.column_indices import create_index, refresh_indices
from pyspark_lance.table.index_build.index_plan import IndexRequest
from pyspark_lance.table.nearest.search_plan import read_found
from pyspark_lance.table.scan.plan_scan import project
from pyspark_lance.table.text import segment_search
from pyspark_lance.table.text.queries import (
    Boolean,
    Match,
    MultiMatch,
    Operator,
    Phrase,
    parse_query,
)
from pyspark_lance.table.text.search_plan import SearchRequest, merge_matches, plan_search
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

FORMATS = {
    "default": {},
    "positions": {"with_position": True},
    "format 1": {"format_version": 1, "with_position": True},
    "format 3": {"format_version": 3, "with_position": True},
    "blocks of 256": {"block_size": 256, "with_position": True},
    "ngram": {"base_tokenizer": "ngram", "with_position": True},
    "whitespace": {"base_tokenizer": "whitespace", "stem": False, "lower_case": False},
    "raw": {"base_tokenizer": "raw", "max_token_length": None},
}


SEARCH_PATHS = ["by blocks", "all at once"]


@pytest.fixture
def search_path(request, monkeypatch):
    """Few postings are scored all at once, else the best documents are found by blocks."""
    few = 0 if request.param == "by blocks" else 1 << 40
    monkeypatch.setattr(segment_search, "_SMALL_POSTING_COUNT", few)


@pytest.mark.parametrize(
    ("name", "search_path"), grid(list(FORMATS), SEARCH_PATHS), indirect=["search_path"]
)
def test_text_search_equals_pylance(tmp_path, name, search_path):
    rng = np.random.default_rng(len(name))
    options = FORMATS[name]
    make(tmp_path / "t", rng, **options)
    for _ in range(40):
        query = random_query(rng, phrases=options.get("with_position", False))
        k = rng.choice([None, 3, 20])
        found, rows = ours(tmp_path / "t", query, k=k)
        assert_same(found, from_pylance(tmp_path / "t", query, k=k), k)
        places = [(row >> 32) * PER_FILE + (row & 0xFFFFFFFF) for row in found]
        assert (rows["id"].to_pylist() if rows else []) == places


@pytest.mark.parametrize(
    ("stable", "search_path"), grid([False, True], SEARCH_PATHS), indirect=["search_path"]
)
def test_search_covers_segments_and_excludes_deleted_rows(tmp_path, stable, search_path):
    rng = np.random.default_rng(7)
    make(tmp_path / "t", rng, stable=stable, segments=4, with_position=True)
    lance.dataset(str(tmp_path / "t")).delete("id % 3 = 0")
    for number in range(40):
        query = random_query(rng)
        condition = None if number % 2 else f"id > {rng.integers(0, 1200)}"
        expected = from_pylance(tmp_path / "t", query, condition=condition)
        found, _ = ours(tmp_path / "t", query, condition=condition, pickled=_through_pickle)
        assert_same(found, expected)


def _through_pickle(plan):
    return pickle.loads(pickle.dumps(plan))


@pytest.mark.parametrize(("seed", "stable"), grid(range(100), [False, True], step=51))
def test_search_in_random_histories_equals_pylance(tmp_path, monkeypatch, stable, seed):
    if seed % 2:
        monkeypatch.setattr(segment_search, "_SMALL_POSTING_COUNT", 0)
    rng = np.random.default_rng(seed)
    path = tmp_path / "t"
    make(path, rng, 900, stable=stable, segments=int(rng.choice([1, 3])), with_position=True)
    updated = False
    for step in range(6):
        _change(path, rng, step, may_optimize=not (stable and updated))
        updated = updated or step in (0, 3)
        for _ in range(6):
            query = random_query(rng)
            condition = None if rng.integers(0, 2) else f"id % 7 < {rng.integers(1, 7)}"
            k = rng.choice([None, 10])
            expected = from_pylance(path, query, k=k, condition=condition)
            found, _ = ours(path, query, k=k, condition=condition)
            assert_same(found, expected, k)


def _change(path, rng, step, *, may_optimize):
    """One change by pylance, or by this package.

    With stable ids an index that is optimized after an update finds rows by their old texts, in
    pylance.
    """
    kind = ("update", "append", "delete", "update", "append", "optimize")[step]
    if kind != "append" and rng.integers(0, 2):
        _change_ours(str(path), rng, step, kind)
        return
    dataset = lance.dataset(str(path))
    if kind == "append":
        first, count = 10_000 * (step + 1), int(rng.integers(1, 300))
        table = pa.table({"id": np.arange(first, first + count), "s": texts(rng, count)})
        lance.write_dataset(table, str(path), mode="append", max_rows_per_file=120)
    elif kind == "delete":
        dataset.delete(f"id % 11 = {rng.integers(0, 11)} or (id >= 400 and id < 800)")
    elif kind == "update":
        dataset.update({"s": "'river mouse of the house'"}, where=f"id % 13 = {step}")
    elif may_optimize:
        dataset.optimize.optimize_indices(num_indices_to_merge=int(rng.choice([0, 1, 10])))


def _change_ours(path, rng, step, kind):
    if kind == "delete":
        delete_rows(path, f"id % 11 = {rng.integers(0, 11)} OR (id >= 400 AND id < 800)")
    elif kind == "update":
        set_to(path, f"id % 13 = {step}", s="river mouse of the house")
    else:
        refresh_indices(Table(path), joins_segments=bool(rng.integers(0, 2)))


def test_rows_are_found_by_current_text(tmp_path):
    path = str(tmp_path / "t")
    table = pa.table({"id": range(8), "s": [f"river {number}" for number in range(8)]})
    dataset = lance.write_dataset(table, path, max_rows_per_file=4, enable_stable_row_ids=True)
    dataset.create_scalar_index("s", "INVERTED", name="by_s")
    dataset.update({"s": "'mouse'"}, where="id = 1")
    lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
    lance.dataset(path).delete("id >= 4 and id < 7")
    lance.dataset(path).optimize.compact_files(target_rows_per_fragment=100)
    _, rows = ours(path, Match("river", "s"))
    assert sorted(rows["id"].to_pylist()) == [0, 2, 3, 7]
    assert ours(path, Match("mouse", "s"))[1]["id"].to_pylist() == [1]


@pytest.mark.parametrize("kind", ["list", "large_list", "large_string"])
def test_search_covers_string_lists_and_large_strings(tmp_path, kind):
    rng = np.random.default_rng(len(kind))
    if kind == "large_string":
        column = pa.array(texts(rng, 600), pa.large_string())
    else:
        lists = [
            None if rng.random() < 0.1 else texts(rng, int(rng.integers(0, 4))) for _ in range(600)
        ]
        of_kind = pa.list_ if kind == "list" else pa.large_list
        column = pa.array(lists, of_kind(pa.string()))
    table = pa.table({"id": np.arange(600), "s": column})
    path = tmp_path / "t"
    dataset = lance.write_dataset(table[:400], str(path))
    dataset.create_scalar_index("s", "INVERTED", name="by_s", with_position=True)
    lance.write_dataset(table[400:], str(path), mode="append")
    for _ in range(25):
        query = random_query(rng)
        assert_same(ours(path, query)[0], from_pylance(path, query))


@pytest.mark.parametrize("has_index", [True, False])
def test_search_covers_struct_fields(tmp_path, has_index):
    """Null structs, null fields, deeper structs, and rows that no segment covers."""
    rng, path = np.random.default_rng(12), tmp_path / "t"

    def rows(first, count):
        found = [
            None if rng.random() < 0.1 else {"n": 1, "In": {"t": text, "m": [text]}}
            for text in texts(rng, count)
        ]
        inner = pa.struct([("t", pa.string()), ("m", pa.list_(pa.string()))])
        kind = pa.struct([("n", pa.int64()), ("In", inner)])
        return pa.table({"id": np.arange(first, first + count), "st": pa.array(found, kind)})

    lance.write_dataset(rows(0, 500), str(path), max_rows_per_file=200)
    if has_index:
        options = TokenizerOptions(with_position=True)
        create_index(Table(str(path)), IndexRequest(("st.in.t",), "inverted", "own", text=options))
    lance.write_dataset(rows(500, 150), str(path), mode="append")
    for number in range(20):
        query = (
            random_query(rng, "st.In.t", phrases=has_index)
            if has_index
            else (Match(str(rng.choice(WORDS[:9])), "st.In.t"))
        )
        known = ours(path, query)[0]
        assert_same(known, from_pylance(path, query))
        if number < 5 and has_index and isinstance(query, Match):
            assert ours(path, replace(query, column=None))[0] == known
            assert ours(path, replace(query, column="ST.in.T"))[0] == known
    with pytest.raises(InvalidInputError, match="'st' has no field 'x'"):
        ours(path, Match("river", "st.x"))
    with pytest.raises(InvalidInputError, match=r"holds no texts[\s\S]*st\.In\.t, st\.In\.m"):
        ours(path, Match("river", "st.n"))


def test_unindexed_search_equals_pylance(tmp_path):
    rng = np.random.default_rng(4)
    table = pa.table({"id": np.arange(500), "s": texts(rng, 500)})
    lance.write_dataset(table, str(tmp_path / "t"), max_rows_per_file=100)
    words = "river", "rivers", "the river", "Walking", "walked walking", "Füße naïve cat"
    for text in words:
        for operator in Operator:
            query = Match(text, "s", operator)
            assert_same(ours(tmp_path / "t", query)[0], from_pylance(tmp_path / "t", query))
    query = Phrase("cat dog", "s")
    assert_same(ours(tmp_path / "t", query)[0], from_pylance(tmp_path / "t", query))


def test_search_covers_several_columns(tmp_path):
    rng = np.random.default_rng(5)
    path = tmp_path / "t"
    table = pa.table({"id": np.arange(800), "a": texts(rng, 800), "b": texts(rng, 800)})
    dataset = lance.write_dataset(table[:600], str(path), max_rows_per_file=300)
    for column in ("a", "b"):
        dataset.create_scalar_index(column, "INVERTED", name=column, with_position=True)
    lance.write_dataset(table[600:], str(path), mode="append")
    several = MultiMatch((Match("river cat", "a", boost=2.0), Match("river cat", "b", boost=0.5)))
    both = Boolean(must=(Match("river", "a"), Match("cat", "b")), should=(Match("dog", "a"),))
    apart = Boolean(should=(Phrase("cat dog", "a"), Match("river", "b")))
    for query in (several, both, apart):
        assert_same(ours(path, query)[0], from_pylance(path, query))
        assert_same(ours(path, query, k=7)[0], from_pylance(path, query, k=7), 7)
    found, _ = ours(path, "river cat")
    assert_same(found, from_pylance(path, "river cat"))


def test_best_rows_are_independent_of_buffer_size(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_search, "_MAX_WAITING", 10)
    rng = np.random.default_rng(6)
    path = tmp_path / "t"
    make(path, rng, 300)
    table = pa.table({"id": np.arange(1000, 3000), "s": texts(rng, 2000)})
    lance.write_dataset(table, str(path), mode="append", max_rows_per_file=500)
    for text in ("river", "river cat dog", "walking w3"):
        for k in (1, 5, 40):
            query = Match(text, "s")
            every, _ = ours(path, query)
            best, _ = ours(path, query, k=k)
            ranked = sorted(every.items(), key=lambda row: (-row[1], row[0]))
            assert list(best.items()) == ranked[:k]


def test_documents_are_read_singly_or_in_bulk(tmp_path, monkeypatch):
    rng = np.random.default_rng(8)
    make(tmp_path / "t", rng, 1500)
    query = Match("mountain w120", "s")
    expected = from_pylance(tmp_path / "t", query)
    for share in (0, 1 << 40):
        kept = type(segments._kept)(0, lambda value: value.nbytes)
        monkeypatch.setattr(segments, "_kept", kept)
        monkeypatch.setattr(segments, "_TAKEN_SHARE", share)
        assert_same(ours(tmp_path / "t", query)[0], expected)


def test_searches_of_one_version_read_requested_columns(tmp_path):
    make(tmp_path / "t", np.random.default_rng(9), 300)
    snapshot = Snapshot.open(Table(str(tmp_path / "t")))
    for names in (["id"], ["s"], ["s", "id"], ["id"]):
        request = SearchRequest(parse_query("river"), 2, None, project(snapshot.schema, names), ())
        plan = plan_search(snapshot, request)
        found = merge_matches(plan.merge, [task.run() for task in plan.tasks])
        assert [rows.schema.names for _, rows in read_found(plan.fetch, found)] == [names]
