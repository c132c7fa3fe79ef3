"""Small fragments of one layout are read as if they were one; what comes out are the same rows."""

from __future__ import annotations

import uuid
from pathlib import Path

import fsspec
import lance
import numpy as np
import pyarrow as pa
import pytest
from random_seeds import grid

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.errors import CorruptFileError, MissingFileError
from pyspark_lance.format.column_names import SYSTEM_COLUMNS
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema
from pyspark_lance.table.scan.scan_task import coalesce_fragments
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

FRAGMENTS, ROWS = 40, 30
RNG = np.random.default_rng(7)


def content() -> pa.Table:
    rows = FRAGMENTS * ROWS
    return pa.table(
        {
            "id": np.arange(rows),
            "x": RNG.random(rows),
            "few": pa.array([["red", "green", None][n % 3] for n in range(rows)]),
            "name": pa.array([f"user-{n * 7919 % 1009}" for n in range(rows)]),
            "nulls": pa.array([None if n < rows // 2 else n for n in range(rows)], pa.int32()),
            "list": pa.array([[n] * (n % 4) if n % 5 else None for n in range(rows)]),
            "struct": pa.array([{"a": n, "b": [str(n)] if n % 7 else None} for n in range(rows)]),
            "vector": pa.FixedSizeListArray.from_arrays(RNG.random(rows * 4), 4),
        }
    )


@pytest.fixture(params=["2.0", "2.1", "2.2"])
def path(request, tmp_path: Path) -> str:
    """Fragments with and without deletions, and with a column in files of its own."""
    where = str(tmp_path / "t")
    table = lance.write_dataset(
        content(),
        where,
        max_rows_per_file=ROWS,
        data_storage_version=request.param,
        enable_stable_row_ids=True,
    )
    table.add_columns({"twice": "id * 2"})
    table.delete("id % 50 = 7 or (id >= 90 and id < 120)")
    return where


def scanned(path: str, condition: str | None = None, **request: object) -> pa.Table:
    snapshot = Snapshot.open(Table(path))
    predicate = parse_predicate(condition, predicate_schema(snapshot.schema)) if condition else None
    asked = ScanRequest(predicate=predicate, **request)
    batches = [batch for task in plan_scan(snapshot, asked) for batch in task.run()]
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize(
    "condition", [None, "id % 3 = 1", "id = 611", "twice > 300 and name like 'user-1%'", "x < 0.02"]
)
def test_columns_and_lineage_equal_pylance(path, condition):
    found = scanned(path, condition, system_columns=SYSTEM_COLUMNS)
    expected = lance.dataset(path).to_table(filter=condition, with_row_id=True)
    columns = [*content().column_names, "twice"]
    assert found.select(columns).to_pylist() == expected.select(columns).to_pylist()
    assert found["_rowid"].to_pylist() == expected["_rowid"].to_pylist()
    addresses = lance.dataset(path).to_table([], filter=condition, with_row_address=True)
    assert found["_rowaddr"].to_pylist() == addresses["_rowaddr"].to_pylist()


@pytest.mark.parametrize(
    ("path", "batch_rows"), grid(["2.0", "2.1", "2.2"], [100, 17, 1]), indirect=["path"]
)
def test_batch_size_does_not_change_rows(path, batch_rows):
    found = scanned(path, batch_rows=batch_rows)
    assert found["id"].to_pylist() == lance.dataset(path).to_table()["id"].to_pylist()


def test_compatible_fragments_are_read_together(path):
    snapshot = Snapshot.open(Table(path))
    version = snapshot.manifest.fragments[0].files[0].file_version
    (task,) = plan_scan(snapshot, ScanRequest(fragments_per_task=FRAGMENTS))
    runs = list(coalesce_fragments(task.slices, task.fields, task.batch_rows))
    assert len(runs) == (len(task.slices) if version == "2.0" else 1)
    assert [one for run_of in runs for one in run_of] == list(task.slices)


def test_damage_names_its_file(tmp_path):
    path = str(tmp_path / "t")
    table = lance.write_dataset(content().select(["name"]), path, max_rows_per_file=ROWS)
    name = table.get_fragments()[23].data_files()[0].path
    file = Path(path, "data", name)
    data = bytearray(file.read_bytes())
    data[:64] = b"\xff" * 64  # chunks of the first page
    file.write_bytes(data)
    with pytest.raises(CorruptFileError) as error:
        scanned(path)
    assert name in error.value.where


def test_missing_file_names_its_fragment(path):
    table = lance.dataset(path)
    Path(path, "data", table.get_fragments()[11].data_files()[0].path).unlink()
    with pytest.raises(CorruptFileError, match=r"fragment 1\d is missing"):
        scanned(path)


def test_remote_files_are_opened_together(path):
    far = f"memory://{uuid.uuid4().hex}"
    fsspec.filesystem("memory").put(path + "/", far + "/", recursive=True)
    assert scanned(far).equals(scanned(path))
    missing = Snapshot.open(Table(far)).manifest.fragments[17].files[0].path
    fsspec.filesystem("memory").rm(f"{far}/data/{missing}")
    with pytest.raises(MissingFileError) as error:
        scanned(far)
    assert missing in error.value.where


def test_files_of_different_versions_are_not_joined(tmp_path):
    readers = []
    for version in ("2.1", "2.2", "2.0"):
        path = str(tmp_path / version)
        table = lance.write_dataset(content()[:ROWS], path, data_storage_version=version)
        name = table.get_fragments()[0].data_files()[0].path
        readers.append(DataFileReader.open(open_store(path), f"data/{name}"))
    assert DataFileReader.concat(readers[:2]) is None
    assert DataFileReader.concat(readers[2:]) is None
    joined = DataFileReader.concat([readers[0], readers[0]])
    assert joined is not None
    assert joined.num_rows == 2 * readers[0].num_rows
