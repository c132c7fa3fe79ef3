"""Files that no version refers to are found, and none that one does."""

from __future__ import annotations

import os
import time
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from local_changes import delete_rows
from table_access import append, read_ours, write_table

from pyspark_lance.errors import CorruptFileError, InvalidInputError, TableNotFoundError
from pyspark_lance.table.cleanup.cleanup import find_orphan_files, remove_orphan_files
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

UNUSED = (
    "data/ab12.lance",
    "data/ab12/0001.blob",
    "data/.tmp_x.lance_12.part",
    "_deletions/0-1-77.arrow",
    "_deletions/0-1-78.bin",
    "_transactions/1-6a1f3c5e-0000-4000-8000-000000000000.txn",
    "_indices/6a1f3c5e-0000-4000-8000-000000000000/page_data.lance",
    "_versions/.tmp_18446744073709551610.manifest",
    "_versions/18446744073709551610.manifest-4a1f",
)
NOT_OURS_TO_JUDGE = (
    "notes.lance",
    "data/notes.txt",
    "data/deep/er/x.lance",
    "data/deep/er/x.blob",
    "_deletions/readme.md",
    "_transactions/x.json",
    "_versions/x.json",
    "_refs/tags/x.json.tmp",
    "_indices/stray.lance",
    "other/x.lance",
)


def plant(root, names):
    for name in names:
        path = Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"nothing")


def names_of(found):
    return [one.path for one in found]


@pytest.fixture
def path(tmp_path):
    """A table with all kinds of files: several versions, an index, a tag, a branch, blobs."""
    path = str(tmp_path / "t.lance")
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    table = pa.table(
        [pa.array(range(40), pa.int64()), pa.array([b"x" * 9] * 40, pa.large_binary())],
        schema=pa.schema([("id", pa.int64()), blob]),
    )
    write_table(path, table, max_rows_per_file=10)
    dataset = lance.dataset(path)
    dataset.create_scalar_index("id", "BTREE")
    dataset.delete("id = 3")
    delete_rows(path, "id = 13")
    dataset = lance.dataset(path)
    dataset.tags.create("kept", 2)
    branch = dataset.create_branch("work/one", 3)
    lance.write_dataset(table, branch.uri, mode="append")
    lance.dataset(branch.uri).delete("id = 4")
    dataset = lance.dataset(path)
    dataset.optimize.compact_files()
    dataset.update({"id": "id + 1000"}, where="id = 5")
    return path


def test_files_of_versions_and_branches_are_not_orphans(path):
    assert find_orphan_files(Table(path)) == []
    assert find_orphan_files(Table(path + "/tree/work/one")) == []


def test_only_unreferenced_lance_files_are_orphans(path):
    plant(path, (*UNUSED, *NOT_OURS_TO_JUDGE))
    branch = [f"tree/work/one/{name}" for name in UNUSED]
    plant(path, [*branch, "tree/work/one/x.lance", "tree/stray.lance"])
    found = find_orphan_files(Table(path))
    assert names_of(found) == sorted((*UNUSED, *branch))
    assert all(one.size == len(b"nothing") for one in found)
    versions = range(1, lance.dataset(path).version + 1)
    before = [lance.dataset(path, version=number).to_table(["id"]) for number in versions]
    removed = remove_orphan_files(Table(path), older_than_s=0, force=True)
    assert removed == found
    assert not any((Path(path) / name).exists() for name in (*UNUSED, *branch))
    assert all((Path(path) / name).exists() for name in NOT_OURS_TO_JUDGE)
    assert find_orphan_files(Table(path)) == []
    assert before == [lance.dataset(path, version=n).to_table(["id"]) for n in versions]
    assert read_ours(path).num_rows == 38
    lance.dataset(path).validate()
    assert lance.dataset(path + "/tree/work/one").count_rows() == 77


def test_young_files_are_kept_by_default(path):
    plant(path, UNUSED)
    old = UNUSED[:3]
    long_ago = time.time() - 8 * 24 * 3600
    for name in old:
        os.utime(Path(path) / name, (long_ago, long_ago))
    assert names_of(find_orphan_files(Table(path), older_than_s=3600)) == sorted(old)
    with pytest.raises(InvalidInputError, match="under way"):
        remove_orphan_files(Table(path), older_than_s=3600)
    assert names_of(remove_orphan_files(Table(path))) == sorted(old)
    assert names_of(find_orphan_files(Table(path))) == sorted(UNUSED[3:])


def test_files_of_unknown_age_are_kept(path):
    plant(path, UNUSED)
    os.utime(Path(path) / UNUSED[0], ns=(0, 0))  # what a store that keeps no time says
    assert UNUSED[0] in names_of(find_orphan_files(Table(path)))
    assert remove_orphan_files(Table(path)) == []


def test_unreadable_manifest_prevents_orphan_listing(path):
    plant(path, UNUSED)
    manifests = sorted(Path(path, "_versions").glob("*.manifest"))
    manifests[1].write_bytes(manifests[1].read_bytes()[:-20])
    for call in (find_orphan_files, remove_orphan_files):
        with pytest.raises(CorruptFileError):
            call(Table(path))
    assert all((Path(path) / name).exists() for name in UNUSED)


def test_folder_without_table_is_not_cleaned(tmp_path):
    plant(tmp_path, UNUSED)
    with pytest.raises(TableNotFoundError):
        remove_orphan_files(Table(str(tmp_path)), older_than_s=0, force=True)
    assert (tmp_path / UNUSED[0]).exists()


def test_uncommitted_write_leaves_orphan_file(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0)
    lance.fragment.write_fragments(pa.table({"id": [1, 2]}), path)
    (found,) = find_orphan_files(Table(path))
    assert found.path.startswith("data/")
    assert found.size == (Path(path) / found.path).stat().st_size
