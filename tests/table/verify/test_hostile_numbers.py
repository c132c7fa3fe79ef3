"""Tables made to do harm: numbers that ask for memory, or for time.

They are read in a process that may not have much memory: there must be an error of ours, and no
attempt to allocate what they say.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fuzz.corpus import Sample
from fuzz.targets import FileParts
from local_changes import delete_rows
from pyroaring import BitMap, FrozenBitMap
from row_changes import set_to, upsert
from table.verify.hostile_manifests import change_fragment, change_manifest
from table_access import read_changes, write_table

from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID, SYSTEM_COLUMNS
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType, DeletionVector
from pyspark_lance.format.fragment import ExternalFile
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.metafile.deletion_file import write_deletion_file
from pyspark_lance.metafile.manifest_file import latest_version
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.proto import file_pb2, row_ids_pb2
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.columns.change_columns import add_columns, compute_columns
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.compaction.stable_row_ids import copy_with_stable_row_ids
from pyspark_lance.table.history.row_history import row_history
from pyspark_lance.table.index_build.column_indices import create_index
from pyspark_lance.table.index_build.index_plan import IndexRequest
from pyspark_lance.table.index_build.zone_maps import create_zone_maps
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema, project
from pyspark_lance.table.scan.scan_statistics import lineage_bounds
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

# Numbers -----------------------------------------------------------------------------------

HUGE = 2**60
CHILD = """
import contextlib, resource, sys
sys.path[:0] = {paths!r}
import test_hostile_numbers as tests
from pyspark_lance.errors import LanceError
for read in tests.EXPANDING:
    with contextlib.suppress(LanceError):
        read({warm!r})
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (600 << 20),) * 2)
for argument in sys.argv[1:]:
    reads, _, path = argument.partition("=")
    for read in getattr(tests, reads):
        try:
            print(reads, path.rpartition("/")[2], read.__name__, "read", read(path))
        except LanceError as error:
            print(reads, path.rpartition("/")[2], read.__name__, error.code)
"""


def scan(path):
    """No more than a few batches: a file may hold any number of equal rows in a few bytes."""
    return scan_of(path)


def scan_of(path, condition=None, columns=None):
    snapshot = Snapshot.open(Table(path))
    names = SYSTEM_COLUMNS if snapshot.uses_stable_row_ids else (ROW_ID, ROW_ADDRESS)
    request = {"system_columns": names}
    if condition is not None:
        request["predicate"] = parse_predicate(condition, predicate_schema(snapshot.schema))
    if columns is not None:
        request["schema"] = project(snapshot.schema, columns)
    found = 0
    for task in plan_scan(snapshot, ScanRequest(**request)):
        for number, batch in enumerate(task.run()):
            found += batch.num_rows
            if number > 2:
                return found
    return found


def scan_lineage(path):
    return scan_of(path, columns=())


def scan_where_lineage(path):
    return scan_of(path, "_rowid % 2 = 1", columns=())


def scan_where(path):
    return scan_of(path, "id % 5 = 1")


def scan_row(path):
    return scan_of(path, "_rowid = 2")


def bounds_of_lineage(path):
    return [lineage_bounds(Snapshot.open(Table(path)), name) for name in SYSTEM_COLUMNS]


def check(path):
    assert verify(Table(path)).errors or path.endswith("warm")
    return "errors"


def check_data(path):
    assert verify(Table(path), read_data=True).errors or path.endswith("warm")
    return "errors"


def delete(path):
    return delete_rows(path, "id = 1").num_deleted_rows


def delete_by_row_id(path):
    return delete_rows(path, "_rowid = 2").num_deleted_rows


def update(path):
    return set_to(path, "id = 2", v="changed").num_updated_rows


def merge(path):
    return upsert(path, pa.table({"id": [2, 77], "v": ["a", "b"]})).num_updated_rows


def read_feed(path):
    return read_changes(path, 1, Snapshot.open(Table(path)).version, "none").num_rows


def compact_all(path):
    options = {"target_rows_per_fragment": 100, "materialize_deletions_threshold": 0.0}
    return compact(Table(path), CompactionRequest(**options)).version


def sort_all(path):
    return compact(Table(path), CompactionRequest(cluster_by=("id",))).version


def index_values(path):
    return create_index(Table(path), IndexRequest(("id",), name="by_id", replace=True)).version


def index_zones(path):
    return create_zone_maps(Table(path), ["id"], 8).version


def show_history(path):
    return len(row_history(Table(path), 2))


def copy(path):
    target = f"{path}-copy-{Snapshot.open(Table(path)).version}"
    return copy_with_stable_row_ids(Table(path), Table(target)).num_rows


def add_column(path):
    name = f"x{Snapshot.open(Table(path)).version}"
    plus = compute_columns(["id"], lambda batch: [pc.add(batch.column("id"), 1)])
    return add_columns(Table(path), pa.schema([(name, pa.int64())]), plus).version


READS = (scan, check, delete)
# Readers that expand what a manifest says of rows: masks, row ids, versions, sets of deleted rows.
EXPANDING = (
    scan, scan_lineage, scan_where_lineage, scan_where, scan_row, bounds_of_lineage, check,
    check_data, read_feed, show_history, delete, delete_by_row_id, update, merge, compact_all,
    sort_all, index_values, index_zones, copy, add_column,
)  # fmt: skip


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


# Row counts that agree with each other ------------------------------------------------------

MOST = 2**32 - 1


def write_changed_table(path, **settings):
    """Two fragments of five rows; one of the first has lost a row."""
    values = {"id": pa.array(range(10), pa.int64()), "v": [f"v{n}" for n in range(10)]}
    write_table(path, pa.table(values), max_rows_per_file=5, **settings)
    delete_rows(path, "id = 3")


def change_first(path, **changes):
    def change(manifest):
        first, *others = manifest.fragments
        return replace(manifest, fragments=(replace(first, **changes), *others))

    change_manifest(path, change)


def sequences_of(rows):
    """Row ids and versions of so many rows."""
    versions = RowDatasetVersionSequence.constant(rows, 1).to_bytes()
    return {"row_ids": range_of_ids(rows), "created_at": versions, "last_updated_at": versions}


def deleted_but_for_five(path, rows):
    """A deletion file of some hundred kilobytes with nearly all rows."""
    offsets = BitMap(range(5, rows))
    offsets.run_optimize()
    vector = DeletionVector(FrozenBitMap(offsets))
    return write_deletion_file(open_store(path), 0, 2, vector, id=77)


def state_rows(path):
    """As they were deleted in a fragment of five rows."""
    change_first(path, physical_rows=MOST)


def state_rows_and_sequences(path):
    change_first(path, physical_rows=MOST, **sequences_of(MOST))


def state_rows_sequences_and_deletions(path):
    deletions = deleted_but_for_five(path, MOST - 1)
    change_first(path, physical_rows=MOST, deletion_file=deletions, **sequences_of(MOST))


def state_rows_in_many_segments(path):
    ids = many_segments(MOST // 20_000)
    change_first(
        path, physical_rows=len(ids), **sequences_of(len(ids)) | {"row_ids": ids.to_bytes()}
    )


def state_rows_without_row_ids(path):
    change_first(path, physical_rows=MOST)


def state_rows_and_deletions_without_row_ids(path):
    change_first(path, physical_rows=MOST, deletion_file=deleted_but_for_five(path, MOST - 1))


def many_segments(length):
    """20,000 neighbouring ranges of so many row ids, as one sequence."""
    bounds = range(0, 20_000 * length, length)
    segments = [RowIdSequence.consecutive(first, length).segments[0] for first in bounds]
    return RowIdSequence(tuple(segments))


WITH_ROW_IDS = (
    state_rows, state_rows_and_sequences, state_rows_sequences_and_deletions,
    state_rows_in_many_segments,
)  # fmt: skip
WITHOUT_ROW_IDS = (state_rows_without_row_ids, state_rows_and_deletions_without_row_ids)


# Data files that agree, too ------------------------------------------------------------------


def write_equal_rows(path, rows):
    """A table whose data file says that it has so many rows, all null, in some hundred bytes."""
    write_table(path, pa.table({"n": pa.nulls(5, pa.int64())}))
    delete_rows(path, "_rowid = 3")
    (file,) = Path(path, "data").iterdir()
    parts = FileParts.of(Sample("nulls", file.read_bytes()))
    column = file_pb2.ColumnMetadata.FromString(parts.columns[0])
    (page,) = column.pages
    page.length = rows
    descriptor = file_pb2.FileDescriptor.FromString(parts.buffers[0])
    descriptor.length = rows
    buffers = [descriptor.SerializeToString(), *parts.buffers[1:]]
    content = parts.assemble([column.SerializeToString()], buffers)
    file.write_bytes(content)
    (fragment,) = Snapshot.open(Table(path)).manifest.fragments
    files = (replace(fragment.files[0], size_bytes=len(content)),)
    versions = sequences_of(rows)
    change_fragment(path, files=files, physical_rows=rows, **versions)
    change_manifest(path, lambda manifest: replace(manifest, next_row_id=rows))


def scan_nulls(path):
    return scan_of(path, "n IS NULL")


def scan_odd_row_ids(path):
    return scan_of(path, "_rowid % 2 = 1")


def count_findings(path):
    return len(verify(Table(path)).findings)


OF_EQUAL_ROWS = (scan, scan_nulls, scan_lineage, scan_odd_row_ids, count_findings)


# All of them in one process ------------------------------------------------------------------


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each read of each table came to, line by line, after the name of the reads."""
    folder = tmp_path_factory.mktemp("numbers")
    arguments = []

    def named(reads, name):
        arguments.append(f"{reads}={folder / name}")
        return str(folder / name)

    for name, claim in CLAIMS.items():
        path = named("READS", name)
        write_table(path, pa.table({"id": pa.array([1, 2, 3], pa.int64())}))
        claim(path)
    for state in (*WITH_ROW_IDS, *WITHOUT_ROW_IDS):
        path = named("EXPANDING", state.__name__)
        write_changed_table(path, enable_stable_row_ids=state in WITH_ROW_IDS)
        state(path)
    write_equal_rows(named("OF_EQUAL_ROWS", "equal"), MOST)
    write_changed_table(str(folder / "warm"))
    here = Path(__file__).parent
    tests = here.parents[1]
    paths = [str(here), str(tests), str(tests / "support")]
    script = CHILD.format(paths=paths, warm=str(folder / "warm"))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *arguments],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout.splitlines()


def lines_of(printed, reads):
    return [line.removeprefix(f"{reads} ") for line in printed if line.startswith(f"{reads} ")]


def not_refused(lines):
    return [line for line in lines if "LANCE_" not in line and not line.endswith("read errors")]


def test_hostile_manifest_numbers_allocate_no_memory(printed):
    lines = lines_of(printed, "READS")
    assert len(lines) == len(CLAIMS) * len(READS)
    # A delete of rows hands their versions on as they are.
    assert not_refused(lines) == ["claim_versions delete read 1"]


def test_false_row_counts_are_checked_against_data_file(printed):
    """They agree with all else that the manifest and the deletion file say."""
    lines = lines_of(printed, "EXPANDING")
    assert len(lines) == (len(WITH_ROW_IDS) + len(WITHOUT_ROW_IDS)) * len(EXPANDING)
    assert not_refused(lines) == []
    assert [one for one in lines if " scan" in one and "LANCE_CORRUPT_FILE" not in one] == []


def test_four_billion_equal_rows_are_read_in_parts(printed):
    lines = lines_of(printed, "OF_EQUAL_ROWS")
    results = dict(line.removeprefix("equal ").split(" read ") for line in lines)
    assert set(results) == {one.__name__ for one in OF_EQUAL_ROWS}
    assert results.pop("count_findings") == "0"
    assert all(int(rows) > 100_000 for rows in results.values())
