"""Add the columns of a merge ``withSchemaEvolution`` to the table, before the merge runs."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.types import StructField, StructType

from pyspark_lance.commit.application_versions import (
    APPLICATION_PROPERTY,
    SOURCE_PROPERTY,
    VERSION_PROPERTY,
)
from pyspark_lance.format.column_names import SYSTEM_COLUMNS, matched, spellings
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.predicate.name_parts import name_parts
from pyspark_lance.spark.jobs.merge_job import ALL_COLUMNS, MergeRequest
from pyspark_lance.spark.types.spark_types import spark_schema
from pyspark_lance.spark.types.write_schema import stored_schema
from pyspark_lance.table.columns.change_columns import add_missing_columns
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.work.commit_settings import CommitSettings

# These identify an idempotent merge, which is a separate commit from the new columns.
_OF_MERGE = (APPLICATION_PROPERTY, VERSION_PROPERTY, SOURCE_PROPERTY)


def add_columns_of_source(table: Table, merge: MergeRequest, settings: CommitSettings) -> None:
    """Add columns that the merge assigns and the table lacks, null in every row.

    These are, for ``whenMatchedUpdateAll`` and ``whenNotMatchedInsertAll``, all columns of the
    source and fields of structs, and for other clauses the source columns that they set by name.
    """
    schema = Snapshot.open(table).schema
    missing = _missing(merge, schema)
    if missing.fields:
        properties = {k: v for k, v in settings.properties.items() if k not in _OF_MERGE}
        columns = stored_schema(
            missing, {}, existing=None, overwrite=False, case_sensitive=settings.case_sensitive
        )
        add_missing_columns(table, columns, replace(settings, properties=properties))


def _missing(merge: MergeRequest, schema: LanceSchema) -> StructType:
    source = StructType(
        [field for field in merge.source.schema.fields if field.name.lower() not in SYSTEM_COLUMNS]
    )
    if not any(clause.values is ALL_COLUMNS for clause in merge.clauses):
        keys = [name_parts(key) for clause in merge.clauses for key in clause.values]
        own = spellings(source.names)
        named = {own.spelled(key[0]) for key in keys if len(key) == 1}
        source = StructType([field for field in source.fields if field.name in named])
    return _besides(source, spark_schema(schema, ()))


def _besides(given: StructType, known: StructType) -> StructType:
    """Return the columns, and fields of structs, of ``given`` that ``known`` lacks."""
    pairs = matched(given.names, known.names)
    fields = []
    for field in given.fields:
        kind = known[pairs[field.name]].dataType if field.name in pairs else None
        if kind is None:
            fields.append(StructField(field.name, field.dataType, nullable=True))
        elif isinstance(kind, StructType) and isinstance(field.dataType, StructType):
            members = _besides(field.dataType, kind)
            if members.fields:
                fields.append(StructField(pairs[field.name], members, nullable=True))
    return StructType(fields)
