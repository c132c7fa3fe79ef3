"""Compaction and cleanup through Spark: the wiring."""

from __future__ import annotations

from datetime import timedelta

import lance
import pytest
from table_access import append, assert_same_rows, read_ours, read_pylance

from pyspark_lance import LanceTable
from pyspark_lance.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError

pytestmark = [pytest.mark.spark, pytest.mark.interop]


def test_compaction_runs_on_executors_and_failure_keeps_table(spark, tmp_path):
    path = str(tmp_path / "t")
    for first, rows in ((0, 10), (10, 10), (20, 100), (120, 10), (130, 10)):
        append(path, first, rows)
    table = LanceTable.forPath(spark, path)
    before = read_ours(path).drop(["_rowaddr"]).sort_by("_rowid")
    result = table.compact(targetRowsPerFragment=50, userMetadata="tidy")
    assert (result.version, result.fragments_removed, result.fragments_added) == (6, 4, 2)
    assert read_ours(path).drop(["_rowaddr"]).sort_by("_rowid").equals(before)
    assert_same_rows(read_ours(path), read_pylance(path))
    entry = table.history(1).first()
    assert (entry.operation, entry.userMetadata) == ("Rewrite", "tidy")
    assert entry.applicationId == spark.sparkContext.applicationId

    append(path, 200)
    fragments = lance.dataset(path).get_fragments()
    small = next(f for f in fragments if f.count_rows() == 3).metadata.files[0].path
    damaged = tmp_path / "t" / "data" / small
    content = damaged.read_bytes()
    damaged.write_bytes(content[: len(content) // 2])
    with pytest.raises(CorruptFileError):
        table.compact(targetRowsPerFragment=50)
    damaged.write_bytes(content)
    assert lance.dataset(path).version == 7
    assert table.cleanupOldVersions(timedelta(0)).versions == (1, 2, 3, 4, 5, 6)
    assert_same_rows(read_ours(path), read_pylance(path))


def test_clustering_sorts_across_fragments_on_executors(spark, tmp_path):
    path = str(tmp_path / "t")
    rows = spark.range(4000).selectExpr("id", "id * 37 % 101 AS a", "id * 59 % 89 AS b")
    written = rows.repartition(3).write.format("lance").mode("append")
    written.option("sortBy", "b DESC, a").save(path)
    first = read_ours(path).sort_by("_rowaddr").to_pylist()
    places = [(row["_rowaddr"] >> 32, -row["b"], row["a"]) for row in first]
    assert places == sorted(places)
    table = LanceTable.forPath(spark, path)
    before = read_ours(path).drop(["_rowaddr"]).sort_by("_rowid")
    given = {"clusterBy": ["a", "b"], "targetRowsPerFragment": 1500}
    result = table.compact(**given, sortBytes=60_000)
    assert (result.version, result.fragmentsRemoved, result.fragmentsAdded) == (2, 3, 2)
    found = [(row.a, row.b) for row in table.scan(["a", "b"]).collect()]
    assert found == sorted(found)
    assert read_ours(path).drop(["_rowaddr"]).sort_by("_rowid").equals(before)
    assert_same_rows(read_ours(path), read_pylance(path))
    assert table.changes(2, 2).count() == 0
    assert table.compact(**given).version is None
    assert table.optimize().executeZOrderBy("a", "b").numRows == 4000


def test_deferred_index_remap_is_optional(spark, tmp_path):
    path = str(tmp_path / "t")
    for first in (0, 10):
        append(path, first, 10, enable_stable_row_ids=False)
    lance.dataset(path).create_scalar_index("id", "BTREE")
    table = LanceTable.forPath(spark, path)
    table.delete("id = 3")
    assert table.compact(deferIndexRemap=True).fragments_added == 1
    dataset = lance.dataset(path)
    wanted = "id >= 2 AND id < 12"
    assert "ScalarIndexQuery" in dataset.scanner(filter=wanted).explain_plan()
    found = dataset.to_table(filter=wanted)["id"].to_pylist()
    assert sorted(found) == [2, *range(4, 12)]
    table.setProperties({"lance.compaction.defer_index_remap": "true"})
    table.delete("id = 5")
    assert table.compact(materializeDeletionsThreshold=0.0).num_rows == 18
    assert sorted(lance.dataset(path).to_table(filter=wanted)["id"].to_pylist()) == [
        2,
        4,
        *range(6, 12),
    ]


def test_commits_record_application_and_user_metadata(spark, tmp_path):
    path = str(tmp_path / "t")
    writer = spark.range(10).write.format("lance").option("userMetadata", "the first")
    writer.mode("append").save(path)
    spark.range(3).write.format("lance").mode("overwrite").save(path)
    stream = spark.readStream.format("lance").load(path).writeStream.format("lance")
    stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).start(str(tmp_path / "copy")).awaitTermination()
    table = LanceTable.forPath(spark, path)
    table.delete("id = 1", userMetadata="asked for")
    table.setProperties({"owner": "web"}, userMetadata="a note")
    made = table.history().select("applicationId", "userMetadata").collect()
    assert [row.userMetadata for row in made] == ["a note", "asked for", None, "the first"]
    copied = LanceTable.forPath(spark, str(tmp_path / "copy")).history().collect()
    every = {row.applicationId for row in (*made, *copied)}
    assert every == {spark.sparkContext.applicationId}
    properties = lance.dataset(path).read_transaction(1).transaction_properties
    assert properties["pyspark_lance.spark_application_id"] in every


def test_history_covers_restored_and_branched_tables(spark, tmp_path):
    path = str(tmp_path / "t")
    append(path, 0)
    table = LanceTable.forPath(spark, path)
    table.update("id = 1", {"id": "101"}, userMetadata="a typing error")
    table.delete("id = 2")
    table.restore(2)
    table.createBranch("trial")
    trial = LanceTable.forPath(spark, table.branchPath("trial"))
    trial.update("id = 0", {"id": "100"}, userMetadata="on the branch")

    def audit(one):
        rows = one.lineageAudit(columns=["id"]).orderBy("id").collect()
        assert all(row.createdOperation and row.updatedTimestamp for row in rows)
        return [(row.id, row.createdVersion, row.updatedVersion, row.updatedBy) for row in rows]

    assert audit(table) == [(0, 1, 1, None), (2, 1, 1, None), (101, 1, 2, "a typing error")]
    assert audit(trial) == [
        (2, 1, 1, None), (100, 1, 5, "on the branch"), (101, 1, 2, "a typing error"),
    ]  # fmt: skip
    states = trial.rowHistory(0).select("_version", "_userMetadata", "id").collect()
    assert [tuple(row) for row in states] == [(5, "on the branch", 100), (1, None, 0)]
    brought_back = table.rowHistory(2).select("_version", "_operation", "id").collect()
    assert [tuple(row) for row in brought_back] == [(4, "Restore", 2), (1, "Overwrite", 2)]


def test_zone_maps_are_built_on_executors(spark, tmp_path):
    path = str(tmp_path / "t")
    for first in (0, 100):
        append(path, first, 100)
    table = LanceTable.forPath(spark, path)
    result = table.createZonemap("id", rowsPerZone=30, userMetadata="zones")
    assert (result.version, result.columns, result.num_zones) == (3, ("id",), 8)
    assert table.history(1).first().userMetadata == "zones"
    assert "@id_idx(ZoneMap)" in lance.dataset(path).scanner(filter="id = 7").explain_plan()
    append(path, 200)
    assert table.refreshZonemaps().num_zones == 9
    assert table.refreshZonemaps().version is None
    # What no zone can hold is not looked at: the files may be gone.
    for file in lance.dataset(path).get_fragment(1).data_files():
        (tmp_path / "t" / "data" / file.path).unlink()
    assert [row.id for row in table.scan(filter="id IN (7, 202)").collect()] == [7, 202]
    assert table.delete("id = 7").num_deleted_rows == 1
    assert table.update("id > 200", {"id": "id + 1"}).num_updated_rows == 2


def test_metadata_rows_start_no_python_process(spark, tmp_path):
    """A limit would end it with a traceback on the console."""
    path = str(tmp_path / "table")
    spark.range(3).write.format("lance").mode("append").save(path)
    table = LanceTable.forPath(spark, path)
    table.registerConsumer("mirror")
    frames = [
        table.history(), table.fragments(), table.detail(), table.tags(), table.branches(),
        table.consumers(),
    ]  # fmt: skip
    for frame in frames:
        assert "PythonRDD" not in frame._jdf.queryExecution().toRdd().toDebugString()
        assert len(frame.take(1)) == min(frame.count(), 1)
    (consumer,) = table.consumers().collect()
    assert (consumer.name, consumer.version, consumer.lag) == ("mirror", 1, 0)
    # Objects have the times of the frames, which Spark shows in local time.
    tag, branch = table.createTag("first"), table.createBranch("trial")
    local = [one.createdAt.astimezone().replace(tzinfo=None) for one in (tag, branch)]
    shown = [table.tags().where("name = 'first'").first(), table.branches().first()]
    assert local == [row.createdAt for row in shown]
    assert (
        "PythonRDD"
        in spark.createDataFrame([(1,)], "a int")._jdf.queryExecution().toRdd().toDebugString()
    )


def test_indices_are_built_on_executors(spark, tmp_path):
    path = str(tmp_path / "t")
    for first in (0, 1000):
        append(path, first, 1000)
    table = LanceTable.forPath(spark, path)
    result = table.createIndex("id", userMetadata="for look-ups")
    assert (result.version, result.names, result.num_rows) == (3, ("id_idx",), 2000)
    assert table.history(1).first().userMetadata == "for look-ups"
    assert "@id_idx(BTree)" in lance.dataset(path).scanner(filter="id = 7").explain_plan()
    append(path, 2000)
    assert table.refreshIndices().num_segments == 1
    assert table.refreshIndices("id_idx").version is None
    assert [row.used for row in table.indices().collect()] == [True, True]
    assert table.optimizeIndices().num_segments == 1
    # What no index names is not looked at: the files may be gone.
    for file in lance.dataset(path).get_fragment(1).data_files():
        (tmp_path / "t" / "data" / file.path).unlink()
    assert [row.id for row in table.scan(filter="id IN (7, 2002)").collect()] == [7, 2002]
    assert table.delete("id = 7").num_deleted_rows == 1
    with pytest.raises(InvalidInputError, match="there is an index 'id_idx'"):
        table.createIndex(["id"])
    assert table.dropIndex("id_idx").version is not None
    assert table.indices().count() == 0


def test_text_indices_are_built_on_executors(spark, tmp_path):
    path = str(tmp_path / "t")
    rows = spark.createDataFrame(
        [(1, "The quick foxes"), (2, "Lazy dogs"), (3, None)], "id int, s string"
    )
    rows.repartition(2).write.format("lance").mode("append").save(path)
    table = LanceTable.forPath(spark, path)
    result = table.createIndex("s", "FTS", withPosition=True, customStopWords=["dog"])
    assert (result.names, result.num_rows) == (("s_idx",), 3)
    rows.write.format("lance").mode("append").save(path)
    assert table.refreshIndices().num_segments == 1
    for word, count in (("fox", 2), ("dog", 0), ("lazy", 2), ("the", 2)):
        found = lance.dataset(path).to_table(full_text_query=word, fast_search=True)
        assert found.num_rows == count, word
    assert table.optimizeIndices().num_segments == 1
    assert not table.verify(readData=True).errors
    with pytest.raises(
        InvalidInputError, match="lower_case is for inverted indices, not for btree"
    ):
        table.createIndex("id", lowerCase=False)
    with pytest.raises(
        InvalidInputError, match="createIndex takes no argument 'with_position'"
    ) as error:
        table.createIndex("s", "inverted", with_position=True)
    assert "withPosition" in str(error.value)
    with pytest.raises(UnsupportedFeatureError, match="tokenizer 'lindera/ipadic'"):
        table.createIndex("s", "inverted", replace=True, baseTokenizer="lindera/ipadic")
