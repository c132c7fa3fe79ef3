"""CREATE INDEX and DROP INDEX as calls of procedures."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import BooleanType, LongType, StructType

from pyspark_lance.errors import InvalidInputError
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
from pyspark_lance.table.index_build.text_indices import index_kind
from pyspark_lance.table.nearest.ivf_file import INDEX_NAMES
from pyspark_lance.table.version.snapshot import Snapshot

logger = logging.getLogger(__name__)

# Arguments that the statement sets itself, not by options.
_SAID: Final = ("column", "columns", "kind", "name", "replace")
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
    own = _known(given, PROCEDURES[name].parameters, kind)
    return CreateIndexResponse(
        procedure=name, arguments={**own, **arguments, "name": request.index}
    )


def _known(given: Mapping[str, str], parameters: StructType, kind: str) -> dict[str, str]:
    """Convert the options of a statement to arguments of a procedure."""
    own = {field.name: field.dataType for field in parameters.fields if field.name not in _SAID}
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
