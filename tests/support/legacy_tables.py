"""Columns of every type that 0.1 files can hold."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa


def legacy_columns(count: int, seed: int = 0) -> dict[str, pa.Array]:
    """Columns of ``count`` rows without nulls, except where 0.1 files can hold them."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(-(2**62), 2**62, count)
    amounts = [decimal.Decimal(int(number)) / 100 for number in numbers]
    grids = fixed_lists(rng.integers(0, 9, count * 6), 3)
    words = [("", "a", "bb", "grün", "x" * 70)[i] for i in rng.integers(0, 5, count)]
    columns: dict[str, pa.Array] = {
        "null": pa.nulls(count),
        "bool": pa.array(rng.integers(0, 2, count) == 1),
        "half": pa.array(rng.integers(-50, 50, count).astype(np.float16)),
        "float": pa.array(rng.normal(size=count).astype(np.float32)),
        "double": pa.array(rng.normal(size=count)),
        "string": pa.array(words),
        "large_string": pa.array(words, pa.large_string()),
        "string_or_null": pa.array([word or None for word in words]),
        "binary": pa.array([word.encode() for word in words], pa.binary()),
        "large_binary": pa.array([word.encode() for word in words], pa.large_binary()),
        "decimal128": pa.array(amounts, pa.decimal128(30, 2)),
        "decimal256": pa.array(amounts, pa.decimal256(50, 2)),
        "fixed_binary": pa.array([rng.bytes(3) for _ in range(count)], pa.binary(3)),
        "vector": fixed_lists(rng.normal(size=count * 4).astype(np.float32), 4),
        "bits": fixed_lists(rng.integers(0, 2, count * 3) == 1, 3),
        "matrix": pa.FixedSizeListArray.from_arrays(grids, 2),
        "dictionary": pa.array(rng.choice(["p", "q", "", "rr"], count)).dictionary_encode(),
        "dictionary_int8": pa.DictionaryArray.from_arrays(
            pa.array(rng.integers(0, 2, count).astype(np.int8)), pa.array([b"yes", b"no"])
        ),
        "dictionary_double": pa.array(rng.choice([1.5, 2.5, -1.0], count)).dictionary_encode(),
    }  # fmt: skip
    for bits in (8, 16, 32, 64):
        columns[f"int{bits}"] = pa.array(numbers.astype(f"int{bits}"))
        columns[f"uint{bits}"] = pa.array(numbers.astype(f"uint{bits}"))
    days = pa.array(rng.integers(0, 30_000, count).astype(np.int32))
    columns["date32"] = days.cast(pa.date32())
    columns["date64"] = columns["date32"].cast(pa.date64())
    ticks = pa.array(rng.integers(0, 86_400, count))
    for unit in ("s", "ms"):
        columns[f"time_{unit}"] = ticks.cast(pa.int32()).cast(pa.time32(unit))
    for unit in ("us", "ns"):
        columns[f"time_{unit}"] = ticks.cast(pa.time64(unit))
    for unit in ("s", "ms", "us", "ns"):
        columns[f"timestamp_{unit}"] = ticks.cast(pa.timestamp(unit, tz="UTC"))
        columns[f"duration_{unit}"] = ticks.cast(pa.duration(unit))
    columns |= _nested(rng, count, columns)
    return columns


def _nested(
    rng: np.random.Generator, count: int, columns: dict[str, pa.Array]
) -> dict[str, pa.Array]:
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(rng.integers(0, 4, count), out=offsets[1:])
    items = legacy_items(rng, int(offsets[-1]))
    nested: dict[str, pa.Array] = {
        f"list_{name}": pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), item)
        for name, item in items.items()
    }
    nested["large_list"] = pa.LargeListArray.from_arrays(pa.array(offsets), items["string"])
    nested["struct"] = pa.StructArray.from_arrays(
        [columns["int64"], columns["string"], columns["dictionary"], nested["list_string"]],
        ["n", "s", "d", "l"],
    )
    nested["struct_struct"] = pa.StructArray.from_arrays(
        [nested["struct"], columns["bool"]], ["inner", "b"]
    )
    return nested


def legacy_items(rng: np.random.Generator, count: int) -> dict[str, pa.Array]:
    """Items for lists."""
    numbers = pa.array(rng.integers(0, 1000, count))
    words = pa.array(rng.choice(["", "one", "two", "three"], count))
    inner = np.zeros(count + 1, np.int32)
    np.cumsum(rng.integers(0, 3, count), out=inner[1:])
    deep = pa.array(rng.choice(["", "u", "vv"], int(inner[-1])))
    return {
        "int64": numbers,
        "bool": pa.array(rng.integers(0, 2, count) == 1),
        "string": words,
        "vector": fixed_lists(rng.normal(size=count * 2), 2),
        "dictionary": words.dictionary_encode(),
        "struct": pa.StructArray.from_arrays([numbers, words], ["n", "w"]),
        "list": pa.ListArray.from_arrays(pa.array(inner), deep),
    }


def fixed_lists(values: np.ndarray, size: int) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(values), size)


def as_legacy_reads(values: object) -> object:
    """Python values as 0.1 files give them back: empty strings of nullable fields are null."""
    if isinstance(values, list):
        return [as_legacy_reads(value) for value in values]
    if isinstance(values, dict):
        return {key: as_legacy_reads(value) for key, value in values.items()}
    return None if values in ("", b"") else values
