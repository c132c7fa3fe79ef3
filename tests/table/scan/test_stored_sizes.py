"""Bytes of columns, by the sizes that the manifest states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from pyspark_lance.table.scan.column_widths import memory_widths, read_share, stored_widths
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

COUNT = 5000


def widths_of(path: str) -> dict[str, float]:
    return stored_widths(Snapshot.open(Table(path)))


def bytes_per_row(path: str) -> float:
    return sum(file.stat().st_size for file in Path(path).glob("data/*.lance")) / COUNT


def random_columns(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 1 << rng.integers(1, 62), COUNT)
    length = int(rng.integers(1, 400))
    texts = rng.integers(97, 123, (COUNT, length), dtype=np.uint8).view(f"S{length}").ravel()
    columns = {
        "number": pa.array(numbers),
        "text": pa.array(texts).cast(pa.string()),
        "kind": pa.array(["few", "words"]).take(pa.array(numbers % 2)),
        "point": pa.array([{"x": float(i), "y": i} for i in range(COUNT)]),
    }
    chosen = rng.permutation(list(columns))[: rng.integers(1, 5)]
    return pa.table({name: columns[name] for name in chosen})


@pytest.mark.parametrize("seed", range(12))
def test_column_widths_sum_to_file_size(tmp_path, seed):
    path = str(tmp_path / "t.lance")
    rows = random_columns(seed)
    version = ("2.0", "2.1", "2.2")[seed % 3]
    lance.write_dataset(rows, path, max_rows_per_file=2000, data_storage_version=version)
    total = sum(widths_of(path).values())
    assert total >= bytes_per_row(path) * 0.999
    # No column is thought to be compressed more than twentyfold.
    least = sum(column.nbytes for column in rows.columns) / COUNT / 10
    assert total <= max(bytes_per_row(path) * 1.001, least)


def test_remaining_bytes_are_attributed_to_text(tmp_path):
    path = str(tmp_path / "t.lance")
    rng = np.random.default_rng(1)
    texts = rng.integers(97, 123, (COUNT, 3000), dtype=np.uint8).view("S3000").ravel()
    rows = pa.table({"id": pa.array(range(COUNT)), "text": pa.array(texts).cast(pa.string())})
    lance.write_dataset(rows, path)
    widths = widths_of(path)
    assert widths["id"] <= 8
    assert widths["text"] > 2000


def vectors(size: int) -> pa.Array:
    values = np.random.default_rng(2).random(COUNT * size, np.float32)
    return pa.ListArray.from_arrays(np.arange(COUNT + 1, dtype=np.int32) * size, pa.array(values))


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_remaining_bytes_are_attributed_to_lists(tmp_path, version):
    path = str(tmp_path / "t.lance")
    triple = pa.FixedSizeListArray.from_arrays(pa.array(np.random.rand(COUNT * 3)), 3)
    nested = pa.StructArray.from_arrays([pa.array(range(COUNT)), vectors(100)], ["n", "v"])
    rows = pa.table({"id": range(COUNT), "xyz": triple, "vector": vectors(500), "pair": nested})
    lance.write_dataset(rows, path, data_storage_version=version)
    widths = widths_of(path)
    assert widths["id"] <= 8
    assert widths["xyz"] <= 24
    assert widths["vector"] > 1000
    assert widths["pair"] > 400  # Two lists share what is left equally.
    snapshot = Snapshot.open(Table(path))
    assert memory_widths(snapshot)["vector"] == widths["vector"]
    fields = snapshot.schema.fields
    assert read_share(snapshot, fields) == 1
    assert read_share(snapshot, fields[:1]) < 0.01
    # A struct with fewer members is a part of the column.
    part = replace(fields[3], children=fields[3].children[:1])
    assert read_share(snapshot, [part]) < read_share(snapshot, fields[3:]) < 1


def test_narrow_scan_of_wide_rows_has_few_tasks(tmp_path):
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(COUNT), "vector": vectors(2000)}), path)
    snapshot = Snapshot.open(Table(path))
    narrow, wide = (
        plan_scan(snapshot, ScanRequest(schema=snapshot.schema.select([name]), parallelism=8))
        for name in ("id", "vector")
    )
    assert (len(narrow), len(wide)) == (1, 2)
    whole = ScanRequest(schema=snapshot.schema, parallelism=8, splits_fragments=False)
    assert len(plan_scan(snapshot, whole)) == 1


def test_unknown_file_sizes_use_type_widths(tmp_path):
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": pa.array(range(COUNT))}), path)
    snapshot = Snapshot.open(Table(path))
    assert stored_widths(snapshot)["id"] < 8
    (fragment,) = snapshot.manifest.fragments
    unknown = replace(fragment, files=tuple(replace(f, size_bytes=None) for f in fragment.files))
    manifest = replace(snapshot.manifest, fragments=(unknown,))
    file = replace(snapshot.file, manifest=manifest)
    assert stored_widths(replace(snapshot, file=file, memo={})) == {"id": 8.0}
