"""A table that is dropped and created again at its path, under what remembers a version of it."""

from __future__ import annotations

import shutil
from functools import partial

import pytest
from table_access import append

from pyspark_lance import LanceTable
from pyspark_lance.errors import LanceError, TableReplacedError, error_in

pytestmark = pytest.mark.spark


def read(spark, path, **options):
    return spark.read.format("lance").options(**options).load(path)


def add(spark, path, *ids, mode="append", **options):
    rows = spark.createDataFrame([(number,) for number in ids], "id long").coalesce(1)
    rows.write.format("lance").mode(mode).options(**options).save(path)


def ids(frame):
    return sorted(row.id for row in frame.select("id").collect())


def recreate(spark, path, versions):
    shutil.rmtree(path)
    for number in range(versions):
        add(spark, path, 100 + number)


def refuses(action, hint=""):
    """Check that the action raises an error about the replaced table."""
    with pytest.raises(Exception) as found:
        action()
    error = found.value if isinstance(found.value, LanceError) else error_in(str(found.value))
    assert isinstance(error, TableReplacedError), found.value
    assert "replaced by another one" in error.what and hint in str(error)


@pytest.fixture
def path(spark, tmp_path):
    """Versions 1 and 2."""
    path = str(tmp_path / "t")
    add(spark, path, 0, 1)
    add(spark, path, 2)
    return path


@pytest.mark.parametrize("versions", [1, 3])
def test_frame_of_replaced_table_is_refused(spark, path, versions):
    table = LanceTable.forPath(spark, path)
    frame, old, feed = read(spark, path), read(spark, path, version=2), table.changes(2)
    near = table.scan(filter="id > 0")
    recreate(spark, path, versions)
    for one in (frame, old, feed, near):
        refuses(one.collect, "create a new DataFrame")
        refuses(one.count, "create a new DataFrame")
    assert ids(read(spark, path)) == list(range(100, 100 + versions))


def test_count_of_view_needs_its_table(spark, path):
    """Metadata of the analyzed version have the count, as long as there is the table."""
    read(spark, path).createOrReplaceTempView("pinned")
    count = "SELECT count(*), count(*) AS again FROM pinned"
    assert spark.sql(count).first() == (3, 3)
    shutil.rmtree(path)
    for _ in range(2):  # not by Spark, which would refresh the view
        append(path, 100)
    refuses(lambda: spark.sql(count).collect(), "create a new DataFrame")
    shutil.rmtree(path)
    with pytest.raises(Exception, match=r"LANCE_(TABLE|VERSION)_NOT_FOUND"):
        spark.sql(count).collect()


def test_frame_keeps_version_after_overwrite_of_same_table(spark, path, session_kind):
    frame, feed = read(spark, path), LanceTable.forPath(spark, path).changes(1)
    if session_kind == "plugin":
        spark.sql(f"CREATE OR REPLACE TABLE lance.`{path}` USING lance AS SELECT 9L AS id")
        assert ids(read(spark, path)) == [9]
    add(spark, path, 7, 8, mode="overwrite")
    LanceTable.forPath(spark, path).restore(1)
    assert ids(frame) == [0, 1, 2] and feed.count() == 3


@pytest.mark.parametrize("versions", [2])
def test_overwrite_with_rows_of_replaced_table_is_refused(spark, path, versions):
    frame = read(spark, path).localCheckpoint()
    recreate(spark, path, versions)
    write = frame.write.format("lance").mode("overwrite")
    if "lance.root" in (frame.schema["id"].metadata or {}):  # which says where rows come from
        refuses(lambda: write.save(path))
    refuses(lambda: read_first_then_recreate(spark, path))


def read_first_then_recreate(spark, path):
    frame = read(spark, path)
    recreate(spark, path, 3)
    frame.write.format("lance").mode("overwrite").save(path)


def test_stream_of_replaced_table_is_refused(spark, path, tmp_path):
    def follow(target):
        query = (
            spark.readStream.format("lance").load(path)
            .writeStream.format("lance")
            .option("checkpointLocation", str(tmp_path / f"checkpoint-{target}"))
            .trigger(availableNow=True).start(str(tmp_path / target))
        )  # fmt: skip
        query.awaitTermination(120)
        return ids(read(spark, str(tmp_path / target)))

    assert follow("copy") == [0, 1, 2]
    recreate(spark, path, 3)
    refuses(lambda: follow("copy"), "begin with a new checkpoint")
    assert ids(read(spark, str(tmp_path / "copy"))) == [0, 1, 2]
    assert follow("again") == [100, 101, 102]


@pytest.mark.parametrize("versions", [1, 2, 3])
def test_pinned_table_refuses_table_that_replaced_it(spark, path, versions):
    opened, lazy = LanceTable.forPath(spark, path, version=2), LanceTable(spark, path, version=2)
    assert ids(lazy.toDF()) == [0, 1, 2]
    recreate(spark, path, versions)
    for pinned in (opened, opened.alias("other"), lazy):
        for call in ("toDF", "detail", "properties", "indices", "fragments", "changes"):
            method, arguments = getattr(pinned, call), [1] if call == "changes" else []
            refuses(partial(method, *arguments), "LanceTable.forPath")
    # A version that is given means the table that is there.
    assert ids(opened.scan(version=1)) == [100]
    assert ids(LanceTable.forPath(spark, path, version=1).toDF()) == [100]


@pytest.mark.parametrize("versions", [3, 5])
def test_caught_up_replica_refuses_replaced_source(spark, path, tmp_path, versions):
    copy = LanceTable.create(spark, str(tmp_path / "copy"), "id bigint")
    table = LanceTable.forPath(spark, path)
    copy.applyChanges(table.changes(1), keys=["id"])
    table.setProperties({"owner": "web"})
    copy.applyChanges(table.changes(3), keys=["id"])
    assert copy.appliedVersion() == 3
    recreate(spark, path, versions)
    refuses(
        lambda: copy.applyChanges(table.changes(4), keys=["id"]),
        "identify the new source by another source or txnAppId",
    )
    assert ids(copy.toDF()) == [0, 1, 2] and copy.appliedVersion() == 3


def test_changes_of_replaced_table_are_not_applied(spark, path, tmp_path):
    copy = LanceTable.create(spark, str(tmp_path / "copy"), "id bigint")

    def apply(first):
        return copy.applyChanges(LanceTable.forPath(spark, path).changes(first), keys=["id"])

    apply(1)
    LanceTable.forPath(spark, path).restore(1)
    apply(copy.appliedVersion() + 1)
    assert ids(copy.toDF()) == [0, 1] and copy.appliedVersion() == 3
    recreate(spark, path, 4)
    for first in (4, 1):
        refuses(
            lambda first=first: apply(first),
            "identify the new source by another source or txnAppId",
        )
    assert ids(copy.toDF()) == [0, 1] and copy.appliedVersion() == 3
    again = LanceTable.create(spark, str(tmp_path / "again"), "id bigint")
    again.applyChanges(LanceTable.forPath(spark, path).changes(1), keys=["id"])
    assert again.appliedVersion() == 4


def test_new_checkpoint_still_detects_replaced_source(spark, path, tmp_path):
    """Batches have the numbers of the old checkpoint again, which were applied."""
    copy = LanceTable.create(spark, str(tmp_path / "copy"), "id bigint")
    errors = []

    def apply(batch, number):
        try:
            copy.applyChanges(batch, keys=["id"], txnAppId="copy", txnVersion=str(number))
        except LanceError as error:
            errors.append(error)

    def follow(checkpoint):
        changes = spark.readStream.format("lance").option("readChangeFeed", True).load(path)
        writer = changes.writeStream.foreachBatch(apply).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).start()
        query.awaitTermination(120)

    follow("old")
    recreate(spark, path, 1)
    follow("new")
    assert ids(copy.toDF()) == [0, 1, 2]
    assert [type(error) for error in errors] == [TableReplacedError]


def test_numbered_write_counts_again_in_recreated_table(spark, path):
    add(spark, path, 7, txnAppId="job", txnVersion=1)
    add(spark, path, 7, txnAppId="job", txnVersion=1)
    assert ids(read(spark, path)) == [0, 1, 2, 7]
    recreate(spark, path, 1)
    add(spark, path, 7, txnAppId="job", txnVersion=1)
    assert ids(read(spark, path)) == [7, 100]
