"""Damage anywhere in a table is refused as damage, in any file."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pytest
from damage import bit_flips, splices, truncations
from random_seeds import seeds
from random_tables import random_table
from table_access import read_ours

from pyspark_lance.errors import CorruptFileError, LanceError
from pyspark_lance.metafile.paths import data_path, deletion_path
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


def make_table(path: str, version: str) -> None:
    """Two versions with deletions of both kinds, an index and a transaction."""
    table = random_table(11, 700, version, columns=4)
    lance.write_dataset(
        table, path, enable_stable_row_ids=True, data_storage_version=version, max_rows_per_file=400
    )
    dataset = lance.dataset(path)
    dataset.delete("id % 9 = 4")
    lance.dataset(path).update({"id": "id"}, where="id > 650")


def files_of(path: str) -> list[Path]:
    """The files of the latest version: manifest, data, deletions."""
    snapshot = Snapshot.open(Table(path))
    names = [snapshot.file.location.path]
    for fragment in snapshot.manifest.fragments:
        names += [data_path(file.path) for file in fragment.files]
        if fragment.deletion_file is not None:
            names.append(deletion_path(fragment.id, fragment.deletion_file))
    return [Path(path, name) for name in names]


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_truncated_file_error_names_file(tmp_path, version):
    path = str(tmp_path / "t")
    make_table(path, version)
    for file in files_of(path):
        good = file.read_bytes()
        for data in truncations(good, at_most=25):
            file.write_bytes(data)
            with pytest.raises(LanceError) as caught:
                read_ours(path)
            assert file.name in str(caught.value), str(caught.value)
        file.write_bytes(good)
    assert read_ours(path).num_rows > 0


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("part", seeds(6, in_ci=1))
def test_flipped_and_replaced_bytes_never_cause_another_error(tmp_path, version, part):
    path = str(tmp_path / "t")
    make_table(path, version)
    rows = read_ours(path).num_rows
    for seed, file in enumerate(files_of(path), 100 * part):
        good = file.read_bytes()
        for data in [*bit_flips(good, 20, seed), *splices(good, 8, seed)]:
            file.write_bytes(data)
            try:
                found = read_ours(path)
            except LanceError:
                continue
            # Values carry no checksum; what the metadata say must still hold.
            if file.parent.name == "data":
                assert found.num_rows == rows
        file.write_bytes(good)


@pytest.mark.parametrize("kept", [slice(0), slice(0, -9), slice(9, None)])
def test_broken_manifest_error_names_file_and_remedy(tmp_path, kept):
    path = str(tmp_path / "t")
    make_table(path, "2.1")
    manifests = sorted((tmp_path / "t" / "_versions").glob("*.manifest"))
    newest = manifests[0]  # their numbers count down
    newest.write_bytes(newest.read_bytes()[kept])
    with pytest.raises(CorruptFileError) as caught:
        read_ours(path)
    what, where, hint = str(caught.value).splitlines()
    assert what.startswith("[LANCE_CORRUPT_FILE] ")
    assert newest.name in where
    assert "read an older version" in hint
    assert Snapshot.open(Table(path), VersionSpec(version=1)).version == 1


def test_missing_file_is_named(tmp_path):
    path = str(tmp_path / "t")
    make_table(path, "2.1")
    (deletion, *_) = [file for file in files_of(path) if file.parent.name == "_deletions"]
    shutil.move(deletion, tmp_path / "away")
    with pytest.raises(CorruptFileError, match="deletion file of fragment"):
        read_ours(path)
