"""What Spark has cached of a table follows every write; test_enabling has that of Connect."""

from __future__ import annotations

import pytest

from pyspark_lance import LanceTable

pytestmark = pytest.mark.spark


@pytest.fixture
def cached(plugin, path, request):
    """A table with one row, cached by four names; each with how many rows it shows."""
    name = f"c_{abs(hash(request.node.name)) % 10**9}"
    save(plugin, path)
    plugin.sql(f"CREATE TABLE {name} USING lance LOCATION '{path}'")
    plugin.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name}_v USING lance OPTIONS (path '{path}')")
    plugin.sql(f"CACHE TABLE {name}_q AS SELECT v FROM {name} WHERE id < 100")
    names = (name, f"{name}_v", f"lance.`{path}`")
    for one in names:
        plugin.sql(f"CACHE TABLE {one}")

    def counts():
        assert all(plugin.catalog.isCached(one) for one in names)
        return {plugin.table(one).select("v").count() for one in (*names, f"{name}_q")}

    assert counts() == {1}
    yield counts
    plugin.catalog.clearCache()
    plugin.sql(f"DROP TABLE {name}")


def loaded_blocks(session):
    """The numbers of what lies in Spark's cache."""
    return {int(one) for one in session.sparkContext._jsc.getPersistentRDDs()}


def save(session, path, mode="append"):
    """Write one row."""
    row = session.sql("SELECT 1L AS id, 'a' AS v").coalesce(1)
    row.write.format("lance").mode(mode).save(path)


def test_data_frame_and_stream_writes_refresh_cache(plugin, path, tmp_path, cached):
    pinned = plugin.read.format("lance").load(path).cache()
    assert pinned.count() == 1
    save(plugin, path)
    assert cached() == {2}
    source = str(tmp_path / "source")
    save(plugin, source)
    stream = plugin.readStream.format("lance").load(source).writeStream.format("lance")
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert stream.trigger(availableNow=True).start(path).awaitTermination(300)
    assert cached() == {3}
    save(plugin, path, "overwrite")
    assert cached() == {1}
    assert pinned.count() == 1
    assert pinned.select("_rowid").count() == 1  # which is not cached: of the version it was


def test_statements_by_other_names_refresh_cache(plugin, path, cached):
    plugin.sql(f"INSERT INTO lance.`{path}` VALUES (2, 'b'), (3, 'c')")
    assert cached() == {3}
    plugin.sql(f"DELETE FROM lance.`{path}` WHERE id = 3")
    assert cached() == {2}
    plugin.sql(f"CALL lance.system.restore('{path}', version => 1)")
    assert cached() == {1}


def test_lance_table_changes_refresh_cache(plugin, path, cached):
    table = LanceTable.forPath(plugin, path)
    rows = plugin.sql("SELECT 7L AS id, 'x' AS v")
    merge = table.merge(rows, "target.id = source.id").whenNotMatchedInsertAll()
    merge.execute()
    assert cached() == {2}
    table.delete("id = 7")
    assert cached() == {1}
    table.restore(version=2)
    assert cached() == {2}
    table.addColumns("w int")
    table.dropColumns("w")
    assert cached() == {2}


def test_branch_writes_keep_main_branch_cached(plugin, path, cached):
    LanceTable.forPath(plugin, path).createBranch("b")
    before = loaded_blocks(plugin)
    plugin.sql("SELECT 2L AS id, 'b' AS v").write.format("lance").mode("append").option(
        "branch", "b"
    ).save(path)
    assert before == loaded_blocks(plugin)
    assert cached() == {1}


def test_other_tables_stay_cached(plugin, path, tmp_path, cached):
    before = loaded_blocks(plugin)
    other = str(tmp_path / "other")
    save(plugin, other)
    plugin.sql(f"CACHE TABLE lance.`{other}`")
    of_other = loaded_blocks(plugin) - before
    save(plugin, path)
    assert cached() == {2}
    assert of_other
    assert of_other <= loaded_blocks(plugin)
