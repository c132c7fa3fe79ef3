"""Vector indices that we make: pylance answers by them as we do, and they stay right."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from random_seeds import grid, seeds
from vector_tables import TYPES, WIDTH, assert_same, from_pylance, ours, queries_for, rows_of

from pyspark_lance.errors import CommitConflictError, InvalidInputError, RetryableCommitError
from pyspark_lance.table.cleanup.cleanup import find_orphan_files
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.index_build.vector_build import (
    VectorIndexRequest,
    create_vector_index,
    parse_kind,
    refresh_vector_indices,
)
from pyspark_lance.table.nearest import ivf_build
from pyspark_lance.table.nearest.ivf_build import EncodeTask, TakeTask
from pyspark_lance.table.nearest.ivf_file import INDEX_NAMES, IvfKind
from pyspark_lance.table.nearest.ivf_search import SegmentTask
from pyspark_lance.table.nearest.vectors import Metric
from pyspark_lance.table.tasks import run_local
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

PARTS = {IvfKind.PQ: 4}
optimize_vector_indices = partial(refresh_vector_indices, joins_segments=True)


def save(path, numbers, *, column_type="float32", stable=True):
    lance.write_dataset(
        rows_of(numbers, column_type), str(path), max_rows_per_file=700,
        enable_stable_row_ids=stable,
    )  # fmt: skip


def index(path, kind=IvfKind.FLAT, metric=Metric.L2, partitions=5, **more):
    request = VectorIndexRequest(
        "v", kind, metric, partitions, more.pop("parts", PARTS.get(kind)), **{"seed": 1, **more}
    )
    return create_vector_index(Table(str(path)), request)


def refresh(path):
    return refresh_vector_indices(Table(str(path)))


def entries(path):
    return Snapshot.open(Table(str(path))).indices


def some_numbers(seed=0, rows=2000):
    return np.random.default_rng(seed).normal(size=(rows, WIDTH)) + 0.3


def check_like_pylance(path, queries, k=8, nprobes=5, tolerance=1e-4, *, loses=False):
    """The same rows and distances; which tasks looked for them.

    ``loses``: deleted rows may take the places of others in pylance's answers.
    """
    plan, found = ours(path, queries, k, nprobes=nprobes)
    for number, query in enumerate(queries):
        neighbours = from_pylance(path, query, k, nprobes=nprobes)
        mine = found.distance[found.query == number]
        if loses and neighbours.num_rows < len(mine):
            expected = neighbours["_distance"].to_numpy()
            assert (mine[: len(expected)] - expected <= tolerance * (1 + np.abs(expected))).all()
        else:
            assert_same(found, number, neighbours, tolerance)
    return {type(task).__name__ for task in plan.tasks}


def looks_at_no_deleted_rows(path):
    """Whether pylance believes all that an index with stable row ids says.

    It does where the index names all fragments and no others, and none has deleted rows; its own
    compaction makes such tables of those with deleted rows, which it then finds in the index.
    """
    snapshot = Snapshot.open(Table(str(path)))
    fragments = snapshot.manifest.fragments
    named = frozenset().union(*(one.fragment_bitmap for one in snapshot.indices))
    return named == {one.id for one in fragments} and not any(f.deletion_file for f in fragments)


def leave_of(path):
    return [file.path for file in find_orphan_files(Table(str(path)))]


@pytest.mark.parametrize(
    ("kind", "metric", "column_type"), grid(list(INDEX_NAMES), list(Metric), tuple(TYPES))
)
def test_pylance_returns_same_neighbours_with_our_index(tmp_path, kind, metric, column_type):
    path, numbers = tmp_path / "t", some_numbers()
    stable = (len(kind) + len(metric) + len(column_type)) % 2 == 0
    save(path, numbers, column_type=column_type, stable=stable)
    result = index(path, kind, metric)
    # All but NULL and NaN, and under cosine but zeros.
    assert result.num_rows == (2000 if metric is Metric.COSINE else 2001)
    assert (result.version, result.names, result.num_partitions) == (2, ("v_idx",), 5)
    assert result.num_fragments == 3
    queries = queries_for(numbers, column_type)
    nearest = {"column": "v", "q": pa.array(queries[0]), "k": 3}
    shown = lance.dataset(str(path)).scanner(nearest=nearest).explain_plan()
    assert "ANN" in shown and "KNNVectorDistance" not in shown
    for nprobes in (1, 5):
        tasks = check_like_pylance(path, queries, 10, nprobes)
        assert tasks == {"SegmentTask"}
    plan, found = ours(path, queries, 10, nprobes=5, refine_factor=20)
    _, best = ours(path, queries, 10, metric=str(metric), use_index=False)
    assert [type(task) for task in plan.tasks] == [SegmentTask]
    assert len(np.intersect1d(found.row_id, best.row_id)) >= 0.9 * len(best)
    assert not verify(Table(str(path))).errors
    assert not leave_of(path)


@pytest.mark.parametrize(("kind", "metric"), grid(list(INDEX_NAMES), list(Metric)))
def test_pylance_statistics_describe_our_index(tmp_path, kind, metric):
    save(tmp_path / "t", some_numbers())
    index(tmp_path / "t", kind, metric)
    dataset = lance.dataset(str(tmp_path / "t"))
    neighbours = dataset.stats.index_stats("v_idx")
    assert neighbours["index_type"] == {"flat": "IVF_FLAT", "__pq_code": "IVF_PQ"}.get(
        kind, "IVF_SQ"
    )
    assert neighbours["num_unindexed_rows"] == 0
    (segment,) = neighbours["indices"]
    assert segment["metric_type"] == str(metric)
    assert segment["num_partitions"] == 5
    (described,) = dataset.describe_indices()
    assert described.name == "v_idx"


def grouped(rng, count):
    """Vectors that lie in groups, as those of pictures and texts do."""
    middles = np.random.default_rng(9).normal(size=(60, WIDTH))
    return middles[rng.integers(60, size=count)] + rng.normal(size=(count, WIDTH)) * 0.5


def of_low_rank(rng, count):
    directions = np.random.default_rng(9).normal(size=(3, WIDTH))
    return rng.normal(size=(count, 3)) @ directions + rng.normal(size=(count, WIDTH)) * 0.05


def nearly_equal(rng, count):
    few = np.random.default_rng(9).normal(size=(400, WIDTH))
    return few[rng.integers(400, size=count)] + rng.normal(size=(count, WIDTH)) * 0.01


VECTORS = {
    "normal": lambda rng, count: rng.normal(size=(count, WIDTH)),
    "grouped": grouped,
    "of low rank": of_low_rank,
    "nearly equal": nearly_equal,
}


def recalls(path, some, kind, metric, seed):
    """The share of the nearest rows that pylance finds by our index, and by its own."""
    rng = np.random.default_rng(seed)
    numbers, queries = some(rng, 6000), some(rng, 60).astype("f4")
    save(path, numbers)
    _, best = ours(path, queries, 10, metric=str(metric), use_index=False)

    def recall():
        hits = 0
        for number, query in enumerate(queries):
            neighbours = from_pylance(path, query, 10, nprobes=4)["_rowid"].to_numpy()
            hits += len(np.intersect1d(neighbours, best.row_id[best.query == number]))
        return hits / len(best)

    index(path, kind, metric, 20, seed=seed)
    mine = recall()
    name = {"flat": "IVF_FLAT", "__pq_code": "IVF_PQ"}.get(kind, "IVF_SQ")
    more = {"num_sub_vectors": 4} if kind is IvfKind.PQ else {}
    lance.dataset(str(path)).create_index(
        "v", name, metric=str(metric), num_partitions=20, name="v_idx", replace=True, **more
    )
    return mine, recall()


@pytest.mark.parametrize(("kind", "metric"), grid(list(INDEX_NAMES), list(Metric)))
def test_recall_is_near_pylance(tmp_path, kind, metric):
    mine, their = recalls(tmp_path / "t", grouped, kind, metric, 5)
    # What either learns differs by chance.
    assert mine > their - 0.08


@pytest.mark.slow
@pytest.mark.parametrize("metric", list(Metric))
@pytest.mark.parametrize("kind", list(INDEX_NAMES))
@pytest.mark.parametrize("vectors", VECTORS)
def test_mean_recall_of_many_builds_is_near_pylance(tmp_path, vectors, kind, metric):
    some, builds = VECTORS[vectors], 12
    found = [recalls(tmp_path / f"{n}", some, kind, metric, n) for n in range(builds)]
    mine, their = np.mean(found, axis=0)
    assert mine > their - 0.02, (mine, their, np.std(found, axis=0))


@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize("kind", list(INDEX_NAMES))
@pytest.mark.parametrize("seed", seeds(60, in_ci=2))
def test_vector_search_follows_random_changes(tmp_path, kind, stable, seed):
    rng, path = random.Random(seed), tmp_path / "t"
    column_type = rng.choice(list(TYPES))
    metric = rng.choice([Metric.L2, Metric.COSINE])
    numbers = some_numbers(seed, rng.choice([40, 900]))
    save(path, numbers, column_type=column_type, stable=stable)
    index(path, kind, metric, rng.choice([1, 3]))
    queries, compacted = queries_for(numbers, column_type), False
    for step in range(7):
        done = change(path, rng, 10_000 * (step + 1), column_type)
        compacted |= stable and done == "theirs"
        loses = compacted and looks_at_no_deleted_rows(path)
        tasks = check_like_pylance(path, queries, 6, 99, loses=loses)
        assert tasks == {"SegmentTask"} or done not in ("refresh", "join")
        if kind is IvfKind.FLAT:
            _, found = ours(path, queries, 6, nprobes=99, metric=str(metric))
            _, best = ours(path, queries, 6, metric=str(metric), use_index=False)
            # Under cosine the index has directions, in the type of the column.
            rounding = 2**-10 if column_type == "float16" else 1e-4
            assert np.allclose(found.distance, best.distance, atol=rounding), done
    assert not verify(Table(str(path))).errors
    assert not [name for name in leave_of(path) if "_indices" in name]


def change(path, rng, start, column_type):
    dataset = lance.dataset(str(path))
    what = rng.choice(["append", "delete", "update", "vectors", "merge", "compact", "some",
                       "theirs", "refresh", "refresh", "join", "join", "optimize",
                       "delta"])  # fmt: skip
    new = some_numbers(start, rng.choice([1, 50]))
    match what:
        case "append":
            lance.write_dataset(rows_of(new, column_type, start), str(path), mode="append")
        case "delete":
            dataset.delete(f"id % {rng.randint(3, 7)} = 1")
        case "update":
            dataset.update({"id": "id + 100000"}, where=f"id % 10 = {rng.randint(0, 9)}")
        case "vectors":
            rows = rows_of(new, column_type, rng.randint(0, 9))
            dataset.merge_insert("id").when_matched_update_all().execute(rows)
        case "merge":
            rows = rows_of(new, column_type, rng.randint(0, 30))
            builder = dataset.merge_insert("id").when_matched_update_all()
            builder.when_not_matched_insert_all().execute(rows)
        case "compact":
            compact(Table(str(path)))
        case "some":
            # Fragments of more rows stay, and an index goes on to answer for them.
            few = {"target_rows_per_fragment": rng.choice([60, 500])}
            compact(
                Table(str(path)),
                CompactionRequest(
                    **(few | {"materialize_deletions_threshold": rng.choice([0.0, 0.2])})
                ),
            )
        case "theirs":
            dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
        case "refresh":
            refresh(path)
        case "join":
            optimize_vector_indices(Table(str(path)))
        case "optimize":
            dataset.optimize.optimize_indices()
        case "delta":
            dataset.optimize.optimize_indices(num_indices_to_merge=0)
    return what


@pytest.mark.parametrize("kind", list(INDEX_NAMES))
def test_refresh_indexes_uncovered_rows(tmp_path, kind):
    path, numbers = tmp_path / "t", some_numbers()
    save(path, numbers)
    index(path, kind)
    assert refresh(path) == ()
    queries = queries_for(numbers)
    lance.write_dataset(rows_of(some_numbers(9, 300), start=5000), str(path), mode="append")
    assert check_like_pylance(path, queries) == {"SegmentTask", "SearchTask"}
    (done,) = refresh(path)
    assert (done.names, done.num_rows, done.num_fragments, done.num_partitions) == (
        ("v_idx",), 301, 1, 5,
    )  # fmt: skip
    assert check_like_pylance(path, queries) == {"SegmentTask"}
    assert len(entries(path)) == 2
    # What both segments learned is the same, or pylance could not join them.
    lance.dataset(str(path)).optimize.optimize_indices(num_indices_to_merge=2)
    assert len(entries(path)) == 1
    assert check_like_pylance(path, queries) == {"SegmentTask"}
    # And ours goes on with what pylance has made.
    lance.write_dataset(rows_of(some_numbers(10, 30), start=9000), str(path), mode="append")
    (done,) = refresh(path)
    assert done.num_rows == 31
    assert check_like_pylance(path, queries) == {"SegmentTask"}
    lance.dataset(str(path)).optimize.optimize_indices(num_indices_to_merge=2)
    assert check_like_pylance(path, queries) == {"SegmentTask"}


@pytest.mark.parametrize(
    ("kind", "stable"), grid(("IVF_FLAT", "IVF_PQ", "IVF_PQ of 4 bits", "IVF_SQ"), (True, False))
)
def test_segments_are_merged_with_uncovered_rows(tmp_path, kind, stable):
    path, numbers = tmp_path / "t", some_numbers()
    save(path, numbers, stable=stable)
    more = {"num_sub_vectors": 4} if "PQ" in kind else {}
    more |= {"num_bits": 4} if "4 bits" in kind else {}
    lance.dataset(str(path)).create_index("v", kind.split()[0], num_partitions=4, **more)
    queries, table = queries_for(numbers), Table(str(path))
    assert optimize_vector_indices(table) == ()
    append(path)
    refresh(path)
    lance.dataset(str(path)).delete("id % 7 = 2")
    lance.dataset(str(path)).update({"id": "id + 100000"}, where="id % 10 = 3")
    _, before = ours(path, queries, 20, nprobes=4, refine_factor=20)
    rows = sum(fragment.num_rows for fragment in Snapshot.open(table).manifest.fragments)
    (done,) = optimize_vector_indices(table)
    # All but NULL and NaN, of which each of the two pieces had one.
    flawed = sum(
        lance.dataset(str(path)).count_rows(f"id = {number} or id = {number + 100000}")
        for number in (2000, 2001, 5030, 5031)
    )
    assert done.num_rows == rows - flawed
    assert len(entries(path)) == 1
    assert check_like_pylance(path, queries) == {"SegmentTask"}
    _, after = ours(path, queries, 20, nprobes=4, refine_factor=20)
    assert len(np.intersect1d(before.row_id, after.row_id)) >= 0.9 * len(before)
    assert optimize_vector_indices(table) == ()
    # And pylance goes on with it.
    append(path, 9000)
    lance.dataset(str(path)).optimize.optimize_indices(num_indices_to_merge=1)
    assert check_like_pylance(path, queries) == {"SegmentTask"}
    assert not verify(table).errors
    assert not leave_of(path) or all("_indices" not in name for name in leave_of(path))


def test_large_or_differently_trained_segments_are_not_merged(tmp_path):
    path, table = tmp_path / "t", Table(str(tmp_path / "t"))
    save(path, some_numbers())
    index(path)
    append(path)
    refresh(path)
    append(path, 6000)
    (done,) = optimize_vector_indices(table, rows_of_segment=400)
    assert (done.num_rows, len(entries(path))) == (62, 2)
    other = tmp_path / "other"
    save(other, some_numbers(3))
    index(other, seed=5)
    # The first segment has the centroids of another table now.
    (own,) = [e for e in entries(path) if len(e.fragment_bitmap) == 3]
    (strange,) = [Path(other, "_indices", str(e.uuid)) for e in entries(other)]
    for file in ("index.idx", "auxiliary.idx"):
        Path(path, "_indices", str(own.uuid), file).write_bytes((strange / file).read_bytes())
    append(path, 7000)
    (done,) = optimize_vector_indices(table)
    assert (done.num_rows, len(entries(path))) == (93, 2)


@pytest.mark.parametrize(
    ("kind", "column_type"), grid(("IVF_FLAT", "IVF_PQ", "IVF_SQ"), tuple(TYPES))
)
def test_refresh_extends_pylance_index(tmp_path, kind, column_type):
    path, numbers = tmp_path / "t", some_numbers()
    save(path, numbers, column_type=column_type)
    more = {"num_sub_vectors": 4, "num_bits": 4} if kind == "IVF_PQ" else {}
    lance.dataset(str(path)).create_index("v", kind, num_partitions=4, **more)
    new = rows_of(some_numbers(9, 300), column_type, 5000)
    lance.write_dataset(new, str(path), mode="append")
    (done,) = refresh(path)
    assert done.num_rows == 301
    queries = queries_for(numbers, column_type)
    assert check_like_pylance(path, queries) == {"SegmentTask"}
    lance.dataset(str(path)).optimize.optimize_indices(num_indices_to_merge=2)
    assert len(entries(path)) == 1
    assert check_like_pylance(path, queries) == {"SegmentTask"}


def test_only_named_indices_are_refreshed(tmp_path):
    path = tmp_path / "t"
    save(path, some_numbers())
    for metric in Metric:
        index(path, metric=metric, name=f"by_{metric}")
    append(path)
    done = refresh_vector_indices(Table(str(path)), ["by_dot"])
    assert [one.names for one in done] == [("by_dot",)]
    rest = refresh_vector_indices(Table(str(path)))
    assert sorted(one.names for one in rest) == [("by_cosine",), ("by_l2",)]
    assert len({one.version for one in rest}) == 1
    assert refresh(path) == ()
    with pytest.raises(InvalidInputError, match="there is no vector index 'v_idx'"):
        refresh_vector_indices(Table(str(path)), ["v_idx"])


def test_hnsw_index_is_unchanged_by_refresh(tmp_path):
    save(tmp_path / "t", some_numbers())
    lance.dataset(str(tmp_path / "t")).create_index("v", "IVF_HNSW_SQ", num_partitions=2)
    lance.write_dataset(rows_of(some_numbers(9, 30)), str(tmp_path / "t"), mode="append")
    assert refresh(tmp_path / "t") == ()


@pytest.mark.parametrize("kind", list(INDEX_NAMES))
def test_small_parts_build_same_index_as_one_part(tmp_path, kind, monkeypatch):
    numbers = some_numbers()
    for name in ("one", "many"):
        save(tmp_path / name, numbers)
        index(tmp_path / name, kind)
        monkeypatch.setattr(ivf_build, "_HELD_BYTES", 3000)
    queries = queries_for(numbers)
    one, many = (ours(tmp_path / name, queries, 2000, nprobes=5)[1] for name in ("one", "many"))
    assert one.row_id.tolist() == many.row_id.tolist()
    assert one.distance.tolist() == many.distance.tolist()
    assert check_like_pylance(tmp_path / "many", queries) == {"SegmentTask"}
    assert not leave_of(tmp_path / "many")


@pytest.mark.parametrize("kind", list(INDEX_NAMES))
def test_equal_seeds_build_equal_indices(tmp_path, kind):
    content = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        save(tmp_path / name, some_numbers())
        index(tmp_path / name, kind, seed=seed, sample_rate=100)
        (file,) = Path(tmp_path / name, "_indices").rglob("auxiliary.idx")
        content.append(file.read_bytes())
    assert content[0] == content[1] != content[2]


def test_training_samples_cover_live_rows_of_whole_table(tmp_path):
    """Groups that lie one behind the other, most of them deleted: each partition has one."""
    rng = np.random.default_rng(0)
    middles = np.eye(WIDTH)[:8] * 50
    numbers = np.repeat(middles, 500, axis=0) + rng.normal(size=(4000, WIDTH))
    save(tmp_path / "t", numbers)
    lance.dataset(str(tmp_path / "t")).delete("id % 500 > 20 AND id < 3500")
    assert index(tmp_path / "t", partitions=8, sample_rate=40).num_rows > 600
    for number in (3, 3999):
        _, found = ours(tmp_path / "t", numbers[number].astype("f4"), 15, nprobes=1)
        assert {row // 500 for row in found.row_id.tolist()} == {number // 500}


@pytest.mark.parametrize("kind", list(INDEX_NAMES))
def test_few_or_equal_rows_can_be_indexed(tmp_path, kind):
    for name, numbers in (("one", np.ones((1, WIDTH))), ("equal", np.full((300, WIDTH), 0.5))):
        path = tmp_path / name
        lance.write_dataset(rows_of(numbers)[: len(numbers)], str(path))
        result = index(path, kind, partitions=4)
        assert result.num_rows == len(numbers)
        query = np.ones(WIDTH, "f4")
        _, found = ours(path, query, 3, nprobes=4)
        assert len(found) == min(3, len(numbers))
        assert_same(found, 0, from_pylance(path, query, 3, nprobes=4), 1e-2)


def test_rows_without_vectors_are_covered(tmp_path):
    path, numbers = tmp_path / "t", some_numbers()
    save(path, numbers)
    index(path)
    rows = rows_of(np.empty((0, WIDTH)), start=9000)
    lance.write_dataset(rows[:2], str(path), mode="append")
    (done,) = refresh(path)
    assert (done.num_rows, done.num_fragments) == (0, 1)
    assert check_like_pylance(path, queries_for(numbers)) == {"SegmentTask"}
    lance.dataset(str(path)).optimize.optimize_indices(num_indices_to_merge=2)
    assert check_like_pylance(path, queries_for(numbers)) == {"SegmentTask"}


# Other kinds -----------------------------------------------------------------------------------


def run_during(path, what):
    """Run tasks, and the concurrent operation once, before the first task that encodes."""
    left = [what]

    def run(tasks):
        if left and any(isinstance(task, EncodeTask | TakeTask) for task in tasks):
            left.pop()()
        return run_local(tasks)

    return run


def append(path, start=5000):
    lance.write_dataset(rows_of(some_numbers(9, 30), start=start), str(path), mode="append")


def covered(path):
    return [sorted(entry.fragment_bitmap) for entry in entries(path)]


def test_concurrent_appends_allow_vector_index(tmp_path):
    path, numbers = tmp_path / "t", some_numbers()
    save(path, numbers)

    def others():
        append(path)
        lance.dataset(str(path)).delete("id % 5 = 1")

    request = VectorIndexRequest("v", IvfKind.FLAT, num_partitions=3, seed=1)
    result = create_vector_index(Table(str(path)), request, run=run_during(path, others))
    assert (result.version, covered(path)) == (4, [[0, 1, 2]])
    assert check_like_pylance(path, queries_for(numbers)) == {"SegmentTask", "SearchTask"}


@pytest.mark.parametrize("stable", [True, False])
def test_concurrently_moved_vectors_are_indexed_again(tmp_path, stable):
    path, numbers = tmp_path / "t", some_numbers()
    save(path, numbers, stable=stable)
    request = VectorIndexRequest("v", IvfKind.PQ, num_partitions=3, num_sub_vectors=4, seed=1)

    def others():
        lance.dataset(str(path)).delete("id = 3")
        compact(Table(str(path)), CompactionRequest(materialize_deletions_threshold=0.0))

    create_vector_index(Table(str(path)), request, run=run_during(path, others))
    assert covered(path) == [[f.id for f in Snapshot.open(Table(str(path))).manifest.fragments]]
    assert check_like_pylance(path, queries_for(numbers)) == {"SegmentTask"}
    assert not [name for name in leave_of(path) if "_indices" in name]


def overwrite(path):
    lance.write_dataset(rows_of(some_numbers(4, 80)), str(path), mode="overwrite")


def in_place(path):
    """Other vectors for some rows, in a file beside those of a fragment."""
    dataset = lance.dataset(str(path))
    new = rows_of(some_numbers(6, 30), start=100)
    fragment, fields = dataset.get_fragments()[0].update_columns(new, "id", "id")
    operation = lance.LanceOperation.Update(updated_fragments=[fragment], fields_modified=fields)
    lance.LanceDataset.commit(str(path), operation, read_version=dataset.version)


def merge(path):
    builder = lance.dataset(str(path)).merge_insert("id").when_matched_update_all()
    builder.when_not_matched_insert_all().execute(rows_of(some_numbers(7, 40), start=1990))


OTHERS = {
    "append": append,
    "overwrite": overwrite,
    "in place": in_place,
    "merge": merge,
    "rename": lambda path: lance.dataset(str(path)).alter_columns({"path": "id", "name": "key"}),
    "restore": lambda path: lance.dataset(str(path), version=1).restore(),
    "compact": lambda path: compact(
        Table(str(path)), CompactionRequest(target_rows_per_fragment=5000)
    ),
    "index": lambda path: lance.dataset(str(path)).create_scalar_index("id", "BTREE"),
    "optimize": lambda path: lance.dataset(str(path)).optimize.optimize_indices(),
    "drop": lambda path: lance.dataset(str(path)).drop_columns(["v"]),
}


@pytest.mark.parametrize(
    ("other", "stable", "act"), grid(tuple(OTHERS), (True, False), ("create", "refresh", "join"))
)
def test_vector_search_is_correct_after_any_concurrent_change(tmp_path, other, stable, act):
    path, numbers = tmp_path / "t", some_numbers()
    save(path, numbers, stable=stable)
    if act != "create":
        index(path, partitions=3)
        append(path, 9000)
    run = run_during(path, lambda: OTHERS[other](path))
    try:
        if act == "refresh":
            refresh_vector_indices(Table(str(path)), run=run)
        elif act == "join":
            optimize_vector_indices(Table(str(path)), run=run)
        else:
            request = VectorIndexRequest("v", IvfKind.FLAT, num_partitions=3, seed=1)
            create_vector_index(Table(str(path)), request, run=run)
    except (InvalidInputError, CommitConflictError):
        assert other in ("drop", "overwrite", "restore")
    assert not [name for name in leave_of(path) if "_indices" in name]
    assert not verify(Table(str(path))).errors
    if other == "drop":
        assert not [entry for entry in entries(path) if entry.name == "v_idx"]
        return
    shown = "key" if other == "rename" else "id"
    query = queries_for(numbers)[1]
    _, found = ours(path, query, 8, nprobes=3, shown=shown)
    _, best = ours(path, query, 8, use_index=False, shown=shown)
    assert found.row_id.tolist() == best.row_id.tolist()
    nearest = {"column": "v", "q": pa.array(query), "k": 8, "nprobes": 3}
    neighbours = lance.dataset(str(path), session=lance.Session()).to_table(
        columns=["_distance"], nearest=nearest, with_row_id=True
    )
    assert sorted(neighbours["_rowid"].to_pylist()) == sorted(best.row_id.tolist())


def test_concurrent_builds_of_same_name_create_one_index(tmp_path):
    path = tmp_path / "t"
    save(path, some_numbers())
    request = VectorIndexRequest("v", IvfKind.FLAT, num_partitions=3, seed=1)
    run = run_during(path, lambda: index(path))
    with pytest.raises(InvalidInputError, match="there is an index 'v_idx'"):
        create_vector_index(Table(str(path)), request, run=run)
    assert len(entries(path)) == 1
    assert not leave_of(path)


def test_failed_index_task_leaves_no_files(tmp_path):
    path = tmp_path / "t"
    save(path, some_numbers())

    def run(tasks):
        done = list(run_local(tasks))
        if any(isinstance(task, EncodeTask) for task in tasks):
            raise RetryableCommitError("an executor is lost", str(path), "again")
        return done

    with pytest.raises(RetryableCommitError):
        create_vector_index(
            Table(str(path)), VectorIndexRequest("v"), ChangeSettings(retries=0), run=run
        )
    assert not leave_of(path)
    assert not entries(path)


# What is asked for -----------------------------------------------------------------------------


def test_index_names_must_be_free_or_replaced(tmp_path):
    path, numbers = tmp_path / "t", some_numbers()
    save(path, numbers)
    index(path)
    with pytest.raises(InvalidInputError, match="there is an index 'v_idx'"):
        index(path)
    index(path, IvfKind.SQ, Metric.COSINE, name="angles")
    assert [entry.name for entry in entries(path)] == ["v_idx", "angles"]
    index(path, IvfKind.PQ, replace=True)
    assert sorted(entry.name for entry in entries(path)) == ["angles", "v_idx"]
    check_like_pylance(path, queries_for(numbers))
    lance.dataset(str(path)).create_scalar_index("id", "BTREE", name="of_id")
    with pytest.raises(InvalidInputError, match="there is another index 'of_id'"):
        index(path, name="of_id", replace=True)


def test_default_parameters_follow_table(tmp_path):
    path = tmp_path / "t"
    save(path, some_numbers(rows=9000))
    request = VectorIndexRequest(None, IvfKind.FLAT)
    assert create_vector_index(Table(str(path)), request).num_partitions == 2
    request = VectorIndexRequest(metric=Metric.DOT, name="codes")
    assert create_vector_index(Table(str(path)), request).num_partitions == 1
    (file,) = [
        reader
        for file in Path(path, "_indices").rglob("auxiliary.idx")
        if "__pq_code" in (reader := lance.file.LanceFileReader(str(file))).metadata().schema.names
    ]
    assert file.metadata().schema.field("__pq_code").type == pa.list_(pa.uint8(), 1)


@pytest.mark.parametrize(
    ("flawed", "message"),
    [
        ({"column": "id"}, "holds no vectors"),
        ({"column": "w"}, "there is no column 'w'"),
        ({"num_partitions": 0}, "num_partitions must be a number from 1"),
        ({"num_partitions": True}, "num_partitions must be a number from 1"),
        ({"num_sub_vectors": 5}, "5 sub-vectors do not divide vectors of 16 numbers"),
        ({"kind": IvfKind.SQ, "num_sub_vectors": 4}, "sub-vectors is for ivf_pq only"),
        ({"sample_rate": 0}, "sample_rate must be a number from 1"),
        ({"seed": -1}, "seed must be a number, at least 0"),
    ],
)
def test_invalid_vector_index_requests_are_refused(tmp_path, flawed, message):
    save(tmp_path / "t", some_numbers(rows=100))
    with pytest.raises(InvalidInputError, match=message):
        create_vector_index(Table(str(tmp_path / "t")), VectorIndexRequest(**flawed))


def test_vector_index_requires_valid_vector(tmp_path):
    rows = rows_of(np.empty((0, WIDTH)))
    lance.write_dataset(rows[:2], str(tmp_path / "t"))
    with pytest.raises(InvalidInputError, match="no vector that can be indexed"):
        index(tmp_path / "t")
    lance.write_dataset(rows[:0], str(tmp_path / "empty"))
    with pytest.raises(InvalidInputError, match="no rows to index"):
        index(tmp_path / "empty")
    assert not leave_of(tmp_path / "t")


def test_vector_index_kinds_ignore_case():
    assert parse_kind("IVF_pq") is IvfKind.PQ
    with pytest.raises(InvalidInputError, match="the kinds are ivf_flat, ivf_pq, ivf_sq"):
        parse_kind("hnsw")
