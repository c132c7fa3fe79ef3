"""Columns of random types and values: nested, null, empty, long, sliced, with metadata."""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

FIXED = [
    pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.uint64(), pa.float16(), pa.float32(),
    pa.float64(), pa.bool_(), pa.binary(3), pa.binary(300), pa.decimal128(20, 3),
    pa.decimal256(50, 3), pa.date32(), pa.timestamp("us", "Europe/Paris"), pa.duration("us"),
]  # fmt: skip
VARIABLE = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
DICTIONARIES = [pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.uint32(), pa.int64())]
REQUESTS: list[dict[str, str]] = [
    {}, {}, {}, {"compression": "zstd"}, {"compression": "lz4"}, {"compression": "none"},
    {"structural-encoding": "miniblock"}, {"rle-threshold": "0.9"}, {"dict-divisor": "1"},
    {"minichunk-size": "1000"},
]  # fmt: skip


class RandomColumns:
    """Makes columns; the same ones for the same seed."""

    def __init__(self, seed: int, version: str) -> None:
        self._rng = np.random.default_rng(seed)
        self._version = version

    def column(self) -> tuple[pa.Field, pa.Array]:
        """A field and a slice of values for it."""
        field = self._field("c", 3)
        count = int(self._pick([0, 1, 7, 60, 300, 1500]))
        return field, self._array(field, count + 3).slice(2, count)

    def rows(self, count: int, most: int = 30) -> np.ndarray:
        """Some rows in any order, some of them twice."""
        return self._rng.integers(0, count, min(2 * count, most))

    def _pick(self, choices: Sequence[Any]) -> Any:
        return choices[int(self._rng.integers(len(choices)))]

    def _field(self, name: str, depth: int) -> pa.Field:
        rng, nullable = self._rng.random(), bool(self._rng.random() < 0.8)
        if depth and rng < 0.25:
            count = int(self._rng.integers(1, 4))
            members = [self._field(f"f{index}", depth - 1) for index in range(count)]
            return pa.field(name, pa.struct(members), nullable)
        if depth and rng < 0.5:
            make = self._pick([pa.list_, pa.large_list])
            return pa.field(name, make(self._field("item", depth - 1)), nullable)
        if depth and rng < 0.55 and self._version == "2.2":
            return pa.field(name, pa.map_(pa.string(), self._field("value", depth - 1)), nullable)
        if rng < 0.65:
            kind = pa.list_(self._pick(FIXED), int(self._pick([1, 3, 70])))
            kind = self._pick([kind, kind, pa.list_(kind, 2)])
        elif rng < 0.73:
            kind = self._pick(DICTIONARIES)
        else:
            kind = self._pick([*FIXED, *VARIABLE, *VARIABLE, pa.null()])
        request = {} if self._version == "2.0" else self._pick(REQUESTS)
        metadata = {f"lance-encoding:{key}": value for key, value in request.items()}
        return pa.field(name, kind, nullable or pa.types.is_null(kind), metadata or None)

    def _mask(self, field: pa.Field, count: int) -> np.ndarray | None:
        share = self._pick([0, 0, 0.1, 0.5, 1]) if field.nullable else 0
        return self._rng.random(count) < share if share else None

    def _lengths(self, count: int) -> np.ndarray:
        lengths = self._rng.integers(0, int(self._pick([1, 2, 4])), count)
        if count and self._rng.random() < 0.2:
            lengths[self._rng.integers(count)] = int(self._rng.integers(50, 2000))
        return lengths

    def _array(self, field: pa.Field, count: int) -> pa.Array:
        kind, types = field.type, pa.types
        mask = self._mask(field, count)
        validity = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
        if types.is_null(kind):
            return pa.nulls(count)
        if types.is_struct(kind):
            children = [self._array(child, count) for child in kind]
            no_nulls = mask is None or self._version == "2.0"
            return pa.StructArray.from_arrays(
                children, fields=list(kind), mask=None if no_nulls else pa.array(mask)
            )
        if types.is_fixed_size_list(kind):
            items = self._array(kind.value_field, count * kind.list_size)
            return pa.Array.from_buffers(kind, count, [validity], children=[items])
        if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
            width = np.int64 if types.is_large_list(kind) else np.int32
            offsets = np.concatenate([[0], np.cumsum(self._lengths(count))]).astype(width)
            items = self._items(kind, int(offsets[-1]))
            return pa.Array.from_buffers(
                kind, count, [validity, pa.py_buffer(offsets)], children=[items]
            )
        if types.is_dictionary(kind):
            items = self._values(kind.value_type, 20, None).unique()
            indices = pa.array(self._rng.integers(0, len(items), count), kind.index_type, mask=mask)
            return pa.DictionaryArray.from_arrays(indices, items)
        return self._values(kind, count, mask)

    def _items(self, kind: pa.DataType, count: int) -> pa.Array:
        if not pa.types.is_map(kind):
            return self._array(kind.value_field, count)
        keys = self._array(pa.field("key", kind.key_type, nullable=False), count)
        values = self._array(kind.item_field, count)
        return pa.StructArray.from_arrays([keys, values], fields=[kind.key_field, kind.item_field])

    def _numbers(self, count: int) -> np.ndarray:
        """Small, in runs, all equal, any, or rising."""
        rng = self._rng
        return self._pick(
            [
                rng.integers(-50, 100, count),
                np.repeat(rng.integers(0, 1000, count // 10 + 1), 10)[:count],
                np.full(count, int(rng.integers(100))),
                rng.integers(-(2**62), 2**62, count),
                np.arange(count),
            ]
        )

    def _values(self, kind: pa.DataType, count: int, mask: np.ndarray | None) -> pa.Array:
        numbers, types = self._numbers(count), pa.types
        if types.is_fixed_size_binary(kind):
            width = kind.byte_width
            values = [(b"%d" % (n % 50) * width)[:width] for n in numbers.tolist()]
            return pa.array(values, kind, mask=mask)
        if kind in VARIABLE:
            texts = [self._pick(["", "é", f"value {n} " * 3]) for n in numbers.tolist()]
            if count and self._rng.random() < 0.3:
                texts[0] = "long text " * int(self._pick([30, 5000]))
            return pa.array(texts, mask=mask).cast(kind)
        if types.is_decimal(kind):
            values = [decimal.Decimal(int(n) % 10**9) / 1000 for n in numbers.tolist()]
            return pa.array(values, kind, mask=mask)
        if types.is_boolean(kind):
            return pa.array(numbers % 2 == 0, mask=mask)
        if types.is_floating(kind):
            return pa.array((numbers % 1000 / 7).astype(kind.to_pandas_dtype()), kind, mask=mask)
        if types.is_integer(kind):
            return pa.array(numbers.astype(kind.to_pandas_dtype()), kind, mask=mask)
        if types.is_date32(kind):
            return pa.array((numbers % 10**4).astype(np.int32), mask=mask).cast(kind)
        return pa.array(numbers % 2**50, mask=mask).cast(kind)
