"""Every option of the data source in one table: name, aliases, default, meaning.

The README's table is printed from here, and a test compares the two.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_lance.errors import InvalidInputError

STORAGE_PREFIX = "storage."
# Set by the JVM companion, never by users; see pushed_down.py.
INTERNAL_PREFIX = "_lance."
# <column>.<type>: types that Spark lacks; then encodings.
COLUMN_TYPES = (
    "fixed_size_list", "float16", "uint8", "uint16", "uint32", "uint64", "large_string",
    "large_binary", "json", "blob", "compression", "compression_level", "structural_encoding",
    "byte_stream_split", "rle_threshold", "minichunk_size", "dict_divisor", "dict_size_ratio",
    "dict_max_size", "dict_values_compression", "dict_values_compression_level", "packed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: As documented; options are matched without regard to case.
        side: ``read``, ``write`` or ``both``.
        default: As documented.
        meaning: One line for the README; empty for an option that the line before explains.
        aliases: Other spellings that mean the same.
    """

    name: str
    side: str
    default: str
    meaning: str
    aliases: tuple[str, ...] = ()


OPTIONS = (
    Option("path", "both", "", "root of the table, a folder or a URI; `load(p)`, `save(p)` set it"),
    Option("version", "read", "latest", "number of the version to read", ("versionAsOf",)),
    Option(
        "timestampAsOf", "read", "", "newest version committed at or before this time",
    ),
    Option("tag", "read", "", "the version that a tag points at"),
    Option("branch", "read", "main", "branch to read"),
    Option(
        "readChangeFeed", "read", "false", "`true` reads changed rows of versions instead of rows",
        ("readChangeData",),
    ),
    Option("startingVersion", "read", "", "of these versions, inclusive; 0 is the beginning"),
    Option("endingVersion", "read", "newest", ""),
    Option(
        "startingTimestamp", "read", "", "instead: of the versions committed between these times",
    ),
    Option("endingTimestamp", "read", "", ""),
    Option(
        "deduplicationMode", "read", "dropCarryovers",
        "`none` keeps updates that change no value, `netChanges` gives one change for each row",
    ),
    Option(
        "metadataColumns", "read", "none",
        "`all`, `none` or a comma list of the lineage columns, which come after the table's",
    ),
    Option("columns", "read", "all", "comma list of columns to read"),
    Option("filter", "read", "", "SQL condition, applied before rows leave Python"),
    Option("fragmentsPerPartition", "read", "by size", "fragments in each partition"),
    Option(
        "blobColumns", "read", "none",
        "comma list of blob columns to read as `binary`; others show where the bytes are",
    ),
    Option("batch_size", "read", "65536", "most rows of an Arrow batch", ("batchSize",)),
    Option(
        "enable_stable_row_ids", "write", "true for new tables",
        "keep row ids for life; `true` for a table without them is an error",
        ("enableStableRowIds",),
    ),
    Option(
        "max_row_per_file", "write", "1048576", "a data file ends at this many rows",
        ("max_rows_per_file", "maxRowsPerFile"),
    ),
    Option(
        "max_bytes_per_file", "write", "90 GB", "a data file ends at this size",
        ("maxBytesPerFile",),
    ),
    Option(
        "file_format_version", "write", "the table's; new: 2.1",
        "0.1, 2.0, 2.1 or 2.2; types that need 2.2 choose it for new tables",
        ("data_storage_version", "fileFormatVersion", "dataStorageVersion"),
    ),
    Option(
        "mergeSchema", "write", "false",
        "`true` adds columns (and fields of structs) that the table lacks",
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
        "storage.allowed_base_paths", "both", "",
        "comma list of URIs outside of the table's own bucket or host where a clone's files may be",
    ),
    Option("userMetadata", "write", "", "kept in the properties of the transaction"),
    Option(
        "txnAppId", "write", "", "a pair that is committed at most once",
    ),
    Option("txnVersion", "write", "", ""),
    Option(
        "commitRetries", "write", "10", "attempts when other writers come first, and seconds",
    ),
    Option("commitTimeout", "write", "30", ""),
)  # fmt: skip

# Set by Spark itself (catalog tables, streams, save()), never by us; passed over.
_SPARK_OWN = {
    "provider", "owner", "location", "checkpointlocation", "queryname",
    "is_managed_location", "external", "comment", "paths",
}  # fmt: skip

_BY_WORD = {word.lower(): option for option in OPTIONS for word in (option.name, *option.aliases)}


def canonical_options(given: Mapping[str, str], side: str) -> tuple[dict[str, str], dict[str, str]]:
    """The options under their documented names, and the storage options.

    Args:
        given: As Spark hands them over; upper and lower case are the same.
        side: ``read`` or ``write``: what the options are for.

    Returns:
        Options by canonical name, and storage options without their prefix.

    Raises:
        InvalidInputError: An unknown option, or one given twice by two names.
    """
    found: dict[str, str] = {}
    storage: dict[str, str] = {}
    for word, value in given.items():
        lower = word.lower()
        if lower.startswith(STORAGE_PREFIX):
            storage[word[len(STORAGE_PREFIX) :]] = value
            continue
        if lower in _SPARK_OWN or lower.startswith(("option.", "spark.", INTERNAL_PREFIX)):
            continue
        option = _BY_WORD.get(lower)
        if option is None:
            if lower.rpartition(".")[2] in COLUMN_TYPES and "." in word:
                # A column's physical type; checked against the schema when it is written. A
                # catalog table has one set of options for both sides.
                if side == "write":
                    found[word] = value
                continue
            raise _unknown(word)
        if option.side not in (side, "both"):
            continue
        if found.get(option.name, value) != value:
            raise InvalidInputError(
                f"the option {option.name} is given twice with different values",
                hint=f"{', '.join(option.aliases)} mean the same",
            )
        found[option.name] = value
    return found, storage


def _unknown(word: str) -> InvalidInputError:
    names = [name for option in OPTIONS for name in (option.name, *option.aliases)]
    near = difflib.get_close_matches(word.lower(), [name.lower() for name in names], n=1)
    guess = next((name for name in names if near and name.lower() == near[0]), None)
    return InvalidInputError(
        f"there is no option {word!r}",
        hint=f"did you mean {guess}?" if guess else "see the README for the list of options",
    )


def options_as_markdown() -> str:
    """The table of the README."""
    rows: list[list[Option]] = []
    for option in OPTIONS:
        if option.meaning:
            rows.append([option])
        else:
            rows[-1].append(option)
    lines = ["| option | for | default | meaning |", "|---|---|---|---|"]
    for row in rows:
        names = ", ".join(f"`{name}`" for one in row for name in (one.name, *one.aliases[:1]))
        defaults = ", ".join(one.default for one in row if one.default)
        lines.append(f"| {names} | {row[0].side} | {defaults} | {row[0].meaning} |")
    return "\n".join(lines)
