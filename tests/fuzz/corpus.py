"""Small valid files of every version and encoding, by pylance and by our writers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from column_cases import column_cases, with_nulls
from legacy_tables import legacy_columns

from pyspark_lance.codec.jsonb import encode_jsonb
from pyspark_lance.datafile.v0_1.writer import LegacyFileWriter
from pyspark_lance.datafile.writer import DataFileWriter
from pyspark_lance.errors import LanceError
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.metafile.deletion_file import write_deletion_file
from pyspark_lance.store.memory_store import MemoryStore

COUNT = 600
PREFIX = "lance-encoding:"
NAMES = [
    "int8_any", "int64_small", "int64_runs", "int64_few", "int64_constant", "uint64_rising",
    "float32", "float64", "bool", "decimal128", "string_many", "string_few", "string_300",
    "string_constant", "string_empty", "string_40k", "binary_1k", "fixed_binary_7",
    "fixed_binary_300", "dictionary_string", "dictionary_int64", "vector_4", "vector_768",
    "vector_item_nulls", "vector_768_item_nulls", "vector_vector", "vector_bool", "list",
    "list_item_nulls", "list_string", "list_struct", "list_list", "list_vector",
    "list_string_300", "struct", "struct_struct", "list_struct_list", "map", "vector_struct",
    "null", "string_nothing", "list_nothing", "list_empty", "vector_nothing",
]  # fmt: skip
# Name of a column -> the encodings asked for; {} leaves the choice to the writer.
CASES: list[tuple[str, dict[str, str]]] = [(name, {}) for name in NAMES]
CASES += [
    ("binary", {"compression": "zstd"}),
    ("string_many", {"compression": "fsst"}),
    ("float64", {"compression": "lz4", "bss": "on"}),
    ("int64_runs", {"compression": "zstd", "rle-threshold": "0.9"}),
    ("int64_small", {"structural-encoding": "fullzip"}),
    ("list_string", {"structural-encoding": "fullzip"}),
    ("struct", {"packed": "true"}),
    ("large_binary", {"blob": "true"}),
]


class Sample(NamedTuple):
    """A valid input."""

    name: str
    data: bytes


def data_files(folder: Path, *, every: int = 1) -> list[Sample]:
    """2.x files of one column; one in ``every`` of them."""
    samples = []
    wanted = [
        (version, name, options) for version in ("2.0", "2.1", "2.2") for name, options in CASES
    ][::every]
    for version, name, options in wanted:
        whole = column_cases(COUNT)[name]
        column = with_nulls(whole, 0.0 if name == "map" else 0.1)
        metadata = {PREFIX + key: value for key, value in options.items()}
        if "blob" in options:
            metadata = {PREFIX + "blob": "true"}
        for writer, write in (("pylance", by_pylance), ("ours", by_ours)):
            data = write(folder / "x.lance", column, version, metadata)
            if data is not None:
                samples.append(Sample(f"{version} {name} {options} {writer}", data))
        if "blob" in options:
            samples += nested_blobs(version, column)
    return samples


def nested_blobs(version: str, column: pa.Array) -> list[Sample]:
    """Blobs of either kind inside of structs and lists, as far as the version has them."""
    first = pa.field("b", pa.large_binary(), metadata={PREFIX + "blob": "true"})
    record = pa.struct([("data", pa.large_binary()), ("uri", pa.string())])
    second = pa.field("b", record, metadata={"ARROW:extension:name": "lance.blob.v2"})
    texts = pa.array([f"file:///{n}" for n in range(len(column))])
    uris = pc.if_else(column.is_null(), texts, None)
    values = {
        first: column,
        second: pa.StructArray.from_arrays([column, uris], fields=list(record)),
    }
    offsets = pa.array([*range(0, len(column), 3), len(column)], pa.int32())
    samples = []
    for field, array in values.items():
        struct = pa.StructArray.from_arrays([array], fields=[field])
        lists = pa.ListArray.from_arrays(offsets, array, type=pa.list_(field))
        for nested in (struct, lists):
            data = by_ours(Path(), nested, version, {})
            if data is not None:
                samples.append(Sample(f"{version} blobs in {nested.type} ours", data))
    return samples


def by_pylance(
    path: Path, column: pa.Array, version: str, metadata: dict[str, str]
) -> bytes | None:
    from pylance_files import write_with_pylance

    return path.read_bytes() if write_with_pylance(path, column, version, metadata) else None


def by_ours(_: Path, column: pa.Array, version: str, metadata: dict[str, str]) -> bytes | None:
    schema = pa.schema([pa.field("c", column.type, metadata=metadata)])
    store = MemoryStore()
    try:
        writer = DataFileWriter(store, "x", LanceSchema.from_arrow(schema), version=version)
        writer.write(pa.record_batch([column], schema=schema))
        writer.finish()
    except LanceError:
        return None
    return bytes(store.get("x"))


def legacy_files(*, every: int = 1) -> list[Sample]:
    """0.1 files of one column; their structure is that of pylance's."""
    samples = []
    for name, column in list(legacy_columns(40).items())[::every]:
        table = pa.table({name: column})
        store = MemoryStore()
        try:
            writer = LegacyFileWriter(store, "x", LanceSchema.from_arrow(table.schema))
            for batch in table.to_batches(max_chunksize=15):
                writer.write(batch)
            writer.finish()
        except LanceError:
            continue
        samples.append(Sample(name, bytes(store.get("x"))))
    return samples


class Deletions(NamedTuple):
    """A deletion file, and what the manifest says of it."""

    data: bytes
    rows: int


class Metadata(NamedTuple):
    """Files of tables that are not data."""

    manifests: list[Sample]
    transactions: list[Sample]
    references: list[Sample]


def metadata_files(folder: Path) -> Metadata:
    """Of tables that pylance makes with every kind of operation."""
    from metafile.pylance_tables import make_all

    make_all(str(folder))
    found = Metadata([], [], [])
    for path in sorted(folder.rglob("*")):
        name = path.name
        kinds = {".manifest": found.manifests, ".txn": found.transactions}
        target = kinds.get(path.suffix)
        if "_refs" in path.parts:
            target = found.references
        if path.is_file() and target is not None:
            target.append(Sample(name, path.read_bytes()))
    return found


def row_id_sequences() -> list[Sample]:
    """Of every kind of segment."""
    rng = np.random.default_rng(1)
    sparse = np.sort(rng.choice(5000, 300, replace=False)).astype(np.uint64)
    dense = np.delete(np.arange(1000, 3000, dtype=np.uint64), [5, 77, 900])
    half = np.flatnonzero(rng.random(900) < 0.5).astype(np.uint64)
    shuffled = rng.permutation(400).astype(np.uint64) * np.uint64(1 << 33)
    parts = [RowIdSequence.from_array(ids) for ids in (sparse, dense, half, shuffled)]
    parts.append(RowIdSequence.consecutive(1 << 40, 500))
    parts.append(RowIdSequence.concat(parts))
    return [Sample(f"row ids {i}", part.to_bytes()) for i, part in enumerate(parts)]


def version_sequences() -> list[Sample]:
    """Runs of versions."""
    rng = np.random.default_rng(2)
    parts = [RowDatasetVersionSequence.constant(1000, 7)]
    parts.append(RowDatasetVersionSequence.from_array(np.sort(rng.integers(1, 40, 500))))
    parts.append(RowDatasetVersionSequence.from_array(rng.integers(1, 4, 300)))
    return [Sample(f"versions {i}", part.to_bytes()) for i, part in enumerate(parts)]


def deletion_files() -> tuple[list[Deletions], list[Sample]]:
    """Arrow files and bitmaps of up to 20,000 rows."""
    rng = np.random.default_rng(3)
    arrows, bitmaps = [], []
    for count in (1, 40, 3000):
        vector = DeletionVector.of(rng.choice(20_000, count, replace=False))
        store = MemoryStore()
        write_deletion_file(store, 0, 1, vector, id=5)
        (info,) = store.list("")
        arrows.append(Deletions(bytes(store.get(info.path)), count))
        bitmaps.append(Sample(f"{count}", vector.to_bitmap_bytes()))
    bitmaps.append(Sample("run", DeletionVector.of(np.arange(70_000)).to_bitmap_bytes()))
    return arrows, bitmaps


JSON_TEXTS = [
    "null", "true", "12", "-0.5", "1e300",
    '"text \\u00e9 \\"q\\""', "[]", "{}", "[1,[2,[3,[]]],{}]",
    '{"a":1,"b":{"c":[true,false,null,"x"],"d":-9223372036854775808},"e":18446744073709551615}',
    json.dumps({f"k{i}": [i, i / 7, str(i)] for i in range(20)}),
]  # fmt: skip


def jsonb_documents() -> list[Sample]:
    """Documents of every kind of value."""
    return [
        Sample(text, bytes(document))
        for text, document in zip(
            JSON_TEXTS, encode_jsonb(pa.array(JSON_TEXTS)).to_pylist(), strict=True
        )
    ]


ROWS = pa.record_batch(
    {
        "b": [True, False, None],
        "tiny": pa.array([-128, 0, None], pa.int8()),
        "big": pa.array([2**63 - 1, -1, None], pa.int64()),
        "x": pa.array([float("nan"), -0.0, None]),
        "s": ["", "ß5", None],
        "bin": pa.array([b"", b"\xff", None], pa.binary()),
        "day": pa.array([0, 19_000, None], pa.date32()),
        "ts": pa.array([0, 10**15, None], pa.timestamp("us", "UTC")),
        "list": pa.array([[1], [], None]),
        "st": pa.array([{"a": 1}, {"a": None}, None]),
    }
)
CONDITIONS = [
    "big > 5 AND s LIKE 'a%' OR NOT b",
    "tiny + 3 * tiny - 2 <= x / 2.50 OR tiny % 7 DIV 3 = 1",
    "s IN ('a', '', NULL) AND big NOT BETWEEN -5L AND 99999999999999999999",
    "CAST(big AS decimal(38,18)) <=> st.a AND st.a IS NOT NULL",
    "coalesce(s, 'x') RLIKE '^(a|b)+.$' OR s ILIKE '%_ß' ESCAPE '!'",
    "ts >= TIMESTAMP '2020-01-01 00:00:00' AND day < DATE '2020-02-29' AND bin = X'35'",
    "year(ts) = 2001 AND month(day) < 12 AND substring(s, -2, 1) = 'x' AND length(s) > 0",
    "`st`.`a` = 1 OR isnan(x) OR abs(tiny) > 1e300 OR double('NaN') = x",
    "tiny = 5 AND concat(s, s) || 'x' > 'y' AND startswith(lower(upper(trim(s))), 'x')",
]
JSON_CONDITIONS = [
    json.dumps(tree)
    for tree in (
        {"op": ">", "args": [{"column": ["big"]}, {"literal": 5, "type": "bigint"}]},
        {"op": "AND", "args": [
            {"op": "IS_NULL", "args": [{"column": ["st", "a"]}]},
            {"op": "=", "args": [{"cast": {"column": ["tiny"]}, "type": "decimal(10,2)"},
                                 {"literal": "1.50", "type": "decimal(10,2)"}]}]},
        {"op": "IN", "args": [{"column": ["s"]}, {"literal": "x", "type": "string"},
                              {"literal": None, "type": "string"}]},
        {"op": "LIKE", "args": [{"column": ["s"]}], "pattern": "a%", "escape": "!"},
        {"op": "RLIKE", "args": [{"column": ["s"]}], "pattern": "^(a|b)*$"},
        {"op": "<", "args": [{"column": ["day"]}, {"literal": 19000, "type": "date"}]},
        {"op": "=", "args": [{"column": ["bin"]}, {"literal": "AAE=", "type": "binary"}]},
        {"op": "NOT", "args": [{"op": "<=>", "args": [
            {"column": ["x"]}, {"literal": "NaN", "type": "double"}]}]},
        {"op": ">=", "args": [{"column": ["ts"]}, {"literal": 10**15, "type": "timestamp"}]},
    )
]  # fmt: skip
