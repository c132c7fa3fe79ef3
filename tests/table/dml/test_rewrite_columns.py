"""Rows get other values in place: one new file for a fragment, tombstones, the rest untouched."""

from __future__ import annotations

from dataclasses import replace

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from commit_tables import latest
from local_changes import commit_rewritten, delete_rows
from table_access import assert_same_rows, read_ours, read_pylance, write_table

from pyspark_lance.errors import (
    CommitConflictError,
    InvalidInputError,
    RetryableCommitError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.operation import Update
from pyspark_lance.table.columns.change_columns import add_null_columns, drop_columns
from pyspark_lance.table.dml.rewrite_columns import paths_of, plan_rewrite, rewrite_columns
from pyspark_lance.table.dml.row_change import plan_change
from pyspark_lance.table.unit_of_work import remove_files
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


def set_values(path, ids, columns, *, step=None, concurrently=None):
    """Give the rows with these ids (column ``id``) other values, by rewriting columns."""
    plan = plan_change(Table(path))
    known = read_ours(path, system_columns=("_rowaddr",))
    place = {row_id: row for row, row_id in enumerate(known["id"].to_pylist())}
    new = pa.table({"_rowaddr": known["_rowaddr"].take([place[i] for i in ids]), **columns})
    found = new.sort_by("_rowaddr")
    request = plan_rewrite(plan.snapshot(), list(columns))
    batches = found.combine_chunks().to_batches(max_chunksize=step)
    rewritten = list(rewrite_columns(request, batches))
    if concurrently is not None:
        concurrently()
    return commit_rewritten(plan, request, rewritten)


def rows(path):
    return {row.pop("id"): row for row in read_ours(path, system_columns=()).to_pylist()}


def check_both(path):
    lance.dataset(path).validate()
    assert_same_rows(read_ours(path), read_pylance(path))


def files_of(path):
    fragments = Snapshot.open(Table(path)).manifest.fragments
    return [[(f.fields, f.column_indices) for f in one.files] for one in fragments]


def data_files(path):
    return {one.path for one in Snapshot.open(Table(path)).store.list("data")}


def table(count=12):
    ids = range(count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "a": [f"a{i}" for i in ids],
            "s": pa.array([{"x": i, "y": [i] * (i % 3)} for i in ids]),
            "v": pa.array([[i, -i] for i in ids], pa.list_(pa.float32(), 2)),
        }
    )


@pytest.fixture(params=["2.0", "2.1", "2.2"])
def path(request, tmp_path):
    where = str(tmp_path / "t.lance")
    write_table(where, table(), file_version=request.param, max_rows_per_file=5)
    lance.dataset(where).delete("id IN (0, 7)")
    return where


def test_rewrite_updates_only_changed_rows_versions(path):
    before = read_ours(path)
    result = set_values(path, [2, 3, 9], {"a": ["A2", None, "A9"]})
    assert (result.version, result.num_updated_rows) == (3, 3)
    after = read_ours(path)
    assert {i: row["a"] for i, row in rows(path).items()} == {
        1: "a1", 2: "A2", 3: None, 4: "a4", 5: "a5", 6: "a6", 8: "a8", 9: "A9", 10: "a10",
        11: "a11",
    }  # fmt: skip
    others = [n for n in before.column_names if n not in ("a", "_row_last_updated_at_version")]
    assert after.select(others).equals(before.select(others))
    updated = dict(
        zip(after["id"].to_pylist(), after["_row_last_updated_at_version"].to_pylist(), strict=True)
    )
    assert updated == {i: 3 if i in (2, 3, 9) else 1 for i in updated}
    check_both(path)
    old, new = files_of(path)[0]
    field = Snapshot.open(Table(path)).schema.field("a").id
    assert field not in old[0] and -2 in old[0] and new == ((field,), (0,))
    # The third fragment was not touched.
    assert len(files_of(path)[2]) == 1
    operation = latest(Snapshot.open(Table(path)).store).transaction().operation
    assert isinstance(operation, Update)
    assert (operation.update_mode, operation.fields_modified) == (1, (field,))


def test_columns_of_any_type_are_rewritten_repeatedly(path):
    struct = pa.array([{"x": 70, "y": [7, 7]}, {"x": None, "y": None}], table()["s"].type)
    vectors = pa.array([[1, 2], None], pa.list_(pa.float32(), 2))
    set_values(path, [1, 5], {"s": struct, "v": vectors})
    set_values(path, [11, 1], {"s": struct}, step=1)
    set_values(path, [1, 2, 3, 4], {"v": pa.array([[9, 9]] * 4, vectors.type), "a": list("wxyz")})
    expected = rows(path)
    assert [expected[i]["s"] for i in (1, 5, 11)] == [
        {"x": None, "y": None}, {"x": None, "y": None}, {"x": 70, "y": [7, 7]},
    ]  # fmt: skip
    assert [expected[i]["v"] for i in (1, 4, 5, 6)] == [[9, 9], [9, 9], None, [6, -6]]
    assert [expected[i]["a"] for i in (1, 4, 5)] == ["w", "z", "a5"]
    check_both(path)
    # pylance goes on: it updates, compacts, and rewrites columns of its own on top of ours.
    dataset = lance.dataset(path)
    one = pa.table({"id": pa.array([6], pa.int64()), "a": ["theirs"]})
    dataset.merge_insert("id").when_matched_update_all().write_mode("rewrite_columns").execute(one)
    lance.dataset(path).update({"a": "'u'"}, where="id = 8")
    set_values(path, [8, 6], {"a": ["ours", "again"]})
    lance.dataset(path).optimize.compact_files()
    check_both(path)
    assert (rows(path)[8]["a"], rows(path)[6]["a"]) == ("ours", "again")
    assert all(len(files) == 1 for files in files_of(path))


def test_rewrite_of_whole_column_removes_old_file(tmp_path):
    path = str(tmp_path / "t.lance")
    write_table(path, table(4).select(["id"]))
    set_values(path, [0, 1, 2, 3], {"id": pa.array([0, 10, 20, 30], pa.int64())})
    assert sorted(rows(path)) == [0, 10, 20, 30]
    assert files_of(path) == [[((0,), (0,))]]
    check_both(path)


@pytest.mark.parametrize(
    ("stored", "new"),
    [
        (pa.array(["x", "y", "x", None]).dictionary_encode(), ["z", None]),
        (pa.array(["a", None, "c", "d"], pa.large_string()), ["long", ""]),
        (pa.array([[[1, 2]], [], None, [[3], None]]), [[[9]], None]),
        (pa.array([True, None, False, True]), [None, False]),
        (pa.array([None] * 4, pa.null()), [None, None]),
        (pa.array([b"1", b"2", b"3", None], pa.binary(1)), [b"9", None]),
        (pa.array([1, 2, None, 4], pa.timestamp("ns", "UTC")), [None, 7]),
        (pa.array(['{"a": 1}', "[]", None, "3"], pa.json_()), ['{"b": [2]}', "null"]),
    ],
    ids=lambda one: str(getattr(one, "type", "")),
)
def test_types_of_any_kind_are_rewritten(tmp_path, stored, new):
    path = str(tmp_path / "t.lance")
    data = pa.table({"id": pa.array(range(4), pa.int64()), "c": stored})
    lance.write_dataset(data, path, enable_stable_row_ids=True, data_storage_version="2.1")
    kind = stored.type.storage_type if isinstance(stored.type, pa.JsonType) else stored.type
    set_values(path, [1, 3], {"c": pa.array(new, kind)})
    dataset = lance.dataset(path)
    dataset.validate()
    found = dataset.to_table()["c"].to_pylist()
    before = lance.dataset(path, version=1).to_table()["c"].to_pylist()
    assert [found[0], found[2]] == [before[0], before[2]]
    same = [str(one).replace(" ", "") for one in (found[1], found[3])]
    assert same == [str(one).replace(" ", "") for one in pa.array(new, kind).to_pylist()]


def test_file_with_only_dropped_columns_is_removed(tmp_path):
    path = str(tmp_path / "t.lance")
    write_table(path, table(4).select(["id", "a"]))
    drop_columns(Table(path), ["a"])
    set_values(path, [2], {"id": pa.array([20], pa.int64())})
    assert files_of(path) == [[((0,), (0,))]]
    check_both(path)


def test_unwritten_column_is_filled(path):
    add_null_columns(Table(path), pa.schema([("n", pa.int32())]))
    set_values(path, [2, 11], {"n": pa.array([22, 111], pa.int32())})
    assert {i: row["n"] for i, row in rows(path).items() if row["n"] is not None} == {
        2: 22,
        11: 111,
    }
    assert -2 not in {field for files in files_of(path) for one, _ in files for field in one}
    check_both(path)


@pytest.mark.parametrize("seed", range(6))
def test_rewrite_accepts_batches_of_any_size(tmp_path, seed):
    rng = np.random.default_rng(seed)
    path = str(tmp_path / "t.lance")
    count = int(rng.integers(1, 150_000))
    data = pa.table(
        {"id": np.arange(count), "a": rng.integers(0, 99, count), "b": np.arange(count)}
    )
    write_table(path, data, max_rows_per_file=max(1, count // int(rng.integers(1, 5))))
    chosen = np.sort(rng.choice(count, int(rng.integers(1, count + 1)), replace=False))
    new = rng.integers(100, 200, len(chosen))
    step = int(rng.choice([max(1, count // 7), 10_000, count]))
    set_values(path, chosen, {"a": new}, step=step)
    expected = data["a"].to_numpy().copy()
    expected[chosen] = new
    found = read_ours(path, system_columns=("_row_last_updated_at_version",))
    assert np.array_equal(found["a"].to_numpy(), expected)
    bumped = np.flatnonzero(found["_row_last_updated_at_version"].to_numpy() == 2)
    assert np.array_equal(bumped, chosen)
    from_pylance = lance.dataset(path).to_table()
    assert from_pylance.equals(found.select(from_pylance.column_names))


def test_invalid_rows_are_refused_without_leftovers(path):
    files = data_files(path)
    request = plan_rewrite(Snapshot.open(Table(path)), ["a"])

    def attempt(*addresses, values=None):
        values = values or pa.array(["x"] * len(addresses))
        batch = pa.record_batch({"_rowaddr": pa.array(addresses, pa.uint64()), "a": values})
        return list(rewrite_columns(request, [batch]))

    for addresses in ([1, 1], [2, 1], [5], [1, (1 << 32) + 5]):
        with pytest.raises(InvalidInputError):
            attempt(*addresses)
    with pytest.raises(CommitConflictError):
        attempt(1, 99 << 32)
    with pytest.raises(SchemaMismatchError):
        attempt(1, 1 << 32, values=pa.array([1, 2]))
    with pytest.raises(InvalidInputError):
        plan_rewrite(Snapshot.open(Table(path)), ["nope"])
    with pytest.raises(UnsupportedFeatureError):
        replace(request, file_version="0.1")
    assert data_files(path) == files
    done = attempt(1, 2)
    remove_files(Snapshot.open(Table(path)).store, paths_of(done))
    assert data_files(path) == files


def test_empty_rewrite_makes_no_version(path):
    plan = plan_change(Table(path))
    assert commit_rewritten(plan, plan_rewrite(plan.snapshot(), ["a"]), []).version is None


def test_rewrite_conflicts_only_on_same_fragment(path):
    def delete(condition):
        return lambda: lance.dataset(path).delete(condition)

    files = data_files(path)
    with pytest.raises(RetryableCommitError):
        set_values(path, [2], {"a": ["x"]}, concurrently=delete("id = 3"))
    assert data_files(path) == files
    assert set_values(path, [2], {"a": ["x"]}, concurrently=delete("id = 5")).version == 5
    with pytest.raises(RetryableCommitError):
        set_values(
            path, [2], {"a": ["y"]}, concurrently=lambda: set_values(path, [4], {"a": ["z"]})
        )
    stale = lance.dataset(path)
    set_values(path, [11], {"a": ["mine"]})
    stale.update({"a": "'theirs'"}, where="id = 10")  # pylance plans again after our commit
    assert (rows(path)[11]["a"], rows(path)[10]["a"]) == ("mine", "theirs")
    check_both(path)


# Indices -------------------------------------------------------------------------------------


def test_indices_answer_correctly_after_rewrite(tmp_path):
    path = str(tmp_path / "t.lance")
    count, rng = 600, np.random.default_rng(5)
    words = ["amber", "birch", "cedar", "dune", "ember"]
    vectors = rng.random((count, 8), np.float32)
    data = pa.table(
        {
            "id": np.arange(count),
            "k": np.arange(count) % 50,
            "b": np.arange(count) % 7,
            "tags": [[words[i % 5], words[(i // 5) % 5]] for i in range(count)],
            "text": [f"{words[i % 5]} and {words[i % 3]} number{i}" for i in range(count)],
            "gram": [f"{words[i % 5]}{i}" for i in range(count)],
            "vec": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 8),
        }
    )
    write_table(path, data, max_rows_per_file=200)
    dataset = lance.dataset(path)
    for name, kind in [
        ("k", "BTREE"), ("b", "BITMAP"), ("tags", "LABEL_LIST"), ("text", "INVERTED"),
        ("gram", "NGRAM"),
    ]:  # fmt: skip
        dataset.create_scalar_index(name, kind)
    dataset.create_index("vec", "IVF_FLAT", num_partitions=4)

    changed = [3, 5, 199, 200, 450]
    moved = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(5 * 8, np.float32)), 8)
    set_values(
        path,
        changed,
        {
            "k": pa.array([1000, 1, 2, 3, 1000], pa.int64()),
            "b": pa.array([6, 6, 0, 99, 99], pa.int64()),
            "tags": [["new"], ["amber"], [], None, ["new", "dune"]],
            "text": ["fresh birch", "fresh", "amber", "", "fresh dune"],
            "gram": ["zzzz", "amberzz", "q", "ember200", "zzzz"],
            "vec": moved,
        },
    )
    check_both(path)
    dataset = lance.dataset(path)
    coverage = {
        index.name: sorted(index.fragment_bitmap) for index in Snapshot.open(Table(path)).indices
    }
    assert set(map(tuple, coverage.values())) == {()}

    def answers(query, use):
        found = query(dataset.scanner, use).to_table()
        return sorted(found["id"].to_pylist())

    def where(condition):
        return lambda scanner, use: scanner(columns=["id"], filter=condition, use_scalar_index=use)

    conditions = [
        "k = 1000", "k = 3", "k < 2", "b = 99", "b = 6", "b IN (0, 3)",
        "array_has_any(tags, ['new', 'cedar'])", "array_has_all(tags, ['dune'])",
        "contains(gram, 'zzz')", "contains(gram, 'ember2')",
    ]  # fmt: skip
    for condition in conditions:
        assert answers(where(condition), use=True) == answers(where(condition), use=False)
    for word in ("fresh", "amber", "dune"):
        found = dataset.to_table(columns=["id"], full_text_query=word)["id"].to_pylist()
        expected = [
            row["id"]
            for row in dataset.to_table(columns=["id", "text"]).to_pylist()
            if word in row["text"].split()
        ]
        assert sorted(found) == expected, word
    for query in (np.zeros(8, np.float32), vectors[3], vectors[100]):
        nearest = {"column": "vec", "q": query, "k": 5}
        with_index, without = (
            dataset.to_table(columns=["id"], nearest={**nearest, "use_index": use, "nprobes": 4})
            for use in (True, False)
        )
        assert pc.sum(with_index["_distance"]) == pc.sum(without["_distance"])
        assert set(with_index["id"].to_pylist()) == set(without["id"].to_pylist())
    # Untouched columns keep their index, and after optimizing everything is covered again.
    set_values(path, [10], {"k": pa.array([1000], pa.int64())})
    dataset.optimize.optimize_indices()
    dataset = lance.dataset(path)
    for condition in conditions:
        assert answers(where(condition), use=True) == answers(where(condition), use=False)


def test_unchanged_fragments_stay_covered(tmp_path):
    path = str(tmp_path / "t.lance")
    write_table(path, table(), max_rows_per_file=4)
    dataset = lance.dataset(path)
    dataset.create_scalar_index("a", "BTREE")
    dataset.create_scalar_index("id", "BTREE")
    set_values(path, [5], {"a": ["new"]})
    coverage = {
        index.name: set(index.fragment_bitmap) for index in Snapshot.open(Table(path)).indices
    }
    assert coverage == {"a_idx": {0, 2}, "id_idx": {0, 1, 2}}
    check_both(path)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize(
    ("values", "not_null"),
    [
        (pa.array([None, *range(1, 12)], pa.int32()), "v"),
        (pa.array([None, *(f"v{i}" for i in range(1, 12))]), "v"),
        (pa.array([None, *([i] for i in range(1, 12))]), "v"),
        (pa.array([None, *([i, i] for i in range(1, 12))], pa.list_(pa.float32(), 2)), "v"),
        (pa.array([{"x": None}, *({"x": i} for i in range(1, 12))]), "v.x"),
    ],
    ids=["int", "string", "list", "vector", "member"],
)
def test_deleted_rows_may_hold_forbidden_nulls(tmp_path, version, values, not_null):
    path = str(tmp_path / "t.lance")
    lance.write_dataset(
        pa.table({"id": range(12), "v": values}),
        path,
        data_storage_version=version,
        enable_stable_row_ids=True,
    )
    lance.dataset(path).delete("id = 0")
    lance.dataset(path).alter_columns({"path": not_null, "nullable": False})
    set_values(path, [7], {"v": values.slice(5, 1)})
    expected = [i if i != 7 else 5 for i in range(1, 12)]
    assert read_ours(path)["v"].to_pylist() == values.take(expected).to_pylist()
    check_both(path)
    lance.dataset(path).optimize.compact_files()
    assert lance.dataset(path).to_table()["v"].to_pylist() == values.take(expected).to_pylist()


def test_unjoinable_dictionaries_are_rewritten_in_separate_pages(tmp_path):
    """As are those whose texts are more than 2 GiB together."""
    path = str(tmp_path / "t")
    kind = pa.dictionary(pa.int8(), pa.string())
    old = [f"old{i}" for i in range(120)]
    write_table(path, pa.table({"id": range(120), "d": pa.array(old).cast(kind)}))
    delete_rows(path, "id >= 100 AND id < 110")
    ids = [i for i in range(120) if i % 2 and not 100 <= i < 110]
    new = pa.array([f"new{i}" for i in ids]).cast(kind)
    set_values(path, ids, {"d": new}, step=20)
    chosen = set(ids)
    assert {row_id: row["d"] for row_id, row in rows(path).items()} == {
        i: f"new{i}" if i in chosen else f"old{i}" for i in range(120) if not 100 <= i < 110
    }
