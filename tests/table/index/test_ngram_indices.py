"""Scans that ask indices of characters find what scans without them find."""

from __future__ import annotations

import random

import lance
import pyarrow as pa
import pytest
from local_changes import delete_rows
from row_changes import set_to
from zone_map_tables import check_rows, parse

from pyspark_lance.table.index.ngram import tokens_of
from pyspark_lance.table.scan import fragment_pruning
from pyspark_lance.table.scan.scan_statistics import prune_scan
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

# Letters whose forms in lower case and in ASCII are longer, of two scripts, or none at all.
LETTERS = [
    *"abcABC123 -_%",
    "é",
    "É",
    "İ",
    "ß",
    "ﬁ",
    "™",
    "Ａ",
    "Σ",
    "ς",
    "中",
    "e\u0301",
    "😀",
    "Ⅷ",
]
FUNCTIONS = ["contains", "startswith", "endswith"]


@pytest.fixture(autouse=True)
def no_table_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragment_pruning, "SMALL_ROW_COUNT", 0)
    monkeypatch.setattr(fragment_pruning, "_MAX_SHARE", 1.0)


def some_texts(rng: random.Random, count: int) -> list[str | None]:
    def text() -> str | None:
        return None if rng.random() < 0.1 else "".join(rng.choices(LETTERS, k=rng.randint(0, 12)))

    return [text() for _ in range(count)]


def conditions(rng: random.Random, texts: list[str | None]) -> list[str]:
    """About parts of texts that are there, in their case and in others, and about other texts."""
    found = []
    for _ in range(8):
        text = rng.choice([one for one in texts if one])
        start = rng.randint(0, len(text))
        part = rng.choice([str, str, str.upper, str.lower])(text[start : start + rng.randint(1, 6)])
        plain = part.replace("%", "").replace("_", "") + rng.choice(["", "", "abc"])
        found += [
            f"{rng.choice(FUNCTIONS)}(s, '{part}')",
            f"s LIKE '%{plain}%'",
            f"s LIKE '{plain}%' AND contains(s, '{text[-3:]}')",
            f"contains(s, '{part}') OR n < 3",
            f"NOT contains(s, '{part}')",
            f"s = '{text}'",
        ]
    return found


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 60))]
)
def test_ngram_index_returns_same_rows_as_scan(tmp_path, seed):
    rng = random.Random(seed)
    path = str(tmp_path / "t")

    def append() -> None:
        texts = some_texts(rng, 60)
        rows = pa.table({"n": range(60), "s": pa.array(texts, pa.string())})
        settings = {"max_rows_per_file": 25, "enable_stable_row_ids": seed % 2 == 1}
        lance.write_dataset(rows, path, mode="append" if known else "create", **settings)
        known.extend(texts)

    known: list[str | None] = []
    append()
    lance.dataset(path).create_scalar_index("s", "NGRAM")
    steps = [
        append,
        lambda: delete_rows(path, f"n % 7 = {rng.randint(0, 6)}"),
        lambda: set_to(path, f"n % 5 = {rng.randint(0, 4)}", s="abcab"),
        lambda: lance.dataset(path).optimize.optimize_indices(),
        lambda: lance.dataset(path).optimize.compact_files(),
    ]
    for step in [lambda: None, *rng.choices(steps, k=3)]:
        step()
        check_rows(path, conditions(rng, known))
    assert verify(Table(path), read_data=True).errors == ()


def test_ngram_index_leaves_few_rows(tmp_path):
    path = str(tmp_path / "t")
    texts = [f"row Number {number:04} of é" for number in range(2_000)]
    lance.write_dataset(pa.table({"s": texts}), path)
    lance.dataset(path).create_scalar_index("s", "NGRAM")
    snapshot = Snapshot.open(Table(path))

    def left(condition: str) -> int:
        return prune_scan(snapshot, parse(snapshot, condition)).rows

    assert left("contains(s, '1234')") == 1
    assert left("s LIKE '%BER 0123%'") == 1  # the rows are tested with their case later
    assert left("endswith(s, '777 of é')") == left("s LIKE '%777 %'") == 2
    assert left("contains(s, 'nowhere')") == 0
    for condition in ("contains(s, '12')", "contains(s, 'é')", "NOT contains(s, '1234')"):
        assert left(condition) == 2_000  # nothing to look for


def test_tokens_equal_lance_ngrams():
    assert tokens_of("abc") == {(11 * 37 + 12) * 37 + 13}
    assert tokens_of("x-Yz12") == tokens_of("yz1") | tokens_of("Z12")
    assert tokens_of("ab é cd") == set()
