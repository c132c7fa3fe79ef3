"""Spark Connect: the same source, in a server that this test starts in a process of its own."""

from __future__ import annotations

import os
import sys

import pytest
from connect_script import START_CONNECT
from documents import ROOT
from s3_server import s3_server  # noqa: F401
from script_process import run_command
from spark.test_column_expressions import CONDITIONS, MENTIONS

pytestmark = pytest.mark.spark

SCRIPT = (
    START_CONNECT
    + """
import os, shutil, sys
path = sys.argv[1]
sys.path.insert(0, sys.argv[2])
spark.range(10).write.format("lance").mode("append").save(path)
spark.range(10, 15).write.format("lance").mode("append").save(path)
read = spark.read.format("lance").option("metadataColumns", "all")
print("rows", read.load(path).count())
print("old", read.option("version", 1).load(path).count())
import pyspark_lance.errors
from pyspark_lance import LanceTable
table = LanceTable.forPath(spark, path)
print("scan", sorted(r[0] for r in table.scan(["id"], "_row_created_at_version > 1").collect()))
print("take", sorted(tuple(r) for r in table.take([3, 12]).collect()))
frame = spark.read.format("lance").load(path)
print("shared", frame.where("id < 3").union(frame.where("id > 12")).count(), frame.count())
source = spark.createDataFrame([(1, 100), (20, 200)], "id long, to long")
try:
    table.delete("id > 12 and")
except pyspark_lance.errors.InvalidInputError as error:
    print("alias", "Spark would parse as an alias" in str(error))
print("delete", table.delete("id > 12").num_deleted_rows)
print("update", table.update("id = 0", {"id": "id + 50"}).num_updated_rows)
merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
done = (
    merge.whenMatchedUpdate(set={"id": "s.to"})
    .whenNotMatchedInsert(values={"id": "s.id"})
    .whenNotMatchedBySourceDelete("t.id < 10")
    .execute()
)
print("merge", done.num_updated_rows, done.num_inserted_rows, done.num_deleted_rows)
print("left", sorted(row[0] for row in table.toDF().collect()))
ops = table.changes(2, layout="debezium").groupBy("op").count().collect()
print("envelopes", sorted(map(tuple, ops)))
copy = LanceTable.create(spark, path + "-copy", "id bigint, source_id bigint")
copy.applyChanges(table.changes(1), rowIdColumn="source_id")
print("copied", copy.appliedVersion(), sorted(row.id for row in copy.toDF().collect()))
from follow_a_table import add_to_history
columns = "id bigint, row_id bigint, valid_from bigint, valid_to bigint"
history = LanceTable.create(spark, path + "-history", columns)
add_to_history(history, table.changes(1), 0)
print("states", history.toDF().count(), history.toDF().where("valid_to IS NULL").count())
fed = LanceTable.create(spark, path + "-fed", "id bigint, times bigint")
def feed(batch, number):
    from pyspark_lance import LanceTable
    target = LanceTable.forPath(batch.sparkSession, path + "-fed")
    rows = batch.selectExpr("id", "1 AS times")
    again = {"txnAppId": "feed", "txnVersion": str(number)}
    merge = target.merge(rows, "target.id = source.id", **again)
    merge = merge.whenMatchedUpdate(set={"times": "target.times + source.times"})
    merge.whenNotMatchedInsertAll().execute()
    with open(path + "-batches", "a") as batches:
        print(number, file=batches)
checkpoint = path + "-checkpoint"
for _ in range(2):
    stream = spark.readStream.format("lance").load(path).writeStream.foreachBatch(feed)
    stream = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    stream.start().awaitTermination()
    times = fed.toDF().groupBy("times").count().collect()
    print("fed", fed.history().count(), [tuple(row) for row in times])
    # As after a crash before Spark notes that the batch is done.
    shutil.rmtree(checkpoint + "/commits")
print("batches", open(path + "-batches").read().split())
made = LanceTable.create(spark, path + "-made", "id bigint not null, name string")
spark.createDataFrame([(1, "a")], made.toDF().schema).write.format("lance").mode("append").save(
    path + "-made"
)
print("made", made.toDF().collect()[0].name)
print("found", [row.name for row in made.search("a", 1, "name").collect()])
spark.range(3).write.format("lance").option("userMetadata", "by hand").mode("append").save(path)
near = LanceTable.create(
    spark, path + "-near", "id bigint, v array<float>", options={"v.fixed_size_list": 2}
)
vectors = spark.range(400).selectExpr("id", "array(CAST(id AS float), 0F) AS v")
vectors.write.format("lance").mode("append").save(path + "-near")
print("nearest", [row.id for row in near.nearest([7.1, 0], 2).collect()])
asked = vectors.selectExpr("CAST(id AS string) AS q", "v")
print("joined", near.nearest(asked, 1).where("q = CAST(id AS string)").count())
notes = LanceTable.create(
    spark, path + "-notes", "id bigint, s string, v array<float>", options={"v.fixed_size_list": 2}
)
texts = ["lazy dogs", "quick fox", "dog and fox", None]
rows = [(number, text, [float(number), 0.0]) for number, text in enumerate(texts)]
rows = spark.createDataFrame(rows, notes.toDF().schema)
rows.write.format("lance").mode("append").save(path + "-notes")
print("index", notes.createIndex("s", "inverted").numRows)
print("search", [row.id for row in notes.search("a dog", column="s").collect()])
several = notes.search(["lazy", "fox"], 1, "s").orderBy("_query").collect()
print("several", [(row._query, row.id) for row in several])
asked = spark.createDataFrame([("x", "lazy"), ("y", "quick")], "q string, query string")
by_frame = notes.search(asked, 1, "s", columns=["id"]).orderBy("q").collect()
print("batches of words", [(row.q, row.id) for row in by_frame])
hybrid = notes.hybridSearch("fox", [0.0, 0.0], 2, {"text": 1.0, "vector": 0.0}, column="s")
print("hybrid", sorted(row.id for row in hybrid.collect()))
print("words", [row.id for row in notes.scan(filter="contains_tokens(s, 'fox dog')").collect()])
made_by = table.history().select("applicationId", "userMetadata").collect()
print("by", {row[0] for row in made_by} == {spark.conf.get("spark.app.id")}, made_by[0][1])
print("about", spark.read.format("lance").load(path + "$history").count() == len(made_by))
blobs = spark.createDataFrame([(1, b"one")], "id int, b binary")
blobs.write.format("lance").option("b.blob", "true").mode("append").save(path + "-blobs")
blobs = spark.read.format("lance").load(path + "-blobs")
blobs.write.format("lance").mode("append").save(path + "-blobs-2")
copied = spark.read.format("lance").option("blobColumns", "b").load(path + "-blobs-2")
print("blobs", [bytes(row.b) for row in copied.collect()])
# The workers of a Connect server run in a folder of the session.
relative = os.path.relpath(path + "-relative")
spark.range(3).write.format("lance").save(relative)
spark.sql(f"UPDATE lance.`{relative}` SET id = 9 WHERE id = 1")
LanceTable.forPath(spark, relative).delete("id = 0")
left = spark.read.format("lance").load(path + "-relative")
print("relative", sorted(row.id for row in left.collect()))
import glob
for file in glob.glob(path + "-made/data/*.lance"):
    content = open(file, "rb").read()
    open(file, "wb").write(content[:-40] + b"\\xff" * 24 + content[-16:])
try:
    made.update("id = 1", {"name": "'b'"})
except pyspark_lance.errors.CorruptFileError as error:
    print("typed", str(error).startswith("[LANCE_CORRUPT_FILE]"))
try:
    spark.read.format("lance").load(path + "-nothing").count()
except Exception as error:
    print("error", "LANCE_TABLE_NOT_FOUND" in str(error))
# Trees of Columns, as a classic session shows them.
import test_column_expressions as cases
for name, (make, expected) in cases.CONDITIONS.items():
    assert cases.found_equations(make) == expected, (name, cases.found_equations(make))
for name, (make, expected) in cases.MENTIONS.items():
    assert cases.found_names(make) == expected, (name, cases.found_names(make))
frame, plus = spark.range(3), cases.sf.udf(lambda x: x + 1, "bigint")
assert cases.found_equations(lambda: frame["id"] == cases.COL("s.id")) == [None]
assert cases.names_in([plus(cases.COL("t.id")) > 1]).ends == {"id"}
assert cases.names_in([frame.select(cases.sf.max("id")).scalar()]).may_be_any
print("columns", len(cases.CONDITIONS), len(cases.MENTIONS))
spark.stop()
"""
)


def test_connect_reads_changes_and_streams(tmp_path):
    paths = os.pathsep.join(str(ROOT / "tests" / one) for one in ("spark", "support"))
    # ``functions`` asks for the kind of session when its functions are made.
    start = ["env", "SPARK_CONNECT_MODE_ENABLED=1", f"PYTHONPATH={paths}"]
    command = [*start, sys.executable, "-c", SCRIPT, tmp_path / "t", ROOT / "examples"]
    printed, errors = run_command(*command)
    assert "UNRESOLVED" not in errors  # which PySpark prints although it is caught
    assert "CANNOT_RESOLVE" not in errors
    assert printed.splitlines() == [
        "rows 15",
        "old 10",
        "scan [10, 11, 12, 13, 14]",
        "take [(3, 3), (12, 12)]",
        "shared 5 15",
        "alias True",
        "delete 2",
        "update 1",
        "merge 1 1 8",
        "left [10, 11, 12, 20, 50, 100]",
        "envelopes [('c', 6), ('d', 10), ('u', 2)]",
        "copied 5 [10, 11, 12, 20, 50, 100]",
        "states 18 6",
        "fed 2 [(1, 6)]",
        "fed 2 [(1, 6)]",
        "batches ['0', '0']",
        "made a",
        "found ['a']",
        "nearest [7, 8]",
        "joined 400",
        "index 4",
        "search [0, 2]",
        "several [(0, 0), (1, 1)]",
        "batches of words [('x', 0), ('y', 1)]",
        "hybrid [1, 2]",
        "words [2]",
        "by True by hand",
        "about True",
        "blobs [b'one']",
        "relative [2, 9]",
        "typed True",
        "error True",
        f"columns {len(CONDITIONS)} {len(MENTIONS)}",
    ]


USERS = (
    START_CONNECT
    + """
import fcntl, os, sys, threading, time
folder, bucket, endpoint, secret = sys.argv[1:5]
sys.path[:0] = sys.argv[5:]
from pyspark_lance import LanceTable
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.table import Table

ZONES = {"ann": "UTC", "bob": "America/New_York", "cy": "Asia/Tokyo"}
TIMES = {"ann": "2024-01-01 00:00", "bob": "2023-12-31 19:00", "cy": "2024-01-01 09:00"}
spark.range(1).selectExpr("id", "timestamp_seconds(1704067200) AS at").write.format("lance").save(
    folder + "/times")
users = {}
for name, zone in ZONES.items():
    channel = f"sc://localhost:{free_port}/;user_id={name}"
    users[name] = SparkSession.builder.remote(channel).create()
    for key, value in {
        "spark.sql.session.timeZone": zone, "fs.s3a.access.key": f"key-of-{name}",
        "fs.s3a.secret.key": f"{secret}-of-{name}", "fs.s3a.endpoint": endpoint,
        "fs.s3a.endpoint.region": "us-east-1", "fs.s3a.path.style.access": "true",
    }.items():
        users[name].conf.set(key, value)
ready, failures = threading.Barrier(len(users)), []

def work(name):
    session = users[name]
    path, remote = f"{folder}/{name}", f"s3a://{bucket}/{name}"
    ready.wait(60)
    for target in (path, remote):
        session.range(10).selectExpr("id", f"'{name}' AS who").write.format("lance").save(target)
    session.read.format("lance").load(path).createOrReplaceTempView("mine")
    ready.wait(60)
    for _ in range(3):
        assert session.sql("SELECT DISTINCT who FROM mine").collect()[0].who == name
        read = session.read.format("lance").option("filter", f"at = '{TIMES[name]}:00'")
        assert read.load(folder + "/times").count() == 1, name
        assert session.read.format("lance").load(remote).where("id > 1").count() == 8, name
    LanceTable.forPath(session, path).update("id = 1", {"who": "'x'"})
    session.sql(f"UPDATE lance.`{path}` SET who = 'y' WHERE id = 2")
    changed = session.read.format("lance").load(path).where("who IN ('x', 'y')")
    assert changed.count() == 2, changed.collect()
    try:
        session.read.format("lance").load(f"s3a://{bucket}/none").count()
    except Exception as error:
        assert secret not in str(error), error

def checked(name):
    try:
        work(name)
    except BaseException as error:
        failures.append((name, error))
        ready.abort()

threads = [threading.Thread(target=checked, args=(name,)) for name in users]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures
assert not spark.catalog.tableExists("mine")
print("users")

# Interrupting a statement that waits for its commit ends no statement of other users.
ann, bob = users["ann"], users["bob"]
path = folder + "/ann"
lock = os.open(path + "/_transactions", os.O_RDONLY)
fcntl.flock(lock, fcntl.LOCK_EX)
def waits():
    inode = f":{os.stat(lock).st_ino}"
    lines = [line.split() for line in open("/proc/locks").read().splitlines()]
    return any(line[1] == "->" and line[6].endswith(inode) for line in lines)
def interrupt():
    while not waits():
        time.sleep(0.01)
    assert bob.read.format("lance").load(folder + "/bob").count() == 10
    ann.interruptAll()
interrupting = threading.Thread(target=interrupt)
interrupting.start()
try:
    ann.range(3).selectExpr("id", "'z' AS who").write.format("lance").mode("overwrite").save(path)
except Exception as error:
    assert "cancel" in str(error).lower() or "interrupt" in str(error).lower(), error
    print("interrupted")
interrupting.join()
os.close(lock)
bob.range(10, 12).selectExpr("id", "'bob' AS who").write.format("lance").mode("append").save(path)
assert ann.read.format("lance").load(path).count() == 12
assert verify(Table(path), read_data=True).findings == ()
sys.stdout.flush()
spark.stop()
os._exit(0)  # at their exit, the clients of the users would wait for the server
"""
)


@pytest.mark.slow
@pytest.mark.s3
def test_connect_users_have_separate_settings_views_and_keys(tmp_path, s3_server):  # noqa: F811
    bucket = s3_server.new_bucket()
    before = len(s3_server.requests)
    arguments = [tmp_path, bucket, s3_server.endpoint, "hidden", ROOT / "tests"]
    out, errors = run_command(sys.executable, "-c", USERS, *arguments)
    assert out.splitlines() == ["users", "interrupted"]
    assert "hidden" not in errors
    keys = {}
    for (_, path, _), key in zip(s3_server.requests, s3_server.access_keys, strict=True):
        for name in ("ann", "bob", "cy"):
            if path.startswith(f"/{bucket}/{name}/"):
                keys.setdefault(name, set()).add(key)
    assert len(s3_server.requests) > before
    assert keys == {name: {f"key-of-{name}"} for name in ("ann", "bob", "cy")}
