"""Statements of Delta and lance-spark in SQL: two of them run, others raise hints."""

from __future__ import annotations

import random

import pytest
from pyspark.errors import ParseException, PySparkException
from random_seeds import seeds
from spark_releases import has

from pyspark_lance import LanceTable
from pyspark_lance.spark.sql.foreign_statements import SqlText

from .conftest import sql

pytestmark = pytest.mark.spark

HINTS = {
    "RESTORE TABLE {table} TO VERSION AS OF 1": "version => 1)",
    "DESCRIBE HISTORY {table}": "CALL lance.system.history(table => ",
    "DESCRIBE DETAIL {table}": "CALL lance.system.detail(table => ",
    "DESC HISTORY '{path}' LIMIT 3": "limit => 3)",
    "SELECT * FROM table_changes('{path}', 1)": "CHANGES FROM VERSION",
    "SELECT * FROM lance.`{path}@v1`": "versionAsOf = 1",
    "CREATE TABLE copy SHALLOW CLONE {table}": "create_branch",
    "ALTER TABLE {table} CREATE INDEX i USING btree (id)": "columns => 'id', kind => 'btree'",
    "SHOW TAGS IN {table}": "CALL lance.system.tags(table => ",
    "ALTER TABLE {table} ADD COLUMN c INT CHECK (c > 0)": "ADD COLUMN … CHECK is not supported",
    "ALTER TABLE {table} ADD COLUMNS (a INT, b INT GENERATED ALWAYS AS (a + 1))": "addColumns",
    "OPTIMIZE {table} WHERE id = 1 ZORDER BY (id)": "cluster_by => array(",
    "SELECT id FROM {table} WHERE _fragid = 0": "shiftright(_rowaddr, 32)",
}


@pytest.fixture
def table(plugin, path):
    """A path with a table of two fragments and a deleted row, as SQL names it."""
    for start in (0, 5):
        plugin.range(start, start + 5).coalesce(1).write.format("lance").mode("append").save(path)
    return f"lance.`{path}`"


def test_optimize_and_vacuum_equal_procedures(plugin, path, table):
    done = plugin.sql(f"OPTIMIZE {table} WITH (target_rows_per_fragment = 100)").first()
    assert (done["fragments_removed"], done["fragments_added"]) == (2, 1)
    assert plugin.sql(f"-- nothing is left to do\nOPTIMIZE '{path}';").first()["version"] is None
    would = plugin.sql(f"VACUUM {table} RETAIN 0 HOURS DRY RUN").first()
    assert would["versions"] == [1, 2]
    assert plugin.sql(f"VACUUM {table} WITH (before_version = 2)").first()["versions"] == [1]
    assert plugin.sql(f"VACUUM {table}").first()["versions"] == []
    assert LanceTable.forPath(plugin, path).toDF().count() == 10


@pytest.mark.parametrize("statement", HINTS)
def test_foreign_statements_get_migration_hints(plugin, path, table, statement):
    with pytest.raises(Exception, match="LANCE_") as caught:
        plugin.sql(statement.format(path=path, table=table)).collect()
    assert HINTS[statement] in str(caught.value)
    assert "Traceback" not in str(caught.value)
    # Not an error of Java's that shows but its stack.
    assert isinstance(caught.value, PySparkException)


def test_spark_syntax_errors_are_unchanged(plugin):
    for statement in ("SELEC 1", "CREATE INDEX", "OPTIMISE t", "SHOW TAGS"):
        with pytest.raises(ParseException, match=r"PARSE_SYNTAX_ERROR|INVALID_STATEMENT"):
            plugin.sql(statement)
    assert plugin.sql("SELECT :n AS n", args={"n": 5}).first().n == 5
    plugin.range(1).selectExpr("id AS a").createOrReplaceTempView("history")
    try:
        described = plugin.sql("DESCRIBE history a").collect()
        assert [tuple(row) for row in described][:2] == [("col_name", "a"), ("data_type", "bigint")]
    finally:
        plugin.catalog.dropTempView("history")


def test_lance_spark_catalog_class_is_supported(plugin, tmp_path):
    name = f"other_{tmp_path.name[-8:].replace('-', '_')}"
    setting = f"spark.sql.catalog.{name}"
    plugin.conf.set(setting, "org.lance.spark.LanceNamespaceSparkCatalog")
    plugin.conf.set(f"{setting}.impl", "dir")
    plugin.conf.set(f"{setting}.root", str(tmp_path / "root"))
    plugin.sql(f"CREATE TABLE {name}.t (id bigint)")
    plugin.sql(f"INSERT INTO {name}.t VALUES (1)")
    assert sql(plugin, f"SELECT * FROM {name}.t") == [(1,)]
    assert plugin.sql(f"OPTIMIZE {name}.t").first()["version"] is None
    read = plugin.read.format("lance").option("dataset_uri", str(tmp_path / "root" / "t.lance"))
    assert read.load().count() == 1


PIECES = (
    "'", "''", '"', '""', "`", "``", "\\", "\\'", "--", "-", "/*", "*/", "/*+", "/", "*", "\n",
    "\r\n", "\\\n", " ", " ", "r'", "R\"", "r", "xr'", "a", "SELECT", "1", ".", ";", "(", ",", "é",
    "𝄞", "$$", "$a$", "$", "$A$",
)  # fmt: skip
COMMENTS = {"SIMPLE_COMMENT", "BRACKETED_COMMENT"}
QUOTED = {"STRING_LITERAL", "DOUBLEQUOTED_STRING", "BACKQUOTED_IDENTIFIER"}


def as_spark_reads(session, text):
    """What Spark's lexer makes of a text: its characters, and those that are in comments or quotes.

    The latter are left out and shown as question marks.
    """
    jvm = session._jvm
    parser = jvm.org.apache.spark.sql.catalyst.parser
    points = jvm.org.antlr.v4.runtime.CharStreams.fromString(text)
    lexer = parser.SqlBaseLexer(parser.UpperCaseCharStream(points))
    lexer.removeErrorListeners()
    names = lexer.getVocabulary()
    plain, masked = "", ""
    for token in lexer.getAllTokens():
        name = names.getSymbolicName(token.getType())
        written = text[token.getStartIndex() : token.getStopIndex() + 1]
        if name in COMMENTS:
            plain, masked = plain + " ", masked + " "
            continue
        hides = name in QUOTED or "DOLLAR_QUOTED" in str(name)
        plain, masked = plain + written, masked + ("?" * len(written) if hides else written)
    return plain, masked


@pytest.mark.parametrize("seed", seeds(60, in_ci=3))
def test_random_texts_are_tokenized_like_spark_lexer(plugin, seed):
    rng = random.Random(seed)
    for _ in range(40):
        pieces = [one for one in PIECES if has("strings in dollars") or "$" not in one]
        text = "".join(rng.choices(pieces, k=rng.randint(1, 14)))
        plain, masked = as_spark_reads(plugin, text)
        ours = SqlText.parse(text)
        assert ours == plain, text
        for character, seen, of_spark in zip(plain, ours.masked, masked, strict=True):
            # Patterns see the quotes themselves, which Spark's tokens include.
            assert seen == of_spark or (of_spark == "?" and seen in ("\ue000", character)), text
        inside = [one != "?" for one in masked].count(False)
        assert ours.masked.count("\ue000") <= inside, text


def test_path_with_backtick_is_quoted(plugin, tmp_path):
    path = str(tmp_path / "back`tick")
    plugin.range(3).coalesce(1).write.format("lance").save(path)
    for named in (path, "lance.`{}`".format(path.replace("`", "``"))):
        assert plugin.sql(f"CALL lance.system.detail('{named}')").first()["version"] == 1
        assert plugin.sql(f"/* with '*/ OPTIMIZE '{named}' -- '").first()["version"] is None


def test_merge_in_string_or_comment_is_ignored(plugin, path, table):
    merge = f"MERGE INTO {table} t USING (SELECT 3 id) s ON t.id = s.id AND t._rowid >= 0"
    merge += " WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    for number, said in enumerate(("", "/* MERGE INTO */", f", '{merge}' AS s")):
        made = f"{path}_{number}"
        plugin.sql(f"CREATE TABLE lance.`{made}` AS SELECT _rowid AS r {said} FROM {table}")
        assert "DEFAULT" not in str(plugin.read.format("lance").load(made).schema.json())
    plugin.sql(f"EXPLAIN /* 1 */ {merge}").collect()
    plugin.sql(f"EXECUTE IMMEDIATE '{merge}'")
    assert plugin.table(table).count() == 9
    if has("SQL scripts"):
        plugin.sql(f"BEGIN {merge}; END")
        assert plugin.table(table).count() == 10
