"""JSONB: the binary form in which JSON columns are stored, to and from JSON text.

Big endian, unlike everything else. A container is a header (kind, number of members), one entry
per member (type, length), then the bytes of the members; objects have the entries and bytes of
their keys before those of their values, keys ascending. A bare scalar is a container of one.

Documents are trees of any shape, so this is the one codec that loops over rows.

Source: docs/format/file-format.md, section 9.2.
"""

from __future__ import annotations

import itertools
import json
import math
import struct
from collections.abc import Sequence
from json.encoder import encode_basestring
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.checks import reject_unsupported
from pyspark_lance.errors import CorruptFileError, InvalidInputError

_ARRAY: Final = 0x80000000
_OBJECT: Final = 0x40000000
_SCALAR: Final = 0x20000000
_KIND_MASK: Final = 0xE0000000
_COUNT_MASK: Final = 0x1FFFFFFF
_LENGTH_MASK: Final = 0x0FFFFFFF

_NULL, _STRING, _NUMBER, _FALSE, _TRUE, _CONTAINER = range(6)
_CONSTANTS: Final = {_NULL: "null", _FALSE: "false", _TRUE: "true"}

# First byte of a number.
_ZERO, _NAN, _INFINITY, _MINUS_INFINITY, _SIGNED, _UNSIGNED, _DOUBLE = range(0, 0x70, 0x10)
# JSON has no such numbers.
_NO_JSON_NUMBERS: Final = (_NAN, _INFINITY, _MINUS_INFINITY)
_TAGS: Final = range(_ZERO, _DOUBLE + 1, 0x10)

_U32: Final = struct.Struct(">I")
_F64: Final = struct.Struct(">d")
# Deeper documents would exhaust the stack.
_MAX_DEPTH: Final = 200
_SHOWN_CHARACTERS: Final = 60
_PAIR: Final = "{}:{}".format


def decode_jsonb(documents: pa.Array) -> pa.StringArray | pa.LargeStringArray:
    """The documents as JSON text, without blanks between tokens; nulls stay null.

    Returns strings, large ones where all of them together exceed what 32-bit offsets can address.
    """
    offsets, data = _offsets_and_bytes(documents)
    valid = documents.is_valid().to_pylist() if documents.null_count else None
    texts: list[str | None] = []
    for row, (start, end) in enumerate(itertools.pairwise(offsets)):
        if valid is not None and not valid[row]:
            texts.append(None)
            continue
        texts.append(_container_text(data, start, end, 0))
    return _string_array(texts)


def encode_jsonb(texts: pa.Array) -> pa.LargeBinaryArray:
    """The JSONB of JSON texts; nulls stay null."""
    documents: list[bytes | None] = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            documents.append(None if text is None else _document(text))
        except InvalidInputError as error:
            raise InvalidInputError(
                f"value {row} of a batch, {error.what}", hint=error.hint
            ) from error
    return pa.array(documents, pa.large_binary())


def _offsets_and_bytes(documents: pa.Array) -> tuple[list[int], bytes]:
    """Return the offsets of the documents of an array, and the bytes of all of them."""
    _, stored, data = documents.buffers()
    if len(documents) == 0 or stored is None or data is None:
        return [0] * (len(documents) + 1), b""
    width = np.dtype(np.int64 if pa.types.is_large_binary(documents.type) else np.int32)
    offsets: NDArray[Any] = np.frombuffer(
        stored, width, len(documents) + 1, documents.offset * width.itemsize
    )
    first, last = int(offsets[0]), int(offsets[-1])
    return (offsets - first).tolist(), memoryview(data)[first:last].tobytes()


def _string_array(texts: list[str | None]) -> pa.Array:
    try:
        array = pa.array(texts, pa.string())
    except pa.ArrowCapacityError:
        return pa.array(texts, pa.large_string())
    # pyarrow makes chunks of what does not fit.
    return array if isinstance(array, pa.Array) else pa.array(texts, pa.large_string())


# Bytes to text.


def _container_text(data: bytes, start: int, end: int, depth: int) -> str:
    # Plain ifs: formatting unused messages would take a third of the time.
    if end - start < 4:
        raise CorruptFileError(f"a JSON container of {end - start} bytes")
    if depth >= _MAX_DEPTH:
        raise CorruptFileError(f"a JSON document nested deeper than {_MAX_DEPTH} levels")
    (header,) = _U32.unpack_from(data, start)
    kind, count = header & _KIND_MASK, header & _COUNT_MASK
    num_entries = 2 * count if kind == _OBJECT else count
    position = start + 4 + 4 * num_entries
    if position > end:
        raise CorruptFileError(f"{count} JSON members in {end - start} bytes")
    entries = struct.unpack_from(f">{num_entries}I", data, start + 4)
    if kind == _ARRAY:
        return f"[{','.join(_member_texts(data, position, end, entries, depth))}]"
    if kind == _OBJECT:
        names = entries[:count]
        if any(name >> 28 != _STRING for name in names):
            raise CorruptFileError("a key of a JSON object is no string")
        keys = _member_texts(data, position, end, names, depth)
        position += sum(names) - count * (_STRING << 28)
        members = _member_texts(data, position, end, entries[count:], depth)
        return f"{{{','.join(map(_PAIR, keys, members))}}}"
    if kind != _SCALAR or count > 1:
        raise CorruptFileError(f"a JSON container with header {header:#x}")
    # A scalar counts no members, but has one entry.
    if position + 4 > end:
        raise CorruptFileError("a JSON scalar without its entry")
    return _member_texts(data, position + 4, end, _U32.unpack_from(data, position), depth)[0]


def _member_texts(
    data: bytes, start: int, end: int, entries: Sequence[int], depth: int
) -> list[str]:
    """The text of each member; their bytes follow each other from ``start`` on."""
    texts = []
    for entry in entries:
        kind, stop = entry >> 28, start + (entry & _LENGTH_MASK)
        if stop > end:
            raise CorruptFileError(f"a JSON value ends {stop - end} bytes behind its document")
        if kind == _STRING:
            texts.append(_quote(data[start:stop]))
        elif kind == _NUMBER:
            texts.append(_number_text(data[start:stop]))
        elif kind == _CONTAINER:
            texts.append(_container_text(data, start, stop, depth + 1))
        elif kind in _CONSTANTS:
            texts.append(_CONSTANTS[kind])
        else:
            reject_unsupported(f"JSON values of type {kind}")
        start = stop
    return texts


def _quote(utf8: bytes) -> str:
    try:
        return encode_basestring(utf8.decode())
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"a JSON string is not UTF-8: {error}") from error


def _number_text(number: bytes) -> str:
    tag, digits = number[0] if number else -1, number[1:]
    if tag in (_SIGNED, _UNSIGNED) and len(digits) in (1, 2, 4, 8):
        return str(int.from_bytes(digits, "big", signed=tag == _SIGNED))
    if tag == _DOUBLE and len(digits) == 8:
        (value,) = _F64.unpack(digits)
        return repr(value) if math.isfinite(value) else "null"
    if tag == _ZERO and not digits:
        return "0"
    if tag not in _TAGS and number:
        reject_unsupported(f"JSON numbers with tag {tag:#x}")
    if tag not in _NO_JSON_NUMBERS or digits:
        raise CorruptFileError(f"a JSON number of {len(number)} bytes with tag {tag:#x}")
    return "null"


# Text to bytes.


def _document(text: str) -> bytes:
    try:
        value = json.loads(text, object_pairs_hook=_members, parse_constant=_refuse_constant)
        kind, payload = _entry(value, 0)
    except (ValueError, RecursionError) as error:
        shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
        raise InvalidInputError(
            f"{shown!r} is not JSON that can be stored: {error}",
            hint="write valid JSON text, such as to_json makes",
        ) from error
    if kind == _CONTAINER:
        return payload
    return _U32.pack(_SCALAR) + _U32.pack(kind << 28 | len(payload)) + payload


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object names a key twice")
    return members


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _entry(value: Any, depth: int) -> tuple[int, bytes]:
    """Type and bytes of a parsed value."""
    if isinstance(value, str):
        payload = value.encode()
        if len(payload) > _LENGTH_MASK:
            raise ValueError(f"a string of {len(payload)} bytes")
        return _STRING, payload
    if value is None:
        return _NULL, b""
    if isinstance(value, bool):
        return (_TRUE if value else _FALSE), b""
    if isinstance(value, int | float):
        return _NUMBER, _number(value)
    return _CONTAINER, _container(value, depth)


def _container(value: list[Any] | dict[str, Any], depth: int) -> bytes:
    if depth >= _MAX_DEPTH:
        raise ValueError(f"nested deeper than {_MAX_DEPTH} levels")
    kind, members = _ARRAY, []
    if isinstance(value, dict):
        kind = _OBJECT
        # UTF-8 sorts as code points do.
        names = sorted(value)
        members = [_entry(name, depth) for name in names]
        members += [_entry(value[name], depth + 1) for name in names]
    else:
        members = [_entry(item, depth + 1) for item in value]
    header = [kind | len(value), *(kind << 28 | len(payload) for kind, payload in members)]
    payload = b"".join(payload for _, payload in members)
    if len(payload) > _LENGTH_MASK:
        raise ValueError(f"a document of {len(payload)} bytes")
    return struct.pack(f">{len(header)}I", *header) + payload


def _number(value: int | float) -> bytes:
    if isinstance(value, int):
        if value == 0:
            return bytes((_ZERO,))
        signed = value < 0
        # One bit more for the sign; widths are powers of two.
        width = -(-((~value).bit_length() + 1) // 8) if signed else -(-value.bit_length() // 8)
        if width <= 8:
            width = 1 << (width - 1).bit_length()
            tag = _SIGNED if signed else _UNSIGNED
            return bytes((tag,)) + value.to_bytes(width, "big", signed=signed)
        value = _as_double(value)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return bytes((_DOUBLE,)) + _F64.pack(value)


def _as_double(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
