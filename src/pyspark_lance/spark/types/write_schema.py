"""The Arrow schema in which a Spark DataFrame is stored, with the encodings of its columns.

Spark's types are stored as they are, except where the metadata of a column (it was read from a
Lance table) or an option (``<column>.fixed_size_list``) names a type that Spark lacks.

Options such as ``<column>.compression = zstd`` become metadata of the column's leaf fields in the
schema of the table, which every writer reads, including pylance. ``CREATE TABLE … LIKE`` copies
types and file settings of the existing table as properties.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, cast

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    UserDefinedType,
    VariantType,
    YearMonthIntervalType,
)

from pyspark_lance.codec.encoding_requests import (
    PACKED_KEYS,
    check_blob_request,
    encoding_request,
    metadata_texts,
)
from pyspark_lance.codec.leaf_column import leaf_columns
from pyspark_lance.errors import InvalidInputError, LanceError, UnsupportedFeatureError
from pyspark_lance.format.column_names import SYSTEM_COLUMNS, differ_by_case_error, match_names
from pyspark_lance.format.field import BLOB_KEY, LANCE_JSON, Field
from pyspark_lance.format.logical_type import (
    EXTENSION_METADATA_KEY,
    EXTENSION_NAME_KEY,
    arrow_type_of,
    plain_type,
)
from pyspark_lance.format.logical_view import logical_field
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.predicate.types import type_name
from pyspark_lance.spark.types.declared_columns import (
    keeping_declarations,
    plain_strings,
    with_declarations,
)
from pyspark_lance.spark.types.spark_types import (
    BLOB_TYPE,
    HAS_TIME_TYPE,
    JSON_TYPE,
    LOGICAL_TYPE_KEY,
    SYSTEM_COLUMN_KEY,
    arrow_schema_of,
    mark_blobs,
    physical_types,
    spark_field,
    with_bytes,
)
from pyspark_lance.spark.types.variant_text import with_text_for_variants
from pyspark_lance.table.rows.write_fragments import DEFAULT_FILE_VERSION
from pyspark_lance.table.version.snapshot import Snapshot

# Types that Lance cannot store, by class name, as some exist only in newer releases.
_REFUSED = {
    "YearMonthIntervalType": "year-month intervals; store the number of months as int",
    "CalendarIntervalType": "calendar intervals; store months, days and microseconds as numbers",
    "GeometryType": "geometry; store it as WKB with ST_AsBinary",
    "GeographyType": "geography; store it as WKB with ST_AsBinary",
}

WIDTHS = {"float16": pa.float16(), "uint8": pa.uint8(), "uint16": pa.uint16(),
           "uint32": pa.uint32(), "uint64": pa.uint64(), "large_string": pa.large_string(),
           "large_binary": pa.large_binary()}  # fmt: skip


def stored_schema(
    schema: StructType,
    column_types: Mapping[str, str],
    *,
    existing: LanceSchema | None,
    overwrite: bool,
    keeps_declarations: bool = True,
    declared: bool = False,
    case_sensitive: bool = False,
) -> pa.Schema:
    """Return the Arrow schema of the columns to store, without our lineage columns.

    ``column_types``: options ``<column>.<kind>``; ``existing``: the table's schema, if there is a
    table; ``overwrite``: whether the table is replaced; ``keeps_declarations``: whether an
    overwrite keeps NOT NULL, defaults and lengths of columns with the same name and type;
    ``declared``: whether the schema is a declaration, whose nullability, defaults, lengths and
    comments apply, rather than that of rows; ``case_sensitive``: whether new columns may differ by
    case only; existing columns match in any case.
    """
    read = StructType([column for column in schema.fields if not _is_ours(column)])
    given = with_bytes(read)
    known_fields = {field.name: field for field in existing.fields} if existing else {}
    _check_duplicates(given)
    if not case_sensitive:
        _check_twins(given, tuple(known_fields.values()))
    appends = existing is not None and not overwrite
    kept = cast("StructType", plain_strings(given, collations=appends))
    shown = cast("StructType", with_text_for_variants(kept))
    options = physical_types(column_types, kept)
    pairs = match_names(given.names, known_fields)
    resolver = _ColumnResolver(overwrite, keeps_declarations, declared)
    fields = []
    for source, declaration, column, plain in zip(
        read.fields, given.fields, kept.fields, shown.fields, strict=True
    ):
        known = known_fields.get(pairs.get(column.name, ""))
        types, encodings = split_options(options.get(column.name, {}))
        types = _with_json_for_variants(column, types, known)
        forms = _ColumnForms(source, declaration, column, plain, types, encodings, known)
        fields.append(resolver.resolve(forms))
    return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class _ColumnForms:
    """A column to write, in the forms that its stored field depends on."""

    source: StructField  # As in the DataFrame.
    declaration: StructField  # With bytes instead of blob descriptors.
    column: StructField  # With plain strings instead of ``char`` and ``varchar``.
    plain: StructField  # With text instead of variants.
    types: Mapping[str, str]  # Options of its type, by kind.
    encodings: Mapping[str, str]  # Options of its encodings.
    known: Field | None  # The column of the same name in the table, if there is one.

    def is_set(self, kind: str) -> bool:
        """Return whether the option ``<column>.<kind>`` is true."""
        return self.types.get(kind, "").lower() == "true"


@dataclass(frozen=True, slots=True)
class _ColumnResolver:
    """Resolution of the stored field of one column; attributes as in ``stored_schema``."""

    overwrite: bool
    keeps_declarations: bool
    declared: bool

    def resolve(self, forms: _ColumnForms) -> pa.Field:
        """Return the Arrow field to store, with its metadata."""
        column = forms.column
        target = None if self.overwrite else forms.known
        _check_storable(column.dataType, column.name, target, is_json=forms.is_set(JSON_TYPE))
        existing = None if forms.known is None else forms.known.to_arrow()
        if existing is not None and not self.overwrite:
            check_same_encodings(existing, forms.encodings)
        stored = self._type(forms, existing)
        metadata = _metadata_of(column, stored, forms.types)
        field = pa.field(column.name, stored, nullable=True, metadata=metadata)
        field = self._with_declarations(forms, _with_marks(forms, field), existing)
        return with_encodings(field, forms.encodings)

    def _type(self, forms: _ColumnForms, existing: pa.Field | None) -> pa.DataType:
        plain = arrow_schema_of(StructType([forms.plain])).field(0).type
        stored = _stored_type(forms.column, plain, forms.types)
        known = None if existing is None else existing.type
        # An overwrite keeps the table's float16 or fixed-size list if the Spark type is the same.
        if self.overwrite and stored == _lance_names(plain) and _shows_as(known, plain):
            return known
        return stored

    def _with_declarations(
        self, forms: _ColumnForms, field: pa.Field, existing: pa.Field | None
    ) -> pa.Field:
        if self.declared:
            return with_declarations(field, forms.declaration)
        if isinstance(forms.column.dataType, UserDefinedType):
            return with_declarations(field, _nullable(forms.declaration))
        keeps = self.overwrite and self.keeps_declarations
        if existing is not None and keeps and _replaces(field, existing):
            return keeping_declarations(field, existing)
        return field


def _with_marks(forms: _ColumnForms, field: pa.Field) -> pa.Field:
    """Mark nested blobs and JSON of a field in the metadata of its children."""
    if not pa.types.is_nested(field.type):
        return field
    if forms.is_set(BLOB_TYPE):
        field = _with_blobs(field)
    elif BLOB_TYPE not in forms.types:
        field = mark_blobs(field, forms.source.dataType)
    return _with_json(field, forms.column.dataType) if forms.is_set(JSON_TYPE) else field


def _nullable(column: StructField) -> StructField:
    """Make a column of rows nullable, and drop its comment, which is that of another table."""
    return StructField(column.name, column.dataType)


def _replaces(made: pa.Field, own: pa.Field) -> bool:
    """Return whether two fields have equal names and types, up to the nullability of children."""
    return made.name == own.name and _lance_names(made.type) == _lance_names(own.type)


def _metadata_of(
    column: StructField, stored: pa.DataType, requested: Mapping[str, str] | None
) -> dict[str, str] | None:
    """Return the metadata that marks strings as JSON, or binary as blobs."""
    kinds = dict(requested or {})
    known = (column.metadata or {}).get(LOGICAL_TYPE_KEY)
    wants = {
        kind: kinds[kind].lower() == "true" if kind in kinds else known == kind
        for kind in (JSON_TYPE, BLOB_TYPE)
    }
    if wants[JSON_TYPE] and pa.types.is_string(stored):
        return {EXTENSION_NAME_KEY: LANCE_JSON, EXTENSION_METADATA_KEY: ""}
    if wants[BLOB_TYPE] and pa.types.is_large_binary(stored):
        return {BLOB_KEY: "true"}
    if (wants[BLOB_TYPE] or wants[JSON_TYPE]) and pa.types.is_nested(stored):
        return None  # the metadata is on its children
    for kind in (JSON_TYPE, BLOB_TYPE):
        if wants[kind] and kind in kinds:
            raise InvalidInputError(
                f"{column.name}.{kind} = true needs a column of strings (json) or binary (blob)"
            )
    return None


def _with_blobs(field: pa.Field) -> pa.Field:
    """Mark every binary in a field as a blob."""
    marked = _mark_blobs(field)
    if not _has_blobs(marked):
        raise InvalidInputError(f"{field.name}.blob = true, but the column holds no binary")
    return marked


def _has_blobs(field: pa.Field) -> bool:
    parts = (field.type.field(i) for i in range(field.type.num_fields))
    return BLOB_KEY.encode() in (field.metadata or {}) or any(map(_has_blobs, parts))


def _mark_blobs(field: pa.Field) -> pa.Field:
    kind, types = field.type, pa.types
    if types.is_struct(kind):
        return field.with_type(pa.struct([_mark_blobs(child) for child in kind]))
    if types.is_list(kind):
        return field.with_type(pa.list_(_mark_blobs(kind.value_field)))
    if types.is_binary(kind) or types.is_large_binary(kind):
        return pa.field(field.name, pa.large_binary(), field.nullable, {BLOB_KEY: "true"})
    return field


def _with_json(field: pa.Field, shown: DataType) -> pa.Field:
    """Mark every variant in a field as JSON."""
    marked = _mark_json(field, shown)
    if marked.equals(field, check_metadata=True):
        raise InvalidInputError(f"{field.name}.json = true, but the column holds no variants")
    return marked


def _mark_json(field: pa.Field, shown: DataType) -> pa.Field:
    kind = field.type
    if isinstance(shown, VariantType):
        return field.with_metadata({EXTENSION_NAME_KEY: LANCE_JSON, EXTENSION_METADATA_KEY: ""})
    if isinstance(shown, StructType):
        parts = zip(kind, shown.fields, strict=True)
        return field.with_type(
            pa.struct([_mark_json(member, part.dataType) for member, part in parts])
        )
    if isinstance(shown, ArrayType):
        return field.with_type(pa.list_(_mark_json(kind.value_field, shown.elementType)))
    if isinstance(shown, MapType):
        return field.with_type(
            pa.map_(kind.key_field, _mark_json(kind.item_field, shown.valueType))
        )
    return field


def _is_ours(column: StructField) -> bool:
    """Return whether this is a lineage column of our reader; its name is reserved."""
    if column.name.lower() not in SYSTEM_COLUMNS:
        return False
    if (column.metadata or {}).get(SYSTEM_COLUMN_KEY) == column.name.lower():
        return True
    raise InvalidInputError(
        f"the column name {column.name!r} is reserved for row lineage", hint="rename the column"
    )


def _check_duplicates(schema: StructType) -> None:
    names = schema.names
    if len({*names}) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise InvalidInputError(
            f"the data have two columns named {name!r}", hint="rename one of them"
        )


def _check_twins(kind: DataType, parts: Sequence[Field]) -> None:
    """Check that no new columns, or fields of structs, differ by case only.

    ``parts``: the fields of the table, which may differ by case only.
    """
    if isinstance(kind, StructType):
        known = {part.name: part.children for part in parts}
        names: dict[str, str] = {}
        for name in kind.names:
            other = names.setdefault(name.lower(), name)
            if other != name and not (other in known and name in known):
                raise differ_by_case_error(other, name)
        for column in kind.fields:
            _check_twins(column.dataType, known.get(column.name, ()))
    elif isinstance(kind, ArrayType):
        _check_twins(kind.elementType, parts[0].children if parts else ())
    elif isinstance(kind, MapType):
        value = parts[0].children[1:] if parts else ()
        _check_twins(kind.valueType, value[0].children if value else ())


def _with_json_for_variants(
    column: StructField, requested: dict[str, str], known: Field | None
) -> dict[str, str]:
    """Return the options of a column; a variant that is written to JSON becomes JSON."""
    goes_to_json = known is not None and known.logical_type == JSON_TYPE
    if isinstance(column.dataType, VariantType) and goes_to_json and JSON_TYPE not in requested:
        return {**requested, JSON_TYPE: "true"}
    return requested


def _check_storable(
    kind: DataType, path: str, target: Field | None = None, *, is_json: bool = False
) -> None:
    """Check that Lance can store a type; variants are only stored as JSON.

    ``target``: the field of the table, if it exists; ``is_json``: whether the values become JSON.
    """
    if isinstance(kind, VariantType):
        if is_json or (target is not None and target.logical_type == JSON_TYPE):
            return
        raise UnsupportedFeatureError(
            f"the column {path!r} holds variants, which are stored as JSON only",
            hint=f"set the option {path.partition('.')[0]}.json = true for a new column, or store "
            "to_json of it",
        )
    parts = () if target is None else target.children
    refused = _REFUSED.get(type(kind).__name__)
    if refused is not None or isinstance(kind, YearMonthIntervalType):
        raise UnsupportedFeatureError(f"the column {path!r} holds {refused}")
    if isinstance(kind, UserDefinedType):
        _check_storable(kind.sqlType(), path)
    elif isinstance(kind, ArrayType):
        item = parts[0] if parts else None
        _check_storable(kind.elementType, f"{path}.element", item, is_json=is_json)
    elif isinstance(kind, MapType):
        _check_storable(kind.keyType, f"{path}.key")
        entries = parts[0].children if parts else ()
        value = entries[1] if entries[1:] else None
        _check_storable(kind.valueType, f"{path}.value", value, is_json=is_json)
    elif isinstance(kind, StructType):
        _check_duplicates(kind)
        by_name = {part.name: part for part in parts}
        pairs = match_names(kind.names, by_name)
        for column in kind.fields:
            member = by_name.get(pairs.get(column.name, ""))
            _check_storable(column.dataType, f"{path}.{column.name}", member, is_json=is_json)


def _stored_type(
    column: StructField, plain: pa.DataType, requested: Mapping[str, str] | None
) -> pa.DataType:
    if requested:
        return _requested_type(column.name, plain, requested)
    logical = (column.metadata or {}).get(LOGICAL_TYPE_KEY)
    if logical == BLOB_TYPE and pa.types.is_binary(plain):
        return pa.large_binary()
    if logical is not None:
        stored = _type_of_metadata(logical)
        if stored is not None and _shows_as(stored, plain):
            return stored
    return _lance_names(plain)


def _type_of_metadata(logical: str) -> pa.DataType | None:
    """Return the type in the metadata; None if it is invalid, as it may be from anywhere."""
    try:
        return arrow_type_of(logical, ())
    except LanceError:
        return None


def _shows_as(stored: pa.DataType | None, plain: pa.DataType) -> bool:
    """Return whether Spark sees ``stored`` as ``plain``."""
    if stored is None:
        return False
    try:
        shown = plain_type(stored, "", time_as_integer=not HAS_TIME_TYPE)
    except LanceError:
        return False
    return _lance_names(shown) == _lance_names(plain)


def _requested_type(name: str, plain: pa.DataType, requested: Mapping[str, str]) -> pa.DataType:
    """Return the type that the options of one column select."""
    is_array = pa.types.is_list(plain)
    stored = _lance_names(plain.value_type if is_array else plain)
    size = None
    for kind, value in requested.items():
        if kind == "fixed_size_list":
            if not is_array or not value.isdigit() or int(value) < 1:
                raise InvalidInputError(
                    f"{name}.fixed_size_list = {value!r} needs an array column and a positive size"
                )
            size = int(value)
        elif kind == JSON_TYPE and value.lower() in ("true", "false"):
            pass  # stored as a string; the field's metadata mark it as JSON
        elif kind == BLOB_TYPE and value.lower() in ("true", "false"):
            is_blob = value.lower() == "true" and pa.types.is_binary(stored)
            stored = pa.large_binary() if is_blob else stored
        elif kind in WIDTHS and value.lower() in ("true", "false"):
            if value.lower() == "true":
                _check_width(name, kind, stored)
                stored = WIDTHS[kind]
        else:
            raise InvalidInputError(
                f"the option {name}.{kind} = {value!r} is unknown",
                hint="use <column>.fixed_size_list = n, or <column>.<type> = true with one of "
                f"{', '.join((*WIDTHS, JSON_TYPE, BLOB_TYPE))}; encodings are"
                f" {', '.join(ENCODING_KEYS)}",
            )
    if not is_array:
        return stored
    return pa.list_(pa.field("item", stored)) if size is None else pa.list_(stored, size)


def _check_width(name: str, kind: str, stored: pa.DataType) -> None:
    """Check that values of a type can be of another width: ``float16`` makes no integers floats."""
    kinds, wanted = pa.types, WIDTHS[kind]
    if kinds.is_integer(wanted):  # uint64 shows as decimal(20, 0)
        fits = kinds.is_integer(stored) or (kinds.is_decimal(stored) and stored.scale == 0)
    elif kinds.is_floating(wanted):
        fits = kinds.is_floating(stored)
    elif kinds.is_large_string(wanted):
        fits = kinds.is_string(stored) or kinds.is_large_string(stored)
    else:
        fits = kinds.is_binary(stored) or kinds.is_large_binary(stored)
    if not fits:
        raise InvalidInputError(
            f"{name}.{kind} = true does not fit a column of {type_name(stored)}",
            hint="float16 is for floats, uint8 to uint64 for integers, large_string for strings, "
            "large_binary for binary; an array has the width of its elements",
        )


def _lance_names(plain: pa.DataType) -> pa.DataType:
    """Return the type with Lance's names of children, all nullable except map keys."""
    if pa.types.is_list(plain):
        return pa.list_(pa.field("item", _lance_names(plain.value_type)))
    if pa.types.is_map(plain):
        return pa.map_(
            _lance_names(plain.key_type), pa.field("value", _lance_names(plain.item_type))
        )
    if pa.types.is_struct(plain):
        children = [plain.field(i) for i in range(plain.num_fields)]
        return pa.struct([pa.field(c.name, _lance_names(c.type)) for c in children])
    return plain


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


_PACKED = PACKED_KEYS[1]
# The writer checks them against the file version.
_NEWEST = "2.2"

ENCODING_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "compression": "lance-encoding:compression",
        "compression_level": "lance-encoding:compression-level",
        "structural_encoding": "lance-encoding:structural-encoding",
        "byte_stream_split": "lance-encoding:bss",
        "rle_threshold": "lance-encoding:rle-threshold",
        "minichunk_size": "lance-encoding:minichunk-size",
        "dict_divisor": "lance-encoding:dict-divisor",
        "dict_size_ratio": "lance-encoding:dict-size-ratio",
        "dict_max_size": "lance-encoding:dict-max-size",
        "dict_values_compression": "lance-encoding:dict-values-compression",
        "dict_values_compression_level": "lance-encoding:dict-values-compression-level",
        "packed": _PACKED,
    }
)


def split_options(requested: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split options of columns into types, and metadata for encodings."""
    types = {kind: value for kind, value in requested.items() if kind not in ENCODING_KEYS}
    metadata = {
        ENCODING_KEYS[kind]: value.lower()
        for kind, value in requested.items()
        if kind in ENCODING_KEYS
    }
    return types, metadata


def with_encodings(field: pa.Field, metadata: Mapping[str, str]) -> pa.Field:
    """Add the metadata to each leaf of a field, and ``packed`` to the struct."""
    if not metadata:
        return field
    metadata = dict(metadata)
    packed = metadata.pop(_PACKED, None)
    if packed is not None:
        if not pa.types.is_struct(field.type) or packed not in ("true", "false"):
            raise InvalidInputError(
                f"{field.name}.packed = {packed!r} needs a struct column, and true or false"
            )
        field = field.with_metadata({**(field.metadata or {}), _PACKED: packed})
    marked = _mark(field, {key.encode(): value.encode() for key, value in metadata.items()})
    for leaf in leaf_columns(marked):
        check = check_blob_request if leaf.is_blob else encoding_request
        check(leaf.metadata, leaf.name, leaf.type, _NEWEST)
    return marked


def check_same_encodings(existing: pa.Field, metadata: Mapping[str, str]) -> None:
    """Check that the encodings are those of the table's column."""
    for leaf in leaf_columns(existing):
        for key, value in metadata.items():
            stored = metadata_texts(existing) if key == _PACKED else leaf.metadata
            if stored.get(key) != value:
                raise InvalidInputError(
                    f"column {leaf.name}: the table does not have {key} = {value}",
                    hint="the encoding of a column is fixed when the column is created",
                )


def _mark(field: pa.Field, metadata: Mapping[bytes, bytes]) -> pa.Field:
    data_type = field.type
    if pa.types.is_struct(data_type):
        return field.with_type(pa.struct([_mark(child, metadata) for child in data_type]))
    if pa.types.is_map(data_type):
        parts = (_mark(part, metadata) for part in (data_type.key_field, data_type.item_field))
        return field.with_type(pa.map_(*parts))
    if pa.types.is_list(data_type):
        return field.with_type(pa.list_(_mark(data_type.value_field, metadata)))
    if pa.types.is_large_list(data_type):
        return field.with_type(pa.large_list(_mark(data_type.value_field, metadata)))
    return field.with_metadata({**(field.metadata or {}), **metadata})
