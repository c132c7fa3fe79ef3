"""Tables that somebody made to do harm: names that lead outside, and numbers that ask for memory.

Names are put wherever a string of a file becomes a path.  Numbers are read in a process that may
not have much memory: there must be an error of ours, and no attempt to allocate what they say.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from local_changes import delete_rows
from table_access import read_ours, write_table

from pyspark_lance.errors import LanceError
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType
from pyspark_lance.format.fragment import ExternalFile
from pyspark_lance.format.manifest import BasePath
from pyspark_lance.format.system_columns import SYSTEM_COLUMNS
from pyspark_lance.metafile.manifest_file import encode_manifest, latest_version, read_manifest
from pyspark_lance.proto import row_ids_pb2
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.scan.scan_task import run
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


def change_manifest(path, change):
    """Replaces the newest manifest by what ``change`` makes of it."""
    store = open_store(str(path))
    location = latest_version(store)
    file = read_manifest(store, location)
    manifest = change(file.manifest)
    store.put(location.path, encode_manifest(manifest, file.indices, file.transaction()))


def change_fragment(path, **changes):
    """Other values for the only fragment."""

    def change(manifest):
        (fragment,) = manifest.fragments
        return replace(manifest, fragments=(replace(fragment, **changes),))

    change_manifest(path, change)


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


# Numbers -----------------------------------------------------------------------------------

HUGE = 2**60
CHILD = """
import resource, sys
sys.path[:0] = {paths!r}
import numpy, pyarrow, test_hostile_tables as tests
from table_access import read_ours
from pyspark_lance.errors import LanceError
read_ours({warm!r})
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (600 << 20),) * 2)
for path in sys.argv[1:]:
    for read in tests.READS:
        try:
            print(path.rpartition("/")[2], read.__name__, "read", read(path))
        except LanceError as error:
            print(path.rpartition("/")[2], read.__name__, error.code)
"""


def scan(path):
    return sum(1 for _ in _first_batches(path))


def _first_batches(path):
    """No more than a few: a file may hold any number of equal rows in a few bytes."""
    for task in plan_scan(Snapshot.open(Table(path)), ScanRequest(system_columns=SYSTEM_COLUMNS)):
        for number, batch in enumerate(run(task)):
            yield batch
            if number > 2:
                return


def count(path):
    return Snapshot.open(Table(path)).num_rows()


def check(path):
    from pyspark_lance.table.verify.verify import verify

    assert verify(Table(path)).errors
    return "errors"


def delete(path):
    return delete_rows(path, "id = 1").num_deleted_rows


READS = (scan, check, delete)


def claim_rows(path):
    change_fragment(path, physical_rows=HUGE)


def range_of_ids(end):
    segment = row_ids_pb2.U64Segment(range=row_ids_pb2.U64Segment.Range(start=0, end=end))
    return row_ids_pb2.RowIdSequence(segments=[segment]).SerializeToString()


def claim_rows_of_a_range(path):
    """So that all numbers agree: rows, and row ids."""
    change_fragment(path, physical_rows=HUGE, row_ids=range_of_ids(HUGE))


def claim_as_many_rows_as_a_fragment_may_have(path):
    change_fragment(path, physical_rows=2**32 - 1, row_ids=range_of_ids(2**32 - 1))


def claim_row_ids(path):
    change_fragment(path, row_ids=range_of_ids(HUGE))


def claim_sparse_row_ids(path):
    """Two values a long way apart."""
    kind = row_ids_pb2.U64Segment.RangeWithBitmap
    segment = row_ids_pb2.U64Segment(range_with_bitmap=kind(start=0, end=2**32 - 1, bitmap=b"\x07"))
    content = row_ids_pb2.RowIdSequence(segments=[segment]).SerializeToString()
    change_fragment(path, row_ids=content)


def claim_versions(path):
    from pyspark_lance.format.version_sequence import RowDatasetVersionSequence

    runs = RowDatasetVersionSequence(np.array([2**32 - 1]), np.array([1], np.uint64))
    change_fragment(path, created_at=runs.to_bytes())


def claim_deletions(path):
    change_fragment(
        path, deletion_file=DeletionFile(DeletionFileType.BITMAP, 1, 7, HUGE), physical_rows=HUGE
    )


def claim_a_sequence_file(path):
    Path(path, "ids").write_bytes(b"x" * 64)
    change_fragment(path, row_ids=ExternalFile("ids", 0, HUGE))


def claim_a_long_manifest(path):
    store = open_store(str(path))
    location = latest_version(store)
    data = bytearray(store.get(location.path))
    position = int.from_bytes(data[-16:-8], "little")
    data[position : position + 4] = (2**31 - 1).to_bytes(4, "little")
    store.put(location.path, bytes(data))


def nest_deeply(path):
    """A field in a field in a field, ten thousand times."""
    content = b""
    for _ in range(10_000):
        size, length = len(content), b""
        while True:
            length += bytes([size & 127 | (128 if size > 127 else 0)])
            size >>= 7
            if not size:
                break
        content = b"\x0a" + length + content
    store = open_store(str(path))
    location = latest_version(store)
    framed = len(content).to_bytes(4, "little") + content
    store.put(location.path, framed + (0).to_bytes(8, "little") + b"\0\0\2\0LANC")


CLAIMS = {
    one.__name__: one
    for one in (
        claim_rows, claim_rows_of_a_range, claim_as_many_rows_as_a_fragment_may_have,
        claim_row_ids, claim_sparse_row_ids, claim_versions, claim_deletions,
        claim_a_sequence_file, claim_a_long_manifest, nest_deeply,
    )
}  # fmt: skip


def read_in_little_memory(tmp_path, tables):
    """What each read of each table came to."""
    write_table(str(tmp_path / "warm"), SECRET)
    folder = Path(__file__).parent
    script = CHILD.format(
        paths=[str(folder), str(folder.parents[1] / "support")], warm=str(tmp_path / "warm")
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *map(str, tables)],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout.splitlines()


def test_numbers_of_manifests_ask_for_no_memory(tmp_path):
    for name, claim in CLAIMS.items():
        write_table(str(tmp_path / name), pa.table({"id": pa.array([1, 2, 3], pa.int64())}))
        claim(str(tmp_path / name))
    printed = read_in_little_memory(tmp_path, [tmp_path / name for name in CLAIMS])
    assert len(printed) == len(CLAIMS) * len(READS)
    taken = [line for line in printed if "LANCE_" not in line and "check read errors" not in line]
    # A delete of rows hands their versions on as they are.
    assert taken == ["claim_versions delete read 1"]
