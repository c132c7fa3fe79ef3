"""What users of Delta Lake, lance-spark and pylance type works, or the error names the way here."""

from __future__ import annotations

import re
import types
from pathlib import Path

import lance
import pytest
from table_access import append

import pyspark_lance
from pyspark_lance import LanceTable
from pyspark_lance.errors import (
    InvalidInputError,
    LanceError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.column_names import parse_metadata_columns
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.spark.api import unsupported_attributes
from pyspark_lance.spark.api.dml import LanceMergeBuilder
from pyspark_lance.spark.jobs.merge_job import MergeRequest
from pyspark_lance.spark.options.option_table import canonical_options
from pyspark_lance.spark.sql.foreign_statements import translate_statement
from pyspark_lance.table.scan.plan_scan import predicate_schema, project
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

SESSION = types.SimpleNamespace(conf={"spark.sql.session.timeZone": "UTC"})

# What to do with a table that has two versions -> what is true then, or what the error names.
CALLS_OF_DELTA = {
    "table.vacuum()": lambda t: t.vacuum().versions == (),
    "table.vacuum(0)": lambda t: t.vacuum(0).versions == (1,),
    "table.alias('t')": lambda t: t.alias("t") is not t,
    "LanceTable.create(spark)": lambda t: hasattr(LanceTable.create(SESSION), "addColumn"),
    "LanceTable.replace(spark)": lambda t: hasattr(LanceTable.replace(SESSION), "execute"),
    "table.clone(p)": "createBranch",
    "table.cloneAtVersion(1, p)": "createBranch",
    "table.cloneAtTimestamp(…, p)": "createBranch",
    "table.generate('symlink_format_manifest')": "no manifests",
    "table.upgradeTableProtocol(1, 3)": "no protocol",
    "table.addFeatureSupport(…)": "no protocol",
    "table.dropFeatureSupport(…)": "no protocol",
    "LanceTable.isDeltaTable(spark, p)": "isLanceTable",
    "LanceTable.convertToDelta(spark, p)": "spark.read.parquet",
    "table.optimize().where('…')": "executeCompaction",
    "table.optimize().executeZOrderBy('id')": lambda t: callable(t.optimize().executeZOrderBy),
    "LanceTable.create(spark).partitionedBy('day')": "replaceWhere",
    "LanceTable.create(spark).clusterBy('day')": lambda t: hasattr(
        LanceTable.create(SESSION).clusterBy("day"), "execute"
    ),
    "LanceTable.create(spark).tableName('t')": "location",
    "pyspark_lance.DeltaTable": "LanceTable",
    "pyspark_lance.configure_spark_with_delta_pip": "plugin_jar",
}
CALLS_OF_PYLANCE = {
    "pyspark_lance.dataset(p)": "forPath",
    "pyspark_lance.write_dataset(…)": "mode('append')",
    "table.to_table()": "toArrow",
    "table.to_pandas()": "toPandas",
    "table.to_batches()": "toLocalIterator",
    "table.scanner()": "table.scan",
    "table.count_rows()": "count()",
    "table.head(5)": "limit",
    "table.sample(5)": "sample",
    "table.filter('…')": "table.scan",
    "table.sort_by('id')": "orderBy",
    "table.sql('…')": "spark.sql",
    "table.schema": "toDF().schema",
    "table.uri": "location",
    "table.version": "detail()",
    "table.latest_version": "detail()",
    "table.versions()": "history()",
    "table.checkout_version(1)": "version=",
    "table.checkout_latest()": "newest",
    "table.insert(…)": "mode('append')",
    "table.merge_insert('id')": "table.merge(",
    "table.add_columns(…)": "addColumns",
    "table.drop_columns(…)": "dropColumns",
    "table.alter_columns(…)": "changeColumn",
    "table.create_index(…)": "createVectorIndex",
    "table.create_scalar_index(…)": "createIndex",
    "table.list_indices()": "indices()",
    "table.describe_indices()": "indices()",
    "table.index_statistics('i')": "indices()",
    "table.drop_index('i')": "dropIndex",
    "table.cleanup_old_versions()": "cleanupOldVersions",
    "table.optimize.compact_files()": "compact()",
    "table.optimize.optimize_indices()": "optimizeIndices()",
    "table.tags.create('a', 1)": "createTag",
    "table.tags.list()": "tags()",
    "table.tags.delete('a')": "deleteTag",
    "table.tags.update('a', 1)": "replaceTag",
    "table.branches.create('a')": "createBranch",
    "table.branches.list()": "branches()",
    "table.branches.delete('a')": "deleteBranch",
    "table.create_branch('a')": "createBranch",
    "table.shallow_clone(p)": "createBranch",
    "table.deep_clone(p)": "createBranch",
    "table.get_fragments()": "fragments()",
    "table.stats": "detail()",
    "table.config()": "properties()",
    "table.update_config({})": "setProperties",
    "table.delete_config_keys([])": "setProperties",
    "table.replace_schema_metadata({})": "setMetadata",
    "table.replace_field_metadata('id', {})": "setMetadata",
    "table.truncate_table()": "table.delete()",
    "table.validate()": "verify()",
    "merge.when_matched_update_all()": "whenMatchedUpdateAll",
    "merge.when_not_matched_insert_all()": "whenNotMatchedInsertAll",
    "merge.when_not_matched_by_source_delete('…')": "whenNotMatchedBySourceDelete",
    "merge.conflict_retries(3)": "commitRetries",
    "merge.retry_timeout(3)": "commitTimeout",
}
READ_OPTIONS = {
    "versionAsOf": ("1", "version"),
    "timestampAsOf": ("2999-01-01", "timestampAsOf"),
    "readChangeFeed": ("true", "readChangeFeed"),
    "readChangeData": ("true", "readChangeFeed"),
    "startingVersion": ("1", "startingVersion"),
    "endingTimestamp": ("2999-01-01", "endingTimestamp"),
    "ignoreDeletes": ("true", "ignoreDeletes"),
    "skipChangeCommits": ("true", "skipChangeCommits"),
    "maxBytesPerTrigger": ("1000000", "maxBytesPerTrigger"),
    "failOnDataLoss": ("false", "failOnDataLoss"),
    "dataset_uri": ("/t", "path"),
    "batch_size": ("512", "batchSize"),
    "nearest": ("{}", "nearest"),
    "ignoreChanges": "skipChangeCommits",
    "maxFilesPerTrigger": "maxRowsPerTrigger",
    "withEventTimeOrder": "startingVersion",
    "schemaTrackingLocation": "started again",
    "db": "LanceCatalog",
    "dataset": "LanceCatalog",
    "prefilter": "nearest",
    "with_row_id": "metadataColumns",
}
WRITE_OPTIONS = {
    "mergeSchema": ("true", "mergeSchema"),
    "overwriteSchema": ("true", "overwriteSchema"),
    "replaceWhere": ("id > 1", "replaceWhere"),
    "userMetadata": ("note", "userMetadata"),
    "txnAppId": ("app", "txnAppId"),
    "maxRecordsPerFile": ("1000", "maxRowsPerFile"),
    "max_row_per_file": ("1000", "maxRowsPerFile"),
    "max_bytes_per_file": ("1000", "maxBytesPerFile"),
    "data_storage_version": ("STABLE", "fileFormatVersion"),
    "file_format_version": ("2.1", "fileFormatVersion"),
    "write_mode": ("overwrite", "writeMode"),
    "streamingQueryId": ("q", "streamingQueryId"),
    "vec.arrow.fixed-size-list.size": ("4", "vec.fixed_size_list"),
    "partitionOverwriteMode": "replaceWhere",
    "optimizeWrite": "compact()",
    "dataChange": "compact()",
    "compression": "<column>.compression",
}
WITHOUT_EFFECT = ("max_rows_per_group", "use_queued_write_buffer", "queue_depth")
STATEMENTS = {
    "OPTIMIZE lance.`/d/t`": "CALL lance.system.compact(table => 'lance.`/d/t`')",
    "OPTIMIZE cat.db.t WITH (target_rows_per_fragment = 5, materialize_deletions = TRUE);": (
        "CALL lance.system.compact(table => 'cat.db.t', target_rows_per_fragment => 5, "
        "materialize_deletions => TRUE)"
    ),
    "optimize t full": "CALL lance.system.compact(table => 't')",
    "ALTER TABLE t SET UNENFORCED PRIMARY KEY (`id`, region)": (
        "CALL lance.system.set_primary_key(table => 't', columns => 'id, region')"
    ),
    "alter table '/d/t' set unenforced primary key id": (
        "CALL lance.system.set_primary_key(table => '/d/t', columns => 'id')"
    ),
    "VACUUM t": "CALL lance.system.cleanup(table => 't')",
    "VACUUM '/d/t' RETAIN 168 HOURS DRY RUN": (
        "CALL lance.system.cleanup(table => '/d/t', older_than => '604800s', dry_run => true)"
    ),
    "VACUUM t LITE RETAIN 0.5 HOURS": (
        "CALL lance.system.cleanup(table => 't', older_than => '1800s')"
    ),
    "OPTIMIZE t ZORDER BY (day, `it's`)": (
        "CALL lance.system.compact(table => 't', cluster_by => array('day', 'it\\'s'), "
        "order => 'zorder')"
    ),
    "VACUUM t WITH (before_version = 10)": (
        "CALL lance.system.cleanup(table => 't', before_version => 10)"
    ),
}
REFUSED = {
    "OPTIMIZE t WHERE day = '2026-11-20'": "system.compact",
    "RESTORE TABLE t TO VERSION AS OF 1": "system.restore(table => 't', version => 1)",
    "RESTORE t TO TIMESTAMP AS OF '2026-01-01'": "timestamp => '2026-01-01')",
    "DESCRIBE HISTORY t": "system.history(table => 't')",
    "DESC HISTORY lance.`/d/t` LIMIT 3": "limit => 3)",
    "DESCRIBE DETAIL t": "system.detail(table => 't')",
    "CREATE OR REPLACE TABLE a SHALLOW CLONE b VERSION AS OF 1": "create_branch",
    "CREATE TABLE a DEEP CLONE b": "AS SELECT",
    "CONVERT TO DELTA parquet.`/d/p`": "USING lance AS SELECT",
    "GENERATE symlink_format_manifest FOR TABLE t": "no manifests",
    "REORG TABLE t APPLY (PURGE)": "materialize_deletions_threshold",
    "SELECT * FROM table_changes('t', 1, 3)": "CHANGES FROM VERSION",
    "ALTER TABLE t CREATE INDEX i USING btree (id)": (
        "create_index(table => 't', columns => 'id', kind => 'btree', name => 'i')"
    ),
    "ALTER TABLE t CREATE INDEX i USING zonemap (id) WITH (rows_per_zone = 8)": "create_zonemap",
    "ALTER TABLE t CREATE INDEX i USING fts (id)": "not built",
    "ALTER TABLE t DROP INDEX i": "drop_index(table => 't', name => 'i')",
    "SHOW INDEXES FROM t": "$indices",
    "SHOW INDICES IN t": "$indices",
    "ALTER TABLE t CREATE TAG IF NOT EXISTS a AS OF VERSION 5": "name => 'a', version => 5)",
    "ALTER TABLE t CREATE TAG a AS OF TAG b": "name => 'a', tag => 'b')",
    "ALTER TABLE t DROP TAG a": "drop_tag(table => 't', name => 'a')",
    "ALTER TABLE t CREATE BRANCH a AS OF BRANCH b VERSION 3": "version => 3, branch => 'b')",
    "SHOW TAGS IN t": "system.tags(table => 't')",
    "SHOW BRANCHES FROM t": "system.branches(table => 't')",
    "ALTER TABLE t ADD COLUMNS a, b FROM v": "addColumns",
    "ALTER TABLE t ADD COLUMN a INT CHECK (a > 0)": "check the rows before writing",
    "ALTER TABLE t UPDATE COLUMNS a FROM v": "rewrite='columns'",
    "VACUUM t WITH before_version = 10": "WITH (name = value, …)",
}


@pytest.fixture
def path(tmp_path):
    """A table with two versions."""
    path = str(tmp_path / "t")
    append(path, 0, 5)
    append(path, 5, 2)
    return path


def names_in(code):
    """``table.tags.create('a')`` as the object, the names and whether the last is called."""
    first, *parts = code.replace("(spark)", "").split("(")[0].split(".")
    return first, parts, "(" in code.replace("(spark)", "")


def run_habit(code, path):
    """Do what a habit says, as far as it gets."""
    objects = {
        "table": LanceTable(SESSION, path),
        "LanceTable": LanceTable,
        "merge": LanceMergeBuilder(MergeRequest(None, "true", (), "target"), lambda merge: None),
        "pyspark_lance": pyspark_lance,
    }
    first, parts, _ = names_in(code)
    if code.startswith("table.optimize()"):
        return getattr(objects["table"].optimize(), code.split(").", 1)[1].split("(")[0])
    if code.startswith("LanceTable.create(spark)."):
        return getattr(LanceTable.create(SESSION), parts[-1])
    found = objects[first]
    for name in parts:
        found = getattr(found, name)
    return found("a") if callable(found) else found


@pytest.mark.parametrize("code", CALLS_OF_DELTA)
def test_delta_calls_work_or_raise_migration_hint(code, path):
    wanted = CALLS_OF_DELTA[code]
    if callable(wanted):
        assert wanted(LanceTable(SESSION, path))
        return
    with pytest.raises(InvalidInputError) as caught:
        run_habit(code, path)
    assert wanted in caught.value.hint
    assert isinstance(caught.value, AttributeError)


@pytest.mark.parametrize("code", CALLS_OF_PYLANCE)
def test_pylance_calls_raise_migration_hint(code, path):
    with pytest.raises(InvalidInputError) as caught:
        run_habit(code, path)
    assert CALLS_OF_PYLANCE[code] in caught.value.hint


@pytest.mark.parametrize("side", ["read", "write"])
def test_foreign_options_are_accepted_or_raise_hint(side):
    for name, wanted in (READ_OPTIONS if side == "read" else WRITE_OPTIONS).items():
        if isinstance(wanted, tuple):
            assert canonical_options({name: wanted[0]}, side)[0] == {wanted[1]: wanted[0]}, name
            continue
        with pytest.raises(InvalidInputError, match=f"no option '{name}'") as caught:
            canonical_options({name: "true"}, side)
        assert wanted in caught.value.hint, name
    for name in WITHOUT_EFFECT:
        assert canonical_options({name: "1"}, side) == ({}, {})


def test_unparsed_statements_translate_to_procedures():
    for statement, wanted in STATEMENTS.items():
        assert translate_statement(statement) == wanted, statement
    assert translate_statement("-- a note\nOPTIMIZE t") == STATEMENTS["optimize t full"]
    for nothing in ("SELEC 1", "OPTIMIZED t", "ALTER TABLE t ADD COLUMNS (a int", "VACUUM", ""):
        assert translate_statement(nothing) is None, nothing


def test_plugin_keywords_match_translated_statements():
    """An error in another statement starts no process."""
    java = Path(__file__).parents[2] / "src/plugin/org/pysparklance/rules/ForeignStatements.java"
    (listed,) = re.findall(r"KEYWORDS = Set\.of\((.*?)\);", java.read_text(), re.DOTALL)
    keywords = set(re.findall(r"\w+", listed))
    known = [
        statement.upper()
        for statement in (*STATEMENTS, *REFUSED)
        if "TABLE_CHANGES" not in statement.upper()
    ]
    words = [set(re.findall(r"\w+", statement)) for statement in known]
    assert [one for one in words if not one & keywords] == []
    assert {word for word in keywords if any(word in one for one in words)} == keywords


@pytest.mark.parametrize("statement", REFUSED)
def test_unsupported_statements_suggest_alternative(statement):
    with pytest.raises((UnsupportedFeatureError, InvalidInputError)) as caught:
        translate_statement(statement)
    assert REFUSED[statement] in caught.value.hint


def test_quoted_names_reach_procedure_unchanged():
    called = translate_statement("OPTIMIZE lance.`/d/it's a \\ path`")
    assert called == "CALL lance.system.compact(table => 'lance.`/d/it\\'s a \\\\ path`')"


def test_comments_strings_and_quoted_names_are_not_parsed():
    compact = "CALL lance.system.compact(table => {})"
    for statement, table in {
        "OPTIMIZE lance.`/d/a--b`": "'lance.`/d/a--b`'",
        "/* a /* b */ ' */ OPTIMIZE -- the '\n '/d/a' ; ;": "'/d/a'",
        r"OPTIMIZE '/d/it\'s' -- new": r"'/d/it\'s'",
        'OPTIMIZE "/d/it\'s ""x"""': r"""'/d/it\'s "x"'""",
        "OPTIMIZE '/d/back`tick'": "'/d/back`tick'",
        "OPTIMIZE t /* FULL; */ FULL": "'t'",
        "OPTIMIZE `a;--b` WITH (name = 'x, y = 1')": "'`a;--b`', name => 'x, y = 1'",
    }.items():
        assert translate_statement(statement) == compact.format(table), statement
    for other in (
        "CREATE TABLE t AS SELEC 'a SHALLOW CLONE b'",
        "CREATE TABLE t AS SELEC 1 /* DEEP CLONE b */",
        "CREATE TABLE t AS SELEC r'\\' || \" SHALLOW CLONE b\"",
        "ALTER TABLE t ADD COLUMN c INT COMMENT 'CHECK (it)' FRIST",
        "ALTER TABLE t ADD COLUMN `UNIQUE key` INT FRIST",
        "ALTER TABLE t ADD TAG '1' = table_changesX() -- table_changes(",
        "CREATE $$ SHALLOW CLONE $$",
    ):
        assert translate_statement(other) is None, other


def test_hints_name_existing_methods():
    """Methods that hints speak of exist, and no name that is answered is one of our own."""
    for ways, of in (
        (unsupported_attributes.OF_TABLE, LanceTable),
        (unsupported_attributes.OF_MERGE, LanceMergeBuilder),
    ):
        for name, way in ways.items():
            assert name not in dir(of), f"{name} is there, and needs no error"
            for method in re.findall(r"\btable\.(\w+)\(", way):
                assert method in dir(LanceTable), f"{name} suggests {method}"


def test_unknown_attributes_raise_attribute_error(path):
    table = LanceTable(SESSION, path)
    for has in (table, LanceTable, table.optimize(), LanceTable.create(SESSION), pyspark_lance):
        with pytest.raises(AttributeError, match="no attribute 'quite_wrong'") as caught:
            has.quite_wrong  # noqa: B018
        assert not isinstance(caught.value, LanceError)
        assert not hasattr(has, "to_pandas")


def test_misspelled_names_raise_suggestion(path):
    table = LanceTable(SESSION, path)
    for has, wrong, meant in (
        (table, "vaccum", "vacuum"),
        (table, "cleanup", "cleanupOldVersions"),
        (table, "listTags", "tags"),
        (table, "get_history", "history"),
        (LanceTable, "for_path", "forPath"),
        (table.optimize(), "executeCompacton", "executeCompaction"),
        (pyspark_lance, "LanceTabel", "LanceTable"),
    ):
        with pytest.raises(AttributeError, match=f"'{wrong}'\n.*did you mean {meant}\\?"):
            getattr(has, wrong)
        assert not hasattr(has, f"_{wrong}")


@pytest.mark.parametrize(
    ("wrong", "right"), [("dropBranch", "table.deleteBranch("), ("dropTag", "table.deleteTag(")]
)
def test_procedure_names_suggest_methods(path, wrong, right):
    with pytest.raises(InvalidInputError) as caught:
        getattr(LanceTable(SESSION, path), wrong)
    assert right in caught.value.hint


def test_unexecuted_builders_name_execute(path):
    merge = LanceMergeBuilder(MergeRequest(None, "true", (), "target"), lambda merge: None)
    for builder in (
        merge,
        merge.whenMatchedDelete(),
        LanceTable(SESSION, path).optimize(),
        LanceTable.create(SESSION).location(path),
    ):
        (way, *_) = re.findall(r"not run: call (\w+)\(\)", repr(builder))
        assert callable(getattr(builder, way))


def test_delta_version_suffix_error_suggests_option(path):
    for ending, option in (("@v1", "versionAsOf"), ("@20261124063012345", "timestampAsOf")):
        with pytest.raises(TableNotFoundError) as caught:
            LanceTable.forPath(SESSION, path + ending)
        assert option in caught.value.hint


@pytest.mark.parametrize("ask", ["columns", "metadata", "filter"])
def test_fragment_id_column_error_explains_computation(path, ask):
    snapshot = Snapshot.open(Table(path))
    with pytest.raises(InvalidInputError, match="_fragid") as caught:
        if ask == "columns":
            project(snapshot.schema, ("id", "_fragid"))
        elif ask == "metadata":
            parse_metadata_columns("_rowid, _fragid", stable_row_ids=True)
        else:
            parse_predicate("_fragid = 0", predicate_schema(snapshot.schema))
    assert "_rowaddr" in caught.value.hint


@pytest.mark.spark
def test_delta_table_builder_is_supported(spark, tmp_path):
    path = str(tmp_path / "built")
    builder = (
        LanceTable.createIfNotExists(spark)
        .location(path)
        .addColumn("id", "bigint", nullable=False, comment="the key")
        .addColumns(spark.range(1).selectExpr("'a' AS kind").schema)
        .property("owner", "web")
        .comment("what visitors did")
    )
    made = builder.execute()
    assert made.detail().first().version == 1
    assert made.properties() == {"owner": "web", "comment": "what visitors did"}
    schema = lance.dataset(path).schema
    assert (schema.names, schema.field("id").nullable) == (["id", "kind"], False)
    assert schema.field("id").metadata == {b"comment": b"the key"}
    spark.sql("SELECT 1L AS id, 'x' AS kind").write.format("lance").mode("append").save(path)
    assert builder.execute().toDF().count() == 1
    with pytest.raises(TableAlreadyExistsError):
        LanceTable.create(spark).location(path).addColumn("id", "bigint").execute()

    other = LanceTable.replace(spark).location(path).addColumn("day", "date").execute()
    assert (other.toDF().columns, other.detail().first().version) == (["day"], 3)
    assert LanceTable.forPath(spark, path, version=2).toDF().count() == 1
    with pytest.raises(TableNotFoundError):
        LanceTable.replace(spark).location(path + "2").addColumn("day", "date").execute()
    new = LanceTable.createOrReplace(spark).location(path + "2").addColumn("day", "date")
    assert new.execute().optimize().executeCompaction().version is None
    with pytest.raises(UnsupportedFeatureError, match="generated"):
        new.addColumn("n", "int", generatedAlwaysAs="1")


@pytest.mark.spark
def test_delta_schema_evolution_and_options_are_supported(spark, path):
    source = spark.sql("SELECT 1L AS id, 'red' AS colour")
    table = LanceTable.forPath(spark, path)
    merge = table.merge(source, "target.id = source.id").withSchemaEvolution()
    assert merge.whenMatchedUpdateAll().execute().numUpdatedRows == 1
    assert table.toDF().where("colour = 'red'").count() == 1
    assert spark.read.format("lance").option("dataset_uri", path).load().count() == 7
    assert spark.read.format("lance").option("versionAsOf", 1).load(path).count() == 5
    assert table.restoreToVersion(1).version == 5
    assert table.restoreToTimestamp("2999-01-01").version is None
    assert table.toDF().count() == 5
