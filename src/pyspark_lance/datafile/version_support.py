"""File versions: which of them can store a schema, and the encodings that columns inherit.

A version is checked field by field.  From the oldest to the newest::

    0.1  numbers, texts, binaries, structs, lists, fixed-size lists of numbers, dictionaries that
         the manifest knows; no encoding on request
    2.0  also blobs of the first kind, packed structs of fields of fixed width, new dictionaries
    2.1  as 2.0, but no structs without fields, no vectors in packed structs, and no blobs of the
         first kind in lists
    2.2  also maps, fixed-size lists of structs, packed structs of any fields, blobs of the second
         kind

Types that no version supports are rejected by ``_REFUSALS``, rule by rule.

Encodings that are requested on a list, struct or map apply to the leaves below: each leaf uses
those that fit its type. pylance ignores such keys.

Source: docs/format/file-format.md, section 1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from pyspark_lance.codec.encoding_requests import (
    check_blob_request,
    encoding_request,
    fits_type,
    requests_encoding,
)
from pyspark_lance.codec.leaf_column import leaf_columns
from pyspark_lance.codec.values import is_variable_width
from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.format.feature_flags import FILES_2_3
from pyspark_lance.format.field import Field
from pyspark_lance.format.schema import LanceSchema


def with_inherited_encodings(schema: LanceSchema) -> LanceSchema:
    """The schema with the keys of nested columns on their leaves, where those have none."""
    fields = tuple(_inherit(field, field.name, {}) for field in schema.fields)
    return replace(schema, fields=fields)


def _inherit(field: Field, path: str, outer: Mapping[str, bytes]) -> Field:
    if not field.children or field.is_packed or field.is_blob:
        if not outer or field.is_packed or field.is_blob:
            return field
        data_type = field.to_arrow().type
        kept = {
            key: value
            for key, value in outer.items()
            if fits_type(key, value.decode("utf-8", "replace"), data_type)
        }
        return replace(field, metadata={**kept, **field.metadata})
    own = {key: value for key, value in field.metadata.items() if requests_encoding(key)}
    passed_on = {**outer, **own}
    if not passed_on:
        children = tuple(_inherit(child, f"{path}.{child.name}", {}) for child in field.children)
        return field if children == field.children else replace(field, children=children)
    made = replace(
        field,
        children=tuple(
            _inherit(child, f"{path}.{child.name}", passed_on) for child in field.children
        ),
    )
    for key, value in own.items():
        if not any(key in leaf.metadata for leaf in _leaves(made)):
            raise UnsupportedFeatureError(
                f"column {path}: {key}={value.decode('utf-8', 'replace')} fits nothing in it",
                hint=f"remove {key} from the column's metadata",
            )
    return made


def _leaves(field: Field) -> Iterator[Field]:
    for part in field.walk():
        if not part.children:
            yield part


WRITABLE_VERSIONS: Final = ("2.0", "2.1", "2.2")

# Keys that ask 0.1 for an encoding it lacks, unless they have one of these values.
_NO_ENCODINGS: Final = {
    "lance-encoding:compression": (b"", b"none"),
    "lance-encoding:structural-encoding": (b"",),
    "lance-encoding:bss": (b"", b"off", b"auto"),
}


@dataclass(frozen=True, slots=True)
class VersionNeed:
    """The oldest file version that can hold something, and why."""

    version: str  # ``2.0`` or ``2.2``.
    column: str = ""  # Dotted path of the first column that needs it; '' if nothing special does.
    reason: str = ""


def version_need(schema: LanceSchema) -> VersionNeed:
    """The oldest version of the format that can hold the schema."""
    for field in schema.fields:
        for path, part in _paths(field, field.name):
            reason = _needs_2_2(part)
            if reason:
                return VersionNeed("2.2", path, reason)
    return VersionNeed("2.0")


def check_writable(schema: LanceSchema, version: str) -> None:
    """Reject types that a file of this version cannot hold, or that we do not write."""
    if version == "2.3":
        raise FILES_2_3.refusal("data files of version 2.3 are not written")
    if version not in WRITABLE_VERSIONS:
        raise UnsupportedFeatureError(
            f"data files of version {version} are not written",
            hint=f"choose one of {', '.join(WRITABLE_VERSIONS)}",
        )
    need = version_need(schema)
    if need.version > version:
        raise UnsupportedFeatureError(
            f"column {need.column}: {need.reason} need file version {need.version},"
            f" this file has {version}",
            hint=f"create the table with file version {need.version}, or change the column's type",
        )
    for field in with_inherited_encodings(schema).fields:
        for path, part in _paths(field, field.name):
            _check_part(path, part, version)
        for column in leaf_columns(field.to_arrow()):
            check = check_blob_request if column.is_blob else encoding_request
            check(column.metadata, column.name, column.type, version)


def legacy_need(schema: LanceSchema, dictionaries: Collection[int] = ()) -> VersionNeed:
    """``0.1`` if a 0.1 file can hold the schema; else which column needs a newer version."""
    for field in schema.fields:
        for path, part in _paths(field, field.name):
            reason = _needs_2_0(part)
            if reason and part.id not in dictionaries:
                return VersionNeed("2.2" if _needs_2_2(part) else "2.0", path, reason)
    return VersionNeed("0.1")


def check_legacy_writable(schema: LanceSchema, dictionaries: Collection[int] = ()) -> None:
    """Reject types that a 0.1 file cannot hold, or that we do not write into one.

    ``dictionaries``: ids of the fields whose dictionaries the table has already.
    """
    need = legacy_need(schema, dictionaries)
    if need.reason:
        raise UnsupportedFeatureError(
            f"column {need.column}: {need.reason} are not written to files of version 0.1",
            hint=f"use file version {need.version} or newer, or change the column's type",
        )


def _needs_2_0(part: Field) -> str:
    reason = _needs_2_2(part)
    if reason:
        return reason
    if part.is_blob:
        return "blobs"
    if part.is_packed:
        return "packed structs"
    if part.is_struct and not part.children:
        return "structs without fields"
    if part.logical_type.startswith("dict:"):
        # Their items are in the manifest, the same for all writers, before there are any rows.
        return "new dictionaries"
    for key, usual in _NO_ENCODINGS.items():
        if part.metadata.get(key, b"").lower() not in usual:
            return f"values with {key} in the column's metadata"
    return ""


def _needs_2_2(part: Field) -> str:
    if part.is_map:
        return "maps"
    if part.is_fixed_size_list and part.children:
        return "fixed-size lists of structs"
    if part.is_packed and any(is_variable_width(c.to_arrow().type) for c in part.children):
        return "packed structs with fields of variable width"
    if part.is_blob_v2:
        return "blobs of the second kind"
    return ""


@dataclass(frozen=True, slots=True)
class _UnsupportedType:
    """Reason why a column cannot be written, and a hint."""

    reason: str
    hint: str = "change the column's type"


def _check_part(path: str, part: Field, version: str) -> None:
    """Reject a field by the first rule that it breaks."""
    # Blobs are stored as blobs are, whatever they look like.
    for rule in (_refuse_blob,) if part.is_blob else _REFUSALS:
        refusal = rule(part, version)
        if refusal is not None:
            raise UnsupportedFeatureError(f"column {path}: {refusal.reason}", hint=refusal.hint)


def _refuse_blob(part: Field, version: str) -> _UnsupportedType | None:
    del version
    if part.is_blob_v2 or part.logical_type in ("binary", "large_binary"):
        return None
    return _UnsupportedType(f"blobs of type {part.logical_type}", "make the column large_binary")


def _refuse_blobs_below(part: Field, version: str) -> _UnsupportedType | None:
    if not any(below.is_blob for below in part.walk()):
        return None
    if part.is_map or part.is_fixed_size_list:
        return _UnsupportedType("blobs inside of maps and fixed-size lists cannot be stored")
    of_first_kind = any(below.is_blob and not below.is_blob_v2 for below in part.walk())
    if part.is_list and version != "2.0" and of_first_kind:
        # pylance writes them, and cannot read what it wrote.
        return _UnsupportedType(
            "blobs of the first kind inside of lists cannot be stored in files of version"
            f" {version}",
            "create the table with file version 2.2, or 2.0",
        )
    return None


def _refuse_packed(part: Field, version: str) -> _UnsupportedType | None:
    if not part.is_packed:
        return None
    reasons = (_packing_problem(child, version) for child in part.children)
    reason = next(filter(None, reasons), None)
    if reason is None:
        return None
    return _UnsupportedType(reason, "remove the packed key from its metadata")


def _packing_problem(child: Field, version: str) -> str:
    """Return why a field cannot be in a packed struct; '' if it can."""
    types = pa.types
    data_type = _storage_type(child.to_arrow().type)
    is_vector = types.is_fixed_size_list(data_type) and not types.is_nested(data_type.value_type)
    value = data_type.value_type if is_vector else data_type
    is_fixed = types.is_primitive(value) or types.is_decimal(value)
    is_fixed = is_fixed or types.is_fixed_size_binary(value)
    if types.is_boolean(value) or not (is_fixed or is_variable_width(data_type)):
        return f"fields of type {data_type} inside of a packed struct cannot be stored"
    able = ("2.0", "2.2") if is_vector else ("2.2",)
    if (is_vector or is_variable_width(data_type)) and version not in able:
        return (
            f"fields of type {data_type} inside of a packed struct cannot be stored in files of"
            f" version {version}, only of {' and '.join(able)}"
        )
    return ""


def _refuse_dictionary(part: Field, version: str) -> _UnsupportedType | None:
    del version
    if part.logical_type.startswith("dict:") and part.logical_type.count(":") > 3:
        # Lance cannot parse the type of such a dictionary and refuses the whole table.
        return _UnsupportedType(f"dictionaries of type {part.logical_type} cannot be stored")
    return None


def _refuse_empty_struct(part: Field, version: str) -> _UnsupportedType | None:
    if part.is_struct and not (part.children or part.is_packed) and version != "2.0":
        return _UnsupportedType("a struct without fields cannot be stored", "drop the column")
    return None


def _refuse_fixed_size_list(part: Field, version: str) -> _UnsupportedType | None:
    del version
    if not part.is_fixed_size_list:
        return None
    if not part.children and not _has_fixed_items(part):
        reason = f"a column of type {part.logical_type} cannot be stored"
        return _UnsupportedType(reason, "make it a list of any size")
    if part.children and any(below.is_list or below.is_map for below in part.walk()):
        return _UnsupportedType("lists inside a fixed-size list of structs cannot be stored")
    if any(below.is_packed for below in part.walk()):
        return _UnsupportedType("a packed struct inside a fixed-size list cannot be stored")
    return None


def _refuse_structs_below_lists(part: Field, version: str) -> _UnsupportedType | None:
    del version
    below = part.walk() if part.is_list or part.is_map else ()
    if any(field.is_fixed_size_list and field.children for field in below):
        return _UnsupportedType("a fixed-size list of structs inside a list cannot be stored")
    return None


_REFUSALS: Final[tuple[Callable[[Field, str], _UnsupportedType | None], ...]] = (
    _refuse_blobs_below,
    _refuse_packed,
    _refuse_dictionary,
    _refuse_empty_struct,
    _refuse_fixed_size_list,
    _refuse_structs_below_lists,
)


def _has_fixed_items(part: Field) -> bool:
    """Return whether a fixed-size list has no string, binary, dictionary or null items."""
    data_type = part.to_arrow().type
    while pa.types.is_fixed_size_list(data_type):
        data_type = _storage_type(data_type.value_type)
    types = pa.types
    return not (
        is_variable_width(data_type) or types.is_dictionary(data_type) or types.is_null(data_type)
    )


def _storage_type(data_type: pa.DataType) -> pa.DataType:
    return data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type


def _paths(field: Field, path: str) -> Iterator[tuple[str, Field]]:
    yield path, field
    for child in field.children:
        yield from _paths(child, f"{path}.{child.name}")
