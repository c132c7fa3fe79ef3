"""Columns of every type and of the value distributions that make writers choose an encoding."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def with_nulls(array: pa.Array, share: float, seed: int = 3) -> pa.Array:
    """The array with null in some places."""
    if pa.types.is_null(array.type) or share == 0:
        return array
    missing = np.random.default_rng(seed).random(len(array)) < share
    return array.take(pa.array(np.arange(len(array)), mask=missing))


def lists_of(values: pa.Array, count: int, shortest: int, longest: int) -> pa.Array:
    """``count`` lists over values that repeat as needed."""
    lengths = np.random.default_rng(len(values)).integers(shortest, longest + 1, count)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    items = values.take(pa.array(np.arange(offsets[-1]) % max(len(values), 1)))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)


def vectors_of(values: pa.Array, size: int) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(values, size)


def numbers(count: int, rng: np.random.Generator) -> Iterator[tuple[str, pa.Array]]:
    for bits in (8, 16, 32, 64):
        kind = getattr(pa, f"int{bits}")()
        limit = 1 << (bits - 2)
        yield f"int{bits}_any", pa.array(rng.integers(-limit, limit, count), kind)
        yield f"int{bits}_small", pa.array(rng.integers(0, 100, count), kind)
        unsigned = getattr(pa, f"uint{bits}")()
        yield f"uint{bits}_rising", pa.array(np.arange(count) % (1 << min(bits, 62)), unsigned)
    yield "int64_negative", pa.array(rng.integers(-100, 100, count))
    yield "int64_few", pa.array(rng.choice(rng.integers(0, 1 << 60, 50), count))
    yield "int64_runs", pa.array(np.repeat(rng.integers(0, 1000, count // 20 + 1), 20)[:count])
    yield "int64_constant", pa.array(np.full(count, 7))
    yield "float16", pa.array(rng.random(count).astype(np.float16))
    yield "float32", pa.array(rng.random(count).astype(np.float32))
    yield "float64", pa.array(rng.standard_normal(count))
    yield "float64_unit", pa.array(rng.random(count))
    yield "float64_whole", pa.array(rng.integers(0, 1000, count).astype(np.float64))
    yield "bool", pa.array(rng.random(count) < 0.5)
    yield "bool_constant", pa.array(np.ones(count, bool))
    yield "date32", pa.array(rng.integers(0, 20_000, count).astype("i4"), pa.date32())
    yield "date64", pa.array(rng.integers(0, 20_000, count) * 86_400_000, pa.date64())
    moments = rng.integers(16 * 10**17, 17 * 10**17, count)
    for unit, factor in UNITS.items():
        yield f"timestamp_{unit}", pa.array(moments // factor, pa.timestamp(unit))
    yield "timestamp_zone", pa.array(moments // 1000, pa.timestamp("us", "+01:00"))
    yield "time32", pa.array(rng.integers(0, 86_400_000, count).astype("i4"), pa.time32("ms"))
    yield "time64", pa.array(rng.integers(0, 86_400_000_000, count), pa.time64("us"))
    yield "duration", pa.array(rng.integers(0, 10**9, count), pa.duration("us"))
    for name, limit, kind in (
        ("decimal128", 10**9, pa.decimal128(18, 2)),
        ("decimal128_few", 50, pa.decimal128(18, 2)),
        ("decimal256", 10**9, pa.decimal256(40, 2)),
    ):
        values = [decimal.Decimal(int(v)) / 100 for v in rng.integers(0, limit, count)]
        yield name, pa.array(values, kind)


def texts(count: int, rng: np.random.Generator) -> Iterator[tuple[str, pa.Array]]:
    ids = [f"user-{a:x}-{b}" for a, b in rng.integers(0, 1 << 40, (count, 2)).tolist()]
    words = np.array(["".join(map(chr, rng.integers(97, 123, 9))) for _ in range(20)])
    few = words[rng.integers(0, 20, count)].tolist()
    for kind in (pa.string(), pa.large_string()):
        yield f"{kind}_many", pa.array(ids, kind)
        yield f"{kind}_few", pa.array(few, kind)
    yield "string_tiny", pa.array([str(v) for v in rng.integers(0, 10_000, count)])
    yield "string_constant", pa.array(["hello world"] * count)
    yield "string_empty", pa.array(["", "x"] * (count // 2) + [""] * (count % 2))
    odd = [f"abcdef{i}{chr(0x100 + i % 3000) * (i % 5)}abcdef" for i in range(count)]
    yield "string_unusual", pa.array(odd)
    large = max(4, count // 100)
    long = [f"lorem ipsum {v} " * 25 for v in rng.integers(0, 1 << 30, large)]
    yield "string_300", pa.array(long)
    yield "string_40k", pa.array([text * 130 for text in long[:40]])
    yield "binary", pa.array([rng.bytes(7) for _ in range(count)], pa.binary())
    yield "large_binary", pa.array([rng.bytes(7) for _ in range(count)], pa.large_binary())
    yield "binary_1k", pa.array([rng.bytes(1000) for _ in range(large)], pa.binary())
    for width in (7, 16):
        values = [rng.bytes(width) for _ in range(count)]
        yield f"fixed_binary_{width}", pa.array(values, pa.binary(width))
    values = [rng.bytes(300) for _ in range(large)]
    yield "fixed_binary_300", pa.array(values, pa.binary(300))
    yield "dictionary_string", pa.array(few).dictionary_encode()
    narrow = pa.dictionary(pa.int8(), pa.string())
    yield "dictionary_int8", pa.array(few).dictionary_encode().cast(narrow)
    yield "dictionary_int64", pa.array(rng.integers(0, 20, count)).dictionary_encode()


def vectors(count: int, rng: np.random.Generator) -> Iterator[tuple[str, pa.Array]]:
    floats = pa.array(rng.random(count * 6).astype("f4"))
    large = max(4, count // 200)
    wide = pa.array(rng.random(large * 768).astype("f4"))
    yield "vector_4", vectors_of(floats[: count * 4], 4)
    yield "vector_768", vectors_of(wide, 768)
    yield "vector_bytes", vectors_of(pa.array(rng.integers(0, 255, count * 64), pa.uint8()), 64)
    small = pa.array(rng.integers(0, 100, count * 4), pa.int32())
    yield "vector_item_nulls", vectors_of(with_nulls(small, 0.1), 4)
    yield "vector_768_item_nulls", vectors_of(with_nulls(wide, 0.1), 768)
    yield "vector_vector", vectors_of(vectors_of(floats, 2), 3)
    yield "vector_nothing", vectors_of(pa.nulls(count * 3, pa.float32()), 3)
    yield "vector_bool", vectors_of(pa.array(rng.random(count * 5) < 0.5), 5)


def nested(count: int, rng: np.random.Generator) -> Iterator[tuple[str, pa.Array]]:
    integers = pa.array(rng.integers(0, 1000, count), pa.int32())
    ids = pa.array([f"user-{v:x}" for v in rng.integers(0, 1 << 40, count)])
    floats = pa.array(rng.random(count))
    lists = lists_of(integers, count, 0, 5)
    yield "list", lists
    yield "list_filled", lists_of(integers, count, 1, 5)
    yield "list_item_nulls", lists_of(with_nulls(integers, 0.2), count, 0, 5)
    yield "large_list", lists_of(floats, count, 0, 5).cast(pa.large_list(pa.float64()))
    yield "list_string", lists_of(with_nulls(ids, 0.1), count, 0, 4)
    structs = pa.StructArray.from_arrays([with_nulls(integers, 0.1), ids], ["a", "b"])
    yield "list_struct", lists_of(with_nulls(structs, 0.2), count, 0, 4)
    yield "list_list", lists_of(with_nulls(lists, 0.1), count // 2 + 1, 0, 3)
    large = max(4, count // 400)
    wide = vectors_of(pa.array(rng.random(large * 768).astype("f4")), 768)
    yield "list_vector", lists_of(wide, large, 0, 3)
    yield "list_string_300", lists_of(pc.binary_repeat(ids[:large], 40), large, 0, 3)
    yield "struct", structs
    yield (
        "struct_struct",
        pa.StructArray.from_arrays([with_nulls(structs, 0.2), floats], ["s", "z"]),
    )
    yield "struct_list", pa.StructArray.from_arrays([with_nulls(lists, 0.2), floats], ["l", "z"])
    deep = pa.StructArray.from_arrays([lists_of(with_nulls(structs, 0.2), count, 0, 3)], ["q"])
    yield "list_struct_list", lists_of(with_nulls(deep, 0.2), count // 2 + 1, 0, 3)
    entries = lists_of(structs, count, 0, 4)
    keys = pc.binary_join_element_wise("k", entries.values.field("b"), "")
    yield "map", pa.MapArray.from_arrays(entries.offsets, keys, entries.values.field("a"))
    pairs = with_nulls(structs[: count // 4 * 4], 0.2)
    yield "vector_struct", vectors_of(pairs, 4)
    yield "null", pa.nulls(count)
    yield "int64_nothing", pa.nulls(count, pa.int64())
    yield "string_nothing", pa.nulls(count, pa.string())
    yield "list_nothing", pa.nulls(count, pa.list_(pa.int32()))
    yield "list_empty", pa.array([[]] * count, pa.list_(pa.int32()))


@cache
def column_cases(count: int, seed: int = 7) -> dict[str, pa.Array]:
    """Name -> a column of about ``count`` rows, fewer if the values are large."""
    rng = np.random.default_rng(seed)
    cases: dict[str, pa.Array] = {}
    for make in (numbers, texts, vectors, nested):
        cases.update(make(count, rng))
    return cases
