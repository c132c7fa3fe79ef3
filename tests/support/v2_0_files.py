"""Arrays of every type that 2.0 files hold, and reading and writing them by field."""

from __future__ import annotations

import decimal
from functools import cache

import numpy as np
import pyarrow as pa

from pyspark_lance.datafile.field_io import FieldReader
from pyspark_lance.datafile.file_metadata import FileMetadata
from pyspark_lance.datafile.open_file import OpenFile
from pyspark_lance.datafile.page_sink import PageSink
from pyspark_lance.datafile.v2_0.field_reader import make_v2_0_field_reader, v2_0_columns
from pyspark_lance.datafile.v2_0.field_writer import make_v2_0_field_writer
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.store.object_store import ObjectStore


def leaf_arrays(count: int, seed: int = 0) -> dict[str, pa.Array]:
    """Arrays without nulls, ``count`` values each."""
    return dict(_leaf_arrays(count, seed))


@cache
def _leaf_arrays(count: int, seed: int) -> dict[str, pa.Array]:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 1 << 31, count)
    small = numbers % 100
    arrays = {
        str(kind): pa.array(small).cast(kind)
        for kind in (
            *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
            *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
            *(pa.float32(), pa.float64()),
        )
    }
    arrays["halffloat"] = pa.array(small.astype(np.float16))
    arrays["bool"] = pa.array(numbers % 3 == 0)
    arrays["null"] = pa.nulls(count)
    arrays["date32"] = pa.array(small.astype(np.int32), pa.date32())
    arrays["date64"] = pa.array(small * 86_400_000, pa.date64())
    for unit in ("s", "ms", "us", "ns"):
        arrays[f"timestamp_{unit}"] = pa.array(numbers, pa.timestamp(unit))
        arrays[f"duration_{unit}"] = pa.array(numbers, pa.duration(unit))
    arrays["timestamp_zone"] = pa.array(numbers, pa.timestamp("us", "+01:00"))
    arrays["time32"] = pa.array(small.astype(np.int32), pa.time32("ms"))
    arrays["time64"] = pa.array(numbers, pa.time64("ns"))
    exact = [decimal.Decimal(int(number)).scaleb(-2) for number in numbers]
    arrays["decimal128"] = pa.array(exact, pa.decimal128(20, 2))
    arrays["decimal256"] = pa.array(exact, pa.decimal256(50, 2))
    texts = [f"value {number:x}" * (number % 4) for number in numbers.tolist()]
    few = [f"{number % 7}" * (number % 3) for number in numbers.tolist()]
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        arrays[str(kind)] = pa.array([text.encode() for text in texts], pa.binary()).cast(kind)
        arrays[f"{kind}_few"] = pa.array([text.encode() for text in few], pa.binary()).cast(kind)
    arrays["fixed_binary_7"] = pa.array([rng.bytes(7) for _ in range(count)], pa.binary(7))
    arrays["fixed_binary_16"] = pa.array([rng.bytes(16) for _ in range(count)], pa.binary(16))
    arrays["dictionary_string"] = pa.DictionaryArray.from_arrays(
        pa.array(small % 3, pa.int8()), pa.array(["a", "bb", ""])
    )
    arrays["dictionary_int"] = pa.DictionaryArray.from_arrays(
        pa.array(small % 4, pa.uint16()), pa.array([5, 6, 7, 1 << 40])
    )
    floats = pa.array(rng.random(count * 12).astype(np.float32))
    arrays["vector"] = pa.FixedSizeListArray.from_arrays(floats[: count * 3], 3)
    arrays["vector_bool"] = pa.FixedSizeListArray.from_arrays(
        pa.array(rng.random(count * 5) < 0.5), 5
    )
    inner = pa.FixedSizeListArray.from_arrays(floats, 3)
    arrays["vector_vector"] = pa.FixedSizeListArray.from_arrays(inner, 4)
    arrays["vector_item_nulls"] = pa.FixedSizeListArray.from_arrays(
        with_nulls(pa.array(rng.integers(0, 9, count * 3)), 0.3), 3
    )
    return arrays


def nested_arrays(count: int, seed: int = 0) -> dict[str, pa.Array]:
    """Lists and structs without nulls at the top."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 4, count))])
    items = int(offsets[-1])
    leaves = leaf_arrays(items, seed + 1)

    def lists(values: pa.Array) -> pa.Array:
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)

    arrays = {
        f"list_{name}": lists(with_nulls(leaves[name], 0.2))
        for name in ("int32", "string", "bool", "vector", "string_few", "dictionary_string")
    }
    arrays["large_list"] = pa.LargeListArray.from_arrays(pa.array(offsets), leaves["double"])
    structs = pa.StructArray.from_arrays(
        [with_nulls(leaves["int64"], 0.2), leaves["string"]], ["a", "b"]
    )
    arrays["list_struct"] = lists(structs)
    top = leaf_arrays(count, seed + 2)
    arrays["struct"] = pa.StructArray.from_arrays(
        [with_nulls(top["int32"], 0.2), top["string"], arrays["list_int32"]], ["x", "y", "z"]
    )
    arrays["struct_struct"] = pa.StructArray.from_arrays(
        [arrays["struct"], top["bool"]], ["s", "b"]
    )
    inner = nested_lists(items, rng)
    arrays["list_list"] = lists(inner)
    arrays["list_list_null"] = lists(with_nulls(inner, 0.3))
    arrays["list_empty"] = pa.array([[]] * count, pa.list_(pa.int32()))
    return arrays


def nested_lists(count: int, rng: np.random.Generator) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 3, count))])
    values = pa.array(rng.integers(0, 99, int(offsets[-1])))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def with_nulls(array: pa.Array, share: float, seed: int = 5) -> pa.Array:
    """The array with null in some places."""
    missing = np.random.default_rng(seed).random(len(array)) < share
    if pa.types.is_null(array.type):
        return array
    return array.take(pa.array(np.arange(len(array)), mask=missing))


def as_sliced(array: pa.Array) -> pa.Array:
    """The same values behind an offset that is no multiple of 8."""
    return pa.concat_arrays([array[:3], array])[min(3, len(array)) :]


def open_fields(store: ObjectStore, path: str) -> tuple[OpenFile, list[FieldReader]]:
    """Readers of all top-level fields of a file, by its own schema."""
    metadata = FileMetadata.load(store, path)
    file = OpenFile(store, path, metadata)
    columns = v2_0_columns(file, metadata.schema.fields)
    fields = metadata.schema.fields
    return file, [make_v2_0_field_reader(file, field, columns) for field in fields]


def write_fields(
    store: ObjectStore, path: str, columns: dict[str, pa.Array], *, rows_per_write: int = 1 << 30
) -> None:
    """Write a file of one array per column."""
    arrow = pa.schema([pa.field(name, array.type) for name, array in columns.items()])
    schema = LanceSchema.from_arrow(arrow)
    sink = PageSink(store.open_output(path))
    first = 0
    num_rows = 0
    for field, array in zip(schema.fields, columns.values(), strict=True):
        writer = make_v2_0_field_writer(field, sink, first)
        for start in range(0, len(array), rows_per_write):
            writer.write(array[start : start + rows_per_write])
        writer.flush()
        assert writer.buffered_bytes == 0
        first += writer.num_columns
        num_rows = len(array)
    sink.finish(schema, num_rows, "2.0", first)


def same_values(left: pa.Array, right: pa.Array) -> bool:
    """Equal values; dictionaries may be cut differently."""
    if left.equals(right):
        return True
    return left.type == right.type and left.to_pylist() == right.to_pylist()
