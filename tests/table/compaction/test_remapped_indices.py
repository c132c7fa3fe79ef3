"""Indices that name rows by addresses cover compacted rows, for this package and for pylance."""

from __future__ import annotations

import logging
from dataclasses import replace

import lance
import numpy as np
import pyarrow as pa
import pytest
from local_changes import delete_rows
from text_tables import assert_same, from_pylance, ours, random_query, texts
from zone_map_tables import check_rows as check_ours

from pyspark_lance.table.compaction import compact as compaction
from pyspark_lance.table.compaction.compact import compact, plan_compaction
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.compaction.remap_indices import remap_indices
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions
from pyspark_lance.table.index_build.column_indices import create_index, refresh_indices
from pyspark_lance.table.index_build.index_plan import IndexRequest
from pyspark_lance.table.tasks import run_local
from pyspark_lance.table.text.queries import Match
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

KINDS = {"btree": "n", "bitmap": "g", "label_list": "l", "ngram": "s", "inverted": "s"}
CONDITIONS = [
    "n = 71", "n > 600 AND n < 640", "n IS NULL", "g = 3", "g IS NULL", "array_contains(l, 3)",
    "l IS NULL", "contains(s, 'mounta')", "contains_tokens(s, 'river')",
]  # fmt: skip
LANCES = [
    "n = 71", "n > 600 AND n < 640", "n IS NULL", "g = 3", "array_has(l, 3)", "l IS NULL",
    "contains(s, 'mounta')",
]  # fmt: skip
OPTIONS = {"target_rows_per_fragment": 260, "materialize_deletions_threshold": 0.0}


def rows(count=1000):
    """Rows of each kind of value; some are null, also lists and their elements."""
    numbers = np.arange(count)
    words = np.random.default_rng(3)
    return pa.table(
        {
            "id": numbers,
            "n": pa.array(numbers, mask=numbers % 17 == 0),
            "g": pa.array(numbers % 7, mask=numbers % 11 == 0),
            "l": pa.array([None if n % 9 == 0 else [n % 5, None, n % 3] for n in range(count)]),
            "s": pa.array(texts(words, count)),
        }
    )


@pytest.fixture
def path(tmp_path):
    """Ten fragments with deleted rows, one without live rows, and an index of each kind."""
    return indexed(str(tmp_path / "t"))


def indexed(path, *, stable=False, rows_per_segment=450):
    lance.write_dataset(rows(), path, max_rows_per_file=100, enable_stable_row_ids=stable)
    for kind, column in KINDS.items():
        text = TokenizerOptions(with_position=True) if kind == "inverted" else None
        name = f"by_{kind}"
        request = IndexRequest((column,), kind, name, rows_per_segment=rows_per_segment, text=text)
        create_index(Table(path), request)
    delete_rows(path, "n % 6 = 1 OR (n >= 300 AND n < 400)")
    delete_rows(path, "n IS NULL AND g = 2")
    return path


def coverage(path, name=None):
    """Live fragments that each index covers, and all that there are."""
    snapshot = Snapshot.open(Table(path))
    live = set(snapshot.manifest.fragments.ids.tolist())
    found = {}
    for entry in snapshot.indices:
        own = set(entry.fragment_bitmap) & live
        assert own.isdisjoint(found.setdefault(entry.name, set()))
        found[entry.name] |= own
    return (found, live) if name is None else (found[name], live)


def check_rows(path, *, scores=True):
    """Both find by indices what they find by reading."""
    dataset = lance.dataset(path, session=lance.Session())
    for condition in LANCES:
        by_index, by_scan = (
            dataset.scanner(
                columns=["n"], filter=condition, with_row_address=True, use_scalar_index=use
            ).to_table()["_rowaddr"].to_pylist()
            for use in (True, False)
        )  # fmt: skip
        assert sorted(by_index) == sorted(by_scan), condition
    check_ours(path, CONDITIONS)
    found, _ = ours(path, Match("river mountain", "s"))
    expected = from_pylance(path, Match("river mountain", "s"))
    assert found.keys() == expected.keys()
    if scores:
        assert_same(found, expected)
    assert not verify(Table(path), read_data=True).errors


def test_indices_by_address_cover_compacted_rows(path):
    before = {entry.uuid for entry in Snapshot.open(Table(path)).indices}
    result = compact(Table(path), CompactionRequest(**OPTIONS))
    assert result.fragmentsAdded > 2
    found, live = coverage(path)
    assert found == dict.fromkeys((f"by_{kind}" for kind in KINDS), live)
    after = Snapshot.open(Table(path))
    assert not before & {entry.uuid for entry in after.indices}
    assert after.version == result.version + 1
    assert refresh_indices(Table(path)).version is None
    check_rows(path)


def test_remapped_indices_follow_further_compactions(path):
    compact(Table(path), CompactionRequest(**OPTIONS))
    delete_rows(path, "n % 6 = 2")
    lance.write_dataset(rows(40), path, mode="append")
    compact(Table(path), CompactionRequest(**{**OPTIONS, "target_rows_per_fragment": 100_000}))
    found, live = coverage(path, "by_inverted")
    assert found < live  # appended rows are not covered
    check_rows(path)
    refresh_indices(Table(path))
    lance.dataset(path).optimize.compact_files(materialize_deletions_threshold=0.0)
    lance.dataset(path).optimize.optimize_indices()
    check_rows(path)


def test_btree_with_stable_row_ids_is_remapped(tmp_path):
    path = indexed(str(tmp_path / "t"), stable=True)
    compact(Table(path), CompactionRequest(**OPTIONS))
    found, live = coverage(path)
    assert found == dict.fromkeys((f"by_{kind}" for kind in KINDS), live)
    check_rows(path)


def test_uncovered_sources_stay_uncovered(path):
    """A bin is covered as a whole, or not at all."""
    lance.write_dataset(rows(100), path, mode="append", max_rows_per_file=30)
    compact(Table(path), CompactionRequest(**OPTIONS))
    found, live = coverage(path, "by_btree")
    assert len(live - found) == 1
    check_rows(path)


def test_segment_keeps_uncompacted_fragments(tmp_path):
    path = indexed(str(tmp_path / "t"), rows_per_segment=5_000)
    kept = {5, 6}
    compact(Table(path), CompactionRequest(**{**OPTIONS, "excluded_fragment_ids": frozenset(kept)}))
    found, live = coverage(path, "by_ngram")
    assert found == live and kept < live
    check_rows(path)


def test_remapped_entry_names_removed_fragments(tmp_path):
    """Lance then ignores rows that other segments may still have of them."""
    path = indexed(str(tmp_path / "t"), rows_per_segment=5_000)
    compact(
        Table(path), CompactionRequest(**{**OPTIONS, "excluded_fragment_ids": frozenset({5, 6})})
    )
    snapshot = Snapshot.open(Table(path))
    live = set(snapshot.manifest.fragments.ids.tolist())
    for entry in snapshot.indices:
        assert set(entry.fragment_bitmap) == live | set(range(10)), entry.name
    check_rows(path)


FORMATS = {
    "default": {},
    "positions": {"with_position": True},
    "format 1": {"with_position": True, "format_version": 1},
    "blocks of 256": {"block_size": 256, "with_position": True},
}


@pytest.mark.parametrize("name", FORMATS)
def test_remapped_text_index_scores_as_pylance_compacts(tmp_path, name):
    """Deleted documents no longer count, as after a compaction by pylance."""
    rng = np.random.default_rng(len(name))
    table = pa.table({"id": np.arange(1500), "s": texts(rng, 1500)})
    own, other = str(tmp_path / "ours"), str(tmp_path / "theirs")
    for path in (own, other):
        lance.write_dataset(table, path, max_rows_per_file=400)
        lance.dataset(path).create_scalar_index("s", "INVERTED", name="by_s", **FORMATS[name])
        lance.dataset(path).delete("id % 5 = 2 OR id < 20")
    compact(Table(own), CompactionRequest(materialize_deletions_threshold=0.0))
    lance.dataset(other).optimize.compact_files(materialize_deletions_threshold=0.0)
    for _ in range(12):
        query = random_query(rng, phrases="positions" in name or name == "format 1")
        expected = {row & 0xFFFFFFFF: score for row, score in from_pylance(other, query).items()}
        for found in (from_pylance(own, query), ours(own, query)[0]):
            assert_same({row & 0xFFFFFFFF: score for row, score in found.items()}, expected)
    plan = lance.dataset(own).scanner(full_text_query="dog").explain_plan()
    assert "FlatMatchQuery" not in plan
    assert not verify(Table(own), read_data=True).errors


def compacted(path):
    """A compaction that is committed, and its groups; indices are as it left them."""
    plan = plan_compaction(Table(path), CompactionRequest(**OPTIONS), ChangeSettings())
    groups = [task.run() for task in plan.tasks]
    work = compaction.UnitOfWork(Table(path), ChangeSettings())
    compaction.commit_round(compaction.CompactionResult(), plan, groups, work)
    return plan.change, groups


def test_values_changed_before_remap_are_not_covered(path):
    """New fragments whose files differ from what the compaction wrote stay uncovered."""
    base, groups = compacted(path)
    first = int(Snapshot.open(Table(path)).manifest.fragments.ids[0])
    other = replace(groups[0], new_fragments=groups[1].old_fragments)
    groups = [other, *groups[1:]]
    remap_indices(base, groups, ChangeSettings(), run_local)
    found, live = coverage(path, "by_btree")
    assert first in live - found and found
    check_rows(path)


def test_rows_deleted_before_remap_are_left_out(path):
    base, groups = compacted(path)
    delete_rows(path, "n > 600 AND n < 640")
    lance.write_dataset(rows(30), path, mode="append")
    remap_indices(base, groups, ChangeSettings(), run_local)
    check_rows(path)


def test_replaced_index_is_not_remapped(path):
    base, groups = compacted(path)
    create_index(Table(path), IndexRequest(("n",), "btree", "by_btree", True))
    (rebuilt,) = (e.uuid for e in Snapshot.open(Table(path)).indices if e.name == "by_btree")
    remap_indices(base, groups, ChangeSettings(), run_local)
    found, live = coverage(path)
    assert found == dict.fromkeys((f"by_{kind}" for kind in KINDS), live)
    assert rebuilt in {entry.uuid for entry in Snapshot.open(Table(path)).indices}
    check_rows(path)


def test_failed_remap_leaves_compaction_committed(path, monkeypatch, caplog):
    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(compaction, "remap_indices", fail)
    with caplog.at_level(logging.WARNING):
        result = compact(Table(path), CompactionRequest(**OPTIONS))
    assert Snapshot.open(Table(path)).version == result.version
    assert "no space left" in caplog.text
    check_rows(path)
    assert refresh_indices(Table(path)).num_rows > 0


@pytest.mark.parametrize("options", [{"defer_index_remap": True}, {"cluster_by": ("n",)}])
def test_deferred_and_sorted_rows_are_not_remapped(path, options):
    """One is looked up by where rows were; of the other, no index knows the order."""
    before = {entry.uuid for entry in Snapshot.open(Table(path)).indices}
    compact(Table(path), CompactionRequest(**{**OPTIONS, **options}))
    after = {e.uuid for e in Snapshot.open(Table(path)).indices if e.fields}
    assert before == after
    check_rows(path, scores="cluster_by" in options)
