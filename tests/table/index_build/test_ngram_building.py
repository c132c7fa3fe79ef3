"""Indices of trigrams that we make: as those of pylance, used by pylance and by us."""

from __future__ import annotations

import pickle
import random
import unicodedata

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader
from local_changes import delete_rows
from pyroaring import BitMap64
from random_seeds import grid, seeds
from row_changes import set_to
from zone_map_tables import check_rows, parse

from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.index_build import ngram_build
from pyspark_lance.table.index_build.column_indices import (
    create_index,
    optimize_indices,
    refresh_indices,
)
from pyspark_lance.table.index_build.index_plan import IndexRequest, plan_index
from pyspark_lance.table.index_build.ngram_build import NgramPostings, trigrams
from pyspark_lance.table.scan import fragment_pruning
from pyspark_lance.table.scan.scan_statistics import prune_scan
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

CODES = [*range(32, 0x250), *range(0x1E00, 0x1F00), *range(0x300, 0x330)]
CODES += [0x2122, 0x2116, 0x215B, 0xFB01, 0xFF21, 0x1D5A0, 0x4E2D, 0x1F600]
ODD = [chr(code) for code in CODES if unicodedata.category(chr(code)) != "Cc"]
LETTERS = [*"abcdeABC123 -_%", "é", "É", "İ", "ß", "ﬁ", "™", "Ａ", "中", "e\u0301", "😀"]


@pytest.fixture(autouse=True)
def no_table_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragment_pruning, "SMALL_ROW_COUNT", 0)
    monkeypatch.setattr(fragment_pruning, "_MAX_SHARE", 1.0)


def some_texts(rng: random.Random, count: int, letters: list[str]) -> pa.Array:
    texts = ["".join(rng.choices(letters, k=rng.randint(0, 14))) for _ in range(count)]
    return pa.array([None if rng.random() < 0.1 else text for text in texts], pa.string())


def postings(path: str, name: str) -> dict[int, BitMap64]:
    """All segments of an index together."""
    found: dict[int, BitMap64] = {}
    for entry in Snapshot.open(Table(path)).indices:
        if entry.name == name:
            file = f"{path}/_indices/{entry.uuid}/ngram_postings.lance"
            rows = LanceFileReader(file).read_all().to_table()
            stored = map(BitMap64.deserialize, rows["posting_list"].to_pylist())
            for token, own in zip(rows["tokens"].to_pylist(), stored, strict=True):
                found[token] = found.get(token, BitMap64()) | own
    return found


@pytest.mark.parametrize(("letters", "stable"), grid(["abc", "plain", "odd"], [False, True]))
def test_ngram_files_equal_pylance(tmp_path, stable, letters):
    path = str(tmp_path / "t")
    rng = random.Random(letters)
    chars = {"abc": list("abc1 "), "plain": LETTERS, "odd": ODD + list("abcdef") * 40}[letters]
    rows = pa.table({"n": range(3_000), "s": some_texts(rng, 3_000, chars)})
    lance.write_dataset(rows, path, max_rows_per_file=700, enable_stable_row_ids=stable)
    lance.dataset(path).delete("n % 50 = 7")
    lance.dataset(path).update({"s": "'abcab'"}, where="n % 100 = 3")
    create_index(Table(path), IndexRequest(("s",), "ngram", "ours", rows_per_segment=1_200))
    lance.dataset(path).create_scalar_index("s", "NGRAM", name="theirs", replace=False)
    ours, from_pylance = postings(path, "ours"), postings(path, "theirs")
    assert ours == from_pylance
    assert 0 in ours or letters != "abc"
    entries = {entry.name: entry for entry in Snapshot.open(Table(path)).indices}
    for part in ("details_type", "index_version", "fields"):
        assert getattr(entries["ours"], part) == getattr(entries["theirs"], part)
    assert not verify(Table(path), read_data=True).errors


def test_trigrams_of_slices_and_short_texts():
    tokens, rows = trigrams(pa.array(["xyz", None, "", "ab", "é", "aBc", "a-bcd"]).slice(1))
    assert sorted(zip(rows.tolist(), tokens.tolist(), strict=True)) == [
        (0, 0), (4, (11 * 37 + 12) * 37 + 13), (5, (12 * 37 + 13) * 37 + 14)
    ]  # fmt: skip
    assert [len(part) for part in trigrams(pa.array([], pa.string()))] == [0, 0]


@pytest.mark.parametrize("most_bytes", [1, 40_000])
def test_spilled_postings_equal_in_memory_postings(monkeypatch, most_bytes):
    rng = random.Random(most_bytes)
    monkeypatch.setattr(ngram_build, "_MAX_PENDING", 500)
    monkeypatch.setattr(ngram_build, "_BATCH_BYTES", 2_000)
    texts = some_texts(rng, 900, LETTERS)
    ids = np.arange(900, dtype=np.uint64) * 3 + (5 << 32)
    found = []
    for bytes_in_memory in (most_bytes, 1 << 30):
        with NgramPostings(bytes_in_memory) as collected:
            for start in range(0, 900, 90):
                collected.add(texts.slice(start, 90), ids[start : start + 90])
            assert (len(collected.paths) > 1) == (bytes_in_memory == most_bytes)
            found.append(pa.Table.from_batches(collected.batches()).combine_chunks())
    assert found[0].equals(found[1])
    assert found[0]["tokens"].to_pylist() == sorted(set(found[0]["tokens"].to_pylist()))


def test_ngram_task_runs_in_other_process(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"s": ["abcd", None, "x"]}), path)
    plan = plan_index(Table(path), IndexRequest(("s",), "ngram"), ChangeSettings())
    (task,) = pickle.loads(pickle.dumps(plan.tasks))
    assert list(task.run().file_sizes) == ["ngram_postings.lance"]


@pytest.mark.parametrize("column", ["n", "l", "y"])
def test_unsupported_ngram_columns_are_refused(tmp_path, column):
    path = str(tmp_path / "t")
    rows = pa.table({"n": [1], "l": [["a"]], "y": [b"a"]})
    lance.write_dataset(rows, path)
    with pytest.raises(UnsupportedFeatureError, match="cannot have a ngram index"):
        create_index(Table(path), IndexRequest((column,), "ngram"))


def conditions(rng: random.Random, texts: list[str]) -> list[str]:
    found = []
    for _ in range(5):
        text = rng.choice(texts)
        start = rng.randint(0, len(text))
        part = text[start : start + rng.randint(1, 6)]
        plain = part.replace("%", "").replace("_", "").replace("-", "")
        found += [
            f"contains(s, '{part}')",
            f"s LIKE '%{plain}%{text[-2:].replace('%', '')}'",
            f"s RLIKE '{plain}.*'",
            f"NOT contains(s, '{part}')",
            f"s = '{text}'",
        ]
    return [*found, "s IS NULL"]


def check_pylance(path: str, texts: list[str], rng: random.Random) -> None:
    """Pylance finds with the index what it finds without."""
    dataset = lance.dataset(path, session=lance.Session())
    for text in [*rng.choices(texts, k=6), "abc", "bca"]:
        part = text[rng.randint(0, len(text)) :][:5]
        for query in (f"contains(s, '{part}')", f"NOT contains(s, '{part}')"):
            with_index, without = (
                sorted(
                    dataset.scanner(
                        columns=["n"], filter=query, with_row_address=True, use_scalar_index=use
                    ).to_table()["_rowaddr"].to_pylist()
                )
                for use in (True, False)
            )  # fmt: skip
            assert with_index == without, query


@pytest.mark.parametrize("seed", seeds(60, in_ci=2))
def test_ngram_index_follows_random_changes(tmp_path, seed):
    rng = random.Random(seed)
    path = str(tmp_path / "t")
    known: list[str] = []

    def append() -> None:
        texts = some_texts(rng, 60, LETTERS)
        rows = pa.table({"n": range(60), "s": texts})
        settings = {"max_rows_per_file": 25, "enable_stable_row_ids": seed % 2 == 1}
        lance.write_dataset(rows, path, mode="append" if known else "create", **settings)
        known.extend(filter(None, texts.to_pylist()))

    append()
    create_index(Table(path), IndexRequest(("s",), "ngram", rows_per_segment=rng.choice([30, 100])))
    plan = lance.dataset(path).scanner(filter="contains(s, 'abc')").explain_plan()
    assert "s_idx" in plan
    steps = [
        append,
        lambda: delete_rows(path, f"n % 7 = {rng.randint(0, 6)}"),
        lambda: set_to(path, f"n % 5 = {rng.randint(0, 4)}", s="abcab"),
        lambda: set_to(path, f"n % 5 = {rng.randint(0, 4)}", n=3),
        lambda: lance.dataset(path).update({"s": "'bcab'"}, where="n % 11 = 4"),
        lambda: lance.dataset(path).optimize.optimize_indices(),
        lambda: lance.dataset(path).optimize.compact_files(),
        lambda: compact(
            Table(path), CompactionRequest(target_rows_per_fragment=rng.choice([50, 1000]))
        ),
        lambda: refresh_indices(Table(path), rows_per_segment=rng.choice([30, 1000])),
        lambda: optimize_indices(Table(path), rows_per_segment=rng.choice([30, 1000])),
        lambda: optimize_indices(Table(path)),
    ]
    for step in rng.choices(steps, k=6):
        step()
        check_rows(path, conditions(rng, known))
        check_pylance(path, known, rng)
    optimize_indices(Table(path))
    check_rows(path, conditions(rng, known))
    check_pylance(path, known, rng)
    assert verify(Table(path), read_data=True).errors == ()
    lance.dataset(path).validate()


def test_merged_ngram_segments_equal_rebuilt_segment(tmp_path):
    """The column of their rows is not read."""
    path = str(tmp_path / "t")
    rows = pa.table({"n": range(2_000), "s": some_texts(random.Random(1), 2_000, LETTERS)})
    lance.write_dataset(rows, path, max_rows_per_file=500)
    create_index(Table(path), IndexRequest(("s",), "ngram", rows_per_segment=600))
    lance.dataset(path).delete("n % 100 = 7")
    create_index(Table(path), IndexRequest(("s",), "ngram", "rebuilt"))
    (tmp_path / "t" / "data").rename(tmp_path / "data")
    optimize_indices(Table(path), "s_idx")
    (tmp_path / "data").rename(tmp_path / "t" / "data")
    assert sum(e.name == "s_idx" for e in Snapshot.open(Table(path)).indices) == 1
    assert postings(path, "s_idx") == postings(path, "rebuilt")


def test_rlike_and_like_use_ngram_index_by_literals(tmp_path):
    path = str(tmp_path / "t")
    texts = [f"row Number {number:04}" for number in range(2_000)]
    lance.write_dataset(pa.table({"s": texts}), path)
    create_index(Table(path), IndexRequest(("s",), "ngram"))
    snapshot = Snapshot.open(Table(path))

    def left(condition: str) -> int:
        return prune_scan(snapshot, parse(snapshot, condition)).rows

    assert left("s RLIKE 'mber 1234$'") == 1
    assert left("s RLIKE '^row.*1234'") == left("s LIKE 'r%1234'") == 1
    assert left("s RLIKE '12(34|35)'") == left("s RLIKE '1234|1235'") == 2_000
