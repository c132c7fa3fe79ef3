"""SQL texts and Columns of users: the columns they reference, and conversions to stored types.

Spark does not push projections to Python sources, so this collects the names in expressions. Too
many names are harmless; an opaque node counts as all names.

Spark parses ``id = 5 and`` as the condition ``id = 5`` with the alias ``and``, so an unfinished
condition would delete rows. Texts with such a trailing word are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    FractionalType,
    MapType,
    NumericType,
    StructField,
    StructType,
    VariantType,
)

from pyspark_lance.commit.conflict_check import ReadSet
from pyspark_lance.errors import InvalidInputError, LanceError
from pyspark_lance.format.column_names import SYSTEM_COLUMNS, sources_of
from pyspark_lance.format.field import Field
from pyspark_lance.format.logical_view import logical_field
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.predicate.conditions import columns_of
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.predicate.text_names import trailing_name
from pyspark_lance.predicate.tree import can_raise
from pyspark_lance.predicate.types import spark_type_of
from pyspark_lance.spark.expressions.column_expressions import (
    Expression,
    names_in,
    node_of,
    reference,
    sql_text,
)
from pyspark_lance.spark.types.spark_types import (
    same_shape,
    same_type,
    spark_field,
    with_descriptors,
)
from pyspark_lance.spark.types.variant_text import holds_json, with_text_for_variants
from pyspark_lance.table.dml.read_set import condition_read_set
from pyspark_lance.table.dml.row_change import DmlPlan
from pyspark_lance.table.scan.plan_scan import predicate_schema


def as_column(expression: Expression) -> Column:
    """Return the Column of a SQL text, or the Column itself."""
    return sf.expr(expression) if isinstance(expression, str) else expression


def with_values(frame: DataFrame, values: Mapping[str, Expression]) -> DataFrame:
    """Select one column for each value, by name.

    ``values``: Columns, and texts that are names or generated. For wide tables texts are faster: a
    Column of a classic session takes about ten calls to the JVM, a text in a list takes one.
    """
    # A text may end in a comment.
    texts = [
        f"{value}\n AS {quote_name(name)}"
        for name, value in values.items()
        if isinstance(value, str)
    ]
    if len(texts) == len(values):
        return frame.selectExpr(*texts)
    return frame.select(*(as_column(value).alias(name) for name, value in values.items()))


def name_or_column(expression: Expression) -> Expression:
    """Return a text that is only a name unchanged, and any other expression as a Column."""
    is_name = isinstance(expression, str) and reference(node_of(expression)) is not None
    return expression if is_name else as_column(expression)


def as_expression(value: object) -> Expression:
    """Return SQL texts and Columns unchanged, and any other value as a literal."""
    return value if isinstance(value, str | Column) else sf.lit(value)


def quote_name(*parts: str) -> str:
    """Quote a column name for SQL."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def named_columns(expressions: Iterable[Expression], names: Sequence[str]) -> tuple[str, ...]:
    """Return the ``names`` that may occur in the expressions, in their order."""
    mentioned = names_in(expressions)
    if mentioned.may_be_any:
        return tuple(names)
    occur = mentioned.qualifiers | mentioned.ends
    return tuple(name for name in names if name.lower() in occur)


def pushable_filter(condition: Expression | None, schema: LanceSchema) -> str | None:
    """Return the condition if our scan certainly evaluates it as Spark does.

    Spark evaluates it again on the remaining rows.  Texts whose meaning depends on the session
    (time zones, ANSI casts, quotes) are left to Spark.
    """
    text = None if condition is None else sql_text(condition)
    if text is None or '"' in text or "\\" in text:
        return None
    every = predicate_schema(schema)
    try:
        predicate = parse_predicate(text, every)
        # Comparisons of strings with numbers cast differently without ANSI mode.
        if can_raise(predicate) or predicate != parse_predicate(text, every, ansi=False):
            return None
        for name in columns_of(predicate):
            seen = spark_type_of(every.field(name).type)
            if pa.types.is_temporal(seen) or pa.types.is_nested(seen):
                return None
    except (LanceError, KeyError):
        return None
    return text


def reads_of(plan: DmlPlan, condition: Expression | None) -> ReadSet:
    """The rows that a change by a condition looks for, as far as our own scan understands it."""
    return condition_read_set(plan.snapshot(), pushable_filter(condition, plan.schema))


def convert_to_stored(
    frame: DataFrame, values: Mapping[str, Expression], schema: LanceSchema
) -> dict[str, Expression]:
    """Convert values to the types of their columns.

    ``values``: column -> a name or a Column; names with the right type stay names.
    """
    if not values:
        return {}
    numbered = {f"v{i}": value for i, value in enumerate(values.values())}
    kinds = [column.dataType for column in with_values(frame, numbered).schema.fields]
    fields = {field.name: field for field in schema.fields if field.name in values}
    return {
        name: _convert_value(value, kind, fields[name])
        for (name, value), kind in zip(values.items(), kinds, strict=True)
    }


def _convert_value(value: Expression, kind: DataType, field: Field) -> Expression:
    # JSON is passed as text, blobs as bytes or as descriptors that the writing task resolves.
    wanted = spark_field(logical_field(field, binary_blobs=True)).dataType
    wanted = with_descriptors(wanted, kind)
    if holds_json(field):
        value, kind = _as_text(as_column(value), kind), with_text_for_variants(kind)
    if same_type(kind, wanted):
        return value
    if isinstance(wanted, StructType | ArrayType | MapType):
        _check_members(kind, wanted, field.name)
    return _compatible(as_column(value), kind, wanted, field.name)


def _as_text(value: Column, kind: DataType) -> Column:
    """Convert variants to JSON text; a cast would lose JSON nulls and quotes."""
    if isinstance(kind, VariantType):
        return sf.to_json(value)
    if kind == with_text_for_variants(kind):
        return value
    if isinstance(kind, StructType):
        members = [_as_text(value.getField(f.name), f.dataType).alias(f.name) for f in kind.fields]
        return sf.when(value.isNotNull(), sf.struct(*members))
    if isinstance(kind, ArrayType):
        items = kind.elementType
        return sf.transform(value, lambda item: _as_text(item, items))
    assert isinstance(kind, MapType)
    items = kind.valueType
    return sf.transform_values(value, lambda _, item: _as_text(item, items))


def _compatible(value: Column, kind: DataType, wanted: DataType, name: str) -> Column:
    """Cast a value to the type of the column, matching fields of structs by name.

    Spark casts structs by position. As with INSERT, a value that does not fit is an error, also
    within a nested value and without ANSI mode.
    """
    if same_type(kind, wanted):
        return value
    if same_shape(kind, wanted, _always_fits):  # one cast is enough
        return value.cast(wanted)
    if isinstance(wanted, StructType) and isinstance(kind, StructType):
        mine = _by_name(kind, wanted)
        members = [
            _compatible(
                value.getField(mine[other.name].name), mine[other.name].dataType, other.dataType,
                f"{name}.{other.name}",
            ).alias(other.name)
            for other in wanted.fields
        ]  # fmt: skip
        return sf.when(value.isNotNull(), sf.struct(*members))
    if isinstance(wanted, ArrayType) and isinstance(kind, ArrayType):
        given, items = kind.elementType, wanted.elementType
        return sf.transform(value, lambda item: _compatible(item, given, items, f"{name}.element"))
    if isinstance(wanted, MapType) and isinstance(kind, MapType):
        key, given, keys, items = kind.keyType, kind.valueType, wanted.keyType, wanted.valueType
        if not same_type(key, keys):
            value = sf.transform_keys(value, lambda k, _: _compatible(k, key, keys, f"{name}.key"))
        return sf.transform_values(
            value, lambda _, v: _compatible(v, given, items, f"{name}.value")
        )
    stored = value.try_cast(wanted)
    message = sf.concat(
        # Errors of Spark print the plan, in which ``error_in`` must not find the code.
        sf.lit("["),
        sf.lit(f"LANCE_SCHEMA_MISMATCH] a value of column {name!r} does not fit "
              f"{wanted.simpleString()}: "),
        value.cast("string"),
    )  # fmt: skip
    return sf.when(value.isNotNull() & stored.isNull(), sf.raise_error(message)).otherwise(stored)


def _always_fits(kind: DataType, wanted: DataType) -> bool:
    """Return whether a cast between types that are not nested succeeds for every value."""
    is_float = isinstance(wanted, FractionalType) and not isinstance(wanted, DecimalType)
    is_void = kind.typeName() == "void"
    return is_void or kind == wanted or (is_float and isinstance(kind, NumericType))


def _check_members(kind: DataType, wanted: DataType, name: str) -> None:
    """Check that a struct has the same fields as the column."""
    if kind.typeName() == "void" or same_type(kind, wanted):
        return
    if isinstance(wanted, StructType):
        mine = _by_name(kind, wanted) if isinstance(kind, StructType) else {}
        if len(mine) != len(wanted) or not isinstance(kind, StructType) or len(kind) != len(mine):
            raise InvalidInputError(
                f"the value of column {name!r} is {kind.simpleString()}, which does not fit "
                f"{wanted.simpleString()}",
                hint="create a struct with the same fields, with named_struct",
            )
        for other in wanted.fields:
            _check_members(mine[other.name].dataType, other.dataType, f"{name}.{other.name}")
    elif isinstance(wanted, ArrayType) and isinstance(kind, ArrayType):
        _check_members(kind.elementType, wanted.elementType, f"{name}.element")
    elif isinstance(wanted, MapType) and isinstance(kind, MapType):
        _check_members(kind.valueType, wanted.valueType, f"{name}.value")


def _by_name(kind: StructType, wanted: StructType) -> dict[str, StructField]:
    """Match the fields of two structs by name."""
    return {name: kind[own] for name, own in sources_of(wanted.names, kind.names).items()}


def readable_columns(schema: LanceSchema) -> tuple[str, ...]:
    """Return the columns that Spark can read, including lineage columns."""
    shown = []
    for field in schema.fields:
        try:
            spark_field(field)
        except LanceError:
            continue
        shown.append(field.name)
    return (*shown, *SYSTEM_COLUMNS)


_MAX_SHOWN = 100


def refuse_trailing_aliases(frame: DataFrame, expressions: Iterable[Expression | None]) -> None:
    """Raise an error for texts that end in an alias without ``AS``.

    ``frame``: has the columns of the expressions. Raises InvalidInputError.
    """
    for text in expressions:
        if not isinstance(text, str):
            continue
        name = trailing_name(text)
        if name is None or _is_one_value(frame, text):
            continue
        shown = text if len(text) <= _MAX_SHOWN else "…" + text[-_MAX_SHOWN:]
        raise InvalidInputError(
            f"{shown!r} ends in {name!r}, which Spark would parse as an alias",
            hint=f"finish it, or leave {name!r} out",
        )


def _is_one_value(frame: DataFrame, text: str) -> bool:
    """Return whether Spark parses the whole text as a value, so that it has no trailing alias."""
    try:
        # The text may end in a comment.
        _ = frame.selectExpr(f"({text}\n) AS value").schema
    except ParseException:
        return False
    return True
