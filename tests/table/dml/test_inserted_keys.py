"""The filter of inserted keys has the bytes of pylance's, and keeps keys from coming twice."""

from __future__ import annotations

import random

import lance
import pyarrow as pa
import pytest
from local_changes import Copied, merge_rows
from row_changes import insert, interrupted_by, matched_update, upsert
from table_access import read_ours

from pyspark_lance.commit.inserted_keys import key_filter_message, may_share_keys
from pyspark_lance.proto import transaction_pb2
from pyspark_lance.table.dml.key_filter import stored_key
from pyspark_lance.table.dml.merge import (
    Match,
    MergeClause,
    changes_every_match,
    depends_only_on_keys,
)
from pyspark_lance.table.dml.row_change import RowAction
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

KEY = "lance-schema:unenforced-primary-key"
KINDS = {
    "int32": (pa.int32(), lambda rng: rng.randrange(-(2**31), 2**31)),
    "int64": (pa.int64(), lambda rng: rng.randrange(-(2**63), 2**63)),
    "uint32": (pa.uint32(), lambda rng: rng.randrange(2**32)),
    "uint64": (pa.uint64(), lambda rng: rng.randrange(2**64)),
    "text": (pa.string(), lambda rng: "".join(rng.choices("aü☃\0", k=rng.randrange(70)))),
    "long": (pa.large_string(), lambda rng: rng.randbytes(rng.randrange(40)).hex()),
}
MOVED = {"int64": Copied("other")}
KEYS = [*((kind,) for kind in KINDS), ("text", "int32"), ("int64", "long", "uint64")]


def table_schema(kinds):
    """A table whose columns but the last are the key, in this order."""
    fields = [
        pa.field(
            kind,
            KINDS[kind][0],
            nullable=False,
            metadata={KEY: "true", f"{KEY}:position": str(place)},
        )
        for place, kind in enumerate(kinds, 1)
    ]
    return pa.schema([*fields, pa.field("n", pa.int64())])


def rows(kinds, keys, n=0):
    columns = [[key[place] for key in keys] for place in range(len(kinds))]
    return pa.table([*columns, [n] * len(keys)], schema=table_schema(kinds))


def some_keys(kinds, count, seed):
    rng = random.Random(f"{kinds} {seed}")
    found = set()
    while len(found) < count:
        found.add(tuple(KINDS[kind][1](rng) for kind in kinds))
    return sorted(found)


def make(path, kinds, keys):
    lance.write_dataset(rows(kinds, keys), path, enable_stable_row_ids=True)
    return path


def merge_ours(path, kinds, keys, n=1, **settings):
    source = rows(kinds, keys, n)
    clauses = [matched_update(source.column_names), insert(source.column_names)]
    return merge_rows(path, source, list(kinds), clauses, **settings)


def merge_by_pylance(path, kinds, keys, n=2, before=lambda: None):
    """A merge of pylance that is planned, then waits for ``before``, and is not tried again."""
    schema = table_schema(kinds)

    def batches():
        before()
        yield from rows(kinds, keys, n).to_batches()

    merge = lance.dataset(path).merge_insert(list(kinds))
    merge = merge.when_matched_update_all().when_not_matched_insert_all().conflict_retries(0)
    merge.execute(pa.RecordBatchReader.from_batches(schema, batches()))


def noted(path):
    return Snapshot.open(Table(str(path))).file.transaction().operation.inserted_rows


@pytest.mark.parametrize(
    ("kinds", "count"),
    [
        *((kinds, count) for kinds in KEYS for count in (1, 40)),
        # More keys than a filter is made for.
        (("int64",), 9_000),
        (("text", "int32"), 9_000),
    ],
)
def test_merge_records_inserted_keys_like_pylance(tmp_path, kinds, count):
    keys = some_keys(kinds, count + 20, count)
    rng = random.Random(count)
    rng.shuffle(keys)
    ours, concurrent = (make(str(tmp_path / name), kinds, keys[:20]) for name in ("ours", "theirs"))
    done = merge_ours(ours, kinds, keys[10:])
    merge_by_pylance(concurrent, kinds, keys[10:])
    assert (done.num_inserted_rows, done.num_updated_rows) == (count, 10)
    assert noted(ours) == noted(concurrent)
    lance.dataset(ours).validate()


@pytest.mark.parametrize("kinds", KEYS, ids="-".join)
def test_pylance_conflicts_only_on_shared_inserted_keys(tmp_path, kinds):
    first, *keys = some_keys(kinds, 9, 7)
    path = make(str(tmp_path / "t"), kinds, [first])
    # The same row is changed by neither, so that nothing but the filter can be in the way.
    merge_by_pylance(path, kinds, keys[:2], before=lambda: merge_ours(path, kinds, keys[2:4]))
    with pytest.raises(OSError, match="Too many concurrent writers"):
        merge_by_pylance(path, kinds, keys[4:6], before=lambda: merge_ours(path, kinds, keys[5:8]))
    there = read_ours(path)
    found = sorted(zip(*(there[kind].to_pylist() for kind in kinds), strict=True))
    assert found == sorted([first, *keys[:4], *keys[5:8]])


@pytest.mark.parametrize("kinds", KEYS, ids="-".join)
def test_merge_conflicts_only_on_shared_pylance_keys(tmp_path, kinds):
    first, *keys = some_keys(kinds, 9, 8)
    path = make(str(tmp_path / "t"), kinds, [first])
    concurrent = interrupted_by(lambda: merge_by_pylance(path, kinds, keys[:2]))
    assert merge_ours(path, kinds, keys[2:4], **concurrent).num_inserted_rows == 2
    concurrent = interrupted_by(lambda: merge_by_pylance(path, kinds, keys[4:6]))
    done = merge_ours(path, kinds, keys[5:8], **concurrent)
    assert (done.num_inserted_rows, done.num_updated_rows) == (2, 1)
    there = read_ours(path)
    found = sorted(zip(*(there[kind].to_pylist() for kind in kinds), strict=True))
    assert found == sorted([first, *keys])


def test_key_filters_avoid_reading_concurrent_rows(tmp_path):
    first, *keys = some_keys(("int64",), 5, 9)
    path = make(str(tmp_path / "t"), ("int64",), [first])
    away = tmp_path / "away"

    def concurrent():
        before = set((tmp_path / "t" / "data").iterdir())
        merge_by_pylance(path, ("int64",), keys[:2])
        (made,) = set((tmp_path / "t" / "data").iterdir()) - before
        made.rename(away)
        away.with_suffix(".name").write_text(str(made))

    done = merge_ours(path, ("int64",), keys[2:], **interrupted_by(concurrent))
    away.rename(away.with_suffix(".name").read_text())
    assert (done.version, done.num_inserted_rows) == (3, 2)
    assert sorted(read_ours(path)["int64"].to_pylist()) == sorted(key for (key,) in [first, *keys])


def test_merge_records_updated_keys(tmp_path):
    path = make(str(tmp_path / "t"), ("int64",), [(1,), (2,)])
    source = rows(("int64",), [(1,)]).append_column("other", pa.array([7]))
    merge_by_pylance(
        path,
        ("int64",),
        [(8,)],
        before=lambda: merge_rows(
            path, source, ["int64"], [MergeClause(Match.MATCHED, RowAction.UPDATE, None, MOVED)]
        ),
    )
    again = source.set_column(0, "int64", pa.array([2])).set_column(2, "other", pa.array([9]))
    with pytest.raises(OSError, match="Too many concurrent writers"):
        merge_by_pylance(
            path,
            ("int64",),
            [(9,)],
            before=lambda: merge_rows(
                path, again, ["int64"], [MergeClause(Match.MATCHED, RowAction.UPDATE, None, MOVED)]
            ),
        )
    assert sorted(read_ours(path)["int64"].to_pylist()) == [7, 8, 9]


def test_unsupported_key_types_record_no_filter(tmp_path):
    key = pa.field("id", pa.int16(), nullable=False, metadata={KEY: "true"})
    path, schema = str(tmp_path / "t"), pa.schema([key])
    lance.write_dataset(pa.table({"id": [1]}, schema=schema), path, enable_stable_row_ids=True)
    merge = lance.dataset(path).merge_insert("id").when_not_matched_insert_all()

    def batches():
        upsert(path, pa.table({"id": [2]}, schema=schema))
        yield from pa.table({"id": [2]}, schema=schema).to_batches()

    with pytest.raises(OSError, match="Too many concurrent writers"):
        merge.conflict_retries(0).execute(pa.RecordBatchReader.from_batches(schema, batches()))
    assert noted(path) is None
    assert stored_key(Snapshot.open(Table(path)).schema) == ()
    # Pylance's own filter of such keys is empty, so that we look at its rows.
    merge = lance.dataset(path).merge_insert("id").when_not_matched_insert_all()
    concurrent = interrupted_by(lambda: merge.execute(pa.table({"id": [3]}, schema=schema)))
    assert upsert(path, pa.table({"id": [3]}, schema=schema), **concurrent).num_inserted_rows == 0
    assert read_ours(path)["id"].to_pylist().count(3) == 1


def test_incomparable_key_filters_may_share_keys():
    one, other = (
        b"".join(bytes(32) if place != at else b"\xff" * 32 for place in range(1024))
        for at in (1, 5)
    )
    message = key_filter_message([0], one)
    assert may_share_keys(message, message)
    assert not may_share_keys(message, key_filter_message([0], other))
    assert may_share_keys(message, key_filter_message([1], other))
    exact = transaction_pb2.Transaction.KeyFilter(field_ids=[0])
    exact.exact.key_hashes.append(1)
    assert may_share_keys(message, exact.SerializeToString())
    smaller = transaction_pb2.Transaction.KeyFilter.FromString(key_filter_message([0], other))
    smaller.bloom.probability = 0.01
    assert may_share_keys(message, smaller.SerializeToString())


def clause(match, action, condition=None):
    return MergeClause(match, action, condition, {"n": 1})


UPDATES = (Match.MATCHED, RowAction.UPDATE)
DELETES = (Match.MATCHED, RowAction.DELETE)
INSERTS = (Match.NOT_MATCHED, RowAction.INSERT)


@pytest.mark.parametrize(
    ("clauses", "matches", "keys"),
    [
        ([UPDATES, INSERTS], True, True),
        ([INSERTS], False, True),
        ([DELETES], True, False),
        ([(*UPDATES, "of some"), DELETES, INSERTS], True, True),
        ([(*UPDATES, "of some"), INSERTS], False, False),
        ([UPDATES, (*INSERTS, "of some")], True, False),
        ([INSERTS, (Match.NOT_MATCHED_BY_SOURCE, RowAction.DELETE)], False, False),
    ],
)
def test_merges_are_classified_by_matches_and_keys(clauses, matches, keys):
    made = [clause(*one) for one in clauses]
    assert (changes_every_match(made), depends_only_on_keys(made)) == (matches, keys)


def test_merge_by_other_column_ignores_key_filters(tmp_path):
    path = make(str(tmp_path / "t"), ("int64",), [(1,)])
    source = rows(("int64",), [(5,)], 50)
    concurrent = interrupted_by(lambda: merge_by_pylance(path, ("int64",), [(6,)], 50))
    clauses = [matched_update(["n"]), insert(source.column_names)]
    done = merge_rows(path, source, ["n"], clauses, **concurrent)
    assert (done.num_inserted_rows, done.num_updated_rows) == (0, 1)
