"""CALL: stored procedures that keep tables in order."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from spark_releases import needs
from table_access import append, assert_same_rows, read_ours, read_pylance

from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

from .conftest import sql

pytestmark = [pytest.mark.spark, pytest.mark.interop]


@pytest.fixture
def path(tmp_path):
    """Three small appends and a delete."""
    path = str(tmp_path / "table")
    for first in (0, 10, 20):
        append(path, first)
    lance.dataset(path).delete("id = 0")
    return path


def call(session, text):
    """The rows as dicts."""
    return [row.asDict() for row in session.sql(f"CALL {text}").collect()]


def test_compaction_runs_on_executors_and_changes_no_rows(plugin, path):
    before = read_ours(path).drop(["_rowaddr"]).sort_by("_rowid")
    (planned,) = call(plugin, f"lance.system.compact('{path}', dry_run => true)")
    assert (planned["fragments_removed"], planned["version"]) == (3, None)
    (done,) = call(
        plugin,
        f"lance.system.compact(table => '{path}', target_rows_per_fragment => 1000, "
        "num_threads => 4, user_metadata => 'tidy')",
    )
    assert (done["fragments_removed"], done["fragments_added"], done["version"]) == (3, 1, 5)
    assert (done["files_removed"], done["conflicting_bins"]) == (4, 0)
    assert done["num_rows"] == before.num_rows
    assert read_ours(path).drop(["_rowaddr"]).sort_by("_rowid").equals(before)
    assert_same_rows(read_ours(path), read_pylance(path))
    (entry,) = call(plugin, f"lance.system.history('{path}', 1)")
    assert (entry["operation"], entry["user_metadata"]) == ("Rewrite", "tidy")
    assert entry["application_id"] == plugin.sparkContext.applicationId
    (nothing,) = call(plugin, f"lance.system.compact('{path}')")
    assert (nothing["fragments_removed"], nothing["version"]) == (0, None)


def test_compaction_remaps_indices_by_address(plugin, tmp_path):
    path = str(tmp_path / "unstable")
    lance.write_dataset(pa.table({"id": range(90)}), path, max_rows_per_file=10)
    plugin.sql(f"CALL lance.system.create_index('{path}', columns => 'id', kind => 'btree')")
    plugin.sql(f"DELETE FROM lance.`{path}` WHERE id % 3 = 0")
    (row,) = plugin.sql(f"CALL lance.system.compact('{path}')").collect()
    assert (row.fragments_removed, row.fragments_added) == (9, 1)
    snapshot = Snapshot.open(Table(path))
    assert snapshot.version == row.version + 1
    assert [set(index.fragment_bitmap) for index in snapshot.indices] == [
        set(snapshot.manifest.fragments.ids.tolist())
    ]
    assert lance.dataset(path).count_rows("id = 31") == 1


def test_compaction_sorts_by_columns_and_zorder(plugin, path):
    rows = plugin.range(3000).selectExpr("id", "id * 37 % 101 AS `a,'b`", "id % 7 AS c")
    rows.coalesce(1).write.format("lance").mode("overwrite").option("sortBy", "c DESC").save(path)
    written = read_ours(path).sort_by("_rowaddr")["c"].to_pylist()
    assert written == sorted(written, reverse=True)
    before = read_ours(path).drop(["_rowaddr"]).sort_by("_rowid")
    (done,) = call(
        plugin,
        f"lance.system.compact('{path}', cluster_by => array(\"a,'b\", 'c'), sort_bytes => 30000)",
    )
    assert done["num_rows"] == 3000
    found = read_ours(path).select(["a,'b", "c"]).to_pylist()
    assert found == sorted(found, key=lambda row: tuple(row.values()))
    for statement in ("ZORDER BY (id, c)", "zorder by `id`, c"):
        done = plugin.sql(f"OPTIMIZE lance.`{path}` {statement}").first()
        assert done["num_rows"] == (3000 if "(" in statement else 0)
    assert read_ours(path).drop(["_rowaddr"]).sort_by("_rowid").equals(before)
    with pytest.raises(Exception, match="there is no column 'nothing'"):
        call(plugin, f"lance.system.compact('{path}', cluster_by => array('nothing'))")


def test_cleanup_procedure_counts_like_vacuum(plugin, path):
    call(plugin, f"lance.system.create_tag('{path}', 'kept', version => 2)")
    with pytest.raises(Exception, match="tagged"):
        call(plugin, f"lance.system.cleanup('{path}', before_version => 4)")
    more = "error_if_tagged_old_versions => false"
    text = f"lance.system.cleanup('{path}', before_version => 4, {more}, dry_run => %s)"
    (planned,) = call(plugin, text % "true")
    assert [one["version"] for one in lance.dataset(path).versions()] == [1, 2, 3, 4]
    (done,) = call(plugin, text % "false")
    assert planned == done
    assert (done["old_versions"], done["versions"]) == (2, [1, 3])
    assert done["bytes_removed"] > 0
    before = int((datetime.now() + timedelta(hours=1)).timestamp() * 1000)
    (rest,) = call(
        plugin, f"lance.system.cleanup('{path}', before_timestamp_millis => {before}, {more})"
    )
    assert rest["versions"] == []
    assert [one["version"] for one in lance.dataset(path).versions()] == [2, 4]


def test_tags_branches_and_restore(plugin, path):
    assert call(plugin, f"lance.system.create_tag('{path}', 'one', 1)") == [
        {"name": "one", "version": 1}
    ]
    with pytest.raises(Exception, match="there is a tag 'one' already"):
        call(plugin, f"lance.system.create_tag('{path}', 'one')")
    call(plugin, f"lance.system.replace_tag('{path}', 'one', version => 2)")
    assert lance.dataset(path).tags.list()["one"]["version"] == 2
    (tag,) = call(plugin, f"lance.system.tags('{path}')")
    assert (tag["name"], tag["version"], tag["branch"]) == ("one", 2, None)
    assert isinstance(tag["created_at"], datetime)
    (branch,) = call(plugin, f"lance.system.create_branch('{path}', 'trial', tag => 'one')")
    assert branch == {"name": "trial", "version": 2}
    (listed,) = call(plugin, f"lance.system.branches('{path}')")
    assert (listed["name"], listed["parent_version"]) == ("trial", 2)
    (done,) = call(plugin, f"lance.system.compact('{path}', branch => 'trial')")
    assert (done["fragments_removed"], done["version"]) == (2, 3)
    assert lance.dataset(path).version == 4
    call(plugin, f"lance.system.drop_branch('{path}', 'trial')")
    assert call(plugin, f"lance.system.restore('{path}', tag => 'one')") == [{"version": 5}]
    assert lance.dataset(path).count_rows() == lance.dataset(path, version=2).count_rows()
    call(plugin, f"lance.system.drop_tag('{path}', 'one')")
    assert call(plugin, f"lance.system.tags('{path}')") == []
    moment = lance.dataset(path).versions()[0]["timestamp"]
    text = f"lance.system.restore('{path}', timestamp => '{moment:%Y-%m-%d %H:%M:%S.%f}')"
    call(plugin, text)
    assert lance.dataset(path).count_rows() == lance.dataset(path, version=1).count_rows()


def test_verify_procedure_reports_findings(plugin, path):
    assert call(plugin, f"lance.system.verify('{path}')") == []
    file = lance.dataset(path).get_fragments()[0].data_files()[0].path
    (Path(path) / "data" / file).unlink()
    (finding,) = call(plugin, f"lance.system.verify('{path}')")
    assert (finding["severity"], finding["kind"]) == ("error", "missing_data_file")


def test_stable_row_id_procedure_migrates_table(plugin, tmp_path):
    path = str(tmp_path / "plain")
    append(path, 0, enable_stable_row_ids=False)
    assert call(plugin, f"lance.system.enable_stable_row_ids('{path}')") == [{"version": 2}]
    assert lance.dataset(path).has_stable_row_ids


def test_procedures_find_tables_by_sql_names(plugin, path):
    plugin.sql("CREATE TABLE folder.kept (id bigint)")
    plugin.sql("CREATE TABLE kept_here (id bigint) USING lance")
    plugin.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING lance OPTIONS (path '{path}')")
    try:
        for one in range(2):
            plugin.sql(f"INSERT INTO folder.kept VALUES ({one})")
            plugin.sql(f"INSERT INTO kept_here VALUES ({one})")
        for text in ("folder.system.compact('kept')", "spark_catalog.system.compact('kept_here')"):
            assert call(plugin, text)[0]["fragments_removed"] == 2
        for text in (
            "folder.system.detail('folder.kept')",
            "lance.system.detail('folder.kept')",
            "lance.system.detail('kept_here')",
            "lance.system.detail('spark_catalog.default.kept_here')",
            f"spark_catalog.system.detail('{path}')",
            f"folder.system.detail('{path}')",
            f"system.detail('lance.`{path}`')",
            "system.detail('seen')",
        ):
            (found,) = call(plugin, text)
            assert found["num_fragments"] == (3 if "seen" in text or path in text else 1)
        plugin.sql("USE folder")
        assert call(plugin, "system.detail('kept')")[0]["num_rows"] == 2
        assert plugin.table("folder.`kept$history`").first().version == 4
    finally:
        plugin.sql("USE spark_catalog")
        plugin.sql("DROP TABLE folder.kept")
        plugin.sql("DROP TABLE kept_here")
        plugin.sql("DROP VIEW seen")


def test_unknown_procedures_and_tables_are_refused(plugin, path):
    for catalog in ("lance", "spark_catalog"):
        with pytest.raises(Exception, match=r"compct.*\n.*did you mean system.compact\?.*verify"):
            plugin.sql(f"CALL {catalog}.system.compct('{path}')")
    with pytest.raises(Exception, match=r"did you mean system\.compact"):
        plugin.sql(f"CALL lance.sistem.compact('{path}')")
    with pytest.raises(Exception, match="LANCE_TABLE_NOT_FOUND"):
        plugin.sql(f"CALL lance.system.compact('{path}-none')")
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        plugin.sql("CALL lance.system.compact('nothing')")
    plugin.sql("CREATE OR REPLACE TEMPORARY VIEW numbers AS SELECT 1 AS id")
    with pytest.raises(Exception, match="numbers is no Lance table"):
        plugin.sql("CALL lance.system.compact('numbers')")
    with pytest.raises(Exception, match="table"):
        plugin.sql("CALL lance.system.compact()")


@needs("SHOW PROCEDURES")
def test_procedures_are_listed_and_described(plugin):
    listed = {row[-1] for row in plugin.sql("SHOW PROCEDURES IN lance.system").collect()}
    assert {"compact", "cleanup", "create_tag", "restore", "verify", "history"} <= listed
    described = str(plugin.sql("DESCRIBE PROCEDURE lance.system.compact").collect())
    assert "target_rows_per_fragment" in described


def test_metadata_tables_have_sql_names(plugin, path):
    text = f"SELECT version FROM lance.`{path}$history` WHERE operation = 'Delete'"
    assert sql(plugin, text) == [(4,)]
    text = f"SELECT sum(numRows) FROM lance.`{path}$fragments` VERSION AS OF 2"
    assert sql(plugin, text) == [(lance.dataset(path, version=2).count_rows(),)]
    for text in (
        f"INSERT INTO lance.`{path}$tags` SELECT * FROM lance.`{path}$tags`",
        f"DELETE FROM lance.`{path}$tags` WHERE name = 'x'",
        f"UPDATE lance.`{path}$tags` SET name = 'x'",
        f"CREATE TABLE lance.`{path}$tags` (id bigint)",
    ):
        with pytest.raises(Exception, match="tags"):
            plugin.sql(text).collect()


def test_index_procedures_create_use_and_drop_indices(plugin, path):
    (made,) = call(plugin, f"lance.system.create_index('{path}', 'id', user_metadata => 'fast')")
    assert (made["names"], made["num_segments"], made["num_rows"]) == (["id_idx"], 1, 8)
    (entry,) = call(plugin, f"lance.system.history('{path}', 1)")
    assert (entry["operation"], entry["user_metadata"]) == ("CreateIndex", "fast")
    assert "@id_idx(BTree)" in lance.dataset(path).scanner(filter="id = 7").explain_plan()
    append(path, 30)
    (refreshed,) = call(plugin, f"lance.system.refresh_indices('{path}')")
    assert (refreshed["names"], refreshed["num_rows"]) == (["id_idx"], 3)
    text = f"lance.system.create_index('{path}', 'id', 'bitmap', replace => true, name => 'id_idx')"
    (again,) = call(plugin, text)
    assert (again["num_segments"], again["num_rows"]) == (1, 11)
    assert sql(plugin, f"SELECT kind FROM lance.`{path}$indices`") == [("bitmap",)]
    (nothing,) = call(plugin, f"lance.system.optimize_indices('{path}', 'id_idx')")
    assert nothing["version"] is None
    (dropped,) = call(plugin, f"lance.system.drop_index('{path}', 'id_idx')")
    assert dropped["version"] == again["version"] + 1
    assert not lance.dataset(path).list_indices()
