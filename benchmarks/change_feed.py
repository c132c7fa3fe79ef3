"""The cost of a change feed: python benchmarks/change_feed.py.

``versions`` and ``rows`` measure the driver.  Their tables are manifests, row lineage and deletion
files, which is all that a plan reads.  Each line is measured in a process of its own; memory is how
much its resident set grows from after the imports to the highest point, the pickled tasks included.

``scans`` measures plan and tasks, without Spark, by the processor time of a scan of the whole table
at the end of the window.
"""

from __future__ import annotations

import dataclasses
import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from harness import cost_with_memory, fastest, in_child, print_table, run, scan, scratch, write
from local_runner import LocalRunner

from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.metafile.deletion_file import write_deletion_file
from pyspark_lance.metafile.paths import NamingScheme, manifest_path
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.proto import table_pb2
from pyspark_lance.table.cdf.change_feed import ChangeRequest, count_changes, plan_changes
from pyspark_lance.table.cdf.change_window import ChangeWindow, Deduplication
from pyspark_lance.table.dml.commit_changes import commit_changes
from pyspark_lance.table.dml.moved_rows import Clause, as_changes
from pyspark_lance.table.dml.read_set import matching_rows
from pyspark_lance.table.dml.row_change import ChangeSettings, RowAction, plan_change
from pyspark_lance.table.dml.run_changes import run_changes as run_statement
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.unit_of_work import UnitOfWork
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

MILLION = 1_000_000


class History:
    """A table whose versions are made fragment by fragment."""

    def __init__(self, path: str) -> None:
        self.path = path
        write(path, pa.table({"id": np.arange(10), "x": np.zeros(10)}))
        snapshot = Snapshot.open(Table(path))
        self._store, self._manifest = snapshot.store, snapshot.manifest
        self._file = dataclasses.replace(snapshot.manifest.fragments[0].files[0], size_bytes=0)
        self.fragments: dict[int, Fragment] = {}
        self._encoded: dict[int, tuple[Fragment, bytes]] = {}
        self.version, self._next_id = 0, 0

    def new(self, rows: int, row_ids: RowIdSequence, created: bytes | None = None) -> None:
        """Add a fragment whose rows were changed by the next version."""
        version = RowDatasetVersionSequence.constant(rows, self.version + 1).to_bytes()
        files = (self._made_file(rows),)
        self.fragments[self._next_id] = Fragment(
            self._next_id, files, rows, None, row_ids.to_bytes(), created or version, version
        )
        self._next_id += 1

    def _made_file(self, rows: int):
        return dataclasses.replace(
            self._file, path=f"{self.version}-{self._next_id}.lance", size_bytes=16 * rows + 100
        )

    def inserted(self, rows: int) -> None:
        """Add a fragment of new rows."""
        first = self._manifest.next_row_id
        self._manifest = dataclasses.replace(self._manifest, next_row_id=first + rows)
        self.new(rows, RowIdSequence.consecutive(first, rows))

    def deleted(self, fragment_id: int, offsets: np.ndarray) -> np.ndarray:
        """Delete rows of a fragment; return their row ids."""
        fragment = self.fragments[fragment_id]
        vector = DeletionVector.of(offsets)
        if fragment.deletion_file is not None:
            vector = vector.union(Snapshot.open(Table(self.path)).deletion_vector(fragment))
        file = write_deletion_file(
            self._store, fragment_id, self.version, vector, id=self.version * 10**6 + fragment_id
        )
        self.fragments[fragment_id] = dataclasses.replace(fragment, deletion_file=file)
        return RowIdSequence.from_bytes(fragment.row_ids).take(offsets)

    def restamped(self, fragment_id: int, offsets: np.ndarray | None = None) -> None:
        """Replace a column's file; all rows or some got new values."""
        old = self.fragments[fragment_id]
        updated = RowDatasetVersionSequence.from_bytes(old.last_updated_at)
        if offsets is None:
            updated = RowDatasetVersionSequence.constant(old.physical_rows, self.version + 1)
        else:
            updated = updated.replace_at(offsets, self.version + 1)
        self.fragments[fragment_id] = dataclasses.replace(
            old, files=(self._made_file(old.physical_rows),), last_updated_at=updated.to_bytes()
        )

    def commit(self) -> None:
        """Write the next version; fragments that stayed are not encoded again."""
        self.version += 1
        rest = dataclasses.replace(
            self._manifest,
            version=self.version,
            fragments=(),
            schema=LanceSchema(fields=(), metadata={}),
            timestamp_ns=1_700_000_000 * 10**9 + self.version,
            transaction_section=None,
            max_fragment_id=self._next_id - 1,
        )
        head = table_pb2.Manifest(fields=self._manifest.schema.to_protos()).SerializeToString()
        fragments = [self._bytes_of(self.fragments[number]) for number in sorted(self.fragments)]
        message = b"".join([head, *fragments, rest.to_bytes()])
        content = (
            struct.pack("<I", len(message)) + message + struct.pack("<qHH4s", 0, 0, 2, b"LANC")
        )
        self._store.put(manifest_path(self.version, NamingScheme.V2), content)

    def _bytes_of(self, fragment: Fragment) -> bytes:
        found = self._encoded.get(fragment.id)
        if found is None or found[0] is not fragment:
            message = table_pb2.Manifest(fragments=[fragment.to_proto()])
            found = self._encoded[fragment.id] = (fragment, message.SerializeToString())
        return found[1]


# Histories ---------------------------------------------------------------------------------


def commits(history: History, fragments: int, versions: int) -> None:
    """Many small commits over many fragments: rows are added, deleted and updated by turns."""
    for _ in range(fragments):
        history.inserted(100)
    history.commit()
    for turn in range(versions):
        chosen = turn * 7919 % fragments
        if turn % 3 == 0:
            history.inserted(1)
        else:
            row_ids = history.deleted(chosen, np.array([turn % 50], dtype=np.uint32))
            if turn % 3 == 2:
                history.new(1, RowIdSequence.from_array(row_ids))
        history.commit()


def rows(history: History, fragments: int) -> None:
    """A first version with fragments of a million rows."""
    for _ in range(fragments):
        history.inserted(MILLION)
    history.commit()


RANGE = np.arange(250_000, 750_000, dtype=np.uint32)


def scattered() -> np.ndarray:
    return np.flatnonzero(np.random.default_rng(1).random(MILLION) < 0.1).astype(np.uint32)


def moved(history: History, chosen: np.ndarray) -> None:
    """An update that writes rows into new fragments, a million rows each."""
    parts = [history.deleted(number, chosen) for number in sorted(history.fragments)]
    row_ids = np.concatenate(parts)
    for start in range(0, len(row_ids), MILLION):
        ids = row_ids[start : start + MILLION]
        cuts = np.flatnonzero(np.diff(ids) != 1) + 1
        pieces = np.split(ids, cuts) if len(cuts) < 100 else [ids]
        sequence = RowIdSequence.concat(RowIdSequence.from_array(piece) for piece in pieces)
        history.new(len(ids), sequence, RowDatasetVersionSequence.constant(len(ids), 1).to_bytes())
    history.commit()


def moved_ranges(history: History) -> None:
    rows(history, 20)
    moved(history, RANGE)


def moved_ranges_twice(history: History) -> None:
    moved_ranges(history)
    for number in [number for number in history.fragments if number < 20]:
        del history.fragments[number]
    moved(history, np.arange(MILLION, dtype=np.uint32))


def moved_scattered_twice(history: History) -> None:
    """Ten million rows get new values twice, by two updates of other rows at a time."""
    rows(history, 10)
    moved(history, np.arange(MILLION, dtype=np.uint32))
    for number in range(10):
        del history.fragments[number]
    ids = np.random.default_rng(2).permutation(10 * MILLION).astype(np.uint64)
    history.fragments.clear()
    for start in range(0, len(ids), MILLION):
        sequence = RowIdSequence.from_array(ids[start : start + MILLION])
        created = RowDatasetVersionSequence.constant(MILLION, 1).to_bytes()
        history.new(MILLION, sequence, created)
    history.commit()


def deleted_ranges(history: History) -> None:
    rows(history, 20)
    for number in list(history.fragments):
        history.deleted(number, RANGE)
    history.commit()


def restamped_fragments(history: History) -> None:
    rows(history, 10)
    for number in list(history.fragments):
        history.restamped(number)
    history.commit()


def restamped_ranges(history: History) -> None:
    rows(history, 20)
    for number in list(history.fragments):
        history.restamped(number, RANGE)
    history.commit()


def overwritten(history: History) -> None:
    rows(history, 10)
    history.fragments.clear()
    rows(history, 10)


def moved_scattered(history: History) -> None:
    rows(history, 40)
    moved(history, scattered())


def deleted_scattered(history: History) -> None:
    rows(history, 40)
    for number in list(history.fragments):
        history.deleted(number, scattered())
    history.commit()


def restamped_scattered(history: History) -> None:
    rows(history, 40)
    for number in list(history.fragments):
        history.restamped(number, scattered())
    history.commit()


# Measures ----------------------------------------------------------------------------------


def planned(path: str, mode: Deduplication) -> tuple[int, str]:
    """Plans and pickles; bytes of the pickles, and a note."""
    snapshot = Snapshot.open(Table(path))
    window = ChangeWindow(2, snapshot.version)
    request = ChangeRequest(window, mode, snapshot.schema.fields, parallelism=8)
    tasks = plan_changes(Table(path), snapshot.schema.fields, request)
    pickles = [pickle.dumps(task) for task in tasks]
    return sum(map(len, pickles)), f"{len(tasks)} tasks"


def counted(path: str) -> tuple[int, str]:
    found = count_changes(Table(path), ChangeWindow(2, Snapshot.open(Table(path)).version))
    sums = [sum(getattr(one, name) for one in found) for name in (
        "num_inserted_rows", "num_updated_rows", "num_deleted_rows")]  # fmt: skip
    return 0, "{:,} inserted, {:,} updated, {:,} deleted".format(*sums)


MEASURES: dict[str, Callable[[str], tuple[int, str]]] = {
    "changes": lambda path: planned(path, Deduplication.NONE),
    "netChanges": lambda path: planned(path, Deduplication.NET_CHANGES),
    "changeCounts": counted,
}


def lines(make: Callable[[History], None], what: str, only: Sequence[str]) -> Iterator[tuple]:
    """Yield the measures of one history, each in a process of its own."""
    with scratch() as folder:
        path = f"{folder}/t"
        in_child(lambda: make(History(path)), start="fork")
        for name in only:
            work = partial(cost_with_memory, MEASURES[name], path)
            cost, grown, (pickled, note) = in_child(work, start="fork")
            yield what, name, *cost, f"{grown:.0f}", pickled / 1e6, note


# Scans -------------------------------------------------------------------------------------


def wide_table(path: str, rows: int) -> None:
    """Eleven columns of several kinds."""
    rng = np.random.default_rng(1)
    ids = np.arange(rows)
    numbers = pa.array(rng.integers(0, 1000, rows))
    vectors = pa.array(rng.random(32 * rows).astype(np.float32))
    tags = pa.array(np.char.add("t", (np.arange(2 * rows) % 50).astype(str)))
    columns = {
        "id": ids,
        "x": rng.random(rows),
        "n": numbers,
        "time": pa.array(ids * 1_000_000, pa.timestamp("us")),
        "flag": pa.array(rng.random(rows) < 0.5),
        "city": pa.array(np.char.add("city ", (ids % 100).astype(str))),
        "name": pa.array(np.char.add("name ", rng.integers(0, 10**9, rows).astype(str))),
        "text": pa.array(np.char.add(np.char.add("some words ", ids.astype(str)), " and more")),
        "tags": pa.ListArray.from_arrays(pa.array(np.arange(0, 2 * rows + 1, 2), pa.int32()), tags),
        "place": pa.StructArray.from_arrays([pa.array(rng.random(rows)), numbers], ["a", "b"]),
        "vector": pa.FixedSizeListArray.from_arrays(vectors, 32),
    }
    write(path, pa.table(columns))


def statement(path: str, action: RowAction, condition: str) -> None:
    """Update a column of some rows, or delete them."""
    table, settings = Table(path), ChangeSettings()

    def attempt(work):
        plan = plan_change(table, settings)
        every = tuple(field.name for field in plan.schema.fields)
        predicate = parse_predicate(condition, predicate_schema(plan.schema))
        is_update = action is RowAction.UPDATE
        columns = every if is_update else ()
        found = matching_rows(plan, predicate, columns=columns, system=(ROW_ID, ROW_ADDRESS))
        changes = (
            as_changes(batch, 0, {"x": pc.add(batch["x"], 1.0)})
            if is_update
            else as_changes(batch, 0)
            for batch in found
        )
        clause = Clause(action, ("x",)) if is_update else Clause(action)
        changed = run_statement(LocalRunner(), plan, (clause,), [changes])
        names = frozenset(clause.columns or ())
        return commit_changes(dataclasses.replace(changed, assigned=names), work)

    UnitOfWork(table, settings).run(attempt)


def updates(path: str, versions: int) -> None:
    """Each version updates other rows, a hundredth of the table."""
    for version in range(versions):
        statement(path, RowAction.UPDATE, f"id % 100 = {version * 7 % 100}")


def updates_and_deletes(path: str, versions: int) -> None:
    """Rows are updated again and again, and some deleted."""
    for version in range(versions):
        if version % 4 == 3:
            statement(path, RowAction.DELETE, f"id % 200 = {version}")
        else:
            statement(path, RowAction.UPDATE, f"id % 50 = {version * version % 50}")


def feed_of(snapshot: Snapshot, mode: Deduplication, windows: Sequence[ChangeWindow]) -> int:
    """Rows of the feeds of some windows."""
    fields, rows = snapshot.schema.fields, 0
    for window in windows:
        request = ChangeRequest(window, mode, fields)
        for task in plan_changes(snapshot.table, fields, request):
            rows += sum(batch.num_rows for batch in pickle.loads(pickle.dumps(task)).run())
    return rows


def scans(
    what: str, rows: int, versions: int, change: Callable[[str, int], None]
) -> Iterator[tuple[object, ...]]:
    """Yield the lines of one history."""
    with scratch() as folder:
        path = f"{folder}/t"
        wide_table(path, rows)
        change(path, versions)
        snapshot = Snapshot.open(Table(path))
        whole_scan = fastest(partial(scan, path, system_columns=())).processor
        whole = [ChangeWindow(2, snapshot.version)]
        single = [ChangeWindow(one, one) for one in range(2, snapshot.version + 1)]
        asked = {
            "changes": (Deduplication.NONE, whole),
            "netChanges": (Deduplication.NET_CHANGES, whole),
        }
        if 1 < versions <= 20:
            asked["changes, version by version"] = Deduplication.NONE, single
        for name, (mode, windows) in asked.items():
            feed = partial(feed_of, snapshot, mode, windows)
            seconds, count = fastest(feed).processor, feed()
            times = (f"{whole_scan:.3f}", f"{seconds:.3f}", seconds / whole_scan)
            yield what, name, count, *times


HISTORIES: dict[str, Callable[[History], None]] = {
    "10 million rows moved in ranges": moved_ranges,
    "10 million rows moved in ranges, twice": moved_ranges_twice,
    "10 million rows moved twice, at last in any order": moved_scattered_twice,
    "10 million rows deleted in ranges": deleted_ranges,
    "10 fragments of a million rows rewritten in place": restamped_fragments,
    "10 million rows rewritten in place, in ranges": restamped_ranges,
    "10 million rows overwritten by others": overwritten,
    "4 million scattered rows moved": moved_scattered,
    "4 million scattered rows deleted": deleted_scattered,
    "4 million scattered rows rewritten in place": restamped_scattered,
}
STATEMENTS = (
    ("an update of 1 %", 1, updates),
    ("10 scattered updates of 1 %", 10, updates),
    ("100 scattered updates of 1 %", 100, updates),
    ("20 updates of 2 % and deletes", 20, updates_and_deletes),
)


def main(
    *,
    only: tuple = tuple(MEASURES),
    tables: tuple = ("versions", "rows", "scans"),
    wide_rows: int = 120_000,
    scale: float = 1.0,
) -> None:
    header = "history | measure | s | s of processor | grown MB | pickled MB | what"
    if "versions" in tables:
        found = []
        for most, versions in ((10_000, 1_000), (2_000, 5_000)):
            fragments, count = int(most * scale), int(versions * scale)
            make = partial(commits, fragments=fragments, versions=count)
            what = f"{count:,} one-row commits, {fragments:,} fragments"
            found += lines(make, what, only)
        print_table("Small commits over many fragments", header, found)
    if "rows" in tables:
        found = [line for what, make in HISTORIES.items() for line in lines(make, what, only)]
        print_table("Changes of many rows", header, found)
    if "scans" in tables:
        found = [
            line
            for what, versions, change in STATEMENTS
            for line in scans(what, wide_rows, versions, change)
        ]
        header = "history | measure | rows of the feed | scan, s | feed, s | scans"
        print_table(f"Feeds of a table of {wide_rows:,} rows, by scans of it", header, found)


if __name__ == "__main__":
    run(main)
