"""Tables that somebody made to do harm: names that lead outside.

Names are put wherever a string of a file becomes a path.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from table.verify.hostile_manifests import change_fragment, change_manifest
from table_access import read_ours, write_table

from pyspark_lance.errors import LanceError
from pyspark_lance.format.fragment import ExternalFile
from pyspark_lance.format.manifest import BasePath
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.time_travel import VersionSpec

SECRET = pa.table({"id": pa.array([666, 667], pa.int64())})
# Each leads to a file beside the table, if anybody follows it from the folder "data".
NAMES = (
    "../../secret/data/{file}", "../data/../../secret/data/{file}", "{root}/secret/data/{file}",
    "file://{root}/secret/data/{file}", "/{root}/secret/data/{file}", "./../../secret/data/{file}",
    "%2e%2e/%2e%2e/secret/data/{file}", "..%2f..%2fsecret/data/{file}",
    "x/../../../secret/data/{file}",
    "..\\..\\secret\\data\\{file}", "../../secret/data/{file}\0", "", ".", "..", "s3://b/{file}",
    "memory://x::file://{root}/secret/data/{file}",
)  # fmt: skip


@pytest.fixture
def place(tmp_path):
    """A table, and another one beside it that it must not show."""
    write_table(str(tmp_path / "t"), pa.table({"id": pa.array([1, 2], pa.int64())}))
    write_table(str(tmp_path / "secret"), SECRET)
    return tmp_path


def hostile_name(place, form):
    (file,) = (place / "secret" / "data").glob("*.lance")
    return form.format(file=file.name, root=place)


def refused(path, **how):
    with pytest.raises(LanceError) as error:
        read_ours(str(path), **how)
    assert "Traceback" not in str(error.value)


# Names -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", NAMES)
def test_a_data_file_is_below_the_root(place, form):
    (file,) = Snapshot.open(Table(str(place / "t"))).manifest.fragments[0].files
    name = hostile_name(place, form)
    change_fragment(place / "t", files=(replace(file, path=name),))
    refused(place / "t")


@pytest.mark.parametrize("form", NAMES)
def test_a_data_file_is_below_its_base_path(place, form):
    """Also where the base path itself is declared, and is no root of a table."""
    (file,) = Snapshot.open(Table(str(place / "t"))).manifest.fragments[0].files
    (place / "base").mkdir()
    name = hostile_name(place, form)
    base = BasePath(1, None, False, str(place / "base"))

    def change(manifest):
        files = (replace(file, path=name, base_id=1),)
        fragments = (replace(manifest.fragments[0], files=files),)
        return replace(manifest, fragments=fragments, base_paths=(base,))

    change_manifest(place / "t", change)
    refused(place / "t")


@pytest.mark.parametrize("form", NAMES)
def test_sequences_of_their_own_files_are_below_the_root(place, form):
    (fragment,) = Snapshot.open(Table(str(place / "t"))).manifest.fragments
    (place / "secret" / "data" / "ids").write_bytes(fragment.row_ids)
    name = hostile_name(place, form).rpartition("/")[0] + "/ids"
    change_fragment(place / "t", row_ids=ExternalFile(name, 0, len(fragment.row_ids)))
    refused(place / "t")


@pytest.mark.parametrize("form", [form for form in NAMES if form])
def test_the_transaction_is_in_its_folder(place, form):
    from pyspark_lance.metafile.transaction_file import read_transaction

    name = hostile_name(place, form)
    with pytest.raises((LanceError, FileNotFoundError)):
        read_transaction(open_store(str(place / "t")), name)


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize(
    "branch",
    [
        "../../secret", "%2e%2e/%2e%2e/secret", "..%2f..%2fsecret", "%2E%2E/%2E%2E/secret",
        "x/../../../secret", "/secret", "..", "", "a\0b", "x::memory:y", "..\\..\\secret",
        "a?b", "a#b",
    ],
)  # fmt: skip
def test_the_branch_of_a_tag_is_below_the_table(place, scheme, branch):
    tags = place / "t" / "_refs" / "tags"
    tags.mkdir(parents=True)
    (tags / "x.json").write_text(json.dumps({"branch": branch, "version": 1}))
    with pytest.raises(LanceError):
        Snapshot.open(Table(f"{scheme}{place / 't'}"), VersionSpec(tag="x"))


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize("name", ["%252e%252e%2F%252e%252e%2Fsecret", "..%2F..%2Fsecret", "a%00"])
def test_a_branch_is_below_the_table(place, scheme, name):
    from pyspark_lance.table.refs.branches import branches_of, remove_branch

    branches = place / "t" / "_refs" / "branches"
    branches.mkdir(parents=True)
    (branches / f"{name}.json").write_text(json.dumps({"parentVersion": 1}))
    table = Table(f"{scheme}{place / 't'}")
    with pytest.raises(LanceError):
        branches_of(table)
    with pytest.raises(LanceError):
        remove_branch(table, "../../secret")
    assert read_ours(str(place / "secret")).num_rows == 2


def test_a_cleanup_removes_a_link_and_not_what_it_leads_to(place):
    from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions

    (file,) = (place / "secret" / "data").iterdir()
    (place / "t" / "data" / "link.lance").symlink_to(file)
    (place / "t" / "data" / "folder").symlink_to(file.parent)
    cleanup_old_versions(Table(str(place / "t")), CleanupPolicy(0, delete_unverified=True))
    assert not (place / "t" / "data" / "link.lance").exists()
    assert read_ours(str(place / "secret")).num_rows == 2
