"""Parse option strings once into frozen dataclasses; no other code reads the strings."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from pyspark_lance.commit.retries import DEFAULT_RETRIES, DEFAULT_TIMEOUT_S
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.transaction import APPLICATION_PROPERTY, MESSAGE_PROPERTY
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.options.option_table import (
    STORAGE_PREFIX,
    canonical_options,
    check_property_values,
    split_column_properties,
    split_table_properties,
)
from pyspark_lance.spark.options.search_options import NearestOption, SearchOption
from pyspark_lance.spark.options.times import (
    parse_starting_timestamp,
    parse_timestamp,
    session_time_zone,
)
from pyspark_lance.store.hadoop_options import (
    hadoop_of,
    has_host,
    is_hadoop,
    resolve_path,
    settings_of_site,
)
from pyspark_lance.table.cdf.change_window import Bound, Deduplication, Layout
from pyspark_lance.table.version.snapshot import LATEST, VersionSpec
from pyspark_lance.table.version.table import Table

_T = TypeVar("_T")
_SEVERAL = "paths"  # Set by Spark: a JSON list, unless load() has one path.
FILE_VERSIONS = ("0.1", "2.0", "2.1", "2.2")


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """The range and form of a change feed."""

    starting: Bound
    ending: Bound
    mode: Deduplication
    layout: Layout = Layout.ROWS

    def __post_init__(self) -> None:
        """Check that the mode is an enum value."""
        check_enum(self.mode, Deduplication)
        check_enum(self.layout, Layout)


@dataclass(frozen=True, slots=True)
class ReadParameters:
    """Parameters of a read that the JVM plugin adds to the user's options."""

    after: bool = False  # A change feed starts after its first version,
    until: bool = False  # and ends before its last one.
    of_sql: bool = False  # A search is a table function of SQL.


OF_OPTIONS_ONLY = ReadParameters()
"""A read that has only options."""


@dataclass(frozen=True, slots=True)
class WriteParameters:
    """Parameters of a write that the JVM plugin adds to the user's options."""

    create: bool = False  # The table must not exist yet.
    replace: bool = False  # The table replaces an existing one.
    replace_where: str | None = None  # A condition of the rows to replace, as JSON text.
    properties: Mapping[str, str] = field(default_factory=dict)  # Of the table.
    # The columns that rows are sorted by, and whose values get separate files.
    split_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] | None = None  # None leaves the clustering columns.
    # By root, the oldest version that the query reads, and its stamp.
    sources: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    @classmethod
    def of_stream(cls, options: Mapping[str, str]) -> WriteParameters:
        """Return those of a stream, whose source Spark creates with options only."""
        return cls(split_by=tuple(json.loads(options.get(keys.SPLIT_BY, "[]"))))


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read."""

    table: Table
    at: VersionSpec
    metadata_columns: str
    columns: tuple[str, ...] | None
    filter: str | None
    fragments_per_partition: int | None
    batch_rows: int | None
    blob_columns: tuple[str, ...] = ()
    changes: ChangeOptions | None = None
    of_streams: str | None = None
    may_be_stream: bool = False
    checks_text: bool = False
    nearest: NearestOption | None = None
    search: SearchOption | None = None
    time_zone: str = "UTC"  # In which the filter's times are meant.
    ansi: bool = True  # Whether the filter has the rules of ANSI mode.

    def check_batch(self) -> None:
        """Check that no option requires a stream, which is unknown when options are parsed."""
        if self.of_streams is not None:
            raise InvalidInputError(self.of_streams, hint="add readChangeFeed = true")

    @property
    def is_search(self) -> bool:
        """Whether rows are searched by a vector or by words."""
        return self.nearest is not None or self.search is not None

    @property
    def follows_table(self) -> bool:
        """Whether to read the newest version, whichever that is."""
        return self.changes is None and not self.is_search and self.at == LATEST

    def check_follows_table(self, refusal: str) -> None:
        """Raise an error with text ``refusal`` unless the read is of the newest version."""
        if not self.follows_table:
            raise InvalidInputError(
                refusal, hint=f"leave out {', '.join(NOT_OF_WRITES)}, readChangeFeed"
            )

    @classmethod
    def parse(
        cls, options: Mapping[str, str], parameters: ReadParameters = OF_OPTIONS_ONLY
    ) -> ReadOptions:
        """Read the options of ``spark.read`` or of a view."""
        canonical, storage = canonical_options(options, "read")
        path = _path_to_read(canonical, options)
        columns = canonical.get("columns")
        return cls(
            table=_table(path, options, storage, canonical.get("branch")),
            at=VersionSpec(
                version=parse_option(canonical, "version", parse_count),
                timestamp_ns=parse_option(
                    canonical,
                    "timestampAsOf",
                    partial(parse_timestamp, zone=session_time_zone(options)),
                ),
                tag=canonical.get("tag"),
            ),
            metadata_columns=canonical.get("metadataColumns", "none"),
            columns=None if columns is None else split_names(columns),
            filter=canonical.get("filter") or None,
            fragments_per_partition=parse_option(canonical, "fragmentsPerPartition", parse_count),
            batch_rows=parse_option(canonical, "batchSize", parse_count),
            blob_columns=split_names(canonical.get("blobColumns", "")),
            changes=_changes(canonical, options, parameters),
            of_streams=_only_of_streams(canonical),
            may_be_stream=any(name in canonical for name in (*_STARTING, *_OF_STREAMS)),
            checks_text=parse_option(canonical, "checkText", parse_flag) or False,
            nearest=_nearest(canonical, of_sql=parameters.of_sql),
            search=_search(canonical, of_sql=parameters.of_sql),
            time_zone=options.get(keys.TIME_ZONE, "UTC"),
            ansi=options.get(keys.ANSI, "true") == "true",
        )


def _nearest(canonical: Mapping[str, str], *, of_sql: bool) -> NearestOption | None:
    text = canonical.get("nearest")
    return None if text is None else NearestOption.parse(text, of_sql=of_sql)


def _search(canonical: Mapping[str, str], *, of_sql: bool) -> SearchOption | None:
    text = canonical.get("search")
    if text is None:
        return None
    if "nearest" in canonical:
        raise InvalidInputError("the options nearest and search at once", hint="leave one out")
    return SearchOption.parse(text, of_sql=of_sql)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write."""

    table: Table
    enable_stable_row_ids: bool | None
    max_rows_per_file: int | None
    max_bytes_per_file: int | None
    file_format_version: str | None
    overwrite_schema: bool | None
    merge_schema: bool
    replace_where: str | None
    time_zone: str  # The time zone of times in its condition.
    ansi: bool  # Whether its condition follows ANSI mode.
    properties: Mapping[str, str]
    commit_retries: int
    commit_timeout_s: float
    column_types: Mapping[str, str]
    must_create: bool = False
    must_overwrite: bool = False
    streaming_query_id: str | None = None
    compact_every: int | None = None
    sort_by: tuple[tuple[str, bool], ...] = ()
    split_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] | None = None
    keeps_declarations: bool = True
    allow_older_source: bool = False
    table_properties: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    case_sensitive: bool = False

    @classmethod
    def parse(
        cls, options: Mapping[str, str], parameters: WriteParameters | None = None
    ) -> WriteOptions:
        """Read the options of ``df.write`` or of a view."""
        parameters = parameters or WriteParameters.of_stream(options)
        canonical, storage = canonical_options(options, "write")
        _refuse_other_rows(options)
        mode = parse_option(canonical, "writeMode", parse_write_mode)
        path = _path_to_write(canonical)
        table = _table(path, options, storage, canonical.get("branch"))
        table_properties, as_options = split_table_properties(parameters.properties, table.root)
        if table_properties:
            check_property_values(table_properties)
        canonical = {**as_options, **canonical}
        return cls(
            table=table,
            enable_stable_row_ids=parse_option(canonical, "enableStableRowIds", parse_flag),
            max_rows_per_file=parse_option(canonical, "maxRowsPerFile", parse_count),
            max_bytes_per_file=parse_option(canonical, "maxBytesPerFile", parse_count),
            file_format_version=parse_option(canonical, "fileFormatVersion", parse_file_version),
            overwrite_schema=parse_option(canonical, "overwriteSchema", parse_flag),
            merge_schema=parse_option(canonical, "mergeSchema", parse_flag) or False,
            replace_where=parameters.replace_where or canonical.get("replaceWhere") or None,
            time_zone=options.get(keys.TIME_ZONE, "UTC"),
            ansi=options.get(keys.ANSI, "true") == "true",
            properties=_properties(canonical, options.get(keys.APPLICATION)),
            commit_retries=_retries(canonical),
            commit_timeout_s=parse_option(canonical, "commitTimeout", parse_seconds)
            or DEFAULT_TIMEOUT_S,
            column_types={word: value for word, value in canonical.items() if "." in word},
            must_create=parameters.create or mode == "create",
            must_overwrite=mode == "overwrite",
            streaming_query_id=canonical.get("streamingQueryId") or None,
            compact_every=parse_option(canonical, "compactEvery", parse_count),
            sort_by=parse_option(canonical, "sortBy", parse_sort_by) or (),
            split_by=parameters.split_by,
            cluster_by=_cluster_by(canonical, parameters),
            allow_older_source=parse_option(canonical, "allowOlderSource", parse_flag) or False,
            keeps_declarations=not parameters.replace,
            table_properties=table_properties,
            sources=parameters.sources,
            case_sensitive=_is_case_sensitive(canonical, options),
        )

    def for_columns(self, names: Sequence[str]) -> WriteOptions:
        """Return the options with those for columns that table properties contain."""
        kept, of_columns = split_column_properties(self.table_properties, names)
        column_types = {**of_columns, **self.column_types}
        return replace(self, table_properties=kept, column_types=column_types)


def storage_options_of(table: Table) -> dict[str, str]:
    """The options with which the data source opens the store of a table."""
    hadoop = {name: value for name, value in table.storage.items() if is_hadoop(name)}
    options = {
        f"{STORAGE_PREFIX}{name}": value
        for name, value in table.storage.items()
        if name not in hadoop
    }
    # Without settings, too, the path is resolved.
    if hadoop or (not has_host(table.root) and settings_of_site()):
        options[keys.HADOOP] = json.dumps(hadoop)
    return options


def hadoop_settings_of(options: Mapping[str, str]) -> dict[str, str]:
    """Hadoop's settings that the plugin, or ``LanceTable``, put among the options."""
    settings: dict[str, str] = json.loads(options.get(keys.HADOOP, "{}"))
    return settings


def _table(
    path: str, options: Mapping[str, str], storage: Mapping[str, str], branch: str | None
) -> Table:
    """The table that a path means in the session, with the settings for its store."""
    hadoop = hadoop_settings_of(options) if keys.HADOOP in options else {}
    root = resolve_path(path, {**hadoop, **storage})
    return Table(root, {**hadoop_of(root, hadoop), **storage}, branch)


def check_full_overwrite(options: Mapping[str, str]) -> None:
    """Check that an overwrite of all rows has no option that selects a part of the table."""
    shown, _ = canonical_options(options, "read")
    for name in ("filter", "columns"):
        if shown.get(name):
            raise InvalidInputError(
                f"the option {name} shows a part of the table, and an overwrite replaces all of it",
                hint=f"leave out {name}; replaceWhere replaces the rows that match a condition",
            )


def _refuse_other_rows(options: Mapping[str, str]) -> None:
    """Check that a write has no option that reads other rows than those of the newest version."""
    shown, _ = canonical_options(options, "read")
    if parse_option(shown, "readChangeFeed", parse_flag):
        raise InvalidInputError(
            "a view with readChangeFeed is read-only",
            hint="write to a view without readChangeFeed, or to the table",
        )
    for name in NOT_OF_WRITES:
        if shown.get(name):
            raise InvalidInputError(
                f"a view with the option {name} is read-only: it shows other rows than the "
                "newest version",
                hint=f"leave out {name}",
            )


NOT_OF_WRITES = ("version", "timestampAsOf", "tag", "nearest", "search")
"""Options of reads with which a view shows something else than the newest rows of its table."""
_OF_CHANGES = (
    "startingVersion",
    "endingVersion",
    "startingTimestamp",
    "endingTimestamp",
    "deduplicationMode",
    "layout",
)
_STARTING = ("startingVersion", "startingTimestamp")
_OF_STREAMS = (
    "maxVersionsPerTrigger",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "skipChangeCommits",
    "ignoreDeletes",
    "failOnDataLoss",
)
LATEST_VERSION = "latest"
_NOT_OF_CHANGES = ("version", "timestampAsOf", "tag", "metadataColumns", "fragmentsPerPartition",
    "nearest", "search")  # fmt: skip


def _changes(
    options: Mapping[str, str], given: Mapping[str, str], parameters: ReadParameters
) -> ChangeOptions | None:
    if not parse_option(options, "readChangeFeed", parse_flag):
        for name in _OF_CHANGES:
            if name in options and name not in _STARTING:
                raise InvalidInputError(
                    f"the option {name} is for change feeds", hint="add readChangeFeed = true"
                )
        return None
    zone = session_time_zone(given)
    for name in _NOT_OF_CHANGES:
        if options.get(name, "none") != "none":
            raise InvalidInputError(
                f"the option {name} is not for change feeds", hint="leave it or readChangeFeed out"
            )
    return ChangeOptions(
        starting=Bound(
            None if _is_latest(options) else parse_option(options, "startingVersion", parse_whole),
            parse_option(
                options, "startingTimestamp", partial(parse_starting_timestamp, zone=zone)
            ),
            is_exclusive=parameters.after,
        ),
        ending=Bound(
            parse_option(options, "endingVersion", parse_whole),
            parse_option(options, "endingTimestamp", partial(parse_timestamp, zone=zone)),
            is_exclusive=parameters.until,
        ),
        mode=parse_option(options, "deduplicationMode", parse_deduplication)
        or Deduplication.DROP_CARRYOVERS,
        layout=parse_option(options, "layout", parse_layout) or Layout.ROWS,
    )


def _is_latest(options: Mapping[str, str]) -> bool:
    return options.get("startingVersion", "").strip().lower() == LATEST_VERSION


def _only_of_streams(options: Mapping[str, str]) -> str | None:
    """Return why the options are only valid for a stream; None if they are valid for a batch."""
    if parse_option(options, "readChangeFeed", parse_flag):
        return "startingVersion = latest is for streams" if _is_latest(options) else None
    stray = next((name for name in _STARTING if name in options), None)
    return None if stray is None else f"the option {stray} is for change feeds"


def parse_deduplication(text: str) -> Deduplication:
    """Parse the name of a mode, in upper or lower case."""
    for mode in Deduplication:
        if mode.lower() == text.strip().lower():
            return mode
    raise ValueError(f"use one of {', '.join(Deduplication)}")


def parse_layout(text: str) -> Layout:
    """Parse the name of a layout, in upper or lower case."""
    try:
        return Layout(text.strip().lower())
    except ValueError:
        raise ValueError(f"use one of {', '.join(Layout)}") from None


def _path_to_read(canonical: Mapping[str, str], given: Mapping[str, str]) -> str:
    path = canonical.get("path", "")
    if path.strip():
        return path
    several = next((text for name, text in given.items() if name.lower() == _SEVERAL), "[]")
    if several != "[]":
        raise InvalidInputError(
            f"a read takes one path, and these are several: {several}",
            hint="read each table separately, and combine the DataFrames with union",
        )
    raise InvalidInputError("there is no path to read", hint='use load("…"), or the option path')


def _path_to_write(canonical: Mapping[str, str]) -> str:
    path = canonical.get("path", "")
    if path.strip():
        return path
    raise InvalidInputError(
        "there is no path to write to: Spark does not pass on the path of a catalog table",
        hint='use df.write.format("lance").mode("append").save("…"), of a stream start("…"), or '
        "insert into a view made with CREATE TEMPORARY VIEW … USING lance OPTIONS (path '…')",
    )


def _properties(options: Mapping[str, str], application: str | None) -> dict[str, str]:
    """Return transaction properties: application, user metadata, id of an idempotent write."""
    properties = {}
    if application is not None:
        properties[APPLICATION_PROPERTY] = application
    if "userMetadata" in options:
        properties[MESSAGE_PROPERTY] = options["userMetadata"]
    app, version = options.get("txnAppId"), options.get("txnVersion")
    if (app is None) != (version is None):
        raise InvalidInputError("txnAppId and txnVersion are given together or not at all")
    if app is not None and version is not None:
        properties["pyspark_lance.txn_app_id"] = app
        properties["pyspark_lance.txn_version"] = str(parse_whole(version))
    return properties


def parse_option(options: Mapping[str, str], name: str, parse: Callable[[str], _T]) -> _T | None:
    """Parse the value of an option; None if it is not given."""
    if name not in options:
        return None
    try:
        return parse(options[name])
    except ValueError as error:
        raise InvalidInputError(
            f"the option {name} cannot be {options[name]!r}", hint=str(error)
        ) from None


def _is_case_sensitive(canonical: Mapping[str, str], options: Mapping[str, str]) -> bool:
    """Return the value of the option, else that of the session, if it is known."""
    requested = parse_option(canonical, "caseSensitive", parse_flag)
    return options.get(keys.CASE_SENSITIVE) == "true" if requested is None else requested


def _cluster_by(
    canonical: Mapping[str, str], parameters: WriteParameters
) -> tuple[str, ...] | None:
    """Return the columns of the option, which takes precedence, else those of the statement."""
    requested = parse_option(canonical, "clusterBy", split_names)
    return parameters.cluster_by if requested is None else requested


def _retries(options: Mapping[str, str]) -> int:
    requested = parse_option(options, "commitRetries", parse_whole_number)
    return DEFAULT_RETRIES if requested is None else requested


def parse_sort_by(text: str) -> tuple[tuple[str, bool], ...]:
    """Parse a sort order such as ``day, place DESC`` into columns, and whether each is descending.

    Raises InvalidInputError: the order has NULLS FIRST or NULLS LAST.
    """
    columns = []
    for part in _split(text):
        nulls = re.search(r"\s(NULLS\s+\w+)\s*$", part, re.IGNORECASE)
        if nulls:
            raise InvalidInputError(
                f"sortBy takes no {nulls[1]!r}", hint="nulls come first, and with DESC last"
            )
        word = re.search(r"\s+(ASC|DESC)\s*$", part, re.IGNORECASE)
        name = part[: word.start()] if word else part
        columns += [
            (own, word is not None and word[1].upper() == "DESC") for own in split_names(name)
        ]
    return tuple(columns)


def _split(text: str) -> list[str]:
    """Split a comma-separated list; commas in backquotes do not separate."""
    return re.findall(r"(?:`(?:[^`]|``)*`|[^,`])+", text)


def split_names(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of names, which may be quoted with backquotes."""
    names = []
    for part in _split(text):
        name = part.strip()
        if re.fullmatch(r"`(?:[^`]|``)*`", name):
            name = name[1:-1].replace("``", "`")
        else:
            name = re.sub("`([^`]*)`", r"\1", name)
        names.append(name)
    return tuple(name for name in names if name)


def parse_file_version(text: str) -> str | None:
    """Parse the version of data files; None for ``stable``, our default."""
    word = text.strip().lower().removeprefix("v").replace("_", ".")
    if word == "stable":
        return None
    version = "0.1" if word == "legacy" else word
    if version not in FILE_VERSIONS:
        raise ValueError(f"use one of {', '.join(FILE_VERSIONS)}, legacy, stable")
    return version


def parse_write_mode(text: str) -> str:
    """Parse ``append``, ``overwrite`` or ``create``, in upper or lower case."""
    word = text.strip().lower()
    if word not in ("append", "overwrite", "create"):
        raise ValueError("use append, overwrite or create")
    return word


def parse_whole(text: str) -> int:
    """Parse a whole number that is not negative."""
    try:
        value = int(text.strip())
    except ValueError:
        value = -1
    if value < 0:
        raise ValueError("use a whole number that is not negative")
    return value


def parse_count(text: str) -> int:
    """Parse a positive whole number."""
    return _whole_number(text, 1, "use a positive whole number")


def parse_whole_number(text: str) -> int:
    """Parse a positive whole number or 0."""
    return _whole_number(text, 0, "use a whole number, or 0")


def _whole_number(text: str, least: int, hint: str) -> int:
    try:
        value = int(text.strip())
    except ValueError:
        raise ValueError(hint) from None
    if value < least:
        raise ValueError(hint)
    return value


def parse_seconds(text: str) -> float:
    """Parse seconds, with or without the letter s."""
    try:
        value = float(text.strip().removesuffix("s"))
    except ValueError:
        raise ValueError("use a number of seconds") from None
    if not value > 0:
        raise ValueError("use a positive number of seconds")
    return value


def parse_flag(text: str) -> bool:
    """Parse ``true`` or ``false``."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("use true or false")
    return word == "true"
