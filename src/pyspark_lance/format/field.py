"""Field: one node of the schema tree, identified by an id in files.

Source: docs/format/table-format.md, sections 3.1, 3.2, 3.5; protos/schema.proto, message Field;
https://arrow.apache.org/docs/format/Columnar.html#extension-types
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa

from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.format.logical_type import (
    EXTENSION_METADATA_KEY,
    EXTENSION_NAME_KEY,
    arrow_type_of,
)
from pyspark_lance.proto import schema_pb2

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


PRIMARY_KEY: Final = "lance-schema:unenforced-primary-key"
PRIMARY_KEY_POSITION: Final = "lance-schema:unenforced-primary-key:position"
CLUSTERING_KEY_POSITION: Final = "lance-schema:unenforced-clustering-key:position"

BLOB_KEY: Final = "lance-encoding:blob"
# The second is the spelling of older writers.
PACKED_KEYS: Final = ("lance-encoding:packed", "packed")

# Columns of recent plans.
_MAX_ARROW_FIELDS: Final = 1 << 13

_LIST_TYPES: Final = frozenset(("list", "list.struct", "large_list", "large_list.struct"))


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a part of a nested column."""

    id: int  # Unique in the schema; files refer to it. Kept through renames.
    name: str  # Last part of the path.
    logical_type: str  # Storage type, see ``logical_type``.
    nullable: bool = True  # Whether values may be null.
    children: tuple[Field, ...] = ()  # Parts of a list, struct, map or fixed size list of structs.
    # Arrow field metadata, with the keys that name an extension type.
    metadata: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    extension_name: str = ""  # Copy of the extension name; '' for none.
    encoding: int = 0  # Not used by readers.
    # (offset, length) of dictionary values; used in 0.1 files only.
    dictionary: tuple[int, int] | None = None
    unenforced_primary_key: bool = False  # Mirrors the metadata key.
    unenforced_primary_key_position: int = 0  # Mirrors the metadata key; 0 if it has none.
    unenforced_clustering_key_position: int = 0  # Mirrors the metadata key; 0 if it has none.
    type_code: int = 0  # Parent, repeated or leaf as old writers recorded it; preserved.
    # Further members of a struct that are not read as columns: files without any of the requested
    # members use them to determine where the struct is null.
    left_out: tuple[Field, ...] = dataclasses.field(default=(), compare=False, repr=False)

    def to_arrow(self) -> pa.Field:
        """Return the Arrow field, of storage type; an extension type is only in its metadata."""
        if not (self.metadata or self.children or self.extension_name):
            return _plain_arrow_field(self.name, self.logical_type, self.nullable)
        metadata = dict(self.metadata)
        if self.extension_name and EXTENSION_NAME_KEY not in metadata:
            metadata[EXTENSION_NAME_KEY] = self.extension_name.encode()
        children = [child.to_arrow() for child in self.children]
        return _arrow_field(self.name, self.logical_type, self.nullable, children, metadata)

    def walk(self) -> Iterator[Field]:
        """This field and everything below, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def with_only(self, children: Sequence[Field]) -> Field:
        """Return the struct with some of its members, or with reduced members."""
        kept = {child.id for child in children}
        left_out = (child for child in self.children if child.id not in kept)
        return dataclasses.replace(
            self, children=tuple(children), left_out=(*left_out, *self.left_out)
        )

    def to_proto(self, parent_id: int) -> schema_pb2.Field:
        """The message for this node alone, without its children."""
        message = schema_pb2.Field(
            type=self.type_code,
            name=self.name,
            id=self.id,
            parent_id=parent_id,
            logical_type=self.logical_type,
            nullable=self.nullable,
            encoding=self.encoding,
            extension_name=self.extension_name,
            metadata=self.metadata,
            unenforced_primary_key=self.unenforced_primary_key,
            unenforced_primary_key_position=self.unenforced_primary_key_position,
            unenforced_clustering_key_position=self.unenforced_clustering_key_position,
        )
        if self.dictionary is not None:
            message.dictionary.offset, message.dictionary.length = self.dictionary
            message.dictionary.SetInParent()
        return message

    @classmethod
    def from_proto(cls, message: schema_pb2.Field, children: tuple[Field, ...]) -> Field:
        """Return the field that ``message`` describes, with existing children."""
        if message.storage_class not in ("", "default"):
            raise UnsupportedFeatureError(
                f"column {message.name!r} has storage class {message.storage_class!r}",
                hint="rewrite the table with a release of Lance before 1.0",
            )
        dictionary = message.dictionary
        return cls(
            id=message.id,
            name=message.name,
            logical_type=message.logical_type,
            nullable=message.nullable,
            children=children,
            metadata=dict(message.metadata),
            extension_name=message.extension_name,
            encoding=message.encoding,
            dictionary=(dictionary.offset, dictionary.length)
            if message.HasField("dictionary")
            else None,
            unenforced_primary_key=message.unenforced_primary_key,
            unenforced_primary_key_position=message.unenforced_primary_key_position,
            unenforced_clustering_key_position=message.unenforced_clustering_key_position,
            type_code=message.type,
        )

    @property
    def is_leaf(self) -> bool:
        """Return whether the field has no children: values, or a struct without members."""
        return not self.children

    @property
    def is_list(self) -> bool:
        """A list or large list; not one of fixed size."""
        return self.logical_type in _LIST_TYPES

    @property
    def is_large_list(self) -> bool:
        """A list with 64-bit offsets."""
        return self.is_list and self.logical_type.startswith("large")

    @property
    def is_struct(self) -> bool:
        """A struct, packed or blob structs included."""
        return self.logical_type == "struct"

    @property
    def is_map(self) -> bool:
        """A map; its only child is the struct of its entries."""
        return self.logical_type == "map"

    @property
    def is_fixed_size_list(self) -> bool:
        """A fixed size list; it has a child only if the items are structs."""
        return self.logical_type.startswith("fixed_size_list:")

    @property
    def is_packed(self) -> bool:
        """A struct stored as one column."""
        return self.is_struct and any(_is_true(self.metadata.get(key)) for key in PACKED_KEYS)

    @property
    def is_blob(self) -> bool:
        """A column of large values stored separately, of either blob version."""
        return self.is_blob_v2 or _is_true(self.metadata.get(BLOB_KEY))

    @property
    def is_blob_v2(self) -> bool:
        """A struct of the extension type lance.blob.v2."""
        if self.extension_name == BLOB_V2:
            return True
        # Plans ask this of each column several times, and most columns have no metadata.
        if not self.metadata:
            return False
        if self.metadata.get(EXTENSION_NAME_KEY, b"") == BLOB_V2.encode():
            return True
        # Data files do not name the extension, but mark the column as a packed record.
        packed = any(_is_true(self.metadata.get(key)) for key in PACKED_KEYS)
        return packed and _is_true(self.metadata.get(BLOB_KEY))


@lru_cache(maxsize=_MAX_ARROW_FIELDS)
def _plain_arrow_field(name: str, logical_type: str, nullable: bool) -> pa.Field:
    """Return the field of a column without parts and metadata; each plan asks for it many times."""
    return _arrow_field(name, logical_type, nullable, [], {})


def _arrow_field(
    name: str,
    logical_type: str,
    nullable: bool,
    children: list[pa.Field],
    metadata: Mapping[str, bytes],
) -> pa.Field:
    data_type = arrow_type_of(logical_type, children)
    try:
        return pa.field(name, data_type, nullable, metadata or None)
    except ValueError as error:  # null in a type that must not be
        raise CorruptFileError(f"field {name!r}: {error}") from error


def _is_true(value: bytes | None) -> bool:
    return value is not None and value.lower() == b"true"


def key_positions(metadata: Mapping[str, bytes]) -> tuple[bool, int, int]:
    """Parse the key metadata: is primary key, its position, position as clustering key."""
    position = _number(metadata.get(PRIMARY_KEY_POSITION))
    marked = metadata.get(PRIMARY_KEY, b"").lower() in (b"true", b"1", b"yes")
    return marked or position > 0, position, _number(metadata.get(CLUSTERING_KEY_POSITION))


def _number(text: bytes | None) -> int:
    """Parse a 32-bit number; 0 for anything else, as in Lance."""
    if text is None or not text.isdigit() or len(text) > 10 or int(text) >= 2**32:
        return 0
    return int(text)
