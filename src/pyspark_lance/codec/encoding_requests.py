"""EncodingRequest: the encoding that a column's metadata request.

Keys start with ``lance-encoding:``::

    compression                    none, lz4, zstd, fsst      compression-level        1 to 22, zstd
    structural-encoding            miniblock, fullzip         minichunk-size           bytes
    bss                            off, auto, on              rle-threshold            0 to 1
    dict-values-compression        none, lz4, zstd            dict-values-compression-level  1 to 22
    dict-divisor, dict-size-ratio, dict-max-size              limits of dictionaries
    packed, blob                   true: how structs and blobs are stored

A key that is an encoding is honoured, or refused by name; so are its values. Keys that tune a
choice (``rle-threshold``, ``dict-divisor``, …) bind where there is that choice, and mean nothing
elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from pyspark_lance.codec.values import bits_per_value, is_variable_width
from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError

_PREFIX: Final = "lance-encoding:"
PACKED_KEYS: Final = ("packed", _PREFIX + "packed")
BLOB_KEY: Final = _PREFIX + "blob"
_GENERAL: Final = ("none", "lz4", "zstd")
_MAX_LEVEL: Final = 22
_SMALL_CHUNK_BYTES: Final = 1 << 15
_MAX_CHUNK_BYTES: Final = 1 << 24
_BLOB_PLACES: Final = tuple(
    f"{_PREFIX}blob-{name}-size-threshold" for name in ("inline", "dedicated", "pack-file")
)
_MAX_BYTES: Final = (1 << 63) - 1
_KNOWN: Final = frozenset(
    _PREFIX + name
    for name in (
        "compression", "compression-level", "structural-encoding", "bss", "rle-threshold",
        "minichunk-size", "dict-divisor", "dict-size-ratio", "dict-max-size",
        "dict-values-compression", "dict-values-compression-level", "packed", "blob",
    )
) | frozenset(_BLOB_PLACES)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BlobLimits:
    """Size limits in bytes that select the storage of a blob, in tables with blob objects."""

    inline: int = 64 << 10  # Into the data file up to so many.
    dedicated: int = 4 << 20  # Into an object of their own from more than so many.
    pack: int = 1 << 30  # So many others come together in an object.


@dataclass(frozen=True, slots=True)
class DictionaryRequest:
    """Limits up to which values become a dictionary, and the compression of its items."""

    divisor: float = 2.0  # Not if there are more items than values divided by this.
    size_ratio: float = 0.8  # Not if it is not smaller than this part of the values as they are.
    max_bytes: float = math.inf  # Not if the items take more bytes.
    # ``none``, ``lz4`` or ``zstd`` for the items; None for the usual.
    compression: str | None = None
    compression_level: int | None = None  # Its level, None for the default.


@dataclass(frozen=True, slots=True)
class EncodingRequest:
    """Encoding settings that override the default choice."""

    # ``none``, ``lz4``, ``zstd``, ``fsst``, or None if nothing is asked.
    compression: str | None = None
    compression_level: int | None = None  # Its level, None for the default.
    # ``miniblock`` or ``fullzip``; None for whatever suits the size of the values.
    structure: str | None = None
    # ``off``, ``auto`` or ``on``: whether numbers are split into their bytes.
    byte_stream_split: str = "auto"
    # Runs only if there are fewer than this part of the values; None if they are to be used
    # whenever they are smallest.
    rle_threshold: float | None = None
    chunk_bytes: int | None = None  # Bytes of the strings of a mini-block; None for the default.
    dictionary: DictionaryRequest = field(default_factory=DictionaryRequest)

    @property
    def general(self) -> str | None:
        """The requested general compression: ``lz4``, ``zstd`` or None."""
        return self.compression if self.compression in ("lz4", "zstd") else None

    @property
    def plain(self) -> bool:
        """Return whether compression ``none`` was requested: plain values."""
        return self.compression == "none"

    @property
    def full_zip(self) -> bool:
        """Return whether the layout for large values is requested."""
        return self.structure == "fullzip"

    @property
    def mini_blocks(self) -> bool:
        """Return whether the layout for small values is requested."""
        return self.structure == "miniblock"


def requests_encoding(key: str) -> bool:
    """Return whether a key requests an encoding of values, not packing or blob storage."""
    return key.startswith(_PREFIX) and key not in (BLOB_KEY, *PACKED_KEYS, *_BLOB_PLACES)


def fits_type(key: str, value: str, data_type: pa.DataType) -> bool:
    """Return whether a key, known or not, is allowed on a column of the type."""
    value = value.lower()
    if (key, value) == (_PREFIX + "compression", "fsst"):
        return is_variable_width(data_type)
    if (key, value) == (_PREFIX + "structural-encoding", "fullzip"):
        return not _is_in_mini_blocks_only(data_type)
    return (key, value) != (_PREFIX + "bss", "on") or _can_be_split(data_type)


def metadata_texts(field: pa.Field) -> dict[str, str]:
    """The metadata of a field."""
    return {
        key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for key, value in (field.metadata or {}).items()
    }


def encoding_request(
    metadata: Mapping[str, str], column: str, data_type: pa.DataType, version: str = "2.2"
) -> EncodingRequest:
    """Read the keys."""
    keys = _Keys(metadata, column)
    keys.check_known()
    _check_key_placement(keys, data_type)
    structure = _structure(keys, data_type, version)
    compression = _compression(keys, data_type, structure)
    split = _byte_stream_split(keys, data_type, version)
    level = keys.whole_number("compression-level", 1, _MAX_LEVEL)
    chunk_limit = _MAX_CHUNK_BYTES if version == "2.2" else _SMALL_CHUNK_BYTES - 1
    return EncodingRequest(
        compression=compression,
        compression_level=level if compression == "zstd" else None,
        structure=structure,
        byte_stream_split=split,
        rle_threshold=keys.number("rle-threshold", 0, 1),
        chunk_bytes=keys.whole_number("minichunk-size", 1, chunk_limit),
        dictionary=_dictionary_request(keys, version),
    )


def _check_key_placement(keys: _Keys, data_type: pa.DataType) -> None:
    """Reject packing of columns other than structs, and blob encoding."""
    is_struct = pa.types.is_struct(data_type)
    for key in (*PACKED_KEYS, BLOB_KEY):
        requested = keys.metadata.get(key, "").lower() == "true"
        if requested and not (is_struct and key in PACKED_KEYS):
            raise keys.refusal(key)


def _structure(keys: _Keys, data_type: pa.DataType, version: str) -> str | None:
    structure = keys.word("structural-encoding", ("miniblock", "fullzip"))
    if structure is None:
        return None
    if version == "2.0":
        raise keys.refusal(_PREFIX + "structural-encoding", "in files of version 2.0")
    if pa.types.is_struct(data_type) or (
        structure == "fullzip" and _is_in_mini_blocks_only(data_type)
    ):
        raise keys.refusal(_PREFIX + "structural-encoding", f"for values of type {data_type}")
    return structure


def _compression(keys: _Keys, data_type: pa.DataType, structure: str | None) -> str | None:
    compression = keys.word("compression", (*_GENERAL, "fsst"))
    if compression in (None, "none"):
        return compression
    if pa.types.is_struct(data_type) or (
        compression == "fsst" and not is_variable_width(data_type)
    ):
        raise keys.refusal(_PREFIX + "compression", f"for values of type {data_type}")
    if structure == "fullzip" and not is_variable_width(data_type):
        # pylance leaves the values as they are; no encoding compresses them one by one.
        raise keys.refusal(_PREFIX + "compression", f"in full-zip pages of type {data_type}")
    return compression


def _byte_stream_split(keys: _Keys, data_type: pa.DataType, version: str) -> str:
    split = keys.word("bss", ("off", "auto", "on")) or "auto"
    if split != "on":
        return split
    if version == "2.0":
        raise keys.refusal(_PREFIX + "bss", "in files of version 2.0")
    if not _can_be_split(data_type):
        raise keys.refusal(_PREFIX + "bss", f"for values of type {data_type}")
    return split


def blob_limits(metadata: Mapping[str, str], column: str) -> BlobLimits:
    """The limits that a column requests."""
    keys, usual = _Keys(metadata, column), BlobLimits()
    requested = [
        keys.whole_number(key.removeprefix(_PREFIX), 0, _MAX_BYTES) for key in _BLOB_PLACES
    ]
    limits = (usual.inline, usual.dedicated, usual.pack)
    return BlobLimits(
        *(limit if own is None else own for own, limit in zip(requested, limits, strict=True))
    )


def check_blob_request(
    metadata: Mapping[str, str], column: str, data_type: pa.DataType, version: str
) -> None:
    """Reject keys that request an encoding of blobs, which are stored as they are."""
    del data_type, version
    blob_limits(metadata, column)
    for key in metadata:
        if key.startswith(_PREFIX) and key not in (BLOB_KEY, *PACKED_KEYS, *_BLOB_PLACES):
            raise _Keys(metadata, column).refusal(key, "for blobs")


def _dictionary_request(keys: _Keys, version: str) -> DictionaryRequest:
    usual = DictionaryRequest()
    divisor = keys.number("dict-divisor", 1, math.inf)
    ratio = keys.number("dict-size-ratio", 0, 1)
    max_bytes = keys.whole_number("dict-max-size", 0, 1 << 62)
    compression = keys.word("dict-values-compression", _GENERAL)
    if compression in ("lz4", "zstd") and version < "2.2":
        # Releases that know no newer version end their process when they read such a file.
        key = _PREFIX + "dict-values-compression"
        raise keys.refusal(key, f"in files of version {version}")
    level = keys.whole_number("dict-values-compression-level", 1, _MAX_LEVEL)
    return DictionaryRequest(
        divisor=usual.divisor if divisor is None else divisor,
        size_ratio=usual.size_ratio if ratio is None else ratio,
        max_bytes=usual.max_bytes if max_bytes is None else max_bytes,
        compression=compression,
        compression_level=level if compression == "zstd" else None,
    )


@dataclass(frozen=True, slots=True)
class _Keys:
    """The metadata of one column."""

    metadata: Mapping[str, str]
    column: str

    def check_known(self) -> None:
        for key in self.metadata:
            if key.startswith(_PREFIX) and key not in _KNOWN:
                raise self.refusal(key)

    def word(self, name: str, known: tuple[str, ...]) -> str | None:
        """A value of a few; '' counts as none."""
        key = _PREFIX + name
        value = self.metadata.get(key, "").lower()
        if value and value not in known:
            raise self.refusal(key)
        return value or None

    def number(self, name: str, least: float, most: float) -> float | None:
        key = _PREFIX + name
        text = self.metadata.get(key)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            limits = f"from {least} to {most}" if most < math.inf else f"of at least {least}"
            raise InvalidInputError(
                f"column {self.column}: {key} is {text!r}, not a number {limits}"
            )
        return value

    def whole_number(self, name: str, least: int, most: int) -> int | None:
        key = _PREFIX + name
        text = self.metadata.get(key)
        if text is None:
            return None
        if not text.isdecimal() or len(text) > 20 or not least <= int(text) <= most:
            raise InvalidInputError(
                f"column {self.column}: {key} is {text!r}, not a whole number from {least} to"
                f" {most}"
            )
        return int(text)

    def refusal(self, key: str, where: str = "") -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"column {self.column}: {key}={self.metadata[key]} is an encoding that is not"
            f" supported{where and ' ' + where}",
            hint=f"remove {key} from the column's metadata",
        )


def _is_in_mini_blocks_only(data_type: pa.DataType) -> bool:
    """Return whether no full-zip page holds the type."""
    if pa.types.is_fixed_size_list(data_type):
        return _is_in_mini_blocks_only(data_type.value_type) or pa.types.is_boolean(
            data_type.value_type
        )
    return bool(pa.types.is_dictionary(data_type))


def _can_be_split(data_type: pa.DataType) -> bool:
    """Return whether values are numbers of 32 or 64 bits."""
    if (
        is_variable_width(data_type)
        or pa.types.is_nested(data_type)
        or pa.types.is_dictionary(data_type)
    ):
        return False
    return not pa.types.is_null(data_type) and bits_per_value(data_type) in (32, 64)
