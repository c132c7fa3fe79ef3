"""Indices in Spark SQL: CREATE INDEX, DROP INDEX, and what EXPLAIN says of them."""

from __future__ import annotations

import re
import shutil

import lance
import pytest
from lance.query import PhraseQuery

from .conftest import plan_of, sql

pytestmark = [pytest.mark.spark, pytest.mark.interop]


@pytest.fixture(scope="module")
def written(plugin, tmp_path_factory):
    """Columns for every kind of index, in two fragments; each test has a copy."""
    path = str(tmp_path_factory.mktemp("written") / "table")
    columns = (
        "id", "id % 3 AS kind", "array(id, id % 5) AS tags", "named_struct('lat', id) AS place",
        "concat('The row ', id, IF(id % 2 = 0, ' Ran', ' walks')) AS note",
    )  # fmt: skip
    plugin.range(0, 1200, 1, 2).selectExpr(*columns).write.format("lance").save(path)
    return path


@pytest.fixture
def table(written, path):
    return f"lance.`{shutil.copytree(written, path)}`"


def indices(session, table):
    """Name, kind and columns of each."""
    name = table[:-1] + "$indices`"
    return sql(session, f"SELECT name, kind, array_join(columns, '+') FROM {name}")


def test_indices_of_every_kind_are_created_and_dropped(plugin, table, path):
    words = "with_position = 'TRUE', custom_stop_words = 'row, ran', max_token_length = 0"
    statements = (
        f"CREATE INDEX by_id ON {table} USING btree (id)",
        f"CREATE INDEX by_kind ON TABLE {table} USING BITMAP (kind)",
        f"CREATE INDEX by_tag ON {table} USING label_list (tags)",
        f"CREATE INDEX by_bits ON {table} USING bloomfilter (id)",
        f"CREATE INDEX by_zone ON {table} USING zonemap (id) OPTIONS (rows_per_zone = 16)",
        f"CREATE INDEX parts ON {table} USING ngram (note)",
        f"CREATE INDEX words ON {table} USING fts (note) OPTIONS ({words})",
        f"CREATE INDEX plain ON {table} (place.lat) OPTIONS (zone_size = '64')",
    )
    for statement in statements:
        assert plugin.sql(statement).collect() == []
    assert indices(plugin, table) == [
        ("by_bits", "bloomfilter", "id"),
        ("by_id", "btree", "id"),
        ("by_kind", "bitmap", "kind"),
        ("by_tag", "label_list", "tags"),
        ("by_zone", "zonemap", "id"),
        ("parts", "ngram", "note"),
        ("plain", "btree", "place.lat"),
        ("words", "inverted", "note"),
    ]
    found = lance.dataset(path).to_table(full_text_query=PhraseQuery("the row 42", "note"))
    assert found["id"].to_pylist() == [42]
    found = lance.dataset(path).to_table(full_text_query=PhraseQuery("walk", "note"))
    assert found.num_rows == 600
    assert lance.dataset(path).to_table(full_text_query="ran").num_rows == 0
    assert "by_kind" in lance.dataset(path).scanner(filter="kind = 1").explain_plan()
    assert sql(plugin, f"SELECT id FROM {table} WHERE place.lat = 42") == [(42,)]
    for name in ("by_bits", "by_zone", "plain", "parts", "words", "by_tag", "by_kind"):
        plugin.sql(f"DROP INDEX {name} ON {table}")
    assert indices(plugin, table) == [("by_id", "btree", "id")]
    assert [one["name"] for one in lance.dataset(path).list_indices()] == ["by_id"]


def test_plan_names_pruning_indices(plugin, table):
    plugin.sql(f"CREATE INDEX by_id ON {table} USING btree (id)")
    plugin.sql(f"CREATE INDEX by_kind ON {table} USING bitmap (kind)")

    def shown(condition):
        query = plugin.sql(f"SELECT id, kind FROM {table} WHERE {condition}")
        (line,) = (one for one in plan_of(query).splitlines() if "filters:" in one)
        said = line.partition("fragments: ")[2].partition(" RuntimeFilters")[0]
        return query.count(), said

    few = "1 kept, 1 skipped, index: by_id (btree), 3 of 1200 rows"
    assert shown("id IN (5, 7, 9)") == (3, few)
    both = "1 kept, 1 skipped, index: by_id (btree), by_kind (bitmap), 1 of 1200 rows"
    assert shown("id IN (5, 7, 9) AND kind = 1") == (1, both)
    assert shown("kind = 1") == (400, "2 kept, 0 skipped")  # a third: all rows are read
    plugin.sql(f"CREATE INDEX zones ON {table} USING zonemap (place.lat)")
    zoned = "1 kept, 1 skipped, index: zones (zonemap), 600 of 1200 rows"
    assert shown("place.lat < 4") == (4, zoned)


def test_index_statements_support_if_exists(plugin, table, path):
    with pytest.raises(Exception, match="INDEX_NOT_FOUND"):
        plugin.sql(f"DROP INDEX gone ON {table}")
    plugin.sql(f"DROP INDEX IF EXISTS gone ON {table}")
    plugin.sql(f"CREATE INDEX IF NOT EXISTS i ON {table} USING btree (id)")
    made = lance.dataset(path).version
    plugin.sql(f"CREATE INDEX IF NOT EXISTS i ON {table} USING bitmap (kind)")
    with pytest.raises(Exception, match="INDEX_ALREADY_EXISTS"):
        plugin.sql(f"CREATE INDEX i ON {table} USING bitmap (kind)")
    assert lance.dataset(path).version == made
    assert indices(plugin, table) == [("i", "btree", "id")]


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("USING btree (id, kind)", "an index has one column, not 2: id, kind"),
        ("USING rtree (id)", "of the kind rtree cannot be built here.*btree, .*zonemap.*ivf_pq"),
        ("USING hash (id)", "not a kind of index.*btree, .*zonemap.*ivf_pq"),
        ("USING btree (id) OPTIONS (stem = false)", "'stem' is no option of a btree index"),
        ("USING fts (note) OPTIONS (stem = 'no')", "'no', neither true nor false"),
        ("USING fts (note) OPTIONS (base_tokenizer = 'icu')", "tokenizer 'icu'"),
        ("USING fts (note) OPTIONS (language = 'Klingon')", "no language 'Klingon'"),
        ("USING btree (id OPTIONS (a = 'b'))", "takes no options"),
        ("USING btree (id) OPTIONS (rows_per_zone = 5)", "no option of a btree index.*user_meta"),
        ("USING zonemap (id) OPTIONS (rows_per_zone = 'many')", "'many', not a number"),
        ("USING btree (nothing)", "nothing"),
    ],
)
def test_unsupported_indices_are_refused_by_name(plugin, table, path, rest, message):
    before = lance.dataset(path).version
    with pytest.raises(Exception, match=f"(?s){message}"):
        plugin.sql(f"CREATE INDEX i ON {table} {rest}")
    assert lance.dataset(path).version == before


def test_tables_of_catalogs_and_metadata_tables(plugin, table):
    with pytest.raises(Exception, match="history is a read-only metadata table"):
        plugin.sql(f"CREATE INDEX i ON {table[:-1]}$history` (version)")
    plugin.sql("CREATE TABLE indexed_here (id bigint, note string) USING lance")
    try:
        plugin.sql("INSERT INTO indexed_here VALUES (1, 'a'), (2, 'b')")
        plugin.sql("CREATE INDEX by_note ON indexed_here USING btree (note)")
        (found,) = plugin.sql("SELECT id FROM indexed_here WHERE note = 'b'").collect()
        assert found.id == 2
        (call,) = plugin.sql("CALL lance.system.detail('indexed_here')").collect()
        assert call.indices == ["by_note"]
    finally:
        plugin.sql("DROP TABLE indexed_here")


def test_vector_index_is_created_and_dropped(plugin, path):
    plugin.sql(
        f"CREATE TABLE lance.`{path}` (id bigint, v array<float>) "
        "TBLPROPERTIES (`v.fixed_size_list` = 4)"
    )
    plugin.sql(f"INSERT INTO lance.`{path}` SELECT id, array(id, 1, 2, 3) FROM range(0, 300, 1, 1)")
    plugin.sql(
        f"CREATE INDEX near ON lance.`{path}` USING ivf_flat (v) "
        "OPTIONS (num_partitions = 2, metric = 'l2', seed = 1)"
    )
    assert [one["name"] for one in lance.dataset(path).list_indices()] == ["near"]


KINDS = {
    "n": "BTREE", "kind": "BITMAP", "flag": "BITMAP", "at": "BTREE", "d": "BITMAP", "t": "BTREE",
    "f": "BTREE",
}  # fmt: skip


def test_aggregates_and_top_rows_are_answered_from_indices(plugin, path):
    columns = (
        "id * 7 % 1000 AS n", "nullif(concat('k', id % 4), 'k3') AS kind", "id % 3 = 0 AS flag",
        "timestampadd(SECOND, id % 50, TIMESTAMP'2020-01-01 00:00:00') AS at",
        "CAST(id % 6 - 0.5 AS decimal(9, 2)) AS d", "CAST(id % 3 AS string) AS t",
        "CASE WHEN id % 9 > 0 THEN float(decode(id, 5, 'NaN', 7, '-Infinity', id / 8)) END AS f",
    )  # fmt: skip
    plugin.range(0, 1000, 1, 2).selectExpr(*columns).write.format("lance").save(path)
    table = f"lance.`{path}`"
    for column, kind in KINDS.items():
        lance.dataset(path).create_scalar_index(column, kind, name=f"by_{column}")
    whole = (
        "SELECT count(*) FROM {} WHERE n > 10 AND n <= 700 OR n IN (1, 3)",
        "SELECT count(*) FROM {} WHERE NOT f < 9",
        "SELECT count(n), count(kind), count(f), count(*), min(f), max(f) FROM {}",
    )
    answered = (
        "SELECT count(*) FROM {} WHERE kind = 'k2'",
        "SELECT count(*), count(*) + 1 FROM {} WHERE kind IS NULL OR kind > 'k1'",
        "SELECT DISTINCT kind FROM {}",
        "SELECT DISTINCT d FROM {}",
        "SELECT kind, count(*) FROM {} GROUP BY kind HAVING count(*) > 0",
        "SELECT min(n), max(n), min(at), max(at), min(t), max(t) FROM {}",
        "SELECT count(kind), min(kind), max(kind), min(d), max(d), min(flag) IS NULL FROM {}",
    )
    others = (
        "SELECT count(*) FROM {} WHERE kind = 'k2' AND n > 100",
        "SELECT kind, flag, count(*) FROM {} GROUP BY kind, flag",
        "SELECT count(DISTINCT kind), count(kind) FROM {}",
        "SELECT n, kind FROM {} ORDER BY n DESC NULLS FIRST, kind LIMIT 7",
        "SELECT kind, n FROM {} ORDER BY kind NULLS FIRST, n DESC LIMIT 7",
        "SELECT kind, n FROM {} ORDER BY kind NULLS LAST, n DESC LIMIT 7",
    )
    check_answers(plugin, table, f"{path}.1", (*whole, *answered), others)
    lance.dataset(path).delete("n IN (0, 1, 2, 999) OR kind = 'k1' AND n < 100")
    check_answers(plugin, table, f"{path}.2", answered[2:], whole)
    first = plan_of(plugin.sql(f"SELECT n, kind FROM {table} ORDER BY n LIMIT 7"))
    (left,) = re.findall(r"index: by_n \(btree\), (\d+) of 971 rows", first)
    assert int(left) <= 20  # seven, and deleted ones before them
    plugin.sql(f"INSERT INTO {table} SELECT * FROM {table} LIMIT 1")
    assert "BatchScan" in plan_of(plugin.sql(f"SELECT DISTINCT kind FROM {table}"))


def check_answers(session, table, parquet, answered, others):
    """All queries give what the same rows do as Parquet; those that are answered read none."""
    session.sql(f"SELECT * FROM {table}").write.parquet(parquet)
    session.read.parquet(parquet).createOrReplaceTempView("plain")
    for query in answered + others:
        frame = session.sql(query.format(table))
        assert ("BatchScan" in plan_of(frame)) == (query in others), query
        found = sorted((tuple(row) for row in frame.collect()), key=repr)
        assert repr(found) == repr(sql(session, query.format("plain"))), query
