"""Where writes begin: at the version that the commit before found to be the newest."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from table_access import read_ours, write_table

from pyspark_lance.metafile.paths import NamingScheme, manifest_path
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.table.refs import set_tag
from pyspark_lance.table.unit_of_work import set_properties
from pyspark_lance.table.version.snapshot import open_to_write
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import WriteSettings, plan_write
from pyspark_lance.table.write.write_table import commit_write, write_rows

ROWS = pa.table({"id": [1, 2, 3]})


def write(path, *, overwrite=False):
    table = Table(path)
    plan = plan_write(
        table, ROWS.schema, WriteSettings(overwrite=overwrite), existing=open_to_write(table)
    )
    return commit_write(plan, write_rows(plan, ROWS.to_batches()))


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, ROWS)
    return path


def test_consecutive_writes_list_versions_once_each(path, monkeypatch):
    write(path)
    names, listings = LocalStore.list_names, []

    def counted(store, folder):
        listings.append(folder)
        return names(store, folder)

    monkeypatch.setattr(LocalStore, "list_names", counted)
    for number, overwrite in enumerate([False, True, False, True], 3):
        assert write(path, overwrite=overwrite).version == number
    assert listings == ["_versions"] * 4


def test_missing_table_opens_as_none(tmp_path, path):
    assert open_to_write(Table(str(tmp_path / "none"))) is None
    (seen,) = LocalStore(path).list_names("_versions")
    LocalStore(path).delete(f"_versions/{seen}")
    assert open_to_write(Table(path)) is None


@pytest.mark.interop
@pytest.mark.parametrize("overwrite", [False, True])
def test_concurrent_versions_are_seen_before_or_by_commit(path, overwrite):
    write(path)
    set_tag(Table(path), "kept")
    # Other writers go on and clean up: the version seen last is there, and none has the next
    # number.
    for number in range(3):
        lance.dataset(path).update_config({"others": str(number)})
    for number in (1, 3, 4):
        Path(path, manifest_path(number, NamingScheme.V2)).unlink()
    assert open_to_write(Table(path)).version == 2
    assert write(path, overwrite=overwrite).version == 6
    assert lance.dataset(path).version == 6
    assert lance.dataset(path).config()["others"] == "2"
    assert read_ours(path, system_columns=()).num_rows == (3 if overwrite else 9)
    set_properties(Table(path), {"ours": "1"})
    assert open_to_write(Table(path)).version == 7
