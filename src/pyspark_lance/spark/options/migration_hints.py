"""Hints for options of Delta and lance-spark that this data source does not have.

Options with a counterpart are aliases in ``option_table.py``.
"""

from __future__ import annotations

_PER_TRIGGER = (
    "files are no measure here: maxRowsPerTrigger, maxBytesPerTrigger or maxVersionsPerTrigger"
)
_NO_PARTITIONS = "there are no partitions: replaceWhere replaces the rows that match a condition"
_OF_A_FOLDER = (
    "load(path) takes the path of the table; a catalog over a folder of tables is "
    "spark.sql.catalog.<name> = org.pysparklance.LanceCatalog with <name>.path"
)
_PREFILTER = "a member of the JSON of nearest says it; a filter is always applied before the search"
_PROTOCOL = "a property of Delta tables that Lance tables need not have"

_HINTS = {
    # Delta
    "ignoreChanges": "skipChangeCommits = true passes over commits that update or delete rows; "
    "readChangeFeed = true shows what they changed",
    "maxFilesPerTrigger": _PER_TRIGGER,
    "withEventTimeOrder": "a stream begins with the rows of a version; startingVersion = 0 goes "
    "through all versions in their order",
    "schemaTrackingLocation": "a stream ends when columns change, and goes on with them when it is "
    "started again",
    "excludeRegex": "replaceWhere, filter and where choose rows",
    "partitionOverwriteMode": _NO_PARTITIONS,
    "partitionBy": _NO_PARTITIONS,
    "clusterByAuto": "rows stay in the order in which they are written; createIndex finds few rows",
    "dataChange": "compact() rewrites files, and change feeds and streams do not notice",
    "optimizeWrite": "repartition or coalesce the DataFrame before the write; compact() afterwards",
    "autoCompact": "compactEvery for a stream; else call compact()",
    "compression": "<column>.compression = zstd, lz4, fsst or none, when the table is made",
    "delta.enableChangeDataFeed": "nothing needs to be switched on: readChangeFeed works by itself",
    "delta.columnMapping.mode": "columns are renamed and dropped without rewriting, without it",
    "delta.deletedFileRetentionDuration": "table.setProperties({'lance.auto_cleanup.older_than': "
    "'14days', 'lance.auto_cleanup.interval': '20'})",
    "delta.logRetentionDuration": "versions go with cleanupOldVersions, and nothing else",
    "delta.appendOnly": "a table cannot be made append-only; the store may forbid deletions",
    "delta.minReaderVersion": _PROTOCOL,
    "delta.minWriterVersion": _PROTOCOL,
    # lance-spark
    "db": _OF_A_FOLDER,
    "dataset": _OF_A_FOLDER,
    "prefilter": _PREFILTER,
    "useIndex": _PREFILTER,
    "withRowId": "metadataColumns = _rowid, or select the column by its name with the plugin",
}
_BY_WORD = {name.lower().replace("_", ""): hint for name, hint in _HINTS.items()}


def migration_hint(word: str) -> str | None:
    """Return what to use instead of an option, given in lower case without ``_`` and ``-``."""
    return _BY_WORD.get(word)
