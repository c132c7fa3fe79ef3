"""The examples of the row-lineage specification and of Delta's row tracking, by name."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from table_access import LINEAGE, append, read_ours

from pyspark_lance.table.index.index_file import row_id_index_of
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t")


def lineage(path: str, column: str = "_rowid") -> list[int]:
    return read_ours(path).sort_by("id")[column].to_pylist()


def test_row_ids_are_sequential_in_one_file(path):
    append(path, 0, rows=1000)
    assert lineage(path) == list(range(1000))


def test_row_ids_of_one_commit_do_not_overlap(path):
    append(path, 0, rows=1000, max_rows_per_file=70)
    assert len(lance.dataset(path).get_fragments()) == 15
    assert lineage(path) == list(range(1000))


def test_row_ids_are_unique_across_commits(path):
    for start in (0, 10, 20):
        append(path, start, rows=10)
    assert lineage(path) == list(range(30))


def test_row_ids_survive_manifest_round_trip(path):
    append(path, 0, rows=10)
    before = read_ours(path)
    append(path, 10, rows=10)
    assert read_ours(path).sort_by("id").slice(0, 10).equals(before)


def test_moved_row_keeps_id_and_gets_new_address(path):
    append(path, 0, rows=10)
    lance.dataset(path).update({"id": "id"}, where="id = 4")
    rows = read_ours(path).sort_by("id")
    assert rows["_rowid"].to_pylist() == list(range(10))
    assert rows["_rowaddr"].to_pylist()[4] == 1 << 32
    assert rows["_rowaddr"].to_pylist()[5] == 5


def test_lineage_survives_pylance_compaction(path):
    for start in range(0, 50, 10):
        append(path, start, rows=10)
    lance.dataset(path).delete("id % 7 = 0")
    lance.dataset(path).update({"id": "id"}, where="id % 5 = 0")
    before = read_ours(path).sort_by("id").select(["id", *LINEAGE]).drop_columns(["_rowaddr"])
    lance.dataset(path).optimize.compact_files(target_rows_per_fragment=1000)
    after = read_ours(path).sort_by("id").select(["id", *LINEAGE]).drop_columns(["_rowaddr"])
    assert after.equals(before)


def test_overwrite_assigns_new_ids_and_versions(path):
    append(path, 0, rows=5)
    append(path, 0, rows=5, overwrite=True)
    assert lineage(path) == [5, 6, 7, 8, 9]
    assert lineage(path, "_row_created_at_version") == [2] * 5


def test_update_keeps_row_id_and_created_at(path):
    append(path, 0, rows=5)
    append(path, 5, rows=5)
    lance.dataset(path).update({"id": "id"}, where="id = 7")
    rows = read_ours(path).sort_by("id").slice(7, 1).to_pylist()[0]
    assert (rows["_rowid"], rows["_row_created_at_version"]) == (7, 2)
    assert rows["_row_last_updated_at_version"] == 3


def test_lineage_columns_distinguish_inserted_and_updated_rows(path):
    append(path, 0, rows=5)
    begin = append(path, 5, rows=5)
    append(path, 10, rows=2)
    lance.dataset(path).update({"id": "id"}, where="id = 3 OR id = 11")
    rows = read_ours(path).to_pylist()
    inserted = {r["id"] for r in rows if r["_row_created_at_version"] > begin}
    updated = {
        r["id"]
        for r in rows
        if r["_row_created_at_version"] <= begin < r["_row_last_updated_at_version"]
    }
    assert (inserted, updated) == ({10, 11}, {3})


def test_row_id_index_finds_address_of_moved_row(path):
    append(path, 0, rows=10)
    lance.dataset(path).update({"id": "id"}, where="id = 4")
    lance.dataset(path).delete("id = 6")
    snapshot = Snapshot.open(Table(path))
    index = row_id_index_of(snapshot, snapshot.manifest.fragments)
    addresses, found = index.addresses_of([4, 5, 6, 99])
    assert found.tolist() == [True, True, False, False]
    assert addresses.tolist()[:2] == [1 << 32, 5]


def test_row_ids_beyond_32_bits_are_continued(path):
    lance.write_dataset(
        pa.table({"id": [0, 1]}), path, enable_stable_row_ids=True, data_storage_version="2.1"
    )
    import dataclasses

    from pyspark_lance.format.row_id_sequence import RowIdSequence
    from pyspark_lance.metafile.manifest_file import encode_manifest, latest_version, read_manifest
    from pyspark_lance.store.open_store import open_store

    store = open_store(path)
    location = latest_version(store)
    file = read_manifest(store, location)
    start = 2**33 + 7
    (fragment,) = file.manifest.fragments
    moved = dataclasses.replace(fragment, row_ids=RowIdSequence.consecutive(start, 2).to_bytes())
    manifest = dataclasses.replace(file.manifest, fragments=(moved,), next_row_id=start + 2)
    store.put(location.path, encode_manifest(manifest, (), file.transaction()))
    append(path, 2, rows=2)
    assert lineage(path) == [start, start + 1, start + 2, start + 3]
    from_pylance = lance.dataset(path).scanner(columns=["id"], with_row_id=True).to_table()
    assert from_pylance["_rowid"].to_pylist() == lineage(path)
