"""Which file version can hold which schema.

Source: docs/format/file-format.md, section 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pyspark_lance.codec.arrow_values import is_variable_width
from pyspark_lance.codec.encoding_requests import check_blob_request, encoding_request
from pyspark_lance.codec.leaf_column import leaf_columns
from pyspark_lance.datafile.inherited_encodings import with_inherited_encodings
from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.format.field import Field
from pyspark_lance.format.schema import LanceSchema

WRITABLE_VERSIONS: Final = ("2.0", "2.1", "2.2")

# Keys that ask 0.1 for an encoding it lacks, unless they have one of these values.
_NO_ENCODINGS: Final = {
    "lance-encoding:compression": (b"", b"none"),
    "lance-encoding:structural-encoding": (b"",),
    "lance-encoding:bss": (b"", b"off", b"auto"),
}


@dataclass(frozen=True, slots=True)
class VersionNeed:
    """The oldest file version that can hold something, and why.

    Attributes:
        version: ``2.0`` or ``2.2``.
        column: Dotted path of the first column that needs it; '' if nothing special does.
        reason: What is special about it.
    """

    version: str
    column: str = ""
    reason: str = ""


def version_need(schema: LanceSchema) -> VersionNeed:
    """The oldest version of the format that can hold the schema."""
    for field in schema.fields:
        for path, part in _paths(field, field.name):
            reason = _needs_2_2(part)
            if reason:
                return VersionNeed("2.2", path, reason)
    return VersionNeed("2.0")


def minimum_version(schema: LanceSchema) -> str:
    """The oldest version of the format that can hold the schema."""
    return version_need(schema).version


def check_writable(schema: LanceSchema, version: str) -> None:
    """Refuses what a file of this version cannot hold, or what we do not write.

    Raises:
        UnsupportedFeatureError: It names the column and what to do.
    """
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
                return VersionNeed("2.0", path, reason)
    return VersionNeed("0.1")


def check_legacy_writable(schema: LanceSchema, dictionaries: Collection[int] = ()) -> None:
    """Refuses what a 0.1 file cannot hold, or what we do not write into one.

    Args:
        schema: The columns.
        dictionaries: Ids of the fields whose dictionaries the table has already.

    Raises:
        UnsupportedFeatureError: It names the column and what to do.
    """
    need = legacy_need(schema, dictionaries)
    if need.reason:
        raise UnsupportedFeatureError(
            f"column {need.column}: {need.reason} are not written to files of version 0.1",
            hint="use file version 2.0 or newer, or change the column's type",
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


def _refused_blob(part: Field) -> tuple[str, str]:
    """What is wrong with a blob column, and what to do; '' if nothing is."""
    if not part.is_blob_v2 and part.logical_type not in ("binary", "large_binary"):
        return f"blobs of type {part.logical_type}", "make the column large_binary"
    return "", ""


def _holds_blobs(part: Field, *, only_first_kind: bool = False) -> bool:
    return any(one.is_blob and not (only_first_kind and one.is_blob_v2) for one in part.walk())


def _refused_packed(part: Field, version: str) -> str:
    """What is wrong with a packed struct; '' if nothing is."""
    types = pa.types
    for child in part.children:
        kind = child.to_arrow().type
        kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        is_vector = types.is_fixed_size_list(kind) and not types.is_nested(kind.value_type)
        value = kind.value_type if is_vector else kind
        is_fixed = types.is_primitive(value) or types.is_decimal(value)
        is_fixed = is_fixed or types.is_fixed_size_binary(value)
        if types.is_boolean(value) or not (is_fixed or is_variable_width(kind)):
            return f"fields of type {kind} inside of a packed struct cannot be stored"
        able = ("2.0", "2.2") if is_vector else ("2.2",)
        if (is_vector or is_variable_width(kind)) and version not in able:
            return (
                f"fields of type {kind} inside of a packed struct cannot be stored in files of"
                f" version {version}, only of {' and '.join(able)}"
            )
    return ""


def _check_part(path: str, part: Field, version: str) -> None:
    what, hint = "", "change the column's type"
    if part.is_blob:
        what, hint = _refused_blob(part)
    elif (part.is_map or part.is_fixed_size_list) and _holds_blobs(part):
        what = "blobs inside of maps and fixed-size lists cannot be stored"
    elif part.is_list and version != "2.0" and _holds_blobs(part, only_first_kind=True):
        # pylance writes them, and cannot read what it wrote.
        what = (
            "blobs of the first kind inside of lists cannot be stored in files of version"
            f" {version}"
        )
        hint = "create the table with file version 2.2, or 2.0"
    elif part.is_packed:
        what, hint = _refused_packed(part, version), "remove the packed key from its metadata"
    elif part.logical_type.startswith("dict:") and part.logical_type.count(":") > 3:
        # Lance cannot parse the type of such a dictionary and refuses the whole table.
        what = f"dictionaries of type {part.logical_type} cannot be stored"
    elif part.is_struct and not part.children and version != "2.0":
        what, hint = "a struct without fields cannot be stored", "drop the column"
    elif part.is_fixed_size_list and not (part.children or _has_fixed_items(part)):
        what = f"a column of type {part.logical_type} cannot be stored"
        hint = "make it a list of any size"
    elif (
        part.is_fixed_size_list
        and part.children
        and any(below.is_list or below.is_map for below in part.walk())
    ):
        what = "lists inside a fixed-size list of structs cannot be stored"
    elif part.is_fixed_size_list and any(below.is_packed for below in part.walk()):
        what = "a packed struct inside a fixed-size list cannot be stored"
    elif (part.is_list or part.is_map) and any(
        below.is_fixed_size_list and below.children for below in part.walk()
    ):
        what = "a fixed-size list of structs inside a list cannot be stored"
    if what:
        raise UnsupportedFeatureError(f"column {path}: {what}", hint=hint)


def _has_fixed_items(part: Field) -> bool:
    """Whether the items of a fixed-size list are no strings, binaries, dictionaries or nulls."""
    kind = part.to_arrow().type
    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
        kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    types = pa.types
    return not (is_variable_width(kind) or types.is_dictionary(kind) or types.is_null(kind))


def _paths(field: Field, path: str) -> Iterator[tuple[str, Field]]:
    yield path, field
    for child in field.children:
        yield from _paths(child, f"{path}.{child.name}")
