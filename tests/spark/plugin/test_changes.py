"""``SELECT … CHANGES FROM VERSION a TO VERSION b`` and ``spark.read.changes``, of Spark 4.2."""

from __future__ import annotations

import lance
import pytest
from spark_releases import has, needs

from .conftest import plan_of, sql

pytestmark = [pytest.mark.spark, pytest.mark.interop]

needs_changes = needs("CHANGES of tables")

_STATEMENTS = (
    "UPDATE {t} SET n = 100 WHERE id < 4",
    "DELETE FROM {t} WHERE id IN (3, 15)",
    "INSERT INTO {t} VALUES (100, 1, 'new', named_struct('a', 1L, 'b', 'y'))",
    "UPDATE {t} SET n = 200 WHERE id IN (1, 100)",
    "UPDATE {t} SET s = s WHERE id = 7",
)
_COLUMNS = ["id", "n", "s", "st", "_rowid", "_change_type", "_commit_version", "_commit_timestamp"]


@pytest.fixture(scope="module")
def path(plugin, tmp_path_factory):
    """A table of six versions; the last one changed a row to what it was."""
    path = str(tmp_path_factory.mktemp("changes") / "table")
    plugin.range(0, 20, 1, 1).selectExpr(
        "id",
        "cast(id % 3 AS int) AS n",
        "concat('s', id) AS s",
        "named_struct('a', id, 'b', 'x') st",
    ).write.format("lance").option("max_row_per_file", "5").save(path)
    for statement in _STATEMENTS:
        plugin.sql(statement.format(t=f"lance.`{path}`"))
    assert lance.dataset(path).version == 6
    return path


def feed(session, path, **options):
    """The change feed of the data source."""
    reader = session.read.format("lance").option("readChangeFeed", "true")
    return reader.options(**options).load(path)


def rows(frame):
    """Rows as tuples, sorted."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def changes(session, path, clause, what="*", rest=""):
    """A query of changes."""
    return session.sql(f"SELECT {what} FROM lance.`{path}` CHANGES FROM {clause} {rest}")


@needs_changes
@pytest.mark.parametrize(
    ("clause", "first", "last"),
    [
        ("VERSION 2 TO VERSION 4", 2, 4),
        ("VERSION 2 INCLUSIVE TO VERSION 4 INCLUSIVE", 2, 4),
        ("VERSION 2 EXCLUSIVE TO VERSION 4", 3, 4),
        ("VERSION 2 TO VERSION 4 EXCLUSIVE", 2, 3),
        ("VERSION 1 EXCLUSIVE TO VERSION 5 EXCLUSIVE", 2, 4),
        ("VERSION '5' TO VERSION '5'", 5, 5),
        ("VERSION 3", 3, 6),
        ("VERSION 0", 0, 6),
    ],
)
def test_changes_equal_feed(plugin, path, clause, first, last):
    found = changes(plugin, path, clause)
    expected = feed(plugin, path, startingVersion=first, endingVersion=last)
    assert found.columns == expected.columns == _COLUMNS
    assert found.dtypes == expected.dtypes
    assert rows(found) == rows(expected)
    assert {row[6] for row in rows(found)} <= set(range(max(first, 1), last + 1))


@needs_changes
def test_changes_contain_every_change_type(plugin, path):
    found = changes(plugin, path, "VERSION 3 TO VERSION 5", "id, n, _change_type, _commit_version")
    assert rows(found) == [
        (1, 100, "update_preimage", 5),
        (1, 200, "update_postimage", 5),
        (100, 1, "insert", 4),
        (100, 1, "update_preimage", 5),
        (100, 200, "update_postimage", 5),
        (15, 0, "delete", 3),
        (3, 100, "delete", 3),
    ]


@needs_changes
@pytest.mark.parametrize("mode", ["none", "dropCarryovers", "netChanges"])
@pytest.mark.parametrize("updates", ["true", "false"])
def test_deduplication_is_delegated_to_feed(plugin, path, mode, updates):
    given = f"WITH (deduplicationMode = '{mode}', computeUpdates = '{updates}')"
    found = changes(plugin, path, "VERSION 2 TO VERSION 6", rest=given)
    expected = feed(plugin, path, startingVersion=2, endingVersion=6, deduplicationMode=mode)
    assert rows(found) == rows(expected)
    plan = plan_of(found)
    assert "Window" not in plan
    assert "Filter (" not in plan


@needs_changes
def test_changes_accept_timestamp_range(plugin, path):
    stamps = dict(
        rows(changes(plugin, path, "VERSION 0", "DISTINCT _commit_version, _commit_timestamp"))
    )
    assert sorted(stamps) == [1, 2, 3, 4, 5]
    for first, last in ((2, 4), (3, 3)):
        for ends, kept in (
            ("INCLUSIVE TO TIMESTAMP '{}' INCLUSIVE", range(first, last + 1)),
            ("EXCLUSIVE TO TIMESTAMP '{}' INCLUSIVE", range(first + 1, last + 1)),
            ("INCLUSIVE TO TIMESTAMP '{}' EXCLUSIVE", range(first, last)),
        ):
            if kept:
                clause = f"TIMESTAMP '{stamps[first]}' " + ends.format(stamps[last])
                found = changes(plugin, path, clause)
                expected = feed(plugin, path, startingVersion=kept[0], endingVersion=kept[-1])
                assert rows(found) == rows(expected), clause
    found = changes(plugin, path, f"TIMESTAMP '{stamps[4]}'")
    assert rows(found) == rows(feed(plugin, path, startingVersion=4))


@needs_changes
def test_reader_options_select_changes(plugin, path):
    reader = plugin.read.option("startingVersion", 2).option("endingVersion", 5)
    found = (
        reader.option("startingBoundInclusive", "false")
        .option("deduplicationMode", "netChanges")
        .option("computeUpdates", "true")
        .changes(f"lance.`{path}`")
    )
    expected = feed(
        plugin, path, startingVersion=3, endingVersion=5, deduplicationMode="netChanges"
    )
    assert rows(found) == rows(expected)


@needs_changes
def test_additional_options_narrow_changes(plugin, path):
    expected = feed(plugin, path, startingVersion=2, endingVersion=5, filter="n > 50")
    narrowed = changes(plugin, path, "VERSION 2 TO VERSION 5", rest="WITH (filter = 'n > 50')")
    assert rows(narrowed) == rows(expected)
    reader = plugin.read.option("startingVersion", 2).option("endingVersion", 5)
    assert rows(reader.option("filter", "n > 50").changes(f"lance.`{path}`")) == rows(expected)
    with pytest.raises(Exception, match="a change feed needs a start"):
        plugin.read.changes(f"lance.`{path}`").collect()


@needs_changes
def test_changes_read_only_needed_columns(plugin, path):
    found = changes(plugin, path, "VERSION 2 TO VERSION 5", "st.a, _change_type")
    shown = (
        f"{path} changes of versions 2 to 5, reads: struct<st:struct<a:bigint>,_change_type:string>"
    )
    assert shown in plan_of(found)
    assert "fragments" not in plan_of(found)
    expected = feed(plugin, path, startingVersion=2, endingVersion=5)
    assert rows(found) == rows(expected.select("st.a", "_change_type"))
    assert changes(plugin, path, "VERSION 2 TO VERSION 5").count() == expected.count()


@needs_changes
@pytest.mark.parametrize(
    ("condition", "keeps"),
    [
        ("_change_type = 'delete'", lambda row: row[5] == "delete"),
        (
            "_change_type LIKE 'update%' AND n > 100",
            lambda row: "update" in row[5] and row[1] > 100,
        ),
        ("_commit_version IN (2, 4)", lambda row: row[6] in (2, 4)),
        ("_commit_version > 3 OR id = 0", lambda row: row[6] > 3 or row[0] == 0),
        ("_rowid = 3", lambda row: row[4] == 3),
        ("s = 'new' AND st.b = 'y'", lambda row: row[2] == "new"),
        ("_commit_timestamp IS NULL", lambda row: row[7] is None),
        ("n <=> NULL", lambda row: row[1] is None),
    ],
)
def test_conditions_filter_changes(plugin, path, condition, keeps):
    clause = "VERSION 2 TO VERSION 5"
    every = rows(feed(plugin, path, startingVersion=2, endingVersion=5))
    found = changes(plugin, path, clause, rest=f"WHERE {condition}")
    assert rows(found) == [row for row in every if keeps(row)]
    number = changes(plugin, path, clause, "count(*)", f"WHERE {condition}").first()[0]
    assert number == len(rows(found))


@needs_changes
def test_changes_join_with_themselves_and_table(plugin, path):
    table = f"lance.`{path}`"
    pairs = f"""
        SELECT old.id, old.n, new.n FROM {table} CHANGES FROM VERSION 2 TO VERSION 6 old
        JOIN {table} CHANGES FROM VERSION 2 TO VERSION 6 new USING (_rowid, _commit_version)
        WHERE old._change_type = 'update_preimage' AND new._change_type = 'update_postimage'"""
    assert sql(plugin, pairs) == [
        (0, 0, 100), (1, 1, 100), (1, 100, 200), (100, 1, 200), (2, 2, 100), (3, 0, 100),
    ]  # fmt: skip
    now = f"""
        SELECT id, t.n FROM {table} CHANGES FROM VERSION 5 TO VERSION 5 c JOIN {table} t USING (id)
        WHERE c._change_type = 'update_postimage'"""
    assert sql(plugin, now) == [(1, 200), (100, 200)]
    both = f"""
        SELECT count(*) FROM (SELECT * FROM {table} CHANGES FROM VERSION 3 TO VERSION 3
        UNION ALL SELECT * FROM {table} CHANGES FROM VERSION 4 TO VERSION 4)"""
    assert sql(plugin, both) == [(3,)]
    assert changes(plugin, path, "VERSION 2 TO VERSION 5", rest="LIMIT 3").count() == 3


@needs_changes
def test_query_keeps_end_version_of_analysis(plugin, tmp_path):
    path = str(tmp_path / "growing")
    plugin.range(3).write.format("lance").save(path)
    found = changes(plugin, path, "VERSION 1", "id, _commit_version")
    plugin.range(2).write.format("lance").mode("append").save(path)
    assert found.count() == 3
    assert changes(plugin, path, "VERSION 1").count() == 5


@needs_changes
def test_folder_tables_have_changes(plugin):
    plugin.sql("CREATE TABLE folder.followed (id bigint)")
    plugin.sql("INSERT INTO folder.followed VALUES (1), (2)")
    plugin.sql("DELETE FROM folder.followed WHERE id = 1")
    found = "SELECT id, _change_type FROM folder.followed CHANGES FROM VERSION 2"
    assert sql(plugin, found) == [(1, "delete"), (1, "insert"), (2, "insert")]
    net = found + " WITH (deduplicationMode = 'netChanges')"
    assert sql(plugin, net) == [(2, "insert")]
    plugin.sql("DROP TABLE folder.followed")


@needs_changes
def test_branch_has_separate_changes(plugin, tmp_path):
    path = str(tmp_path / "branched")
    plugin.range(4).write.format("lance").save(path)
    lance.dataset(path).create_branch("side").delete("id = 2")
    given = "WITH (branch = 'side', deduplicationMode = 'netChanges')"
    found = changes(plugin, path, "VERSION 2", "id, _change_type", given)
    assert rows(found) == [(2, "delete")]
    reader = plugin.read.option("startingVersion", 2).option("branch", "side")
    assert reader.changes(f"lance.`{path}`").count() == 1
    assert changes(plugin, path, "VERSION 1").count() == 4


@needs_changes
@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("VERSION 2 TO VERSION 99", "LANCE_"),
        ("VERSION 7 EXCLUSIVE", "would start at version 8, but the newest is 6"),
        ("VERSION 4 EXCLUSIVE TO VERSION 3", "would start at version 5, after its end 3"),
        ("VERSION 5 TO VERSION 2", "LANCE_INVALID_INPUT|INVALID"),
        ("VERSION 'first'", "LANCE_INVALID_INPUT"),
        ("VERSION 2 WITH (deduplicationMode = 'all')", "deduplicationMode"),
        ("VERSION 2 WITH (nonsense = 'all')", "there is no option 'nonsense'"),
    ],
)
def test_unavailable_ranges_are_refused(plugin, path, clause, message):
    with pytest.raises(Exception, match=message):
        changes(plugin, path, clause).collect()


@needs_changes
@pytest.mark.parametrize(
    "clause",
    [
        "VERSION 7",
        "VERSION 6 EXCLUSIVE",
        "VERSION 4 EXCLUSIVE TO VERSION 4",
        "VERSION 4 TO VERSION 4 EXCLUSIVE",
        "VERSION 1 TO VERSION 1 EXCLUSIVE",
        "TIMESTAMP '2999-01-01'",
        "TIMESTAMP '2999-01-01' TO TIMESTAMP '2999-01-02' EXCLUSIVE",
    ],
)
def test_empty_range_has_no_changes(plugin, path, clause):
    found = changes(plugin, path, clause)
    assert found.columns == _COLUMNS
    assert rows(found) == []
    assert changes(plugin, path, clause, "count(*)", "WHERE n > 1").first()[0] == 0


@needs_changes
def test_changes_of_missing_or_untracked_tables_are_refused(plugin, path, tmp_path):
    with pytest.raises(Exception, match="LANCE_TABLE_NOT_FOUND"):
        changes(plugin, str(tmp_path / "nothing"), "VERSION 1")
    plain = str(tmp_path / "plain")
    plugin.range(3).write.format("lance").option("enable_stable_row_ids", "false").save(plain)
    with pytest.raises(Exception, match=r"LANCE_.*stable"):
        changes(plugin, plain, "VERSION 1").collect()
    plugin.sql(f"CREATE TABLE followed_by_name USING lance LOCATION '{path}'")
    try:
        query = "SELECT id, _change_type FROM followed_by_name CHANGES FROM VERSION 3"
        found = plugin.sql(f"{query} TO VERSION 4")
        assert found.count() == 3
    finally:
        plugin.sql("DROP TABLE followed_by_name")


def test_view_of_change_feed_is_read_only(plugin, path):
    options = f"path '{path}', readChangeFeed 'true', startingVersion '3', endingVersion '4'"
    view = "CREATE OR REPLACE TEMPORARY VIEW followed USING lance OPTIONS"
    plugin.sql(f"{view} ({options})")
    found = sql(plugin, "SELECT id, _change_type FROM followed WHERE _commit_version > 2")
    assert found == [(100, "insert"), (15, "delete"), (3, "delete")]
    assert sql(plugin, "SELECT count(*) FROM followed") == [(3,)]
    plugin.sql(f"CREATE TABLE followed_table USING lance OPTIONS ({options})")
    try:
        for statement, message in (
            ("DELETE FROM followed", "a change feed or a search cannot be deleted"),
            ("TRUNCATE TABLE followed_table", "a change feed or a search cannot be deleted"),
            ("UPDATE followed_table SET id = 1", "an older version of a table cannot be changed"),
            ("INSERT INTO followed SELECT * FROM followed", "LANCE_INVALID_INPUT"),
        ):
            with pytest.raises(Exception, match=message):
                plugin.sql(statement)
    finally:
        plugin.sql("DROP TABLE followed_table")
    assert lance.dataset(path).version == 6


@pytest.mark.skipif(has("CHANGES of tables"), reason="Spark since 4.2 has CHANGES")
def test_changes_clause_requires_spark_4_2(plugin, path):
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
        changes(plugin, path, "VERSION 1")
    assert plugin.table(f"lance.`{path}`").count() == 19
