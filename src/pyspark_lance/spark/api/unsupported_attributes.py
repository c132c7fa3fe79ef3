"""Errors for names of Delta Lake and pylance, with a hint what to use instead.

Simple aliases exist (``dml.py``). The other names raise an error that is also an
``AttributeError``, so that ``hasattr`` returns False.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.options.option_table import normalize_name

_F = TypeVar("_F", bound=Callable[..., Any])


class UnknownNameError(InvalidInputError, AttributeError):
    """An object has no such attribute; the hint suggests what to use instead."""


_COPY = (
    "table.createBranch(name) forks a version without copying; table.toDF().write.format('lance')"
    ".save(path) copies the rows, and copying the folder copies the history, too"
)
_DATAFRAME = "table.toDF(), or table.scan(columns, filter), is a DataFrame: "
_NO_PROTOCOL = "a table has no protocol to upgrade; new features of Lance need no call"

OF_TABLE: Mapping[str, str] = {
    # Delta Lake
    "addFeatureSupport": _NO_PROTOCOL,
    "dropFeatureSupport": _NO_PROTOCOL,
    "upgradeTableProtocol": _NO_PROTOCOL,
    "clone": _COPY,
    "cloneAtVersion": _COPY.replace("(name)", "(name, version)"),
    "cloneAtTimestamp": _COPY.replace("(name)", "(name, timestamp=…)"),
    "convertToDelta": "spark.read.parquet(path).write.format('lance').save(path) makes a table of "
    "Parquet files; they are read once and stay",
    "generate": "there are no manifests to generate: every reader of Lance finds the files itself",
    "isDeltaTable": "LanceTable.isLanceTable(spark, path)",
    # pylance
    "alter_columns": "table.renameColumn(old, new), or table.changeColumn(name, dataType)",
    "checkout_latest": "a LanceTable without version reads the newest version every time",
    "checkout_version": "LanceTable.forPath(spark, path, version=7), or tag='…'",
    "cleanup_old_versions": "table.cleanupOldVersions('14days')",
    "config": "table.properties()",
    "count_rows": "table.toDF().count(), or table.scan(filter=…).count()",
    "create_index": "table.createVectorIndex(column) for vectors, table.createIndex(column, kind) "
    "for other values",
    "create_scalar_index": "table.createIndex(column, kind='btree'), table.createZonemap(column)",
    "data_storage_version": "table.detail().first().fileVersion",
    "deep_clone": _COPY,
    "shallow_clone": _COPY,
    "describe_indices": "table.indices()",
    "drop_index": "table.dropIndex(name)",
    "filter": _DATAFRAME + "table.scan(filter='…')",
    "get_fragments": "table.fragments()",
    "has_index": "table.indices()",
    "has_stable_row_ids": "table.detail().first().stableRowIds",
    "head": _DATAFRAME + ".limit(n)",
    "index_statistics": "table.indices()",
    "insert": "df.write.format('lance').mode('append').save(path)",
    "join": _DATAFRAME + ".join(other, …); columns of others are added by table.addColumns(df)",
    "latest_version": "table.detail().first().version",
    "list_indices": "table.indices()",
    "lance_schema": "table.toDF().schema",
    "merge_insert": "table.merge(source, 'target.id = source.id'), then whenMatchedUpdateAll() and "
    "so on, then execute()",
    "metadata": "table.setMetadata(…) sets it",
    "replace_schema_metadata": "table.setMetadata(schema={…})",
    "replace_field_metadata": "table.setMetadata(columns={'name': {…}})",
    "update_config": "table.setProperties({…})",
    "delete_config_keys": "table.setProperties({'key': None})",
    "sample": _DATAFRAME + ".sample(fraction)",
    "scanner": "table.scan(columns, filter); nearest rows are table.nearest(vector, k)",
    "schema": "table.toDF().schema",
    "sort_by": _DATAFRAME + ".orderBy(…)",
    "sql": "spark.sql, with the table as a view, or by its path with the plugin",
    "stats": "table.detail()",
    "take_blobs": "table.take(rowIds) with the read option blobColumns",
    "to_batches": _DATAFRAME + ".toLocalIterator()",
    "to_pandas": _DATAFRAME + ".toPandas()",
    "to_table": _DATAFRAME + ".toArrow()",
    "truncate_table": "table.delete()",
    "uri": "table.detail().first().location",
    "validate": "table.verify()",
    "version": "table.detail().first().version",
    "versions": "table.history()",
    # Iceberg, and PySpark
    "dropBranch": "table.deleteBranch(name)",
    "dropTag": "table.deleteTag(name)",
    "expireSnapshots": "table.cleanupOldVersions('14days')",
    "rewriteDataFiles": "table.compact()",
    "rollbackTo": "table.restore(version)",
    "snapshots": "table.history()",
    "count": "table.toDF().count()",
    "columns": "table.toDF().columns",
    "show": "table.toDF().show()",
    "write": "df.write.format('lance').mode('append').save(path)",
}
"""Attributes of tables in other libraries, and what to use instead of them."""

OF_MERGE: Mapping[str, str] = {
    "conflict_retries": "table.merge(source, condition, commitRetries=10)",
    "retry_timeout": "table.merge(source, condition, commitTimeout=30)",
    "when_matched_fail": "join first: table.toDF().join(source, …, 'leftsemi').count() is 0",
    "when_not_matched_by_source_delete": "whenNotMatchedBySourceDelete(condition)",
    "whenMatched": "whenMatchedUpdate(condition, set), or whenMatchedDelete(condition)",
    "whenNotMatched": "whenNotMatchedInsert(condition, values)",
    "whenNotMatchedBySource": "whenNotMatchedBySourceUpdate(condition, set), or …Delete(condition)",
    "merge": "execute()",
}
"""The same for the builder of a merge."""

OF_BUILDER: Mapping[str, str] = {
    "tableName": "location(path); a table of a catalog is made by spark.sql('CREATE TABLE … USING "
    "lance'), with the plugin",
    "partitionedBy": "there are no partitions: clusterBy(columns) has compact() sort the rows, and "
    "compact(splitFilesBy=columns) gives each value files of its own, which later writes keep to; "
    "replaceWhere replaces a part",
}
"""The same for the builder of a new table."""

OF_OPTIMIZE: Mapping[str, str] = {
    "where": "executeCompaction(), which takes the fragments that need it; there are no partitions"
}
"""The same for the builder of a compaction."""

OF_PACKAGE: Mapping[str, str] = {
    "DeltaTable": "pyspark_lance.LanceTable",
    "LanceDataset": "pyspark_lance.LanceTable",
    "configure_spark_with_delta_pip": "SparkSession.builder.config('spark.jars', "
    "pyspark_lance.plugin_jar()), which is needed for SQL only",
    "connect": "LanceTable.forPath(spark, path), or a catalog over the folder of the database",
    "dataset": "LanceTable.forPath(spark, path), or spark.read.format('lance').load(path)",
    "write_dataset": "df.write.format('lance').mode('append').save(path)",
}
"""The same for the package."""

_OF = {
    "LanceTable": OF_TABLE,
    "LanceMergeBuilder": OF_MERGE,
    "LanceTableBuilder": OF_BUILDER,
    "LanceOptimizeBuilder": OF_OPTIMIZE,
}


class UnsupportedAttributes:
    """A base class with hints for attributes of other libraries."""

    if not TYPE_CHECKING:  # type checkers must report unknown attributes

        def __getattr__(self, name: str) -> Any:
            """Raise an error with a hint, if there is one."""
            raise unknown_name(type(self), name)


class UnsupportedClassAttributes(type):
    """The same for attributes of a class: the hint of ``LanceTable.isDeltaTable``.

    A metaclass, as Python calls no other ``__getattr__`` for a name that a class does not have.
    """

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            """Raise an error with a hint, if there is one."""
            raise unknown_name(cls, name)


def unknown_name(owner: type, name: str) -> AttributeError:
    """Return the error for a name that a class, or an object of it, does not have."""
    hint = _OF.get(owner.__name__, {}).get(name)
    return _unknown(owner.__name__, hint, name, owner)


def unknown_in_package(name: str, package: object) -> AttributeError:
    """Return the error for a name that the package does not have."""
    return _unknown("pyspark_lance", OF_PACKAGE.get(name), name, package)


def _unknown(owner: str, hint: str | None, name: str, has: object) -> AttributeError:
    what = f"{owner} has no attribute {name!r}"
    if hint is None:
        near = _near_name(name, [own for own in dir(has) if not own.startswith("_")])
        hint = near and f"did you mean {near}?"
    return UnknownNameError(what, hint=hint) if hint else AttributeError(what)


def _near_name(name: str, names: Sequence[str]) -> str:
    """Return a similar name, if any; notebooks do not show Python's own suggestions."""
    if name.startswith("_"):  # looked up by protocols, and before __init__ is done
        return ""
    by_plain = {normalize_name(own): own for own in names}
    plain = normalize_name(name)
    near = difflib.get_close_matches(plain, by_plain, n=1, cutoff=0.75)
    begun = [own for own in by_plain if len(plain) > 3 and own.startswith(plain)]
    requested = [plain.removeprefix(verb) for verb in ("list", "get", "show")]
    without_verb = [own for own in requested if own != plain and own in by_plain]
    found = without_verb or near or begun
    return by_plain[found[0]] if found else ""


def unsupported_attributes(**members: str) -> Callable[[_F], _F]:
    """Add attributes to a method that is an object in pylance, such as ``table.tags.create(…)``."""

    def decorate(function: _F) -> _F:
        for member, hint in members.items():
            setattr(function, member, _refusing(f"{function.__name__}.{member}", hint))
        return function

    return decorate


def _refusing(name: str, hint: str) -> Callable[..., None]:
    def refuse(*_: object, **__: object) -> None:
        raise UnknownNameError(f"LanceTable has no {name}", hint=hint)

    return refuse
