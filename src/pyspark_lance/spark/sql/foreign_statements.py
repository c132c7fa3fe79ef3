"""Statements of Delta and lance-spark that Spark does not parse, and what to use instead. Pure.

The plugin requests this when Spark cannot parse a statement: ``OPTIMIZE``, ``VACUUM``, ``CREATE
INDEX`` and ``DROP INDEX`` become calls of procedures; other statements raise an error with a hint.

Patterns are matched on the text without comments, and not within strings and quoted names. This
follows the lexer of Spark: strings with escapes and doubled quotes, raw strings, names in
backticks, dollar-quoted text, nested bracketed comments, and hints, which are not comments.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from pyspark.sql.types import BooleanType, LongType, StructType

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.spark.sql.plugin_requests import CreateIndexRequest, TableRequest
from pyspark_lance.spark.sql.plugin_responses import (
    CreateIndexResponse,
    IndexDescription,
    IndicesResponse,
)
from pyspark_lance.spark.sql.procedure_work import TOKENIZER_ARGUMENTS
from pyspark_lance.spark.sql.procedures import PROCEDURES
from pyspark_lance.table.index.index_status import index_columns
from pyspark_lance.table.index.segments import BLOOMFILTER, BTREE, INVERTED, ZONEMAP
from pyspark_lance.table.index_build.index_plan import INDEX_KINDS, check_kind
from pyspark_lance.table.index_build.text_build import index_kind
from pyspark_lance.table.nearest.ivf_file import INDEX_NAMES
from pyspark_lance.table.version.snapshot import Snapshot

_PIECE = re.compile(
    r"(?P<line>--(?:\\\n|[^\r\n])*\r?\n?)"
    r"|(?P<bracket>/\*(?!\+))"
    r"|(?P<hint>\*/)"
    r"|(?<!\w)[rR](?:'[^']*'|\"[^\"]*\")"
    r"|'(?:[^'\\]|\\.|'')*'"
    r'|"(?:[^"\\]|\\.|"")*"'
    r"|`(?:[^`]|``)*`"
    r"|\$(?P<tag>[A-Za-z]*)\$(?:.*?\$(?P=tag)\$|.*)",
    re.DOTALL,
)
_BRACKET = re.compile(r"/\*(?!\+)|\*/")
# A private-use character, which no pattern matches.
_HIDDEN = "\ue000"


class SqlText(str):
    """A text, and a masked text of the same length in which quoted parts are hidden."""

    __slots__ = ("masked",)
    masked: str

    @classmethod
    def parse(cls, text: str) -> SqlText:
        """Return ``text`` with a space for each comment."""
        pieces = [
            (" ", " ") if is_comment else (piece, piece[0] + _HIDDEN * (len(piece) - 2) + piece[-1])
            if is_quoted
            else (piece, piece)
            for piece, is_comment, is_quoted in _pieces(text)
        ]  # fmt: skip
        return cls._of("".join(one for one, _ in pieces), "".join(seen for _, seen in pieces))

    @classmethod
    def _of(cls, plain: str, masked: str) -> SqlText:
        text = cls(plain)
        text.masked = masked
        return text

    def part(self, start: int, end: int) -> SqlText:
        """Return the characters from ``start`` to before ``end``, without white space around."""
        seen = self.masked[start:end]
        start += len(seen) - len(seen.lstrip())
        end = start + len(seen.strip())
        return self._of(self[start:end], self.masked[start:end])

    def statement(self) -> SqlText:
        """Return the text without surrounding white space and trailing semicolons."""
        return self.part(0, len(self.masked.rstrip().rstrip("; \t\r\n")))

    def fullmatch(self, pattern: re.Pattern[str]) -> dict[str, SqlText] | None:
        """Return the named groups of a match, empty where they have none; None without a match."""
        return self._groups(pattern.fullmatch(self.masked))

    def search(self, pattern: re.Pattern[str]) -> dict[str, SqlText] | None:
        """Return the named groups of the first match; None without a match."""
        return self._groups(pattern.search(self.masked))

    def _groups(self, match: re.Match[str] | None) -> dict[str, SqlText] | None:
        if match is None:
            return None
        spans = {name: match.span(name) for name in match.re.groupindex}
        return {name: self.part(max(start, 0), max(end, 0)) for name, (start, end) in spans.items()}

    def split_commas(self) -> list[SqlText]:
        """Return the parts between commas."""
        ends = [one.start() for one in re.finditer(",", self.masked)] + [len(self)]
        starts = [0] + [end + 1 for end in ends[:-1]]
        return [self.part(start, end) for start, end in zip(starts, ends, strict=True)]


def _pieces(text: str) -> Iterator[tuple[str, bool, bool]]:
    """Yield each part of a text, whether it is a comment, and whether it is quoted."""
    start = 0
    while (found := _PIECE.search(text, start)) is not None:
        is_bracket = found["bracket"] is not None
        end = _end_of_comment(text, found.end()) if is_bracket else found.end()
        is_comment = is_bracket or found["line"] is not None
        if found.start() > start:
            yield text[start : found.start()], False, False
        yield text[found.start() : end], is_comment, not is_comment and found["hint"] is None
        start = end
    if start < len(text):
        yield text[start:], False, False


def _end_of_comment(text: str, start: int) -> int:
    """Return the end of a bracketed comment, with nested ones, that began before ``start``."""
    depth = 1
    for found in _BRACKET.finditer(text, start):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return found.end()
    return len(text)


_PART = r"(?:`(?:[^`]|``)*`|[\w$-]+)"
_TABLE = rf"(?P<table>{_PART}(?:\.{_PART})*|'[^']*'|\"[^\"]*\")"
_TAIL = r"(?:\s+(?P<rest>.*?))?"
_OPTIONS = re.compile(r"WITH\s*\((?P<pairs>.*)\)", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(r"(?P<name>[\w.]+)\s*=\s*(?P<value>'[^']*'|[\w.+-]+)")
_VACUUM = re.compile(
    r"(?:(?:FULL|LITE)\b\s*)?(?:RETAIN\s+(?P<hours>[\d.]+)\s+HOURS?\b\s*)?(?P<dry>DRY\s+RUN)?",
    re.IGNORECASE,
)
_ZORDER = re.compile(r"ZORDER\s+BY\s*\(?(?P<columns>[^()]+)\)?", re.IGNORECASE)
_VERSION = re.compile(r"VERSION\s+(?P<version>\d+)", re.IGNORECASE)
_TAG = re.compile(r"AS\s+OF\s+TAG\s+(?P<name>\S+)", re.IGNORECASE)
_BRANCH = re.compile(r"AS\s+OF\s+BRANCH\s+(?P<name>\S+)", re.IGNORECASE)
_AS_OF = re.compile(
    r"TO\s+(?:VERSION\s+AS\s+OF\s+(?P<version>\d+)"
    r"|TIMESTAMP\s+AS\s+OF\s+(?P<time>'[^']*'|\"[^\"]*\"))",
    re.IGNORECASE,
)


def translate_statement(text: str) -> str | None:
    """Return the Spark statement to run instead of ``text``; None if it is unknown."""
    statement = SqlText.parse(text).statement()
    for pattern, translate in _STATEMENTS:
        groups = statement.fullmatch(pattern)
        if groups is not None:
            return translate(groups)
    for name, hint in _FUNCTIONS.items():
        if re.search(rf"\b{name}\s*\(", statement.masked, re.IGNORECASE):
            raise UnsupportedFeatureError(f"there is no table function {name}", hint=hint)
    return None


def _quote_table(table: str) -> str:
    """Return the table as an argument of a procedure; a quoted path stays a path."""
    if table[:1] == '"':
        inner = table[1:-1].replace('""', '"')
        return "'" + re.sub(r"\\.|'", lambda one: one[0].replace("'", "\\'")[-2:], inner) + "'"
    return table if table[:1] == "'" else _literal(table)


def _literal(text: str) -> str:
    escaped = text.strip().replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _call(procedure: str, table: str, arguments: Mapping[str, str] | None = None) -> str:
    given = {"table": _quote_table(table), **(arguments or {})}
    listed = ", ".join(f"{name} => {value}" for name, value in given.items())
    return f"CALL lance.system.{procedure}({listed})"


def _instead(what: str, hint: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"{what} is not supported for Lance tables", hint=hint)


def _optimize(groups: Mapping[str, SqlText]) -> str:
    rest = groups["rest"]
    zorder = rest.fullmatch(_ZORDER)
    if zorder is not None:
        columns = zorder["columns"].split_commas()
        names = ", ".join(_literal(name.replace("`", "")) for name in columns)
        return _call(
            "compact", groups["table"], {"cluster_by": f"array({names})", "order": "'zorder'"}
        )
    if re.match(r"(WHERE|ZORDER)\b", rest, re.IGNORECASE):
        raise _instead(
            "OPTIMIZE with WHERE",
            f"{_call('compact', groups['table'])} takes the fragments that need it; to sort rows, "
            "add cluster_by => array(…)",
        )
    is_full = re.match(r"FULL\b", rest, re.IGNORECASE) is not None
    return _call("compact", groups["table"], _options(rest.part(4 * is_full, len(rest))))


def _vacuum(groups: Mapping[str, SqlText]) -> str:
    match = groups["rest"].fullmatch(_VACUUM)
    if match is None:
        return _call("cleanup", groups["table"], _options(groups["rest"]))
    arguments = {}
    if match["hours"]:
        arguments["older_than"] = f"'{round(float(match['hours']) * 3600)}s'"
    if match["dry"]:
        arguments["dry_run"] = "true"
    return _call("cleanup", groups["table"], arguments)


def _primary_key(groups: Mapping[str, SqlText]) -> str:
    columns = groups["columns"].replace("`", "")
    return _call("set_primary_key", groups["table"], {"columns": _quote_table(columns)})


def _options(text: SqlText) -> dict[str, str]:
    """Parse ``WITH (name = value, …)`` of lance-spark; the names are those of our arguments."""
    if not text:
        return {}
    within = text.fullmatch(_OPTIONS)
    pairs = [] if within is None else within["pairs"].split_commas()
    matches = [pair.fullmatch(_OPTION) for pair in pairs]
    given = {str(one["name"]): str(one["value"]) for one in matches if one is not None}
    if within is None or len(given) != len(pairs):
        raise InvalidInputError(
            f"{str(text)!r} cannot be parsed", hint="options are written WITH (name = value, …)"
        )
    return given


def _restore(groups: Mapping[str, SqlText]) -> str:
    match = groups["rest"].fullmatch(_AS_OF)
    at: dict[str, str] = {}
    if match is not None:
        at = {"version": match["version"]} if match["version"] else {"timestamp": match["time"]}
    raise _instead("RESTORE", _call("restore", groups["table"], at))


def _history(groups: Mapping[str, SqlText]) -> str:
    limit = re.fullmatch(r"LIMIT\s+(\d+)", groups["rest"], re.IGNORECASE)
    call = _call("history", groups["table"], {"limit": limit[1]} if limit else {})
    raise _instead("DESCRIBE HISTORY", f"{call}, or the table of that name with $history")


def _detail(groups: Mapping[str, SqlText]) -> str:
    raise _instead(
        "DESCRIBE DETAIL",
        f"{_call('detail', groups['table'])}, or the table of that name with $detail",
    )


def _index(groups: Mapping[str, SqlText]) -> str:
    columns = re.sub(r"\s+", "", groups["columns"])
    kind = groups["method"].lower()
    if kind == "zonemap":
        call = _call("create_zonemap", groups["table"], {"columns": f"'{columns}'"})
    elif kind in ("btree", "bitmap", "label_list"):
        arguments = {"columns": f"'{columns}'", "kind": f"'{kind}'", "name": f"'{groups['name']}'"}
        call = _call("create_index", groups["table"], arguments)
    else:
        call = "LanceTable.createVectorIndex for vectors; indices of texts are not built here"
    raise _instead("CREATE INDEX", call)


def _reference(groups: Mapping[str, SqlText]) -> str:
    """Suggest a procedure for ``CREATE TAG``, ``DROP BRANCH`` and so on."""
    verb, kind = groups["verb"].lower(), groups["kind"].lower()
    arguments = {"name": f"'{groups['name'].strip('`')}'"}
    at, tag, branch = (groups["rest"].search(one) for one in (_VERSION, _TAG, _BRANCH))
    arguments |= {"version": at["version"]} if at else {}
    arguments |= {"tag": f"'{tag['name']}'"} if tag else {}
    arguments |= {"branch": f"'{branch['name']}'"} if branch else {}
    call = _call(f"{verb}_{kind}", groups["table"], arguments)
    raise _instead(f"{verb.upper()} {kind.upper()}", call)


def _show(groups: Mapping[str, SqlText]) -> str:
    kind = groups["kind"].lower()
    kind = "indices" if kind == "indexes" else kind
    procedure = "" if kind == "indices" else f"{_call(kind, groups['table'])}, or "
    raise _instead(f"SHOW {kind.upper()}", f"{procedure}the table of that name with ${kind}")


def _columns(groups: Mapping[str, SqlText]) -> str:
    verb = groups["verb"].upper()
    hint = (
        "LanceTable.addColumns(spark.table(…)), of a view with _rowid and the new columns"
        if verb == "ADD"
        else "MERGE INTO, or LanceTable.merge(…, rewrite='columns'), which writes only the columns "
        "that change"
    )
    raise _instead(f"{verb} COLUMNS … FROM", hint)


def _add_column(groups: Mapping[str, SqlText]) -> str:
    """Suggest an alternative to a constraint or a generated column, which Spark does not parse."""
    if groups["generated"]:
        raise _instead(
            "ADD COLUMN … GENERATED",
            "compute the column in each write; for existing rows, "
            "LanceTable.addColumns({'name': 'expression'}) writes only that column",
        )
    rule = " ".join(groups["rule"].upper().rstrip("( ").split())
    raise _instead(
        f"ADD COLUMN … {rule}",
        'check the rows before writing them, for example with df.where("NOT (…)").isEmpty()',
    )


def _always(what: str, hint: str) -> Callable[[Mapping[str, SqlText]], str]:
    def translate(_: Mapping[str, SqlText]) -> str:
        raise _instead(what, hint)

    return translate


def _pattern(text: str) -> re.Pattern[str]:
    whole = text.replace(" ", r"\s+").replace("{table}", _TABLE).replace("{rest}", _TAIL)
    return re.compile(whole, re.IGNORECASE | re.DOTALL)


_CREATE_INDEX = (
    r"ALTER TABLE {table} CREATE INDEX (?:IF NOT EXISTS )?(?P<name>\S+) USING "
    r"(?P<method>\w+)\s*\((?P<columns>[^)]*)\){rest}"
)
_TAGS_AND_BRANCHES = (
    r"ALTER TABLE {table} (?P<verb>CREATE|DROP) (?P<kind>TAG|BRANCH|INDEX) "
    r"(?:IF (?:NOT )?EXISTS )?(?P<name>\S+){rest}"
)
_ADDED_COLUMN = (
    r"ALTER TABLE {table} ADD COLUMNS? .*\b(?:(?P<generated>GENERATED (?:ALWAYS|BY DEFAULT) AS\b)"
    r"|(?P<rule>CHECK\s*\(|(?:UNIQUE|PRIMARY KEY|REFERENCES)\b)).*"
)
_STATEMENTS = tuple(
    (_pattern(text), translate)
    for text, translate in (
        (r"OPTIMIZE {table}{rest}", _optimize),
        (r"VACUUM {table}{rest}", _vacuum),
        (r"RESTORE (?:TABLE )?{table}{rest}", _restore),
        (r"DESC(?:RIBE)? HISTORY {table}{rest}", _history),
        (r"DESC(?:RIBE)? DETAIL {table}{rest}", _detail),
        (_CREATE_INDEX, _index),
        (_TAGS_AND_BRANCHES, _reference),
        (r"SHOW (?P<kind>TAGS|BRANCHES|INDEXES|INDICES) (?:FROM|IN|ON) {table}{rest}", _show),
        (r"ALTER TABLE {table} (?P<verb>ADD|UPDATE) COLUMNS .* FROM .*", _columns),
        (_ADDED_COLUMN, _add_column),
        (
            r"(?:CREATE|REPLACE) .*\b(?:SHALLOW|DEEP) CLONE .*",
            _always(
                "CLONE",
                "CALL lance.system.create_branch(…) forks a version without copying; CREATE TABLE "
                "… AS SELECT copies the rows",
            ),
        ),
        (
            r"CONVERT TO DELTA .*",
            _always("CONVERT TO DELTA", "CREATE TABLE … USING lance AS SELECT * FROM parquet.`…`"),
        ),
        (
            r"GENERATE .*",
            _always("GENERATE", "there are no manifests to generate: readers find the files"),
        ),
        (
            r"REORG TABLE {table}{rest}",
            _always(
                "REORG TABLE",
                "CALL lance.system.compact(table => …, materialize_deletions_threshold => 0) "
                "rewrites fragments with deleted rows",
            ),
        ),
        (
            r"ALTER TABLE {table} SET UNENFORCED PRIMARY KEY\s*\(?(?P<columns>[^()]*)\)?",
            _primary_key,
        ),
    )
)

_FEED = (
    "SELECT … FROM t CHANGES FROM VERSION 3 TO VERSION 5 (Spark 4.2 and later), the option "
    "readChangeFeed, or LanceTable.changes(3, 5)"
)
_FUNCTIONS = {"table_changes": _FEED, "table_changes_by_path": _FEED}
"""Table functions of other libraries, and what to use instead."""


logger = logging.getLogger(__name__)

# Arguments that the statement sets itself, not by options.
_STATEMENT_ARGUMENTS: Final = ("column", "columns", "kind", "name", "replace")
# Options of lance-spark, and our names for them.
_OF_LANCE_SPARK: Final = {"zone_size": "rows_per_zone", "build_mode": ""}
_ZONED: Final = (ZONEMAP, BLOOMFILTER)
_OF_VECTORS: Final = tuple(name.lower() for name in INDEX_NAMES.values())
_KINDS: Final = (*INDEX_KINDS, *_OF_VECTORS)


def list_indices(request: TableRequest) -> IndicesResponse:
    """Return the name, kind and columns of every index of the newest version."""
    read = request.read_options()
    read.check_follows_table("only the newest version of a table has indices")
    snapshot = Snapshot.open(read.table)
    found = [IndexDescription(**one._asdict()) for one in index_columns(snapshot)]
    return IndicesResponse(indices=found)


def procedure_of_create(request: CreateIndexRequest) -> CreateIndexResponse:
    """Return the procedure for a CREATE INDEX, and its arguments."""
    paths = request.columns
    spelled = [".".join(path) for path in paths]
    if len(paths) != 1:
        raise InvalidInputError(
            f"an index has one column, not {len(paths)}: {', '.join(spelled)}",
            hint="create one index for each column",
        )
    if any("," in part for part in paths[0]):
        raise InvalidInputError(
            f"SQL cannot name the column {spelled[0]!r} for an index, since it has a comma",
            hint="LanceTable.createIndex can",
        )
    if request.of_column:
        raise InvalidInputError(
            "a column of an index takes no options",
            hint="write them after the columns: OPTIONS (…)",
        )
    given = {name.lower(): text for name, text in request.index_options.items()}
    kind = index_kind(given.pop("type", BTREE))
    check_kind(kind, _KINDS)
    is_vector = kind in _OF_VECTORS
    name = "create_vector_index" if is_vector else "create_index"
    arguments = {"column" if is_vector else "columns": spelled[0], "kind": kind}
    own = _convert_options(given, PROCEDURES[name].parameters, kind)
    return CreateIndexResponse(
        procedure=name, arguments={**own, **arguments, "name": request.index}
    )


def _convert_options(given: Mapping[str, str], parameters: StructType, kind: str) -> dict[str, str]:
    """Convert the options of a statement to arguments of a procedure."""
    own = {
        field.name: field.dataType
        for field in parameters.fields
        if field.name not in _STATEMENT_ARGUMENTS
    }
    if kind not in _ZONED:
        own.pop("rows_per_zone", None)
    if kind != INVERTED:
        own = {name: own[name] for name in own if name not in TOKENIZER_ARGUMENTS}
    known = {}
    for option, text in given.items():
        name = _OF_LANCE_SPARK.get(option, option)
        if option in _OF_LANCE_SPARK and name not in own:
            logger.warning("the option %s of an index has no effect here", option)
            continue
        if name not in own:
            raise InvalidInputError(
                f"{option!r} is no option of a {kind} index",
                hint=f"its options are {', '.join(own)}",
            )
        if own[name] == LongType() and not re.fullmatch(r"[+-]?\d+", text):
            raise InvalidInputError(f"the option {option!r} of an index is {text!r}, not a number")
        if own[name] == BooleanType():
            if text.lower() not in ("true", "false"):
                raise InvalidInputError(
                    f"the option {option!r} of an index is {text!r}, neither true nor false"
                )
            text = text.lower()
        known[name] = text
    return known
