"""contains_tokens finds the rows that pylance finds, with full-text indices and without."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_changes import delete_rows
from random_seeds import cases
from row_changes import set_to
from text_tables import WORDS, texts
from zone_map_tables import check_rows, matching, parse

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.predicate.evaluate import evaluate
from pyspark_lance.predicate.functions import contains_words
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.scan import fragment_pruning
from pyspark_lance.table.scan.scan_statistics import prune_scan
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

PLAIN = {"lower_case": False, "stem": False, "remove_stop_words": False, "ascii_folding": False}
KINDS = [
    {"stable": False, "options": PLAIN},
    {"stable": True, "options": {}},
    {"stable": True, "options": {"base_tokenizer": "ngram", "max_token_length": 4}},
]


@pytest.fixture(autouse=True)
def no_table_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragment_pruning, "SMALL_ROW_COUNT", 0)
    monkeypatch.setattr(fragment_pruning, "_MAX_SHARE", 1.0)


def conditions(rng):
    for _ in range(4):
        words = " ".join(rng.choice(WORDS[:60], rng.integers(1, 4)).tolist()).replace("'", "''")
        yield f"contains_tokens(s, '{words}')"
        yield f"NOT contains_tokens(s, '{words.upper()}')"
        yield f"contains_tokens(s, '{words[1:]}') OR contains_tokens(s, 'w17')"
        yield f"contains_tokens(s, '{words}') AND id % 2 = 0"
    yield "contains_tokens(s, 'Füße - e-mail,the')"
    yield "contains_tokens(s, ' , ')"


def check(path, rng):
    chosen = list(conditions(rng))
    check_rows(path, chosen)
    dataset = lance.dataset(path)
    for condition in chosen[::3]:
        expected = dataset.to_table(columns=["id"], filter=condition)["id"].to_pylist()
        found = matching(path, condition)["id"].to_pylist()
        assert sorted(found) == sorted(expected), condition


@pytest.mark.parametrize("kind", cases(KINDS, in_ci=KINDS[1:]))
def test_contains_tokens_equals_pylance_through_index_life(tmp_path, kind):
    rng = np.random.default_rng(3)
    path = str(tmp_path / "t")
    table = pa.table({"id": np.arange(900), "s": texts(rng, 900)})
    dataset = lance.write_dataset(
        table, path, max_rows_per_file=300, enable_stable_row_ids=kind["stable"]
    )
    check(path, rng)
    dataset.create_scalar_index("s", "INVERTED", name="by_s", **kind["options"])
    check(path, rng)
    more = pa.table({"id": np.arange(900, 1000), "s": texts(rng, 100)})
    lance.write_dataset(more, path, mode="append")
    delete_rows(path, "id < 40 OR id = 700")
    set_to(path, "id % 50 = 3", s="house of the Running fox")
    check(path, rng)
    dataset = lance.dataset(path)
    dataset.optimize.compact_files(target_rows_per_fragment=10_000)
    check(path, rng)
    lance.dataset(path).optimize.optimize_indices()
    check(path, rng)


@pytest.mark.parametrize(
    ("options", "words", "is_used"),
    [
        ({}, "tree river", True),
        ({}, "the", False),  # a word that has no token
        ({}, "the tree", True),
        (PLAIN, "Tree", True),
        ({"base_tokenizer": "ngram"}, "tree", True),
        ({"base_tokenizer": "ngram", "prefix_only": True}, "tree", False),
        ({"base_tokenizer": "whitespace"}, "tree", False),
    ],
)
def test_index_requires_all_tokens(tmp_path, options, words, is_used):
    path = str(tmp_path / "t")
    rows = ["a tree, and", "the", "tree"] + ["river", "rivers of trees"] * 60
    dataset = lance.write_dataset(pa.table({"s": rows}), path)
    dataset.create_scalar_index("s", "INVERTED", name="by_s", **options)
    snapshot = Snapshot.open(Table(path))
    kept = prune_scan(snapshot, parse(snapshot, f"contains_tokens(s, '{words}')"))
    assert ("by_s (inverted)" in str(kept)) == is_used
    other = prune_scan(snapshot, parse(snapshot, "contains(s, 'tree')"))
    assert "by_s" not in str(other)


def test_contains_tokens_refuses_invalid_arguments():
    schema = pa.schema([("s", pa.string()), ("b", pa.binary()), ("l", pa.list_(pa.string()))])
    for condition in (
        "contains_tokens(s)", "contains_tokens(s, s)", "contains_tokens(b, 'x')",
        "contains_tokens(l, 'x')", "contains_tokens(s, 1, 2)",
    ):  # fmt: skip
        with pytest.raises(InvalidInputError):
            parse_predicate(condition, schema)


def test_contains_tokens_of_null_is_null():
    rows = pa.record_batch([pa.array(["a b", None])], ["s"])
    found = [
        evaluate(parse_predicate(one, rows.schema), rows).to_pylist()
        for one in ("contains_tokens(s, 'a')", "contains_tokens(s, NULL)")
    ]
    assert found == [[True, None], [None, None]]
    assert parse_predicate("contains_tokens('a b', 'b')", rows.schema).value is True


@given(
    st.lists(st.none() | st.text("aB é-中1", max_size=8), min_size=1, max_size=12),
    st.text("aB é-中1", max_size=4),
    st.sampled_from([pa.string(), pa.large_string()]),
)
def test_tokens_are_runs_of_letters_and_digits(values, wanted, kind):
    def words(text):
        return set("".join(c if c.isalnum() else " " for c in text).split())

    expected = [None if one is None else words(wanted) <= words(one) for one in values]
    assert contains_words(pa.array(["x", *values], kind)[1:], wanted).to_pylist() == expected
