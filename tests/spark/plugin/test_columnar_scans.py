"""Scans that give columns: the same rows as scans that give rows, and nothing stays behind."""

from __future__ import annotations

import datetime as dt
import decimal
import threading

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from random_seeds import cases

from .conftest import plan_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled")]

WAY = "spark.sql.lance.columnar"
SMALL = "spark.sql.lance.smallScanBytes"
ROWS = 1500


@pytest.fixture(autouse=True)
def way(plugin):
    """Chooses how scans give their rows; the default afterwards.

    "few" reads them where the scan is planned, however many they are; else nothing is read there.
    """

    def choose(name):
        plugin.conf.set(WAY, "shared" if name == "few" else name)
        plugin.conf.set(SMALL, str(1 << 26) if name == "few" else "0")

    choose("shared")
    yield choose
    plugin.conf.unset(WAY)
    plugin.conf.unset(SMALL)
    assert_nothing_stays(plugin)


def assert_nothing_stays(session):
    """No batch is held by Arrow, and none of the memory of workers is mapped, once tasks end."""
    tracker = session.sparkContext.statusTracker()
    while tracker.getActiveStageIds():
        pass
    jvm = session._jvm
    pid = jvm.java.lang.ProcessHandle.current().pid()
    for _ in range(10_000):  # a killed task may still be at its end
        with open(f"/proc/{pid}/maps") as maps:
            mapped = "lance-batch" in maps.read()
        held = jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator().getAllocatedMemory()
        if not mapped and held == 0:
            return
    pytest.fail(f"{held} bytes of Arrow; memory files mapped: {mapped}")


def every_type(first, count):
    """Rows of every type that Spark reads, a third of them null and some nulls inside."""
    ids = range(first, first + count)
    number = decimal.Decimal
    start = dt.datetime(1969, 12, 31, 23, 59, 59)

    def column(kind, make):
        return pa.array([None if i % 3 == 1 else make(i) for i in ids], kind)

    nested = pa.struct(
        [("x", pa.int32()), ("l", pa.list_(pa.string())), ("s", pa.struct([("t", pa.float64())]))]
    )
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "b": column(pa.bool_(), lambda i: i % 2 == 0),
            "i8": column(pa.int8(), lambda i: i % 256 - 128),
            "i16": column(pa.int16(), lambda i: i - 1000),
            "i32": column(pa.int32(), lambda i: i * -7),
            "u32": column(pa.uint32(), lambda i: 4_000_000_000 + i),
            "u64": column(pa.uint64(), lambda i: (1 << 63) + i),
            "f16": column(pa.float32(), lambda i: i / 4).cast(pa.float16()),
            "f32": column(pa.float32(), lambda i: i / 3),
            "f64": column(pa.float64(), lambda i: float("nan") if i % 9 == 0 else i / 7),
            "d9": column(pa.decimal128(9, 2), lambda i: number(i) / 100),
            # Of 64 bits, but of more digits than those can have.
            "d20": column(
                pa.decimal128(20, 2), lambda i: number((-1) ** i * (i % 97) ** 2 * 10**15) / 100
            ),
            "d38": column(pa.decimal128(38, 5), lambda i: number(-i) * 10**20 / 100_000),
            "s": column(pa.string(), lambda i: "é😀" * (i % 5)),
            "ls": column(pa.large_string(), lambda i: f"text {i}"),
            "bin": column(pa.binary(), lambda i: bytes([i % 256]) * (i % 4)),
            "fsb": column(pa.binary(3), lambda i: b"abc"),
            "day": column(pa.date32(), lambda i: dt.date(1960, 1, 1) + dt.timedelta(i)),
            "ts": column(pa.timestamp("us", "UTC"), lambda i: start + dt.timedelta(0, i, i)),
            "ntz": column(pa.timestamp("us"), lambda i: start + dt.timedelta(0, i, i)),
            "dur": column(pa.duration("us"), lambda i: dt.timedelta(i, 5, i)),
            "dict": column(pa.string(), lambda i: f"word {i % 5}").dictionary_encode(),
            "v": column(pa.list_(pa.float32(), 4), lambda i: [i, i + 1, None, 0.5]),
            "l": column(pa.list_(pa.int64()), lambda i: [None, i] * (i % 3)),
            "ll": column(pa.list_(pa.list_(pa.string())), lambda i: [["a"], None, [], [None]]),
            "st": column(nested, lambda i: {"x": i, "l": ["p", None], "s": {"t": i / 2}}),
            "m": column(pa.map_(pa.string(), pa.int32()), lambda i: [("k", i), ("n", None)]),
            "none": pa.nulls(count, pa.int32()),
        }
    )


@pytest.fixture(scope="module")
def everything(plugin, tmp_path_factory):
    """Three fragments, the rows of one partly deleted, read in batches of at most 100 rows."""
    import lance

    path = str(tmp_path_factory.mktemp("columnar") / "table")
    for first in range(0, ROWS, 500):
        lance.write_dataset(
            every_type(first, 500), path, mode="append" if first else "create",
            data_storage_version="2.2", enable_stable_row_ids=True,
        )  # fmt: skip
    lance.dataset(path).delete("id >= 500 AND id < 700")
    return path


@pytest.fixture
def frame(plugin, everything):
    return plugin.read.format("lance").option("batchSize", "100").load(everything)


def in_each_way(way, query, names=("shared", "off")):
    """What a query gives, by way; where the scan is planned it is the same, by columns."""
    given = {}
    for name in ("few", *names):
        way(name)
        given[name] = query()
    assert given["few"] == given[names[0]]
    return given


LINEAGE = ("_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version")


def test_every_transfer_mode_returns_same_rows(frame, way):
    def query():  # a frame keeps the plan of its first way
        return [repr(row) for row in frame.select("*", *LINEAGE).collect()]

    given = in_each_way(way, query, ("shared", "copied", "off"))
    assert len(given["off"]) == ROWS - 200
    assert given["shared"] == given["off"]
    assert given["copied"] == given["off"]


def test_structs_are_complete_in_every_batch(plugin, path, way):
    """Spark closes the columns of each batch before it asks for the next one."""
    plugin.range(0, 60_000, 1, 1).selectExpr(
        "id", "named_struct('a', id, 'l', array(id), 's', named_struct('b', id)) AS st"
    ).write.format("lance").save(path)
    batches = plugin.read.format("lance").option("batchSize", "8192").load(path)
    sums = ("sum(st.a)", "sum(st.l[0])", "sum(st.s.b)", "count(st)")
    given = in_each_way(
        way, lambda: batches.selectExpr(*sums).collect(), ("shared", "copied", "off")
    )
    assert [tuple(row) for row in given["off"]] == [(1_799_970_000,) * 3 + (60_000,)]
    assert given["shared"] == given["copied"] == given["off"]
    assert len(batches.select("st").toPandas()) == 60_000


def test_python_functions_release_batches(plugin, path, way):
    """Where the user lets them, since Spark 4.3, they get rows."""
    plugin.range(0, 60_000, 1, 1).selectExpr("id", "struct(id) AS st").write.format("lance").save(
        path
    )
    add = F.udf(lambda value, st: value + st.id, "bigint")
    setting = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"

    def total():
        batches = plugin.read.format("lance").option("batchSize", "8192").load(path)
        return batches.select(add("id", "st").alias("n")).selectExpr("sum(n)").collect()[0][0]

    assert total() == 3_599_940_000
    if plugin.conf.isModifiable(setting):
        plugin.conf.set(setting, "true")
        try:
            assert total() == 3_599_940_000
        finally:
            plugin.conf.set(setting, "false")


def test_plan_is_columnar_unless_disabled(frame, way):
    plans = in_each_way(way, lambda: plan_of(frame.where("length(s) > 2")))
    assert "ColumnarToRow" in plans["shared"]
    assert "ColumnarToRow" not in plans["off"]


def test_operators_retaining_rows_see_unchanged_values(plugin, frame, way):
    """Sorts, joins, windows, caches and Python functions hold rows while batches come and go."""

    def query():
        hashed = frame.select("id", "s", "st", "v", F.hash(*[c for c in frame.columns if c != "m"]))
        joined = hashed.alias("a").join(frame.select("id", "ls", "l").alias("b"), "id")
        last = F.expr("last(s) OVER (PARTITION BY id % 7 ORDER BY id DESC)")
        mapped = frame.select("id", "ls").mapInArrow(lambda batches: batches, "id long, ls string")
        cached = frame.select("id", "bin").cache()
        try:
            return (
                joined.withColumn("last", last).orderBy(F.desc("id")).collect(),
                mapped.orderBy("id").collect(),
                sorted(cached.collect()),
                frame.groupBy("dict", "b").agg(F.sum("f32"), F.max("d38"), F.first("st")).count(),
                frame.agg(F.collect_set("s"), F.max("ls"), F.sum("i32")).collect(),
            )
        finally:
            cached.unpersist(blocking=True)

    given = in_each_way(way, lambda: repr(query()))
    assert given["shared"] == given["off"]


@pytest.fixture(scope="module")
def repeated(plugin, tmp_path_factory):
    """Strings that are dictionaries in some files, and in parts of them, with deleted rows."""
    import lance

    path = str(tmp_path_factory.mktemp("repeated") / "table")
    for part in range(4):
        ids = range(part * 20_000, part * 20_000 + 20_000)
        content = pa.table(
            {
                "id": pa.array(ids),
                "few": [f"word {i % 40}" for i in ids],
                "null": [None if i % 3 else f"word {i % (part + 1)}" for i in ids],
                "large": pa.array([f"word {i % 300}" for i in ids], pa.large_string()),
                "same": [f"part {part}"] * len(ids),
                "sometimes": [f"word {i % 9 if part % 2 else i}" for i in ids],
                "code": pa.array([f"word {i % 9}" for i in ids])
                .dictionary_encode()
                .cast(pa.dictionary(pa.int8(), pa.string())),
                "none": pa.nulls(len(ids), pa.string()),
                "st": [{"s": f"word {i % 40}"} for i in ids],
            }
        )
        lance.write_dataset(
            content, path, mode="append" if part else "create",
            data_storage_version="2.1", enable_stable_row_ids=True,
        )  # fmt: skip
    lance.dataset(path).delete("id % 11 = 3 OR (id >= 45000 AND id < 58000)")
    return path


@pytest.mark.parametrize("rows", cases(["100000", "3000"], in_ci=["3000"]))
def test_repeated_strings_are_equal_in_every_transfer_mode(plugin, repeated, way, rows):
    frame = plugin.read.format("lance").option("batchSize", rows).load(repeated)

    def query():
        words = frame.drop("id").schema.names
        return (
            sorted(frame.where("id % 97 < 3").collect()),
            frame.select(*(F.sum(F.hash(name)) for name in words)).collect(),
            frame.select(*(F.max(name) for name in words[:-1])).collect(),
            frame.select(*(F.count(name) for name in words)).collect(),
            sorted(frame.groupBy("few", "null").agg(F.max("sometimes")).collect(), key=repr),
            frame.selectExpr("min_by(large, id)", "max_by(code, id)").collect(),
            frame.orderBy(F.desc("large"), "id").limit(20).collect(),
            frame.join(frame.groupBy("few").agg(F.min("id").alias("id")), ["id", "few"]).count(),
            frame.select("few", "same").distinct().count(),
            len(frame.select("null").limit(25_000).collect()),
            frame.where("few = 'word 7' AND same <> 'part 1'").select("large").distinct().count(),
        )

    given = in_each_way(way, lambda: repr(query()), ("shared", "copied", "off"))
    assert given["shared"] == given["copied"] == given["off"]


def test_conditions_limits_and_no_columns(frame, way):
    def query():
        return (
            frame.where("id % 500 = 1 AND i8 IS NULL").select("id").collect(),
            frame.where("id < 0").collect(),
            len(frame.limit(7).collect()),
            len(frame.where("b").limit(60).collect()),
            frame.orderBy(F.desc("id")).limit(3).select("id", "st.x").collect(),
            frame.where("i32 < -100 OR s = ''").count(),
            frame.crossJoin(frame.limit(2).select(F.lit(1))).count(),
        )

    given = in_each_way(way, query)
    assert given["shared"] == given["off"]


def rows_of_scan(query):
    """Rows that the one scan of a query gave, and the bytes of them that tasks of Python gave."""
    found, nodes = [], [query._jdf.queryExecution().executedPlan()]
    while nodes:
        node = nodes.pop()
        if node.nodeName().startswith("AdaptiveSparkPlan"):
            nodes.append(node.executedPlan())
        elif "QueryStage" in node.getClass().getSimpleName():
            nodes.append(node.plan())
        elif node.getClass().getSimpleName() == "BatchScanExec":
            names = ("numOutputRows", "pythonDataReceived")
            found.append(tuple(node.metrics().apply(name).value() for name in names))
        else:
            nodes += [node.children().apply(n) for n in range(node.children().length())]
    (rows,) = found
    return rows


def test_small_scan_starts_no_python_task(plugin, path, way):
    """Also not for conditions, limits, no rows at all, and a frame that is asked again."""
    plugin.range(0, 25, 1, 2).selectExpr("id", "cast(id AS string) AS s").write.format(
        "lance"
    ).save(path)
    queries = {
        "all": (lambda frame: frame, 25),
        "a condition": (lambda frame: frame.where("id >= 20 AND s <> '22'"), 4),
        "none": (lambda frame: frame.where("id > 100"), 0),
        "a limit": (lambda frame: frame.limit(3).orderBy("s"), 3),
        "an aggregate": (lambda frame: frame.groupBy("s").count(), 25),
    }
    plugin.conf.unset(SMALL)  # the default
    for small in (True, False):
        if not small:
            way("shared")
        for name, (made, count) in queries.items():
            query = made(plugin.read.format("lance").load(path))
            for _ in range(2):
                assert len(query.collect()) == count, name
            read, from_python = rows_of_scan(query)
            if small:
                assert from_python == 0, name
            elif name != "a limit":  # Spark asks a task that it ends early for no sums
                assert (from_python > 0) == (count > 0), name
            assert read >= count, name


def test_small_frame_keeps_its_version(plugin, path, way):
    plugin.conf.unset(SMALL)
    plugin.range(3).write.format("lance").save(path)
    frame = plugin.read.format("lance").load(path)
    below = frame.where("id < 2")
    assert (frame.select("id").orderBy("id").collect(), len(below.collect())) == (
        [(0,), (1,), (2,)], 2,
    )  # fmt: skip
    plugin.sql(f"DELETE FROM lance.`{path}` WHERE id = 1")
    assert (len(frame.collect()), len(below.collect())) == (3, 2)
    again = plugin.read.format("lance").load(path)
    assert sorted(row.id for row in again.collect()) == [0, 2]
    both = again.alias("a").join(again.where("id > 0").alias("b"), F.expr("a.id = b.id"))
    assert both.select("a.id").collect() == [(2,)]


def test_partitioning_options_use_python_tasks(plugin, path, way):
    plugin.conf.unset(SMALL)
    plugin.range(0, 20, 1, 2).write.format("lance").option("maxRowsPerFile", "5").save(path)
    chosen = plugin.read.format("lance").option("fragmentsPerPartition", "1").load(path)
    assert chosen.select("id").rdd.getNumPartitions() == 4
    assert len(chosen.collect()) == 20


def test_small_scan_limit_accepts_spark_byte_sizes(plugin, path, way):
    plugin.range(3).write.format("lance").save(path)
    for few in ("1m", "64k", "700", "0"):
        plugin.conf.set(SMALL, few)
        assert plugin.read.format("lance").load(path).where("id > 0").count() == 2
    plugin.conf.set(SMALL, "some")
    with pytest.raises(Exception, match="must be specified as bytes"):
        plugin.read.format("lance").load(path).where("id > 0").collect()
    plugin.conf.unset(SMALL)
    plugin.conf.set(WAY, "sideways")
    with pytest.raises(PySparkException, match="it is shared, copied or off"):
        plugin.read.format("lance").load(path).where("id > 0").collect()


def test_many_batches_reuse_shared_memory(plugin, path, way):
    plugin.range(0, 12_000, 1, 2).selectExpr("id", "cast(id as string) s").write.format(
        "lance"
    ).save(path)
    frame = plugin.read.format("lance").option("batchSize", "10").load(path)
    assert frame.agg(F.sum("id"), F.max("s")).collect()[0] == (71994000, "9999")
    assert_nothing_stays(plugin)


def test_interrupted_scans_release_resources(plugin, frame):
    for _ in range(3):
        assert len(frame.take(1)) == 1
    assert_nothing_stays(plugin)
    with pytest.raises(PySparkException, match="enough"):
        frame.select(F.expr("if(id > 900, raise_error('enough'), s)")).collect()
    assert_nothing_stays(plugin)


def test_cancelled_query_releases_resources(plugin, frame):
    context, errors = plugin.sparkContext, []

    def run():
        context.setJobGroup("endless", "to be cancelled", interruptOnCancel=True)
        try:
            frame.crossJoin(plugin.range(10**9)).selectExpr("sum(hash(s, id))").collect()
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    tracker = context.statusTracker()
    while thread.is_alive() and not any(
        tracker.getStageInfo(stage).numActiveTasks for stage in tracker.getActiveStageIds()
    ):
        pass
    context.cancelJobGroup("endless")
    thread.join()
    assert len(errors) == 1
    assert_nothing_stays(plugin)
    assert frame.count() == ROWS - 200
    assert frame.where("id < 10").count() == 10


def test_stream_reads_rows(plugin, frame, everything, path):
    stream = plugin.readStream.format("lance").load(everything).select("id", "s")
    query = stream.writeStream.format("memory").queryName("followed").outputMode("append")
    query.option("checkpointLocation", path).trigger(availableNow=True).start().awaitTermination()
    assert plugin.table("followed").count() == ROWS - 200
