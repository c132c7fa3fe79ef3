"""LeafColumn: one leaf of a schema in 2.1 and later, and LeafValues: its rows.

A column is a leaf together with the layers between it and the root, innermost first.  A page has
either the layers that the schema's nullability gives, with definition levels, or the same layers
without anything to define; columns with a struct over a list always have the former, because
pylance 14 cannot read them if their pages differ.

Source: docs/format/file-format.md, sections 2.3, 6.1 and 12.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.encoding_requests import BLOB_KEY, PACKED_KEYS, metadata_texts
from pyspark_lance.proto import encodings_v2_1_pb2 as pb

ALL_VALID_ITEM: Final = 1
ALL_VALID_LIST: Final = 2
NULLABLE_ITEM: Final = 3
NULLABLE_LIST: Final = 4
EMPTYABLE_LIST: Final = 5
NULL_AND_EMPTY_LIST: Final = 6

DEFINITIONS_OWNED: Final = {
    ALL_VALID_ITEM: 0,
    ALL_VALID_LIST: 0,
    NULLABLE_ITEM: 1,
    NULLABLE_LIST: 1,
    EMPTYABLE_LIST: 1,
    NULL_AND_EMPTY_LIST: 2,
}
_EXTENSION_KEY: Final = "ARROW:extension:name"
_BLOB_V2: Final = "lance.blob.v2"
LIST_LAYERS: Final = frozenset({ALL_VALID_LIST, NULLABLE_LIST, EMPTYABLE_LIST, NULL_AND_EMPTY_LIST})


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """The static part of a column."""

    name: str  # Dotted path, for messages.
    type: pa.DataType  # Arrow type of the leaf, extension types replaced by their storage.
    layers: tuple[int, ...]  # Layer numbers, innermost first.
    # Slots per row or list item: more than one below a fixed-size list of structs.
    slots_per_row: int
    metadata: dict[str, str]

    @property
    def is_blob(self) -> bool:
        """Return whether the values are stored apart; a struct is a blob of the second kind."""
        return self.is_blob_v2 or self.metadata.get(BLOB_KEY, "").lower() == "true"

    @property
    def is_blob_v2(self) -> bool:
        """Return whether the values are bytes or references, each with a descriptor."""
        return _is_blob_v2(self.metadata)

    @property
    def max_repetition(self) -> int:
        """The repetition level that starts a row; 0 if there are no lists."""
        return sum(layer in LIST_LAYERS for layer in self.layers)

    def page_layers(self, rows: LeafValues) -> tuple[pb.RepDefLayer, ...]:
        """The layers of a page.

        A page without definition levels must not have layers that own any: releases of Lance
        before 9 look for the levels.
        """
        layers = self.layers
        if rows.definition is None:
            layers = tuple(
                ALL_VALID_LIST if layer in LIST_LAYERS else ALL_VALID_ITEM for layer in layers
            )
        return cast("tuple[pb.RepDefLayer, ...]", layers)

    @property
    def needs_definition(self) -> bool:
        """Return whether pages without nulls must have definition levels, too.

        pylance 14 miscounts the nulls of a struct over a list when only some pages of the column
        have them.
        """
        lists = [index for index, layer in enumerate(self.layers) if layer in LIST_LAYERS]
        return bool(lists) and NULLABLE_ITEM in self.layers[lists[0] :]


@dataclass(frozen=True, slots=True, eq=False)
class LeafValues:
    """Some rows of a column."""

    # One value per visible entry; what it is where the entry is not valid is arbitrary.
    values: pa.Array
    num_rows: int
    num_entries: int
    repetition: NDArray[np.uint8] | None  # Repetition levels, uint8; None without lists.
    definition: NDArray[np.uint8] | None  # Definition levels, uint8; None if all are 0.
    # Positions of the entries that have a value, int64; None if all have.
    visible: NDArray[np.int64] | None

    def null_mask(self) -> NDArray[np.bool_] | None:
        """Return true where a value is null or inside something null; None if nowhere."""
        if self.definition is None:
            return None
        visible = self.definition if self.visible is None else self.definition[self.visible]
        mask: NDArray[np.bool_] = visible != 0
        return mask if mask.any() else None

    def with_all_levels(self, column: LeafColumn) -> LeafValues:
        """The same rows, with definition levels if the column needs them."""
        if self.definition is not None or not column.needs_definition:
            return self
        return replace(self, definition=np.zeros(self.num_entries, np.uint8))

    def row_starts(self, column: LeafColumn) -> NDArray[np.int64]:
        """Entry at which each row starts."""
        if self.repetition is None:
            return np.arange(self.num_rows) * column.slots_per_row
        return np.flatnonzero(self.repetition == column.max_repetition)

    def halves(self, column: LeafColumn) -> tuple[LeafValues, LeafValues]:
        """The rows before and after the middle."""
        middle = self.num_rows // 2
        entry = int(self.row_starts(column)[middle])
        value = entry if self.visible is None else int(np.searchsorted(self.visible, entry))
        first = self._entries(middle, 0, entry, 0, value)
        rest = self.num_rows - middle
        return first, self._entries(rest, entry, self.num_entries, value, len(self.values))

    def _entries(
        self, num_rows: int, start: int, end: int, first_value: int, end_value: int
    ) -> LeafValues:
        def cut(levels: NDArray[np.uint8] | None) -> NDArray[np.uint8] | None:
            return None if levels is None else levels[start:end]

        definition = cut(self.definition)
        return LeafValues(
            values=self.values.slice(first_value, end_value - first_value),
            num_rows=num_rows,
            num_entries=end - start,
            repetition=cut(self.repetition),
            definition=definition if definition is not None and definition.any() else None,
            visible=None if self.visible is None else self.visible[first_value:end_value] - start,
        )


def leaf_columns(field: pa.Field) -> Iterator[LeafColumn]:
    """The columns of a top-level field, depth first."""
    yield from _walk(field, field.name, (), 1)


def concat_leaf_values(pieces: Sequence[LeafValues]) -> LeafValues:
    """Rows one after another; dictionaries must agree."""
    if len(pieces) == 1:
        return pieces[0]
    num_entries = sum(piece.num_entries for piece in pieces)
    return LeafValues(
        values=pa.concat_arrays([piece.values for piece in pieces]),
        num_rows=sum(piece.num_rows for piece in pieces),
        num_entries=num_entries,
        repetition=_concat_levels([p.repetition for p in pieces], [p.num_entries for p in pieces]),
        definition=_concat_levels([p.definition for p in pieces], [p.num_entries for p in pieces]),
        visible=_concat_visible(pieces),
    )


def with_values(rows: LeafValues, values: pa.Array) -> LeafValues:
    """The same levels over other values."""
    return replace(rows, values=values)


def is_listlike(data_type: pa.DataType) -> bool:
    """Return whether the type has lists of any length, maps included."""
    return (
        pa.types.is_list(data_type)
        or pa.types.is_large_list(data_type)
        or pa.types.is_map(data_type)
    )


def is_one_column(field: pa.Field) -> bool:
    """Return whether a struct has one column for all its fields: it is packed, or it is a blob."""
    if not pa.types.is_struct(storage_type(field.type)):
        return False
    metadata = metadata_texts(field)
    is_packed = any(metadata.get(key, "").lower() == "true" for key in PACKED_KEYS)
    return is_packed or _is_blob_v2(metadata)


def _is_blob_v2(metadata: Mapping[str, str]) -> bool:
    return metadata.get(_EXTENSION_KEY) == _BLOB_V2


def is_struct_list(data_type: pa.DataType) -> bool:
    """Return whether the type is a fixed-size list that ends in structs."""
    return pa.types.is_fixed_size_list(data_type) and (
        pa.types.is_struct(data_type.value_type) or is_struct_list(data_type.value_type)
    )


def item_field(data_type: pa.DataType) -> pa.Field:
    """The field of the items of a list, fixed-size list or map."""
    if pa.types.is_map(data_type):
        entries = pa.struct([data_type.key_field, data_type.item_field])
        return pa.field("entries", entries, nullable=False)
    return data_type.value_field


def storage_type(data_type: pa.DataType) -> pa.DataType:
    """The type itself, or the storage type of an extension type."""
    return data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type


def _walk(
    field: pa.Field, name: str, outer: tuple[int, ...], slots_per_row: int
) -> Iterator[LeafColumn]:
    data_type = storage_type(field.type)
    item_layer = (NULLABLE_ITEM if field.nullable else ALL_VALID_ITEM,)
    if pa.types.is_struct(data_type) and not is_one_column(field):
        for child in data_type:
            yield from _walk(child, f"{name}.{child.name}", item_layer + outer, slots_per_row)
    elif is_listlike(data_type):
        layers = (NULL_AND_EMPTY_LIST if field.nullable else EMPTYABLE_LIST, *outer)
        item = item_field(data_type)
        yield from _walk(item, f"{name}.{item.name}", layers, slots_per_row)
    elif is_struct_list(data_type):
        item = item_field(data_type)
        slots_per_row *= data_type.list_size
        yield from _walk(item, f"{name}.{item.name}", item_layer + outer, slots_per_row)
    else:
        metadata = metadata_texts(field)
        yield LeafColumn(name, data_type, item_layer + outer, slots_per_row, metadata)


def _concat_levels(
    levels: Sequence[NDArray[np.uint8] | None], counts: Sequence[int]
) -> NDArray[np.uint8] | None:
    if all(part is None for part in levels):
        return None
    filled = [
        np.zeros(count, np.uint8) if part is None else part
        for part, count in zip(levels, counts, strict=True)
    ]
    return np.concatenate(filled)


def _concat_visible(pieces: Sequence[LeafValues]) -> NDArray[np.int64] | None:
    if all(piece.visible is None for piece in pieces):
        return None
    parts, first = [], 0
    for piece in pieces:
        own = np.arange(piece.num_entries) if piece.visible is None else piece.visible
        parts.append(own + first)
        first += piece.num_entries
    return np.concatenate(parts)
