"""Arrow extension types as their storage type and two metadata keys.

Source: https://arrow.apache.org/docs/format/Columnar.html#extension-types
"""

from __future__ import annotations

import ctypes
from typing import Final

import pyarrow as pa

from pyspark_lance.format.logical_type import EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY

ARROW_JSON: Final = "arrow.json"
LANCE_JSON: Final = "lance.json"
BLOB_V2: Final = "lance.blob.v2"


class _CSchema(ctypes.Structure):
    """The start of struct ArrowSchema (Arrow C data interface)."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


def to_storage(field: pa.Field) -> tuple[pa.DataType, dict[str, bytes]]:
    """The storage type of a field, and its metadata including the extension keys."""
    metadata = {_text(key): value for key, value in (field.metadata or {}).items()}
    data_type = field.type
    if not isinstance(data_type, pa.BaseExtensionType):
        return data_type, metadata
    if data_type.extension_name == ARROW_JSON:
        return data_type.storage_type, metadata | _keys(LANCE_JSON, b"")
    parameters = _serialized_parameters(data_type)
    return data_type.storage_type, metadata | _keys(data_type.extension_name, parameters)


def _keys(name: str, parameters: bytes) -> dict[str, bytes]:
    return {EXTENSION_NAME_KEY: name.encode(), EXTENSION_METADATA_KEY: parameters}


def _serialized_parameters(data_type: pa.BaseExtensionType) -> bytes:
    """Return the parameters of an extension type as IPC stores them.

    pyarrow exposes them in Python only for types written in Python; the C data interface has them
    for every type.
    """
    capsule = data_type.__arrow_c_schema__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    exported = _CSchema.from_address(pointer_of(capsule, b"arrow_schema"))
    return _c_metadata(exported.metadata).get(EXTENSION_METADATA_KEY.encode(), b"")


def _c_metadata(address: int | None) -> dict[bytes, bytes]:
    """Metadata of the C data interface: int32 count, then length-prefixed keys and values."""
    metadata: dict[bytes, bytes] = {}
    if not address:
        return metadata
    position = address

    def read_int32() -> int:
        nonlocal position
        value = ctypes.c_int32.from_address(position).value
        position += 4
        return value

    def read_bytes() -> bytes:
        nonlocal position
        length = read_int32()
        value = ctypes.string_at(position, length)
        position += length
        return value

    for _ in range(read_int32()):
        key = read_bytes()
        metadata[key] = read_bytes()
    return metadata


def _text(key: bytes) -> str:
    return key.decode("utf-8", errors="surrogateescape")
