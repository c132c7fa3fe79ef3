"""Random Arrow schemas and data from a seed: nested to any depth, nulls anywhere.

For tests that compare two readers on many kinds of tables; hypothesis would spend its time on
shrinking what a seed says as well.
"""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa

SCALARS = [
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(),
    pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string(),
    pa.large_string(), pa.binary(), pa.large_binary(), pa.date32(), pa.date64(), pa.time32("s"),
    pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.timestamp("s"), pa.timestamp("ms"),
    pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("us", "UTC"),
    pa.timestamp("ms", "+05:30"), pa.duration("s"), pa.duration("us"), pa.duration("ns"),
    pa.binary(3), pa.decimal128(10, 2), pa.decimal128(38, 10), pa.decimal256(50, 4), pa.null(),
    pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.string()),
]  # fmt: skip
FIXED = [pa.float32(), pa.float16(), pa.float64(), pa.int8(), pa.uint8(), pa.int32(), pa.bool_()]


def random_type(rng: np.random.Generator, version: str, depth: int = 3) -> pa.DataType:
    """A type that files of ``version`` can hold."""
    kinds = ["scalar"] * 5 + ["fixed"]
    if depth:
        kinds += ["list", "large_list", "struct"]
        kinds += ["map"] if version >= "2.2" else []
    match rng.choice(kinds):
        case "scalar":
            return SCALARS[rng.integers(len(SCALARS))]
        case "fixed":
            return pa.list_(FIXED[rng.integers(len(FIXED))], int(rng.choice([1, 3, 8, 80])))
        case "list":
            return pa.list_(pa.field("item", random_type(rng, version, depth - 1)))
        case "large_list":
            return pa.large_list(pa.field("item", random_type(rng, version, depth - 1)))
        case "struct":
            names = [f"f{i}" for i in range(rng.integers(1, 4))]
            return pa.struct([pa.field(n, random_type(rng, version, depth - 1)) for n in names])
        case _:
            return pa.map_(pa.string(), random_type(rng, version, depth - 1))


def random_array(
    rng: np.random.Generator, kind: pa.DataType, rows: int, *, null_structs: bool = True
) -> pa.Array:
    """``rows`` values of a type, none, some or all of them null."""
    share = float(rng.choice([0, 0, 0.1, 0.5, 1.0], p=[0.3, 0.2, 0.3, 0.15, 0.05]))
    nulls = rng.random(rows) < share
    types = pa.types
    if types.is_null(kind):
        return pa.nulls(rows)
    if types.is_struct(kind):
        children = [
            random_array(rng, kind.field(i).type, rows, null_structs=null_structs)
            for i in range(kind.num_fields)
        ]
        mask = pa.array(nulls) if null_structs and share else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if types.is_fixed_size_list(kind):
        items = _scalars(rng, kind.value_type, rows * kind.list_size, share=0)
        return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=pa.array(nulls))
    if types.is_map(kind) or types.is_list(kind) or types.is_large_list(kind):
        lengths = np.where(nulls, 0, rng.integers(0, 5, rows) * (rng.random(rows) < 0.8))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        total = int(offsets[-1])
        wide = types.is_large_list(kind)
        offsets_array = pa.array(offsets, pa.int64() if wide else pa.int32())
        if types.is_map(kind):
            keys = pa.array([f"k{i}" for i in range(total)], pa.string())
            items = random_array(rng, kind.item_type, total, null_structs=null_structs)
            entries = pa.StructArray.from_arrays(
                [keys, items], fields=[kind.key_field, kind.item_field]
            )
            children = [entries]
        else:
            children = [random_array(rng, kind.value_type, total, null_structs=null_structs)]
        validity = pa.array(~nulls).buffers()[1] if nulls.any() else None
        return pa.Array.from_buffers(
            kind, rows, [validity, offsets_array.buffers()[1]], children=children
        )
    return _scalars(rng, kind, rows, share=share)


def _scalars(rng: np.random.Generator, kind: pa.DataType, rows: int, *, share: float) -> pa.Array:
    mask = rng.random(rows) < share
    types = pa.types
    few = bool(rng.random() < 0.4)
    if types.is_dictionary(kind):
        indices = pa.array(rng.integers(0, 5, rows), kind.index_type, mask=mask)
        return pa.DictionaryArray.from_arrays(indices, pa.array([f"d{i}" for i in range(5)]))
    if types.is_boolean(kind):
        return pa.array(rng.random(rows) < 0.5, mask=mask)
    if types.is_floating(kind):
        values = rng.standard_normal(rows).astype(kind.to_pandas_dtype())
        values[rng.random(rows) < 0.02] = np.nan
        return pa.array(values, kind, mask=mask)
    if types.is_integer(kind):
        bits = kind.bit_width
        low, high = (0, 100) if few else _limits(kind, bits)
        dtype = np.uint64 if low >= 0 else np.int64
        values = rng.integers(low, high, rows, dtype=dtype, endpoint=True)
        return pa.array(values, kind, mask=mask)
    if types.is_decimal(kind):
        digits = min(kind.precision, 17)
        numbers = rng.integers(-(10**digits), 10**digits, rows)
        scaled = [decimal.Decimal(int(n)).scaleb(-kind.scale) for n in numbers]
        return pa.array([None if m else s for m, s in zip(mask, scaled, strict=True)], kind)
    if types.is_fixed_size_binary(kind):
        return pa.array([None if m else rng.bytes(kind.byte_width) for m in mask], kind)
    if (
        types.is_string(kind) or types.is_large_string(kind)
        or types.is_binary(kind) or types.is_large_binary(kind)
    ):  # fmt: skip
        longest = int(rng.choice([8, 40, 600], p=[0.6, 0.3, 0.1]))
        words = [
            f"{'é' if i % 7 == 0 else ''}{i % 13 if few else i}" * (i % max(2, longest // 6))
            for i in rng.integers(0, 10**6, rows)
        ]
        text = pa.array([None if m else w for m, w in zip(mask, words, strict=True)], pa.string())
        return text.cast(kind)
    # Dates, times, timestamps, durations: their integers.
    if types.is_date64(kind):
        return pa.array(
            rng.integers(-(10**4), 10**4, rows) * 86_400_000, pa.int64(), mask=mask
        ).cast(kind)
    top = 86_399 if types.is_time32(kind) or types.is_time64(kind) else 10**4
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.array(rng.integers(0, top, rows), width, mask=mask).cast(kind)


def _limits(kind: pa.DataType, bits: int) -> tuple[int, int]:
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def random_table(seed: int, rows: int, version: str, columns: int = 5) -> pa.Table:
    """A table with an ``id`` column and some random ones, for files of ``version``."""
    rng = np.random.default_rng(seed)
    arrays = {"id": pa.array(np.arange(rows, dtype=np.int64))}
    for number in range(columns):
        kind = random_type(rng, version)
        arrays[f"c{number}"] = random_array(rng, kind, rows, null_structs=version >= "2.1")
    return pa.table(arrays)
