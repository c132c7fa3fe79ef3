"""Tables with blob columns, also inside of structs and lists, and what pylance reads of them"""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
from table_access import read_ours

from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

RNG = np.random.default_rng(0)
# Inline, packed and dedicated in 2.2.
VALUES = [b"abc", b"", None, RNG.bytes(200_000), RNG.bytes(5_000_000), b"tail", RNG.bytes(300_000)]
BLOB = {"lance-encoding:blob": "true"}


def blob_table(values=VALUES):
    schema = pa.schema([("id", pa.int64()), pa.field("b", pa.large_binary(), metadata=BLOB)])
    return pa.table({"id": range(len(values)), "b": values}, schema=schema)


def pylance_blobs(path, column="b"):
    dataset = lance.dataset(path)
    descriptors = dataset.to_table(columns=[column])[column].to_pylist()
    there = [i for i, one in enumerate(descriptors) if one is not None]
    found = dict(zip(there, dataset.take_blobs(column, indices=there), strict=True))
    # A null of 2.0 files shows a descriptor.
    blobs = [found.get(i) for i in range(len(descriptors))]
    return [None if blob is None else blob.readall() for blob in blobs]


# In 2.2: inline, and packed into a file beside the data file.
COPIED = {0: b"abc", 1: None, 2: b"", 3: b"p" * 100_000, 4: b"last"}


def new_blob_table(path, version="2.2", values=COPIED):
    """A table of pylance with two files, and stable row ids."""
    table = pa.table({"id": list(values), "b": list(values.values())}, schema=blob_table().schema)
    lance.write_dataset(
        table, path, data_storage_version=version, enable_stable_row_ids=True, max_rows_per_file=3
    )
    return path


def blobs_by_id(path):
    """The blobs by their ids; each row once."""
    ids = lance.dataset(path).to_table(columns=["id"])["id"].to_pylist()
    assert len({*ids}) == len(ids)
    return dict(zip(ids, pylance_blobs(path), strict=True))


# In 2.2 of pylance: inline and packed into a file beside the data file.
SMALL_VALUES = [b"abc", b"", None, RNG.bytes(100_000)]
BLOB_ITEM = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
PAIR = pa.struct([pa.field("i", pa.int64()), BLOB_ITEM])

STRUCTS = {"struct": PAIR, "struct_struct": pa.struct([pa.field("s", PAIR)])}
LISTS = {
    "list": pa.list_(BLOB_ITEM),
    "large_list": pa.large_list(BLOB_ITEM),
    "list_list": pa.list_(pa.list_(BLOB_ITEM)),
    "list_struct": pa.list_(PAIR),
    "struct_list": pa.struct([pa.field("l", pa.list_(BLOB_ITEM)), pa.field("i", pa.int64())]),
    "deep": pa.list_(pa.struct([pa.field("l", pa.list_(PAIR))])),
}
# What pylance can write, and then read.
OF_PYLANCE = [
    *((version, kind) for version in ("2.0", "2.1", "2.2") for kind in STRUCTS),
    ("2.0", "list"),
    *(("2.2", kind) for kind in LISTS),
]
OF_OURS = sorted({*OF_PYLANCE, *(("2.0", kind) for kind in LISTS)})


def random_nested(kind, rng, *, null_structs):
    """A value of the type; nulls everywhere, but of structs only where a version has them."""
    if pa.types.is_struct(kind):
        if null_structs and rng.random() < 0.15:
            return None
        return {f.name: random_nested(f.type, rng, null_structs=null_structs) for f in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if rng.random() < 0.15:
            return None
        count = int(rng.integers(0, 4))
        return [
            random_nested(kind.value_type, rng, null_structs=null_structs) for _ in range(count)
        ]
    if rng.random() < 0.2:
        return None
    if pa.types.is_int64(kind):
        return int(rng.integers(0, 100))
    return (
        SMALL_VALUES[int(rng.integers(0, 4))]
        if rng.random() < 0.1
        else rng.bytes(int(rng.integers(9)))
    )


def nested_table(name, version, count=60, seed=1):
    kind = {**STRUCTS, **LISTS}[name]
    rng = np.random.default_rng(seed)
    rows = [random_nested(kind, rng, null_structs=version != "2.0") for _ in range(count)]
    return pa.table({"id": range(count), "c": pa.array(rows, kind)})


def nested_bytes(path, **request):
    schema = logical_schema(Snapshot.open(Table(path)).schema, binary_blobs={"c"})
    return read_ours(path, schema=schema, system_columns=(), **request)["c"].to_pylist()


def pylance_nested_bytes(path):
    return lance.dataset(path).to_table(blob_handling="all_binary")["c"].to_pylist()
