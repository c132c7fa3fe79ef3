"""Tables whose large blobs are in objects of their own, and what is in these objects."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
from table_access import read_ours

from pyspark_lance.format.feature_flags import MANAGED_BLOBS
from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

INLINE_BYTES = 65_536
"""Blobs that are not longer are in the data file."""


def blob_rows(values: dict[int, bytes | None], *, managed: bool = False) -> pa.Table:
    fields = [pa.field("id", pa.int64()), pa.field("n", pa.int64()), lance.blob_field("b")]
    metadata = {"lance.blob.managed": "true"} if managed else None
    ids = pa.array(list(values), pa.int64())
    blobs = lance.blob_array(list(values.values()))
    return pa.table([ids, ids, blobs], schema=pa.schema(fields, metadata=metadata))


def new_table(path: str, values: dict[int, bytes | None], **settings: object) -> None:
    lance.write_dataset(
        blob_rows(values, managed=True), path, data_storage_version="2.2",
        enable_stable_row_ids=True, **settings,
    )  # fmt: skip


def our_blobs(path: str, branch: str | None = None, **request: object) -> dict[int, bytes | None]:
    snapshot = Snapshot.open(Table(path, branch=branch))
    schema = logical_schema(snapshot.schema, binary_blobs={"b"})
    rows = read_ours(path, branch=branch, schema=schema, system_columns=(), **request)
    return dict(zip(rows["id"].to_pylist(), rows["b"].to_pylist(), strict=True))


def their_blobs(path: str, branch: str | None = None) -> dict[int, bytes | None]:
    dataset = lance.dataset(path, session=lance.Session())
    if branch is not None:
        dataset = dataset.checkout_version((branch, None))
    rows = dataset.to_table(columns=["id", "b"], blob_handling="all_binary")
    return dict(zip(rows["id"].to_pylist(), rows["b"].to_pylist(), strict=True))


def descriptors(path: str, branch: str | None = None, column: str = "b") -> list[dict | None]:
    """Where the blobs are, by the order of the rows."""
    schema = logical_schema(Snapshot.open(Table(path, branch=branch)).schema)
    return read_ours(path, branch=branch, schema=schema, system_columns=())[column].to_pylist()


def referenced(path: str, branch: str | None = None) -> set[str]:
    """The objects that rows refer to."""
    return {one["blob_uri"] for one in descriptors(path, branch) if one} - {""}


def kinds(path: str, branch: str | None = None) -> list[int]:
    return sorted(one["kind"] for one in descriptors(path, branch) if one is not None)


def objects(path: str) -> set[str]:
    """Paths of the objects that there are, those of old data files too."""
    return {str(one.relative_to(path)) for one in Path(path).rglob("*.blob")}


def check(path: str, expected: dict[int, bytes | None]) -> None:
    assert our_blobs(path) == expected
    assert their_blobs(path) == expected
    # By any writer: small ones are in the data file, all others in objects.
    assert kinds(path) == sorted(
        4 if len(blob) > INLINE_BYTES else 0 for blob in expected.values() if blob is not None
    )
    manifest = Snapshot.open(Table(path)).manifest
    assert manifest.reader_flags & manifest.writer_flags & MANAGED_BLOBS
