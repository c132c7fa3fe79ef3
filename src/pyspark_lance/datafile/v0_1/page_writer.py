"""Pages of 0.1 files: plain values, strings with their offsets, lists with their items.

Source: docs/format/file-format.md, sections 10.2 and 10.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.v2_0.variable_width import is_variable_type, value_offsets
from pyspark_lance.datafile.v0_1.dictionaries import indices_of
from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.format.field import Field
from pyspark_lance.store.object_store import OutputFile


class PageEntry(NamedTuple):
    """One entry of a page table."""

    position: int
    num_values: int


class LegacyPageWriter:
    """Writes pages to the end of a file."""

    def __init__(self, output: OutputFile, dictionaries: Mapping[int, pa.Array]) -> None:
        self._output = output
        self._dictionaries = dictionaries

    def write(
        self,
        field: Field,
        array: pa.Array,
        entries: dict[int, PageEntry],
        *,
        is_strict: bool = True,
    ) -> None:
        """Write the pages of a field and everything below.

        ``entries``: takes where the page of each field id is.
        """
        self._write(field, field.name, array, entries, is_strict=is_strict)

    def _write(
        self,
        field: Field,
        path: str,
        array: pa.Array,
        entries: dict[int, PageEntry],
        *,
        is_strict: bool,
    ) -> None:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if pa.types.is_dictionary(array.type):
            array = indices_of(array, self._dictionaries[field.id], path)
        is_string = is_variable_type(array.type)
        if is_strict:
            _check_values(field, path, array, is_string=is_string)
        if field.is_struct:
            for index, child in enumerate(field.children):
                self._write(
                    child, f"{path}.{child.name}", array.field(index), entries, is_strict=is_strict
                )
            return
        if field.is_list:
            position = self._output.tell()
            offsets = value_offsets(array)
            self._put(offsets - offsets[0])
            entries[field.id] = PageEntry(position, len(array) + 1)
            (item,) = field.children
            self._write(item, f"{path}.item", array.flatten(), entries, is_strict=is_strict)
            return
        if is_string:
            entries[field.id] = self._write_strings(array)
            return
        position = self._output.tell()
        self._put(plain_bytes(array))
        entries[field.id] = PageEntry(position, len(array))

    def write_items(self, items: pa.Array) -> PageEntry:
        """Write the items of a dictionary."""
        if is_variable_type(items.type):
            return self._write_strings(items)
        position = self._output.tell()
        self._put(plain_bytes(items))
        return PageEntry(position, len(items))

    def _write_strings(self, array: pa.Array) -> PageEntry:
        """The bytes, then where each value begins in the file and the last one ends."""
        if array.null_count:
            # What lies below a null may be anything.
            array = pc.fill_null(array, pa.scalar(b"").cast(array.type))
        offsets = value_offsets(array).astype(np.int64)
        start, content = self._output.tell(), array.buffers()[2]
        if content is not None:
            self._output.write(memoryview(content)[int(offsets[0]) : int(offsets[-1])])
        position = self._output.tell()
        self._put((offsets - offsets[0] + start).astype("<i8"))
        return PageEntry(position, len(array))

    def _put(self, values: NDArray[np.generic]) -> None:
        self._output.write(np.ascontiguousarray(values).view(np.uint8))


def plain_bytes(array: pa.Array) -> NDArray[np.uint8]:
    """The values of a fixed-width array without nulls, as they are stored."""
    types = pa.types
    if types.is_null(array.type) or not len(array):
        return np.zeros(0, np.uint8)
    if types.is_fixed_size_list(array.type):
        return plain_bytes(array.flatten())
    content = np.frombuffer(array.buffers()[1], np.uint8)
    first, last = array.offset, array.offset + len(array)
    if types.is_boolean(array.type):
        bits = np.unpackbits(content[first // 8 : -(-last // 8)], bitorder="little")
        return np.packbits(bits[first % 8 :][: len(array)], bitorder="little")
    width = array.type.bit_width // 8
    return content[first * width : last * width]


def _check_values(field: Field, path: str, array: pa.Array, *, is_string: bool) -> None:
    """Refuse what would not come back as it is."""
    if pa.types.is_null(array.type):
        return
    if is_string and field.nullable:
        # An empty value is how a null is stored.
        if bool(pc.any(pc.equal(pc.binary_length(array), 0)).as_py()):
            raise UnsupportedFeatureError(
                f"column {path}: files of version 0.1 cannot tell an empty value from a null",
                hint="replace empty strings, or use file version 2.0 or newer",
            )
        return
    if array.null_count or _has_null_items(array):
        raise UnsupportedFeatureError(
            f"column {path}: files of version 0.1 cannot hold nulls of type {array.type}",
            hint="replace the nulls, or use file version 2.0 or newer",
        )


def _has_null_items(array: pa.Array) -> bool:
    if not pa.types.is_fixed_size_list(array.type):
        return False
    items = array.flatten()
    return bool(items.null_count) or _has_null_items(items)
