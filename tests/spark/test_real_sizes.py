"""Tables of real sizes, through Spark.

With many rows things are stored, cut and sent in ways that small tables never meet: deleted rows
as bitmaps, row ids and versions in many runs or outside of the manifest, fragments read by several
tasks, tasks that yield several batches.  What comes back is compared, value by value, with a model
of arrays and with pylance.
"""

from __future__ import annotations

from dataclasses import astuple

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as sf
from table_files import move_sequences_outside

from pyspark_lance import LanceTable
from pyspark_lance.format.deletion_vector import DeletionFileType
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.usefixtures("compiled")]

MILLION = 1_000_000
LINEAGE = ("_rowid", "_row_created_at_version", "_row_last_updated_at_version")


class Model:
    """What a table must hold: ``v`` of each ``id`` below a bound, and the lineage of its row.

    Row ids are those that the first read of a row says, and must stay.
    """

    def __init__(self, path, bound):
        self.path = path
        self.is_there = np.zeros(bound, dtype=bool)
        self.v = np.zeros(bound, dtype=np.int64)
        self.created, self.updated = np.zeros((2, bound), dtype=np.uint64)
        self.row_id = np.full(bound, -1, dtype=np.int64)
        self.changes, self.counts = {}, {}

    def put(self, version, ids, values):
        """Insert or update, by whether the rows are there."""
        ids = np.asarray(ids)
        values = np.broadcast_to(values, ids.shape)
        known = self.is_there[ids]
        differs = known & (self.v[ids] != values)
        self.changes[version] = {
            "insert": (ids[~known], values[~known]),
            "update_preimage": (ids[differs], self.v[ids[differs]]),
            "update_postimage": (ids[differs], values[differs]),
        }
        self.counts[version] = (int((~known).sum()), int(known.sum()), 0)
        self.v[ids] = values
        self.created[ids[~known]] = version
        self.updated[ids] = version
        self.is_there[ids] = True

    def delete(self, version, ids):
        ids = np.asarray(ids)
        self.changes[version] = {"delete": (ids, self.v[ids])}
        self.counts[version] = (0, 0, len(ids))
        self.is_there[ids] = False

    @property
    def ids(self):
        return np.flatnonzero(self.is_there)

    def check(self, spark, *, from_pylance=True):
        """The newest version, as Spark and (unless it cannot) pylance read it."""
        rows = LanceTable.forPath(spark, self.path).scan(metadataColumns=LINEAGE).toArrow()
        found = by_id(rows)
        ids = self.ids
        assert np.array_equal(found["id"], ids)
        assert np.array_equal(found["v"], self.v[ids])
        assert rows.sort_by("id")["s"].equals(texts(ids))
        known = self.row_id[ids] >= 0
        assert np.array_equal(found["_rowid"][known], self.row_id[ids][known])
        self.row_id[ids] = found["_rowid"]
        assert len(np.unique(self.row_id[ids])) == len(ids)
        assert np.array_equal(found["_row_created_at_version"], self.created[ids])
        assert np.array_equal(found["_row_last_updated_at_version"], self.updated[ids])
        if from_pylance:
            rows = lance.dataset(self.path).to_table(columns=["id", "v"], with_row_id=True)
            for name, values in by_id(rows).items():
                assert np.array_equal(found[name], values), name

    def check_feed(self, spark, start, end):
        """The change feed of some versions: every row of it, and how many each version changed."""
        table = LanceTable.forPath(spark, self.path)
        feed = table.changes(start, end).select("id", "v", "_change_type", "_commit_version")
        found = feed.toArrow()
        expected = [
            (version, kind, *rows)
            for version, changes in self.changes.items()
            if start <= version <= end
            for kind, rows in changes.items()
        ]
        assert found.num_rows == sum(len(ids) for _, _, ids, _ in expected)
        for version, kind, ids, values in expected:
            is_it = pc.and_(
                pc.equal(found["_commit_version"], version), pc.equal(found["_change_type"], kind)
            )
            rows = by_id(found.select(["id", "v"]).filter(is_it))
            assert np.array_equal(rows["id"], ids), (version, kind)
            assert np.array_equal(rows["v"], values), (version, kind)
        assert [astuple(one) for one in table.changeCounts(start, end)] == [
            (version, *counts) for version, counts in self.counts.items() if start <= version <= end
        ]


def by_id(rows):
    """Columns of numbers as arrays, ordered by ``id``."""
    numbers = {n: rows[n].to_numpy() for n in rows.column_names if n != "s"}
    order = np.argsort(numbers["id"], kind="stable")
    return {name: values[order] for name, values in numbers.items()}


def texts(ids):
    return pa.chunked_array(
        [pc.binary_join_element_wise("s", pa.array(ids % 1000).cast("string"), "")]
    )


def frame_of(spark, start, end, value, partitions=2):
    return spark.range(start, end, 1, partitions).selectExpr(
        "id", f"{value} AS v", "concat('s', id % 1000) AS s"
    )


def made(spark, path, rows, bound, **options):
    """A new table of ``rows`` rows, written by Spark, and its model."""
    frame = frame_of(spark, 0, rows, "id * 7 % 1000003")
    frame.write.format("lance").mode("append").options(**options).save(path)
    model = Model(path, bound)
    model.put(1, np.arange(rows), np.arange(rows) * 7 % 1000003)
    return LanceTable.forPath(spark, path), model


def deletion_files(path):
    fragments = Snapshot.open(Table(path)).manifest.fragments
    return [one.deletion_file.file_type for one in fragments if one.deletion_file is not None]


def compact(path, **options):
    """Compact by pylance; return the version."""
    lance.dataset(path).optimize.compact_files(**options)
    return lance.dataset(path).version


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t")


@pytest.mark.parametrize("rows", [MILLION // 10, pytest.param(MILLION, marks=pytest.mark.slow)])
def test_every_change_of_many_rows(spark, path, rows):
    """A tenth has deleted rows as bitmaps, several fragments and tasks, and runs of versions."""
    more = rows // 20
    table, model = made(spark, path, rows, rows + more, max_row_per_file=rows // 4)
    every = np.arange(rows)

    table.delete("id % 3 = 0")
    model.delete(2, every[every % 3 == 0])
    assert set(deletion_files(path)) == {DeletionFileType.BITMAP}

    table.update("id % 5 = 1", {"v": "-id"})
    chosen = model.ids[model.ids % 5 == 1]
    model.put(3, chosen, -chosen)

    source = frame_of(spark, rows - 2 * more, rows + more, "id * 2").where("id % 2 = 0")
    table.merge(source, "target.id = source.id").whenMatchedUpdate(
        set={"v": "source.v"}
    ).whenNotMatchedInsertAll().execute()
    even = np.arange(rows - 2 * more, rows + more, 2)
    model.put(4, even, even * 2)
    compacted = compact(path, target_rows_per_fragment=2 * rows // 5)
    model.check(spark)
    table.delete("id % 7 = 2")
    model.delete(compacted + 1, model.ids[model.ids % 7 == 2])
    model.check(spark)
    model.check_feed(spark, 2, compacted + 1)
    keep_in_order(spark, table, model, compacted + 1, 3 * rows // 5)


def keep_in_order(spark, table, model, newest, target):
    """Maintenance, which changes nothing in rows, lineage or change feeds."""
    dirty = len(Snapshot.open(Table(model.path)).manifest.fragments)
    done = table.compact(targetRowsPerFragment=target, materializeDeletionsThreshold=0.0)
    assert (done.version, done.num_rows) == (newest + 1, len(model.ids))
    left = len(Snapshot.open(Table(model.path)).manifest.fragments)
    assert (done.fragments_removed, done.fragments_added) == (dirty, left)
    model.check(spark)
    model.check_feed(spark, 2, done.version)
    assert table.verify(readData=True).findings == ()
    (last,) = table.history(1).collect()
    assert (last.operation, last.numRows) == ("Rewrite", len(model.ids))
    assert last.applicationId == spark.conf.get("spark.app.id")
    assert table.detail().first().advice == []

    removed = table.cleanupOldVersions(beforeVersion=newest)
    assert removed.versions == tuple(range(1, newest))
    assert removed.files["data"] > 5
    assert table.history().count() == 2
    assert table.verify().findings == ()
    model.check(spark)
    model.check_feed(spark, newest + 1, done.version)


def test_large_merge_into_one_fragment_is_correct(spark, path):
    spark.range(0, 60_000, 1, 2).selectExpr(
        "id", "id AS v", "concat('s', id % 1000) AS s"
    ).write.format("lance").mode("append").save(path)
    model = Model(path, 60_000)
    model.put(1, np.arange(60_000), np.arange(60_000))
    table = LanceTable.forPath(spark, path)

    source = frame_of(spark, 0, 15_000, "-id")
    table.merge(source, "target.id = source.id").whenMatchedUpdateAll().execute()
    model.put(2, np.arange(15_000), -np.arange(15_000))
    assert deletion_files(path) == [DeletionFileType.BITMAP]
    model.check(spark)

    table.update("id < 20000", {"v": "v + 1"})
    model.put(3, np.arange(20_000), model.v[:20_000] + 1)
    every = frame_of(spark, 0, 60_000, "3").where("id % 2 = 1")
    table.merge(every, "target.id = source.id").whenMatchedUpdateAll().execute()
    odd = np.arange(1, 60_000, 2)
    model.put(4, odd, 3)
    table.update("id % 4 = 0", {"v": "-1"}, rewrite="columns")
    model.put(5, np.arange(0, 60_000, 4), -1)
    model.check(spark)
    model.check_feed(spark, 2, 5)


@pytest.mark.parametrize("rows", [MILLION // 10, pytest.param(400_000, marks=pytest.mark.slow)])
def test_row_versions_in_short_runs(spark, path, rows):
    table, model = made(spark, path, rows, rows, max_row_per_file=rows // 2)
    every = np.arange(rows)
    table.update("id % 2 = 0", {"v": "v + 1"}, rewrite="columns")
    model.put(2, every[::2], model.v[::2] + 1)
    table.update("id % 3 = 0", {"v": "v + 1"}, rewrite="rows")
    model.put(3, every[::3], model.v[::3] + 1)
    table.delete("id % 11 = 0")
    model.delete(4, every[::11])
    model.check(spark)
    compacted = compact(path)
    updates = Snapshot.open(Table(path)).manifest.fragments[0].last_updated_at
    assert len(updates) > 0.375 * rows
    table.update("id % 5 = 0", {"v": "0"})
    chosen = model.ids[model.ids % 5 == 0]
    model.put(compacted + 1, chosen, 0)
    model.check(spark)
    model.check_feed(spark, 2, compacted + 1)


@pytest.mark.parametrize("rows", [60_000, pytest.param(300_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("outside", ["file", "column"])
def test_row_ids_and_versions_outside_of_manifest(spark, path, outside, rows):
    every = np.arange(rows)
    table = pa.table({"id": every, "v": every, "s": texts(every)})
    lance.write_dataset(table, path, enable_stable_row_ids=True, max_rows_per_file=rows // 2)
    if outside == "column":
        lance.dataset(path).update_config(
            {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "1000"}
        )
    start = lance.dataset(path).version
    model = Model(path, rows)
    model.put(1, every, every)
    lance.dataset(path).update({"v": "v + 1"}, where="id % 3 = 0")
    model.put(start + 1, every[::3], every[::3] + 1)
    lance.dataset(path).delete("id % 4 = 1")
    model.delete(start + 2, every[1::4])
    end = compact(path)
    if outside == "file":
        move_sequences_outside(path)
    model.check(spark, from_pylance=outside != "file")
    model.check_feed(spark, start + 1, end)


@pytest.mark.parametrize("rows", [MILLION // 2, pytest.param(MILLION, marks=pytest.mark.slow)])
def test_large_fragment_is_read_by_several_tasks(spark, path, rows):
    every = np.arange(rows)
    values = pa.table({"id": every, "v": every * 3, "s": texts(every)})
    lance.write_dataset(values, path, enable_stable_row_ids=True, data_storage_version="2.1")
    model = Model(path, rows)
    model.put(1, every, every * 3)
    lance.dataset(path).delete("id % 100 < 30")
    gone = every[every % 100 < 30]
    model.delete(2, gone)
    table = LanceTable.forPath(spark, path)
    by_task = table.toDF().groupBy(sf.spark_partition_id())
    tasks = len(by_task.agg(sf.max("id"), sf.max("v"), sf.max("s")).collect())
    assert len(Snapshot.open(Table(path)).manifest.fragments) == 1 < tasks
    frame = spark.read.format("lance").option("batch_size", 5000).load(path)
    expected = model.v[model.ids]
    assert np.array_equal(by_id(frame.toArrow())["v"], expected)
    model.check(spark)
    some = frame.where("id BETWEEN 123456 AND 254321 AND v % 2 = 0").toArrow()
    ids = model.ids
    ids = ids[(ids >= 123456) & (ids <= 254321) & (ids % 2 == 0)]
    assert np.array_equal(by_id(some)["id"], ids)
    table.update(f"id >= {rows // 2}", {"v": "1"})
    model.put(3, model.ids[model.ids >= rows // 2], 1)
    model.check(spark)
    model.check_feed(spark, 2, 3)


def test_hundred_thousand_vectors_survive_changes(spark, path):
    rows, width = 100_000, 64
    numbers = np.random.default_rng(0).random((rows, width), dtype=np.float32)
    kind = pa.list_(pa.float32(), width)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), width)
    lance.write_dataset(
        pa.table({"id": np.arange(rows), "k": np.zeros(rows, np.int32), "x": vectors.cast(kind)}),
        path, enable_stable_row_ids=True, max_rows_per_file=60_000,
    )  # fmt: skip
    table = LanceTable.forPath(spark, path)

    def check():
        ids = np.flatnonzero(is_there)
        found = table.toDF().toArrow().sort_by("id")
        from_pylance = lance.dataset(path).to_table().sort_by("id")
        for one in (found, from_pylance):
            assert np.array_equal(one["id"], ids)
            assert np.array_equal(one["k"], k[ids])
            assert np.array_equal(vectors_of(one["x"], width), numbers[ids])

    is_there, k = np.ones(rows, bool), np.zeros(rows, np.int32)
    table.delete("id % 10 = 3")
    is_there[3::10] = False
    table.update("id % 4 = 0", {"k": "7"})
    k[::4] = 7
    check()
    source = table.toDF().where("id % 8 = 1").selectExpr("id", "transform(x, y -> -y) AS x")
    table.merge(source, "target.id = source.id").whenMatchedUpdate(set={"x": "source.x"}).execute()
    changed = np.flatnonzero(is_there & (np.arange(rows) % 8 == 1))
    before = numbers[changed]
    numbers[changed] = -numbers[changed]
    check()
    feed = table.changes(4).select("id", "x", "_change_type").toArrow().sort_by("id")
    for change, expected in (("update_preimage", before), ("update_postimage", -before)):
        some = feed.filter(pc.equal(feed["_change_type"], change))
        assert np.array_equal(some["id"], changed)
        assert np.array_equal(vectors_of(some["x"], width), expected)
    compact(path)
    check()


def vectors_of(column, width):
    items = pc.list_flatten(column.combine_chunks())
    return items.to_numpy(zero_copy_only=False).reshape(-1, width)
