"""Column declarations other than the type: NOT NULL, DEFAULT, lengths of strings, comments.

They are stored in the fields of the table, and apply to every write: columns with a DEFAULT that a
DataFrame lacks are filled, as SQL does.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    UserDefinedType,
    VarcharType,
)

from pyspark_lance.errors import (
    InvalidInputError,
    LanceError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.column_names import sources_of
from pyspark_lance.format.field import PRIMARY_KEY, PRIMARY_KEY_POSITION, Field
from pyspark_lance.format.logical_type import (
    COMMENT_KEY,
    DEFAULT_KEY,
    SPARK_TYPE_KEY,
    declared_text,
)
from pyspark_lance.format.logical_view import logical_field
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.spark.types.spark_types import plain_type_of, same_type, spark_field

# Spark's keys in the metadata of a column.
_CURRENT_DEFAULT, _EXISTS_DEFAULT = "CURRENT_DEFAULT", "EXISTS_DEFAULT"
# The plugin's key in a column of a new table: its position in the primary key, from 1 on.
_KEY_PLACE = "lance.primary_key"


def plain_strings(kind: DataType, path: str = "", *, collations: bool = False) -> DataType:
    """Replace ``char`` and ``varchar`` in a type by strings.

    ``collations``: whether collations may be dropped, for values of a column without one.
    """
    if isinstance(kind, CharType | VarcharType):
        return StringType()
    if isinstance(kind, StringType) and not is_binary_text(kind):
        if collations:
            return StringType()
        raise UnsupportedFeatureError(
            f"the column {path!r} has the collation {kind.collation}, which Lance cannot keep",
            hint="leave out the collation, and use COLLATE in comparisons",
        )
    if isinstance(kind, ArrayType):
        item = plain_strings(kind.elementType, path, collations=collations)
        return ArrayType(item, kind.containsNull)
    if isinstance(kind, MapType):
        key = plain_strings(kind.keyType, path, collations=collations)
        value = plain_strings(kind.valueType, path, collations=collations)
        return MapType(key, value, kind.valueContainsNull)
    if isinstance(kind, StructType):
        members = []
        for field in kind.fields:
            inner = f"{path}.{field.name}" if path else field.name
            plain = plain_strings(field.dataType, inner, collations=collations)
            members.append(StructField(field.name, plain, field.nullable, field.metadata))
        return StructType(members)
    return kind


def is_binary_text(kind: StringType) -> bool:
    """Return whether strings of the type are compared by their bytes."""
    return getattr(kind, "collation", None) in (None, "UTF8_BINARY")


def with_declarations(made: pa.Field, declared: StructField) -> pa.Field:
    """Add the declarations of a column to the field to store, and to its children."""
    given = declared.metadata or {}
    kept = {key.decode(): value.decode() for key, value in (made.metadata or {}).items()}
    if given.get(COMMENT_KEY):
        kept[COMMENT_KEY] = given[COMMENT_KEY]
    if given.get(_CURRENT_DEFAULT):
        kept[DEFAULT_KEY] = given[_CURRENT_DEFAULT]
    kind = declared.dataType
    name = _kept_type(kind)
    if name is not None:
        kept[SPARK_TYPE_KEY] = name
    stored = _parts_declared(made.type, kind)
    if given.get(_KEY_PLACE):
        if declared.nullable or pa.types.is_nested(stored):
            raise InvalidInputError(
                f"the column {made.name!r} cannot be part of a primary key",
                hint="use columns that are NOT NULL and not nested",
            )
        kept |= {PRIMARY_KEY: "true", PRIMARY_KEY_POSITION: str(given[_KEY_PLACE])}
    return pa.field(made.name, stored, declared.nullable, kept or None)


def _kept_type(kind: DataType) -> str | None:
    """Return the declared type if Lance lacks it."""
    if isinstance(kind, CharType | VarcharType):
        return kind.simpleString()
    return kind.json() if isinstance(kind, UserDefinedType) else None


def _parts_declared(stored: pa.DataType, kind: DataType) -> pa.DataType:
    if pa.types.is_struct(stored) and isinstance(kind, StructType):
        return pa.struct(
            [
                with_declarations(stored.field(index), member)
                for index, member in enumerate(kind.fields)
            ]
        )
    if pa.types.is_list(stored) and isinstance(kind, ArrayType):
        item = StructField("item", kind.elementType, kind.containsNull)
        return pa.list_(with_declarations(stored.value_field, item))
    if pa.types.is_map(stored) and isinstance(kind, MapType):
        key = StructField("key", kind.keyType, nullable=False)
        value = StructField("value", kind.valueType, kind.valueContainsNull)
        return pa.map_(
            with_declarations(stored.key_field, key), with_declarations(stored.item_field, value)
        )
    return stored


def keeping_declarations(made: pa.Field, own: pa.Field) -> pa.Field:
    """Copy the declarations of the column that a column of the same type replaces."""
    kept = {
        key: value
        for key, value in (own.metadata or {}).items()
        if key.decode() in (COMMENT_KEY, DEFAULT_KEY, SPARK_TYPE_KEY)
    }
    metadata = {**kept, **(made.metadata or {})}
    return pa.field(made.name, own.type, own.nullable, metadata or None)


def declared_schema(schema: LanceSchema) -> StructType:
    """Return the columns as a catalog shows them, with their declared types."""
    return StructType([_declared_field(field) for field in schema.fields])


def _declared_field(field: Field) -> StructField:
    seen = spark_field(field)
    metadata = _with_comment(seen.metadata, field)
    default = declared_text(field.metadata, DEFAULT_KEY)
    if default is not None:
        # Existing rows are null, as a default that is added later only applies to new rows.
        metadata |= {_CURRENT_DEFAULT: default, _EXISTS_DEFAULT: "NULL"}
    kind = _declared_type(field, seen.dataType)
    return StructField(field.name, kind, field.nullable, metadata)


def _with_comment(metadata: dict[str, Any] | None, field: Field) -> dict[str, Any]:
    comment = declared_text(field.metadata, COMMENT_KEY)
    return {**(metadata or {}), **({COMMENT_KEY: comment} if comment else {})}


def _declared_type(field: Field, seen: DataType) -> DataType:
    name = declared_text(field.metadata, SPARK_TYPE_KEY)
    if name is not None and not name.startswith("{") and isinstance(seen, StringType):
        return _text_type(name)
    if isinstance(seen, StructType) and len(seen.fields) == len(field.children):
        pairs = zip(seen.fields, field.children, strict=True)
        return StructType(
            [
                StructField(
                    column.name,
                    _declared_type(child, column.dataType),
                    child.nullable,
                    _with_comment(column.metadata, child),
                )
                for column, child in pairs
            ]
        )
    if isinstance(seen, ArrayType) and field.is_list and len(field.children) == 1:
        item = field.children[0]
        return ArrayType(_declared_type(item, seen.elementType), item.nullable)
    if isinstance(seen, MapType) and field.children and len(field.children[0].children) == 2:
        key, value = field.children[0].children
        return MapType(
            _declared_type(key, seen.keyType), _declared_type(value, seen.valueType), value.nullable
        )
    return seen


def _text_type(name: str) -> DataType:
    given = json.dumps({"name": "text", "type": name, "nullable": True, "metadata": {}})
    return StructField.fromJson(json.loads(given)).dataType


def with_user_types(schema: StructType, fields: LanceSchema) -> StructType:
    """Return the columns of a read with user-defined types."""
    by_name = {field.name: field for field in fields.fields}
    return StructType(
        [_with_user_type(column, by_name.get(column.name)) for column in schema.fields]
    )


def _with_user_type(column: StructField, field: Field | None) -> StructField:
    name = None if field is None else declared_text(field.metadata, SPARK_TYPE_KEY)
    if name is None or not name.startswith("{"):
        return column
    try:
        kind = UserDefinedType.fromJson(json.loads(name))
    except Exception:  # noqa: BLE001  (the class is not installed, or is another one)
        return column
    if not same_type(kind.sqlType(), column.dataType):
        return column
    return StructField(column.name, kind, column.nullable, column.metadata)


def default_texts(schema: LanceSchema) -> dict[str, str]:
    """Return the SQL texts of the defaults, by column, without those that are NULL."""
    texts = {field.name: declared_text(field.metadata, DEFAULT_KEY) for field in schema.fields}
    return {name: text for name, text in texts.items() if text and text.strip().upper() != "NULL"}


def defaults_for(
    schema: LanceSchema, given: Iterable[str], time_zone: str
) -> Mapping[str, pa.Array]:
    """Return the default values of columns that the rows lack, in their Spark types.

    Each is an array of one value, since a scalar is pickled as a Python value, which only supports
    the years 1 to 9999.

    ``time_zone``: the time zone of the session, which applies to times of defaults, as in SQL.
    """
    known = sources_of((field.name for field in schema.fields), given)
    texts = default_texts(schema)
    missing = [field for field in schema.fields if field.name in texts and field.name not in known]
    return {field.name: _value(field, texts[field.name], time_zone) for field in missing}


def default_columns(schema: LanceSchema, values: Collection[str]) -> list[StructField]:
    """Return the Spark columns of the table that ``values`` fill."""
    return [spark_field(logical_field(field)) for field in schema.fields if field.name in values]


def _value(field: Field, text: str, time_zone: str) -> pa.Array:
    from pyspark_lance.predicate.parse import parse_constant  # noqa: PLC0415

    try:
        kind = plain_type_of(logical_field(field))
        return pa.repeat(parse_constant(text, kind, time_zone=time_zone), 1)
    except LanceError as error:
        raise SchemaMismatchError(
            f"the rows lack the column {field.name!r}, whose default {text} is not a constant",
            hint="add the column to the rows, or use INSERT INTO or LanceTable.merge, where "
            "Spark evaluates the default",
        ) from error
