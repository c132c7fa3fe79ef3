"""EncodingRequest: what a column's metadata ask of its encoding.

Keys start with ``lance-encoding:``. Those that ask for something we do not write are refused by
name; those that only tune a choice (``rle-threshold``, ``dict-divisor``, …) are left to us.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError

_PREFIX: Final = "lance-encoding:"
_COMPRESSIONS: Final = ("none", "lz4", "zstd")
_STRUCTURES: Final = ("miniblock", "fullzip")


@dataclass(frozen=True, slots=True)
class EncodingRequest:
    """What to do beyond the usual choice.

    Attributes:
        compression: ``lz4``, ``zstd`` or None.
        compression_level: Its level, None for the default.
        full_zip: Whether the layout for large values is asked for.
        plain: Whether compression ``none`` was asked for: values as they are.
    """

    compression: str | None = None
    compression_level: int | None = None
    full_zip: bool = False
    plain: bool = False


def encoding_request(metadata: Mapping[str, str], column: str) -> EncodingRequest:
    """Reads the keys.

    Args:
        metadata: Metadata of the field.
        column: Its name, for messages.

    Raises:
        UnsupportedFeatureError: A key asks for an encoding that is not written.
        InvalidInputError: A value is no number where one is needed.
    """
    for key in ("packed", _PREFIX + "packed", _PREFIX + "blob"):
        if metadata.get(key, "").lower() == "true":
            raise _refused(column, key, "true")
    if metadata.get(_PREFIX + "bss", "off").lower() == "on":
        raise _refused(column, _PREFIX + "bss", "on")
    compression = metadata.get(_PREFIX + "compression", "").lower()
    if compression and compression not in _COMPRESSIONS:
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
        compression=compression if compression in ("lz4", "zstd") else None,
        compression_level=level_number if compression == "zstd" else None,
        full_zip=structure == "fullzip",
        plain=compression == "none",
    )


def _refused(column: str, key: str, value: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"column {column}: {key}={value} asks for an encoding that is not written",
        hint=f"remove {key} from the column's metadata",
    )
