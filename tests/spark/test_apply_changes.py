"""A table that follows another one: batches of a change feed, applied in one version each."""

from __future__ import annotations

import random

import lance
import pytest
from pyspark.sql import Row

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.jobs.apply_job import _IS_PRESENT, last_change_per_key

pytestmark = [pytest.mark.spark, pytest.mark.interop]

COLUMNS = "id bigint, text string, n int"
COLUMN_NAMES = ("id", "text", "n")


def rows_of(table, *columns):
    return sorted(map(tuple, table.toDF().select(*columns).collect()))


def replace_rows(table, rows):
    """Rows go and rows with their keys come, in one version."""
    source = table._spark.createDataFrame(rows, COLUMNS)
    table._spark.catalog.clearCache()
    source.write.format("lance").mode("overwrite").option(
        "replaceWhere", f"id IN ({','.join(str(row[0]) for row in rows)})"
    ).save(table._table.root)


@pytest.fixture(scope="module")
def followed(spark, tmp_path_factory):
    """A table with a past: keys that move, that change places, that go and come again."""
    path = str(tmp_path_factory.mktemp("followed") / "source")
    table = LanceTable.create(spark, path, COLUMNS)  # version 1
    rows = [(i, f"t{i}", i) for i in range(8)]
    spark.createDataFrame(rows, COLUMNS).write.format("lance").mode("append").save(path)  # 2
    table.update("id IN (1, 2)", {"id": "3 - id", "n": "n + 10"})  # 3: places are changed
    table.delete("id IN (5, 6)")  # 4
    more = [(5, "again", 50), (9, "new", 90)]
    spark.createDataFrame(more, COLUMNS).write.format("lance").mode("append").save(path)  # 5
    table.update("id = 9", {"id": "6"})  # 6: into the place of a row that is gone
    replace_rows(table, [(7, "replaced", 70)])  # 7
    lance.dataset(path).optimize.compact_files()  # perhaps two versions
    table.update("id = 0", {"id": "100"})
    table.update("id = 100", {"id": "101"})
    table.delete("id = 3")
    return table


WAYS = {
    "keys": ({"keys": "id"}, COLUMNS),
    "row ids": ({"rowIdColumn": "source_id"}, f"source_id bigint, {COLUMNS}"),
}


@pytest.mark.parametrize(("way", "mode"), [("keys", "netChanges"), ("row ids", "dropCarryovers")])
def test_batches_cut_anywhere_keep_replica_equal(followed, spark, tmp_path, way, mode):
    arguments, columns = WAYS[way]
    replica = LanceTable.create(spark, str(tmp_path / "replica"), columns)
    newest = lance.dataset(followed._table.root).version
    for end in (5, newest):
        changes = followed.changes(replica.appliedVersion() + 1, end, deduplicationMode=mode)
        version = lance.dataset(replica._table.root).version
        assert replica.applyChanges(changes, **arguments).version == version + 1
        assert replica.appliedVersion() == end
    # Again, as after a crash that lost the answer.
    assert replica.applyChanges(changes, **arguments).version is None
    assert rows_of(replica, "id", "text", "n") == rows_of(followed, "id", "text", "n")
    if way == "row ids":
        ids = followed.scan(["_rowid", "id"]).select("_rowid", "id")
        assert rows_of(replica, "source_id", "id") == sorted(map(tuple, ids.collect()))


def test_restore_resets_applied_position(followed, spark, tmp_path):
    replica = LanceTable.create(spark, str(tmp_path / "replica"), COLUMNS)
    replica.applyChanges(followed.changes(1, 3), "id")
    replica.applyChanges(followed.changes(4, 6), "id")
    replica.restore(2)
    assert replica.appliedVersion() == 3
    replica.applyChanges(followed.changes(4), "id")
    assert rows_of(replica, "id", "text", "n") == rows_of(followed, "id", "text", "n")


def test_empty_changes_are_recorded_and_overlaps_skipped(followed, spark, tmp_path):
    path = str(tmp_path / "replica")
    replica = LanceTable.create(spark, path, COLUMNS)
    done = replica.applyChanges(followed.changes(4, 4), "id")  # two deletes of rows not there
    assert (done.version, done.num_deleted_rows, replica.appliedVersion()) == (2, 0, 4)
    # Only what is newer than version 4 is applied of these.
    done = replica.applyChanges(followed.changes(2, 5), "id")
    assert (done.num_inserted_rows, rows_of(replica, "id")) == (2, [(5,), (9,)])
    nothing = followed.changes(lance.dataset(followed._table.root).version + 1)
    assert replica.applyChanges(nothing, "id").version is None
    # Another table that it follows, too, has a position of its own.
    assert replica.applyChanges(followed.changes(2, 2), "id", source="other").num_updated_rows == 1
    assert (replica.appliedVersion("other"), replica.appliedVersion()) == (2, 5)
    assert lance.dataset(path).count_rows() == 9  # and pylance reads it


def test_versions_without_changes_are_reached_once(spark, tmp_path):
    source = LanceTable.create(spark, str(tmp_path / "source"), COLUMNS)
    replica = LanceTable.create(spark, str(tmp_path / "replica"), COLUMNS)

    def follow(condition="true"):
        changes = source.changes(replica.appliedVersion() + 1).where(condition)
        return replica.applyChanges(changes, "id").version

    def add(*ids):
        rows = spark.createDataFrame([(i, "", i) for i in ids], COLUMNS)
        rows.write.format("lance").mode("append").save(source._table.root)

    add(1, 2, 3)  # 2
    source.delete("id = 1")  # 3
    assert (follow(), replica.appliedVersion()) == (2, 3)
    source.setProperties({"owner": "web"})
    assert (follow(), replica.appliedVersion()) == (3, 4)
    assert (follow(), replica.appliedVersion()) == (None, 4)
    source.setProperties({"owner": None})
    source.cleanupOldVersions(retainVersions=1)  # only 5 is left
    assert (follow(), replica.appliedVersion()) == (4, 5)
    add(4)  # 6
    source.setProperties({"owner": "web"})  # 7
    assert (follow(), replica.appliedVersion()) == (5, 7)
    # Changes that were filtered out may be applied later.
    add(5)  # 8
    source.setProperties({"owner": None})
    assert (follow("_commit_version < 8"), replica.appliedVersion()) == (None, 7)
    assert (follow(), replica.appliedVersion()) == (6, 9)
    assert rows_of(replica, *COLUMN_NAMES) == rows_of(source, *COLUMN_NAMES)


def test_batch_of_stream_reaches_no_unread_version(spark, tmp_path):
    source = LanceTable.create(spark, str(tmp_path / "source"), COLUMNS)
    for number in (1, 2, 3):
        rows = spark.createDataFrame([(number, "", number)], COLUMNS)
        rows.write.format("lance").mode("append").save(source._table.root)
    source.setProperties({"owner": "web"})  # 5
    replica = LanceTable.create(spark, str(tmp_path / "replica"), COLUMNS)
    reached = []

    def apply(batch, number):
        replica.applyChanges(batch, "id")
        reached.append(replica.appliedVersion())

    reader = spark.readStream.format("lance").option("readChangeFeed", "true")
    reader = reader.option("startingVersion", "1").option("maxVersionsPerTrigger", "1")
    writer = reader.load(source._table.root).writeStream.foreachBatch(apply)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination(120)
    assert reached == sorted(reached) and reached[-1] == 5 and {2, 3} <= set(reached)
    assert rows_of(replica, "id") == [(1,), (2,), (3,)]


def test_stream_batch_is_identified_by_number(followed, spark, tmp_path):
    replica = LanceTable.create(spark, str(tmp_path / "replica"), COLUMNS)
    halves = [followed.changes(2, 2).where(f"id % 2 = {half}") for half in (0, 1)]
    for number, half in enumerate(halves):  # a version that is cut between two batches
        numbered = {"txnAppId": "follow", "txnVersion": number}
        assert replica.applyChanges(half, "id", **numbered).num_inserted_rows == 4
        assert replica.applyChanges(half, "id", **numbered).version is None
    assert replica.toDF().count() == 8


def test_columns_may_be_missing_in_changes_only(followed, spark, tmp_path):
    replica = LanceTable.create(spark, str(tmp_path / "replica"), "ID bigint, n bigint, own string")
    with pytest.raises(InvalidInputError, match="the table has no column text"):
        replica.applyChanges(followed.changes(2), "id")
    replica.applyChanges(followed.changes(2).drop("text"), "id")
    replica.update("id = 4", {"own": "'kept'"})
    followed_rows = rows_of(followed, "id", "n")
    assert rows_of(replica, "ID", "n") == followed_rows
    changed = spark.createDataFrame(
        [Row(id=4, n=44, _change_type="insert", _commit_version=99)],
        "id bigint, n int, _change_type string, _commit_version bigint",
    )
    replica.applyChanges(changed, ["id"])  # of another system: without row ids
    row = replica.toDF().where("id = 4").first()
    assert (row["n"], row["own"]) == (44, "kept")


def test_inapplicable_changes_are_refused(followed, spark, tmp_path):
    replica = LanceTable.create(spark, str(tmp_path / "replica"), COLUMNS)
    with pytest.raises(InvalidInputError, match="needs keys or rowIdColumn"):
        replica.applyChanges(followed.changes(2))
    with pytest.raises(InvalidInputError, match="have no column _change_type"):
        replica.applyChanges(followed.toDF(), "id")
    without = followed.changes(2).selectExpr(
        "nullif(id, 4) AS id", "_change_type", "_commit_version"
    )
    with pytest.raises(InvalidInputError, match=r"the key \(id\) of a changed row is null"):
        replica.applyChanges(without, "id")
    assert lance.dataset(replica._table.root).version == 1


def random_histories(count):
    """Changes of many small tables in which rows take keys from each other; and their ends."""
    events, cuts, ends = [], [], []
    for table in range(count):
        rng = random.Random(table)
        rows, next_row, version = {}, table * 1000, 0
        batches = []
        for _ in range(rng.randint(1, 4)):
            batch = []
            for _ in range(rng.randint(1, 5)):
                version += 1
                before = dict(rows)
                for row in [one for one in rows if rng.random() < 0.3]:
                    del rows[row]
                keys = [key for key in range(6) if rng.random() < 0.5]
                kept = [row for row in rows if rng.random() < 0.6]
                free = set(range(6)) - {rows[row][0] for row in rows if row not in kept}
                for row in kept:  # new keys for these, also each other's
                    key = rng.choice(sorted(free))
                    free.discard(key)
                    rows[row] = (key, version)
                for key in set(keys) & free:
                    rows[next_row] = (key, version)
                    next_row += 1
                for row in sorted(before.keys() | rows.keys()):
                    old, new = before.get(row), rows.get(row)
                    if old and new and old != new:
                        batch.append((*old, row, "update_preimage", version))
                        batch.append((*new, row, "update_postimage", version))
                    elif old != new:
                        batch.append((*(old or new), row, "insert" if new else "delete", version))
            rng.shuffle(batch)
            batches.append(batch)
        for number, batch in enumerate(batches):
            events += [(table, number, *event) for event in batch]
        ends.append(dict(rows.values()))
        cuts.append(len(batches))
    return events, cuts, ends


def test_last_changes_of_random_batches_give_final_state(spark):
    events, cuts, ends = random_histories(150)
    columns = "t int, batch int, k int, v int, _rowid bigint, _change_type string"
    changes = spark.createDataFrame(events, f"{columns}, _commit_version int").withColumn(
        # Batches are applied on their own: a row of one is another row in the next.
        "_rowid", spark_expr("_rowid * 10 + batch")
    )  # fmt: skip
    last = last_change_per_key(changes, ("t", "batch", "k")).collect()
    states = [{} for _ in ends]
    for row in sorted(last, key=lambda one: (one["t"], one["batch"])):
        if row[_IS_PRESENT]:
            states[row["t"]][row["k"]] = row["v"]
        else:
            states[row["t"]].pop(row["k"], None)
    assert states == ends
    assert sum(cuts) > 300 and any(not row[_IS_PRESENT] for row in last)
    # The key columns alone suffice, where versions are not netted.
    alone = last_change_per_key(changes.drop("_rowid"), ("t", "batch", "k")).collect()
    seen = {(row["t"], row["batch"], row["k"], row[_IS_PRESENT], row["v"]) for row in alone}
    there = {one for one in seen if one[3]}
    assert there == {
        (row["t"], row["batch"], row["k"], True, row["v"]) for row in last if row[_IS_PRESENT]
    }


def spark_expr(text):
    from pyspark.sql import functions as sf

    return sf.expr(text)


def test_merge_and_apply_changes_default_to_primary_key(spark, tmp_path):
    source = LanceTable.create(spark, str(tmp_path / "source"), COLUMNS)
    replica = LanceTable.create(spark, str(tmp_path / "replica"), COLUMNS)
    rows = spark.createDataFrame([(1, "one", 1), (2, "two", 2)], COLUMNS)
    with pytest.raises(InvalidInputError, match="the table has none"):
        source.merge(rows)
    with pytest.raises(InvalidInputError, match="or a table with a primary key"):
        replica.applyChanges(source.changes(1))
    for table in (source, replica):
        table.changeColumn("id", nullable=False)
        table.setPrimaryKey("id")
    for more in (rows, spark.createDataFrame([(2, "zwei", 2), (3, "three", 3)], COLUMNS)):
        merge = source.alias("t").merge(more)
        merge.whenMatchedUpdateAll("source.text <> t.text").whenNotMatchedInsertAll().execute()
    replica.applyChanges(source.changes(1))
    assert rows_of(source, "id", "text") == [(1, "one"), (2, "zwei"), (3, "three")]
    assert rows_of(replica, "id", "text", "n") == rows_of(source, "id", "text", "n")
    assert source.detail().first().primaryKey == ["id"]
    keyed = lance.dataset(str(tmp_path / "source")).schema.field("id")
    assert keyed.metadata[b"lance-schema:unenforced-primary-key"] == b"true"
