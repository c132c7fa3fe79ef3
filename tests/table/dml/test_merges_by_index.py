"""Merges find the rows of their keys by indices, and do what merges that read all rows do."""

from __future__ import annotations

import random
import shutil

import lance
import numpy as np
import pyarrow as pa
import pytest
from local_changes import merge_rows
from row_changes import insert, matched_delete, matched_update, upsert
from table_access import read_ours, write_table
from zone_map_tables import COLUMNS, change, change_ours, some_rows

from pyspark_lance.format.column_names import VERSION_COLUMNS
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.dml import key_filter
from pyspark_lance.table.dml.key_filter import KeyCollector, KeyFilter, keys_condition
from pyspark_lance.table.dml.plain_merge import PlainMerge, target_tasks
from pyspark_lance.table.dml.row_change import RowAction, plan_change
from pyspark_lance.table.index import btree
from pyspark_lance.table.index_build.column_indices import (
    create_index,
    optimize_indices,
    refresh_indices,
)
from pyspark_lance.table.index_build.index_plan import IndexRequest
from pyspark_lance.table.index_build.zone_maps import create_zone_maps
from pyspark_lance.table.scan import fragment_pruning
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

KEYS = ("i", "n", "s", "d", "u", "b")
KINDS = {"b": ("btree", "bitmap", "zonemap")}
EVERY_KIND = ("btree", "bitmap", "bloomfilter", "zonemap")
WIDER = {"n": pa.int64(), "i": pa.int32(), "s": pa.large_string()}


@pytest.fixture
def no_table_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragment_pruning, "SMALL_ROW_COUNT", 0)
    monkeypatch.setattr(fragment_pruning, "_MAX_SHARE", 1.0)


def a_source(rng: random.Random, keys: list[str], *, unique: bool, stored: bool) -> pa.Table:
    """Keys that the table may have, others, and nulls; some in a type like that of the table.

    ``unique``: each key once; ``stored``: the table can have all of them.
    """
    count = rng.randint(0, 12)
    columns = {}
    for key in keys:
        kind, values, _ = COLUMNS[key]
        wanted = rng.choice([kind, WIDER.get(key, kind)])
        if pa.types.is_signed_integer(wanted):
            values = [v for v in [*values, 99] if v < 2**31] + [-(2**31)] * (not stored)
        columns[key] = pa.array(rng.choices([None, *values], k=count), wanted)
    table = pa.table(columns)
    if unique:
        table = table.group_by(keys).aggregate([])
    news = pa.array([rng.random() for _ in range(table.num_rows)])
    table = table.append_column("f", news)
    return pa.Table.from_batches(table.to_batches(max_chunksize=5), table.schema)


def an_index(path: str, rng: random.Random) -> None:
    column = rng.choice(KEYS)
    kind = rng.choice(KINDS.get(column, EVERY_KIND))
    create_index(Table(path), IndexRequest((column,), kind, replace=True))


def upkeep(path: str, rng: random.Random) -> None:
    rng.choice([refresh_indices, optimize_indices])(Table(path))


def everything(path: str, *, stable: bool) -> list[str]:
    shown = VERSION_COLUMNS if stable else ()
    return sorted(map(repr, read_ours(path, system_columns=shown).to_pylist()))


@pytest.mark.interop
@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 80))]
)
def test_random_merges_by_index_equal_merges_by_join(tmp_path, seed, no_table_is_small):
    rng = random.Random(seed)
    path = str(tmp_path / "t")
    stable = rng.random() < 0.6
    lance.write_dataset(
        some_rows(rng, rng.randint(1, 150)), path, max_rows_per_file=rng.choice([20, 60, 1000]),
        enable_stable_row_ids=stable, data_storage_version="2.1",
    )  # fmt: skip
    for _ in range(3):
        an_index(path, rng)
    for step in range(8):
        rng.choice([change, change_ours, an_index, upkeep])(path, rng)
        keys = rng.sample(KEYS, rng.choice([1, 1, 2]))
        columns = [*keys, "f"]
        values, new = matched_update(["f"]), insert(columns)
        clauses = rng.choice(
            [[matched_update(columns), new], [new], [values], [values, new], [matched_delete()]]
        )
        unique = any(clause.action is RowAction.UPDATE for clause in clauses)
        stored = any(keys[0] in clause.values for clause in clauses)
        source = a_source(rng, keys, unique=unique, stored=stored)
        control = str(tmp_path / f"control {step}")
        shutil.copytree(path, control)
        ways = {path: rng.choice([0, 3]), control: None}  # None: all rows are joined
        done = [
            merge_rows(uri, source, keys, clauses, buckets=buckets) for uri, buckets in ways.items()
        ]
        assert done[0] == done[1], (step, keys, clauses)
        by_index, by_join = (everything(uri, stable=stable) for uri in ways)
        assert by_index == by_join, (step, keys, clauses)


# Which rows are read ---------------------------------------------------------------------------

ROWS = 40_000
PAGE_ROWS = 4_096


@pytest.fixture
def path(tmp_path) -> str:
    """Ids in random order, each with a text; four fragments, all of them with indices."""
    ids = np.random.default_rng(1).permutation(ROWS)
    texts = pa.array([f"t{number:06}" for number in ids])
    table = pa.table({"id": pa.array(ids, pa.int32()), "text": texts, "v": ids})
    write_table(str(tmp_path / "t"), table, max_rows_per_file=10_000)
    for column in ("id", "text"):
        create_index(Table(str(tmp_path / "t")), IndexRequest((column,), "btree"))
    return str(tmp_path / "t")


def collected(*parts: pa.Array) -> KeyFilter:
    collector = KeyCollector()
    collector.add(parts)
    return collector.result()


def tasks_of(path: str, columns: tuple[str, ...], keys: KeyFilter) -> tuple[ScanTask, ...]:
    merge = PlainMerge((0,), columns, RowAction.DELETE, {}, None)
    return target_tasks(plan_change(Table(path)), merge, keys, None)


def num_read(path: str, columns: tuple[str, ...], keys: KeyFilter) -> int:
    slices = [one for task in tasks_of(path, columns, keys) for one in task.slices]
    return sum(s.end - s.start if s.offsets is None else len(s.offsets) for s in slices)


def test_only_rows_with_source_keys_are_read(path):
    wanted = pa.array([*range(0, 500, 5), ROWS + 1, -1, None, 7, 7], pa.int64())
    assert num_read(path, ("id",), collected(wanted)) == 101
    assert num_read(path, ("id",), collected(pa.array([2**40, None]))) == 0
    texts = pa.array([f"t{number:06}" for number in range(0, 1000, 10)])
    assert num_read(path, ("text",), collected(texts)) == 100
    ids = pa.array(range(0, 1000, 10), pa.int32()).take(pa.array([0, 1, 2, 3]))
    assert num_read(path, ("id", "text"), collected(ids, texts.slice(2, 4))) == 2
    assert num_read(path, ("v",), collected(wanted)) == ROWS
    append = pa.table({"id": pa.array([5], pa.int32()), "text": ["t"], "v": [5]})
    lance.write_dataset(append, path, mode="append")
    assert num_read(path, ("id",), collected(wanted)) == 102


@pytest.mark.parametrize("at_once", [1, 3 * PAGE_ROWS, 1 << 20])
def test_key_search_reads_pages_in_groups(path, monkeypatch, at_once):
    monkeypatch.setattr(btree, "_SEARCHED_AT_ONCE", at_once)
    in_pages = [range(0, ROWS, 100), range(0, ROWS, 397), [5, 3 * PAGE_ROWS, ROWS - 1, ROWS]]
    for wanted in map(list, in_pages):
        keys = collected(pa.array(wanted))
        batches = [batch for task in tasks_of(path, ("id",), keys) for batch in task.run()]
        found = pa.Table.from_batches(batches)["id"].to_pylist()
        assert sorted(found) == [key for key in wanted if key < ROWS]


def test_zone_maps_prune_to_zones_of_keys(tmp_path):
    path = str(tmp_path / "t")
    texts = pa.array([f"t{number:06}" for number in range(4_000)])
    write_table(path, pa.table({"text": texts}), max_rows_per_file=1_000)
    create_zone_maps(Table(path), ("text",), 100)
    keys = collected(texts.take(pa.array([*range(900), 3_500])))
    assert num_read(path, ("text",), keys) == 1_000


def test_upsert_stream_prunes_zones_in_clustered_table(tmp_path):
    path = str(tmp_path / "t")
    ids = np.random.default_rng(2).permutation(8_000)
    write_table(path, pa.table({"id": ids, "v": ids}), max_rows_per_file=2_000)
    create_zone_maps(Table(path), ("id",), 100)
    batches = [np.arange(first, first + 40) for first in (500, 3_000, 7_980)]
    every_zone = [num_read(path, ("id",), collected(pa.array(batch))) for batch in batches]
    assert every_zone[:2] == [8_000] * 2
    clustered = {"cluster_by": ("id",), "target_rows_per_fragment": 1_000}
    compact(Table(path), CompactionRequest(**clustered))
    for moved, batch in enumerate(batches):
        # The zones that the keys lie in, and what the batches before have moved.
        assert num_read(path, ("id",), collected(pa.array(batch))) <= 200 + 40 * moved
        upsert(path, pa.table({"id": batch, "v": batch * 2}))
    # What moved is put in its place, with zones of its own.
    compact(Table(path), CompactionRequest(**clustered))
    assert num_read(path, ("id",), collected(pa.array(batches[0]))) <= 200
    rows = read_ours(path).sort_by("id")
    twice = np.isin(np.arange(8_020), np.concatenate(batches))
    assert rows["id"].to_pylist() == list(range(8_020))
    assert rows["v"].to_pylist() == (np.arange(8_020) * (1 + twice)).tolist()


def test_key_values_are_kept_while_few(path, monkeypatch):
    few = [collected(pa.array([1, 2, None])), collected(pa.array([2, 3]))]
    both = few[0].union(few[1])
    assert sorted(both.values()[0].to_pylist()) == [1, 2, 3]
    assert KeyFilter.of_bytes(both.to_bytes()) == both
    assert KeyFilter.of([]).union(both) == both == both.union(KeyFilter.of([]))
    assert both.without_values().values() is None
    assert both.union(both.without_values()).values() is None
    snapshot = Snapshot.open(Table(path))
    assert keys_condition(snapshot, ("id",), both.without_values()) is None
    for name, limit in (("_MAX_VALUE_BYTES", 20), ("_SMALL_KEY_COUNT", 2)):
        with monkeypatch.context() as patch:
            patch.setattr(key_filter, name, limit)
            assert collected(pa.array([1, 2, 3])).values() is None
            assert few[0].union(few[1]).values() is None
            assert few[0].union(few[1]).may_contain(key_filter.hash_keys([pa.array([3])])).all()
