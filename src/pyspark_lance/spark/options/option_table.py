"""Every option of the data source in one table: name, aliases, default, meaning.

Options of Delta and lance-spark with a counterpart are aliases; the rest have hints. Options are
named as in Spark, such as ``mergeSchema``; case, ``_`` and ``-`` are ignored, so ``merge_schema``
is the same option. The table of docs/options.md is generated from this table, and a test compares
the two.

A catalog table (``CREATE TABLE t USING lance OPTIONS (path …)``) gets its schema from the source
and stores it; a later ``SELECT`` passes the schema to the source, but no options. So the metadata
of the first column contain the options. They only apply to reads: in a write, the metadata are
those of the columns that the query reads, maybe of another table. Storage options are left out, as
they are secrets.
"""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

from pyspark.sql.types import StructField, StructType

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import spellings
from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.store.storage_options import is_storage_option

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
    "ignoreChanges": "skipChangeCommits = true skips commits that update or delete rows; "
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
_HINTS_BY_WORD = {name.lower().replace("_", ""): hint for name, hint in _HINTS.items()}


def migration_hint(word: str) -> str | None:
    """Return what to use instead of an option, given in lower case without ``_`` and ``-``."""
    return _HINTS_BY_WORD.get(word)


logger = logging.getLogger(__name__)

STORAGE_PREFIX = "storage."
# <column>.<type>: types that Spark lacks; then encodings.
COLUMN_TYPES = (
    "fixed_size_list", "float16", "uint8", "uint16", "uint32", "uint64", "large_string",
    "large_binary", "json", "blob", "compression", "compression_level", "structural_encoding",
    "byte_stream_split", "rle_threshold", "minichunk_size", "dict_divisor", "dict_size_ratio",
    "dict_max_size", "dict_values_compression", "dict_values_compression_level", "packed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Option:
    """One option."""

    name: str  # As documented.
    side: str  # ``read``, ``write`` or ``both``.
    default: str  # As documented.
    meaning: str  # One line for the table; empty if the line before explains the option.
    # Other names of the option, in this package, Delta and lance-spark.
    aliases: tuple[str, ...] = ()
    hidden_aliases: tuple[str, ...] = ()  # Aliases that the documentation leaves out.


OPTIONS = (
    Option(
        "path", "both", "", "root of the table, a path or a URI; set by `load(p)` and `save(p)`",
        (), ("dataset_uri",),
    ),
    Option("version", "read", "latest", "number of the version to read", ("versionAsOf",)),
    Option(
        "timestampAsOf", "read", "", "reads the newest version committed at or before this time",
    ),
    Option("tag", "read", "", "the version that a tag points at"),
    Option("branch", "both", "main", "branch to read, or to write to"),
    Option(
        "readChangeFeed", "read", "false", "`true` reads the change feed instead of the rows",
        ("readChangeData",),
    ),
    Option(
        "startingVersion", "read", "",
        "range of versions to read changes of, inclusive; 0 is the beginning; for streams also "
        "`latest`",
    ),
    Option("endingVersion", "read", "newest", ""),
    Option(
        "startingTimestamp", "read", "",
        "the same range by commit time, instead of version numbers",
    ),
    Option("endingTimestamp", "read", "", ""),
    Option(
        "deduplicationMode", "read", "dropCarryovers",
        "`none` keeps updates that change no value, `netChanges` gives one change per row",
    ),
    Option(
        "layout", "read", "rows",
        "`debezium`: one row per change, with the row `before` and `after` it",
    ),
    Option(
        "maxVersionsPerTrigger", "read", "",
        "maximum versions, changed rows and stored bytes of these rows per micro-batch",
    ),
    Option("maxRowsPerTrigger", "read", "", ""),
    Option("maxBytesPerTrigger", "read", "", ""),
    Option(
        "skipChangeCommits", "read", "false",
        "a stream without `readChangeFeed` skips commits that update or delete rows",
    ),
    Option("ignoreDeletes", "read", "false", "the same for commits that only delete rows"),
    Option(
        "failOnDataLoss", "read", "true",
        "`false`: a stream continues after versions that were removed before it read them",
    ),
    Option(
        "consumer", "read", "",
        "name of a stream; cleanups keep the versions that it has not read yet",
    ),
    Option(
        "metadataColumns", "read", "none",
        "`all`, `none` or a comma-separated list of lineage columns, added after the table's",
    ),
    Option("columns", "read", "all", "comma-separated list of columns to read"),
    Option(
        "filter", "read", "",
        "SQL condition of comparisons, tests and simple functions, applied before rows leave "
        "Python; `where` takes all of SQL",
    ),
    Option(
        "nearest", "read", "",
        "JSON with a query vector: reads the nearest rows, with `_distance`; see [nearest rows]"
        "(vectors.md#as-an-option-of-a-read)",
    ),
    Option(
        "search", "read", "",
        "JSON with words: reads the rows that match them best, with `_score`; see [full-text "
        "search](search.md#in-sql-and-as-an-option-of-a-read)",
    ),
    Option("fragmentsPerPartition", "read", "by size", "fragments per Spark partition"),
    Option(
        "blobColumns", "read", "none",
        "comma-separated list of blob columns to read as `binary`; other columns show where the "
        "bytes are",
    ),
    Option("batchSize", "read", "65536", "maximum rows per Arrow batch"),
    Option(
        "checkText", "read", "false",
        "`true` refuses strings that are not valid UTF-8, which damaged files may contain",
    ),
    Option(
        "enableStableRowIds", "write", "true for new tables",
        "rows keep their ids when updated or moved; `true` for a table without them is an error",
    ),
    Option(
        "maxRowsPerFile", "write", "1048576", "maximum rows per data file",
        ("max_row_per_file",), ("maxRecordsPerFile",),
    ),
    Option(
        "maxBytesPerFile", "write", "90 GB", "size at which a new data file is started",
    ),
    Option(
        "sortBy", "write", "as they come",
        "columns by which each task sorts its rows before it makes files, such as "
        "`day, place DESC`",
    ),
    Option(
        "clusterBy", "write", "the table's",
        "columns that a new or overwritten table is [clustered by](maintenance.md#clustered-tables)"
        ", such as `day, place`: `compact()` sorts rows by them",
    ),
    Option(
        "fileFormatVersion", "write", "the table's; new: 2.1",
        "0.1 (`legacy`), 2.0, 2.1 or 2.2; new tables with types that need 2.2 use 2.2",
        ("data_storage_version",),
    ),
    Option(
        "mergeSchema", "write", "false",
        "`true` adds columns (and fields of structs) that the table lacks",
    ),
    Option(
        "caseSensitive", "write", "the session's, with the plugin",
        "`true` allows new columns whose names differ by case only, such as `Name` and `NAME`",
    ),
    Option(
        "overwriteSchema", "write", "",
        "`false` refuses an overwrite that changes the schema",
    ),
    Option(
        "replaceWhere", "write", "",
        "SQL condition: an overwrite replaces only the rows that match, in one version",
    ),
    Option(
        "allowOlderSource", "write", "false",
        "`true` allows an overwrite with rows read from an older version of the same table",
    ),
    Option(
        "storage.allowed_base_paths", "both", "",
        "comma-separated list of URIs outside the table's own bucket or host where files of a "
        "clone or external blobs may be, and of folders that links inside a local table may lead "
        "to",
    ),
    Option(
        "storage.manifest_store", "both", "",
        "external manifest store for commits: `dynamodb:TABLE` or `sqlite:FILE`",
    ),
    Option(
        "storage.dynamodb_endpoint", "both", "`DYNAMODB_ENDPOINT`",
        "endpoint of a DynamoDB that is not AWS's own",
    ),
    Option(
        "storage.s3_client", "both", "`obstore` if that is installed and sufficient",
        "package that makes requests to S3: `s3fs` or `obstore`",
    ),
    Option(
        "writeMode", "write", "append",
        "what `mode(\"append\")` does: `append`, `overwrite`, or `create`, which needs a new path",
    ),
    Option(
        "userMetadata", "write", "",
        "stored with the commit, in the properties of the transaction",
    ),
    Option(
        "txnAppId", "write", "",
        "name and number of a write; a number that is not above the name's last one is skipped",
    ),
    Option("txnVersion", "write", "", ""),
    Option(
        "streamingQueryId", "write", "the query's id",
        "id of a stream; batches up to the last one that the table has from it are skipped",
    ),
    Option(
        "compactEvery", "write", "never",
        "number of micro-batches after which a stream compacts the table that it writes to",
    ),
    Option(
        "commitRetries", "write", "10",
        "retries after conflicts with other commits (0: none), and their time limit in seconds",
    ),
    Option("commitTimeout", "write", "30", ""),
)  # fmt: skip

# Options of lance-spark without a counterpart, which are ignored.
WITHOUT_EFFECT = (
    "blockSize", "indexCacheSize", "maxRowsPerGroup", "metadataCacheSize", "pushDownFilters",
    "queueDepth", "topNPushDown", "useLargeVarTypes", "useQueuedWriteBuffer",
)  # fmt: skip

# Set by Spark itself (catalog tables, streams, save()); ignored.
_SPARK_OWN = {
    "provider", "owner", "location", "checkpointlocation", "queryname",
    "is_managed_location", "external", "comment", "paths",
}  # fmt: skip


def normalize_name(word: str) -> str:
    """Return a name in lower case without ``_`` and ``-``."""
    return word.lower().replace("_", "").replace("-", "")


_BY_WORD = {
    normalize_name(word): option
    for option in OPTIONS
    for word in (option.name, *option.aliases, *option.hidden_aliases)
}
_WITHOUT_EFFECT = frozenset(map(normalize_name, WITHOUT_EFFECT))
# Options of a new table, which may be table properties; other options apply to one write.
_OF_NEW_TABLES = ("fileFormatVersion", "enableStableRowIds")
# Suffixes of column names, normalized: our names, and those of lance-spark.
_BLOB = "lance.encoding"
_COLUMN_WORDS = {
    **{normalize_name(kind): kind for kind in COLUMN_TYPES},
    **{f"lance.{normalize_name(kind)}": kind for kind in COLUMN_TYPES},
    "lance.bss": "byte_stream_split",
    _BLOB: "blob",
    "arrow.fixedsizelist.size": "fixed_size_list",
    "arrow.float16": "float16",
    "arrow.largevarchar": "large_string",
}


def to_option_strings(given: Mapping[str, object]) -> dict[str, str]:
    """Convert options to the strings of the data source; leave out those that are None."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in given.items()
        if value is not None
    }


def option_named(word: str) -> str | None:
    """Return the documented name of an option in any spelling; None if there is no such option."""
    option = _BY_WORD.get(normalize_name(word))
    return None if option is None else option.name


def canonical_options(given: Mapping[str, str], side: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options by their documented names, and storage options without their prefix.

    ``side``: ``read`` or ``write``.
    """
    canonical: dict[str, str] = {}
    storage: dict[str, str] = {}
    unused = []
    for word, value in given.items():
        lower = word.lower()
        if lower.startswith(STORAGE_PREFIX):
            storage[word[len(STORAGE_PREFIX) :]] = value
            continue
        if lower in _SPARK_OWN or lower.startswith(("option.", "spark.", keys.PREFIX)):
            continue
        if normalize_name(word) in _WITHOUT_EFFECT:
            unused.append(word)
            continue
        option = _BY_WORD.get(normalize_name(word))
        if option is not None:
            name, belongs = option.name, option.side in (side, "both")
        else:
            # A column's physical type, which the write checks against the schema. Reads accept it
            # as a catalog table has one set of options for reads and writes.
            name, value = _of_column(word, value)
            belongs = side == "write"
        if not belongs:
            continue
        if canonical.get(name, value) != value:
            raise InvalidInputError(
                f"the option {name} is given twice with different values",
                hint="spellings with other case, _ or - mean the same, and so do aliases",
            )
        canonical[name] = value
    if unused:
        _warn_unused(tuple(sorted(unused)), canonical.get("path", ""))
    return canonical, storage


def _of_column(word: str, value: str) -> tuple[str, str]:
    """Return ``<column>.<kind>`` with our name of the kind, and its value."""
    parts = word.split(".")
    # lance-spark's names contain dots, so the longest match comes first.
    for length in range(min(3, len(parts) - 1), 0, -1):
        ending = normalize_name(".".join(parts[-length:]))
        kind = _COLUMN_WORDS.get(ending)
        if kind is None:
            continue
        if ending == _BLOB:
            if value.strip().lower() != "blob":
                raise InvalidInputError(
                    f"the option {word} cannot be {value!r}", hint="use blob, or leave it out"
                )
            value = "true"
        return ".".join([*parts[:-length], kind]), value
    raise _unknown(word)


def split_table_properties(
    properties: Mapping[str, str], path: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Split ``TBLPROPERTIES`` of a new table into properties to keep, and options by our names.

    lance-spark has types and encodings of columns in ``TBLPROPERTIES``.  Its names for them contain
    a dot (``<column>.arrow.float16``), so a property such as ``team.json`` is kept here;
    ``split_column_properties`` checks it once the columns are known.

    ``path``: the path of the table, for messages.
    """
    kept, options, taken = {}, {}, []
    for word, value in properties.items():
        option = _option_of_writes(word)
        if _is_of_column_in_lance_spark(word):
            name, value = _of_column(word, value)
        elif option in _OF_NEW_TABLES:
            name = option
        elif option is not None:
            raise _no_property(word, path)
        else:
            kept[word] = value
            continue
        options[name] = value
        taken.append(word)
    if taken:
        _log_storage_properties(tuple(sorted(taken)), path)
    return kept, options


def split_column_properties(
    properties: Mapping[str, str], columns: Collection[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Split properties of a new table into those to keep, and options ``<column>.<kind>``.

    ``properties``: the properties to keep of ``split_table_properties``. ``columns``: the names of
    the table's columns.
    """
    of_columns = {word for word in properties if _is_of_column(word, columns)}
    kept = {word: value for word, value in properties.items() if word not in of_columns}
    return kept, dict(_of_column(word, properties[word]) for word in properties if word not in kept)


def check_properties(
    properties: Mapping[str, str | None], columns: Collection[str], path: str
) -> None:
    """Check that no property has the name of an option, or a value that writers cannot use.

    An option would have no effect, as storage is decided when a table or a column is created.

    ``properties``: None removes one. ``columns``: the names of the table's columns. ``path``: the
    path of the table.
    """
    given = {word: value for word, value in properties.items() if value is not None}
    for word in given:
        is_of_column = _is_of_column_in_lance_spark(word) or _is_of_column(word, columns)
        if is_of_column or _option_of_writes(word) is not None:
            raise _no_property(word, path)
    check_property_values({word: value for word, value in given.items() if isinstance(value, str)})


def check_property_values(properties: Mapping[str, str]) -> None:
    """Check that writers can use the values of properties of Lance."""
    # Few statements set properties.
    from pyspark_lance.table.cleanup.auto_cleanup import PREFIX, auto_policy  # noqa: PLC0415
    from pyspark_lance.table.compaction.compaction_plan import (  # noqa: PLC0415
        CONFIG_PREFIX,
        CompactionOptions,
        CompactionRequest,
    )
    from pyspark_lance.table.rows.spilled_lineage import SPILLS_KEY, inline_lineage_bytes  # noqa: PLC0415

    if properties.get(SPILLS_KEY, "true").lower() not in ("true", "false"):
        raise InvalidInputError(
            f"the property {SPILLS_KEY} = {properties[SPILLS_KEY]!r} is neither true nor false"
        )
    inline_lineage_bytes({**properties, SPILLS_KEY: "true"})
    # Version 0 is one after which every interval cleans up.
    auto_policy({f"{PREFIX}interval": "1", **properties}, 0)
    compaction = {word: properties[word] for word in properties if word.startswith(CONFIG_PREFIX)}
    CompactionOptions.of(compaction, CompactionRequest())


def _option_of_writes(word: str) -> str | None:
    """Return the write option that a property seems to mean, if any.

    Options of reads have common names, such as ``version``, which users give to properties, too.
    """
    if word.lower().startswith(STORAGE_PREFIX):
        return word
    option = _BY_WORD.get(normalize_name(word))
    return option.name if option is not None and option.side == "write" else None


def _is_of_column_in_lance_spark(word: str) -> bool:
    parts = word.split(".")
    endings = [
        normalize_name(".".join(parts[-length:])) for length in (2, 3) if length < len(parts)
    ]
    return any(ending in _COLUMN_WORDS for ending in endings)


def _is_of_column(word: str, columns: Collection[str]) -> bool:
    first, _, kind = word.partition(".")
    return first in spellings(columns) and normalize_name(kind.rpartition(".")[2]) in _COLUMN_WORDS


def _no_property(word: str, path: str) -> InvalidInputError:
    return InvalidInputError(
        f"{word} is an option of reads or writes, not a table property",
        where=path,
        hint="give it in OPTIONS (…) of CREATE TABLE, or as an option of a write; options of "
        "storage apply when the table or the column is created",
    )


@lru_cache(maxsize=1024)
def _log_storage_properties(words: tuple[str, ...], path: str) -> None:
    """Log a line for each table, as for options without effect."""
    logger.info("properties that say how columns of %s are stored: %s", path, ", ".join(words))


@lru_cache(maxsize=1024)
def _warn_unused(words: tuple[str, ...], path: str) -> None:
    """Log one line for each table, however often Spark parses its options."""
    logger.warning("options that have no effect, for %s: %s", path or "a table", ", ".join(words))


def _unknown(word: str) -> InvalidInputError:
    names = [name for option in OPTIONS for name in (option.name, *option.aliases)]
    hint = migration_hint(normalize_name(word))
    if hint is None and is_storage_option(word):
        hint = f"options of the object store begin with {STORAGE_PREFIX}: {STORAGE_PREFIX}{word}"
    if hint is not None:
        return InvalidInputError(f"there is no option {word!r}", hint=hint)
    near = difflib.get_close_matches(normalize_name(word), map(normalize_name, names), n=1)
    guess = next((name for name in names if near and normalize_name(name) == near[0]), None)
    return InvalidInputError(
        f"there is no option {word!r}",
        hint=f"did you mean {guess}?" if guess else f"the options are {_all_names()}",
    )


def _all_names() -> str:
    names = ", ".join(option.name for option in OPTIONS if not option.name.startswith("storage."))
    return f"{names}, {STORAGE_PREFIX}… and <column>.… for the types of columns"


def options_as_markdown() -> str:
    """Return the table of docs/options.md."""
    rows: list[list[Option]] = []
    for option in OPTIONS:
        if option.meaning:
            rows.append([option])
        else:
            rows[-1].append(option)
    lines = ["| option | for | default | meaning |", "|---|---|---|---|"]
    for row in rows:
        names = ", ".join(
            f"`{name}`" for option in row for name in (option.name, *option.aliases[:1])
        )
        defaults = ", ".join(option.default for option in row if option.default)
        lines.append(f"| {names} | {row[0].side} | {defaults} | {row[0].meaning} |")
    return "\n".join(lines)


OPTIONS_KEY = "lance.options"

# Spark passes these only when it creates a catalog table.
_CATALOG_WORDS = ("provider", "owner")
_LEFT_OUT = ("location", "is_managed_location", "external", "comment", *_CATALOG_WORDS)


def is_for_catalog(options: Mapping[str, str]) -> bool:
    """Return whether Spark requests a schema to store in its catalog."""
    return any(word.lower() in _CATALOG_WORDS for word in options)


def keep_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return ``schema`` with the options in its metadata, if it is for a catalog."""
    if not is_for_catalog(options):
        return schema
    words = {word.lower(): value for word, value in options.items()}
    kept = {
        word: value
        for word, value in words.items()
        if word not in _LEFT_OUT and not word.startswith((STORAGE_PREFIX, "option.", keys.PREFIX))
    }
    first, *others = schema.fields
    metadata = {**(first.metadata or {}), OPTIONS_KEY: json.dumps(kept)}
    changed = StructField(first.name, first.dataType, first.nullable, metadata)
    return StructType([changed, *others])


def kept_options(schema: StructType) -> dict[str, str]:
    """Return the options that ``keep_options`` added to a schema, if any."""
    for column in schema.fields:
        text = (column.metadata or {}).get(OPTIONS_KEY)
        if text is not None:
            return {str(word): str(value) for word, value in json.loads(text).items()}
    return {}
