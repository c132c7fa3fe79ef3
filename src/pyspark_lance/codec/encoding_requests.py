"""EncodingRequest: what a column's metadata ask of its encoding.

Keys start with ``lance-encoding:``. Those that ask for something we do not write are refused by
name; those that only tune a choice (``rle-threshold``, ``dict-divisor``, …) are left to us.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pyspark_lance.codec.arrow_values import bits_per_value, is_variable_width
from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError

_PREFIX: Final = "lance-encoding:"
PACKED_KEYS: Final = ("packed", _PREFIX + "packed")
BLOB_KEY: Final = _PREFIX + "blob"
_COMPRESSIONS: Final = ("none", "lz4", "zstd", "fsst")
_STRUCTURES: Final = ("miniblock", "fullzip")


@dataclass(frozen=True, slots=True)
class EncodingRequest:
    """What to do beyond the usual choice.

    Attributes:
        compression: ``lz4``, ``zstd``, ``fsst`` or None.
        compression_level: Its level, None for the default.
        full_zip: Whether the layout for large values is asked for.
        plain: Whether compression ``none`` was asked for: values as they are.
        byte_stream_split: Whether numbers are to be split into their bytes.
    """

    compression: str | None = None
    compression_level: int | None = None
    full_zip: bool = False
    plain: bool = False
    byte_stream_split: bool = False

    @property
    def general(self) -> str | None:
        """The general compression asked for: ``lz4``, ``zstd`` or None."""
        return None if self.compression == "fsst" else self.compression


def metadata_texts(field: pa.Field) -> dict[str, str]:
    """The metadata of a field."""
    return {
        key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for key, value in (field.metadata or {}).items()
    }


def encoding_request(
    metadata: Mapping[str, str], column: str, kind: pa.DataType
) -> EncodingRequest:
    """Reads the keys.

    Args:
        metadata: Metadata of the field.
        column: Its name, for messages.
        kind: Its type.

    Raises:
        UnsupportedFeatureError: A key asks for an encoding that is not written.
        InvalidInputError: A value is no number where one is needed.
    """
    is_struct = pa.types.is_struct(kind)
    for key in (*PACKED_KEYS, _PREFIX + "blob"):
        if metadata.get(key, "").lower() == "true" and not (is_struct and key in PACKED_KEYS):
            raise _refused(column, key, "true")
    split = metadata.get(_PREFIX + "bss", "off").lower() == "on"
    if split and not _can_be_split(kind):
        raise _refused(column, _PREFIX + "bss", "on")
    compression = metadata.get(_PREFIX + "compression", "").lower()
    is_known = not compression or compression in _COMPRESSIONS
    unfit = compression == "fsst" and not is_variable_width(kind)
    if not is_known or unfit or (is_struct and compression not in ("", "none")):
        raise _refused(column, _PREFIX + "compression", compression)
    structure = metadata.get(_PREFIX + "structural-encoding", "").lower()
    if structure and structure not in _STRUCTURES:
        raise _refused(column, _PREFIX + "structural-encoding", structure)
    level = metadata.get(_PREFIX + "compression-level")
    try:
        level_number = None if level is None else int(level)
    except ValueError:
        raise InvalidInputError(
            f"column {column}: {_PREFIX}compression-level is {level!r}, not a whole number"
        ) from None
    return EncodingRequest(
        compression=None if compression in ("", "none") else compression,
        compression_level=level_number if compression == "zstd" else None,
        full_zip=structure == "fullzip",
        plain=compression == "none",
        byte_stream_split=split,
    )


def _can_be_split(kind: pa.DataType) -> bool:
    """Whether values are numbers of 32 or 64 bits."""
    if is_variable_width(kind) or pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        return False
    return not pa.types.is_null(kind) and bits_per_value(kind) in (32, 64)


def _refused(column: str, key: str, value: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"column {column}: {key}={value} asks for an encoding that is not written",
        hint=f"remove {key} from the column's metadata",
    )
