"""The properties by which a new table gets the files and column types of an existing one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from pyspark_lance.errors import LanceError
from pyspark_lance.format.field import BLOB_KEY, Field
from pyspark_lance.format.logical_view import logical_field
from pyspark_lance.spark.options.encoding_options import ENCODING_KEYS
from pyspark_lance.spark.types.spark_types import BLOB_TYPE, JSON_TYPE, spark_field
from pyspark_lance.spark.types.write_schema import WIDTHS, stored_schema
from pyspark_lance.table.rows.write_fragments import DEFAULT_FILE_VERSION
from pyspark_lance.table.version.snapshot import Snapshot

_FIXED_SIZE_LIST: Final = "fixed_size_list"


def new_table_options(snapshot: Snapshot) -> dict[str, str]:
    """Return the options that ``SHOW CREATE TABLE`` adds to the columns and stored properties.

    Only options that differ from the defaults. A column has none if no option makes its type, such
    as a struct with a float16.
    """
    options = {}
    version = snapshot.manifest.file_version
    if version != DEFAULT_FILE_VERSION:
        options["fileFormatVersion"] = version
    if not snapshot.uses_stable_row_ids:
        options["enableStableRowIds"] = "false"
    for field in snapshot.schema.fields:
        options |= _options_of(field)
    return options


def _options_of(field: Field) -> dict[str, str]:
    encodings = _encodings(field)
    if field.is_blob or field.logical_type == "json":
        kind = BLOB_TYPE if field.is_blob else JSON_TYPE
        return {**encodings, f"{field.name}.{kind}": "true"}
    shown = spark_field(logical_field(field, binary_blobs=True)).dataType
    column = StructField(field.name, shown)
    wanted = field.to_arrow()
    return next(
        (options for options in _candidates(field) if _makes(column, options, wanted)), encodings
    )


def _candidates(field: Field) -> Iterator[dict[str, str]]:
    """Yield the options that may create a column of the type of ``field``."""
    encodings = _encodings(field)
    yield encodings
    kind = field.to_arrow().type
    sizes = {}
    if pa.types.is_fixed_size_list(kind):
        sizes = {f"{field.name}.{_FIXED_SIZE_LIST}": str(kind.list_size)}
        yield encodings | sizes
    for one in (*WIDTHS, BLOB_TYPE, JSON_TYPE):
        yield encodings | sizes | {f"{field.name}.{one}": "true"}


def _encodings(field: Field) -> dict[str, str]:
    """Return the options of encodings: those of the column, or of each of its leaves."""
    metadata = _metadata_of_leaf(field.to_arrow())
    return {
        f"{field.name}.{option}": metadata[key.encode()].decode()
        for option, key in ENCODING_KEYS.items()
        if key.encode() in metadata
    }


def _metadata_of_leaf(field: pa.Field) -> dict[bytes, bytes]:
    """Return the metadata of a field and of its first leaf."""
    metadata = dict(field.metadata or {})
    if field.type.num_fields:
        metadata |= _metadata_of_leaf(field.type.field(0))
    return metadata


def _makes(column: StructField, options: Mapping[str, str], wanted: pa.Field) -> bool:
    """Return whether these options create a column of the requested type."""
    try:
        schema = stored_schema(
            StructType([column]), options, existing=None, overwrite=False, declared=True
        )
    except (LanceError, pa.ArrowException):
        return False
    return _is_same(schema.field(0), wanted)


def _is_same(made: pa.Field, wanted: pa.Field) -> bool:
    """Return whether two fields have equal types, up to nullability and comments."""
    count = wanted.type.num_fields
    if _marks(made) != _marks(wanted) or made.type.num_fields != count:
        return False
    if not count:
        return bool(made.type.equals(wanted.type))
    return made.type.id == wanted.type.id and all(
        _is_same(made.type.field(n), wanted.type.field(n)) for n in range(count)
    )


def _marks(field: pa.Field) -> tuple[bool, bool]:
    """Return whether a field is a blob, and whether it is JSON."""
    metadata = field.metadata or {}
    return BLOB_KEY.encode() in metadata, b"lance.json" in metadata.values()
