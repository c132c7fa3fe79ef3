"""A writer stops at a point of its commit, other operations complete, then it continues.

The end must be that of the writers one after another, in some order, or a typed conflict of the
writer that was stopped, with the table as the other writers left it.  What the orders lead to is
found by running the same operations on copies of the same table.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from directed_store import (
    Director,
    arrive_late,
    directed,
    fail,
    in_charge,
    lost,
    pause,
    pause_after,
    refused,
)
from interleaved_operations import COLUMNS, SECOND, open_dataset, rows
from local_changes import delete_rows
from table_access import assert_same_rows, read_ours, write_table
from table_invariants import check_fragments

from pyspark_lance.errors import CommitConflictError, LanceError, StorageError, VersionNotFoundError
from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID, SYSTEM_COLUMNS
from pyspark_lance.metafile.manifest_file import ManifestLocation, list_versions, read_manifest
from pyspark_lance.metafile.paths import (
    INDICES,
    VERSIONS,
    data_path,
    deletion_path,
    parse_manifest_name,
)
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.refs import branches_of, tags_of
from pyspark_lance.table.unit_of_work import set_properties
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table


@dataclass(frozen=True, slots=True)
class Setup:
    """What the table is like before."""

    stable_row_ids: bool = True
    indices: bool = False
    primary_key: bool = False
    exists: bool = True
    other_rows_first: bool = False

    def __str__(self) -> str:
        names = ("stable_row_ids", "indices", "primary_key", "exists", "other_rows_first")
        return ", ".join(one for one in names if getattr(self, one)).replace("_", " ") or "plain"


# Folders of tables, outcomes of histories: each is made once.
@functools.cache
def _workplace() -> Path:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a sync costs nothing there
    return Path(tempfile.mkdtemp(prefix="pyspark-lance-interleaving-", dir=memory))


_numbers = itertools.count()

OPERATIONS = dict(SECOND)
"""By name; proofs add their own."""
NEWEST = "newest"
"""What tags and branches on the newest version are called, before the number of the writer."""


def remove_workplace() -> None:
    """When all is done."""
    shutil.rmtree(_workplace(), ignore_errors=True)
    for cached in (_workplace, base_table, in_order, calls_alone):
        cached.cache_clear()


@functools.cache
def base_table(setup: Setup) -> Path:
    """Three fragments of four rows, one of them deleted; the first version has two.

    With ``other_rows_first``, the first version has one, of rows that are gone since.
    """
    path = _workplace() / f"base-{next(_numbers)}"
    if not setup.exists:
        return path
    metadata = {"lance-schema:unenforced-primary-key": "true"} if setup.primary_key else None
    key = pa.field("id", pa.int64(), nullable=not setup.primary_key, metadata=metadata)
    table = rows(range(12), 0, pa.schema([key, *list(COLUMNS)[1:]]))
    settings = {"max_rows_per_file": 4, "enable_stable_row_ids": setup.stable_row_ids}
    if setup.other_rows_first:
        write_table(str(path), rows(range(100, 104), 0, table.schema), **settings)
    write_table(str(path), table.slice(0, 8), **settings)
    write_table(str(path), table.slice(8))
    delete_rows(str(path), "id = 5 OR id >= 100")
    if setup.indices:
        for column in ("id", "n"):
            open_dataset(str(path)).create_scalar_index(column, "BTREE", name=f"by_{column}")
    return path


def new_copy(setup: Setup) -> str:
    """The table to work on."""
    base = base_table(setup)
    path = _workplace() / f"work-{next(_numbers)}"
    if base.exists():
        shutil.copytree(base, path)
    return str(path)


# Outcomes ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What came of some operations.

    Attributes:
        reports: What each reported, by operation and writer; an error is its class.
        columns: Of the table at the end; None without a table.
        rows: All rows, sorted.
        row_ids: Row id by ``id``; only for tables with stable row ids.
        references: Version by the name of a tag or a branch.
        newest: By writer, the versions that were the newest at some time while it was at work.
    """

    reports: dict[str, object]
    columns: tuple | None
    rows: tuple
    row_ids: dict
    references: dict
    newest: Mapping[int, range] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """An error; two of one kind are the same."""

    kind: type[Exception]
    text: str = field(compare=False)


def attempt(name: str, path: str, who: int) -> object:
    """Run an operation; the class of the error if it fails."""
    try:
        return OPERATIONS[name](path, who)
    except LanceError as error:
        return Failure(type(error), str(error))
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        if not name.startswith("their_"):
            raise
        return Failure(type(error), str(error))


def state(path: str, reports: dict[str, object]) -> Outcome:
    """The table as it is now."""
    if not Path(path, "_versions").exists():
        return Outcome(reports, None, (), {}, {})
    snapshot = Snapshot.open(Table(path))
    found = read_ours(path, system_columns=(ROW_ID,))
    ids = found[ROW_ID].to_pylist()
    user = found.select(list(snapshot.schema.names))
    contents = [tuple(row.items()) for row in user.to_pylist()]
    columns = tuple((one.name, str(one.type)) for one in user.schema)
    row_ids = {}
    if snapshot.uses_stable_row_ids and "id" in user.column_names:
        row_ids = dict(zip(user["id"].to_pylist(), ids, strict=True))
    references = {f"tag {tag.name}": tag.version for tag in tags_of(Table(path))}
    references |= {f"branch {one.name}": one.parent_version for one in branches_of(Table(path))}
    return Outcome(reports, columns, tuple(sorted(contents, key=repr)), row_ids, references)


@functools.cache
def in_order(setup: Setup, names: tuple[tuple[str, int], ...]) -> Outcome:
    """What comes of the operations one after another."""
    path = new_copy(setup)
    reports = {}
    for name, who in names:
        reports[name, who] = attempt(name, path, who)
    outcome = state(path, reports)
    shutil.rmtree(path, ignore_errors=True)
    return outcome


def newest_version(path: str) -> int:
    """The number of the newest version; 0 without a table.

    From names alone: the package is to see no more of the table than a writer does.
    """
    folder = Path(path, VERSIONS)
    names = map(parse_manifest_name, os.listdir(folder) if folder.exists() else ())
    return max((one.version for one in names if one and not one.is_detached), default=0)


# Points ------------------------------------------------------------------------------------


@functools.cache
def calls_alone(setup: Setup, name: str) -> tuple[tuple[str, str], ...]:
    """The calls that the operation makes without concurrent operations."""
    path = new_copy(setup)
    director = Director()
    with directed(), in_charge(director):
        attempt(name, path, 0)
    shutil.rmtree(path, ignore_errors=True)
    return tuple(director.calls)


def places(calls: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Numbers of the calls at which something begins or ends."""
    puts = [n for n, (name, path) in enumerate(calls) if name == "put_if_absent"]
    # A commit lists, or checks whether a version follows the one that it was planned on.
    looked_for = {("list", "_versions"), *(("stat", calls[n][1]) for n in puts[:1])}
    # A cleanup makes no version: it removes files.
    puts = puts or [n for n, (name, path) in enumerate(calls) if name == "delete"]
    if not puts:
        return {}
    looks = (n for n, call in enumerate(calls[: puts[0]]) if call in looked_for)
    last_look = max(looks, default=puts[0])
    reads = (n for n, (name, path) in enumerate(calls) if name == "get_tail" and "_ver" in path)
    planned = next(reads, 0) + 1
    return {"planned": min(planned, last_look), "files written": last_look, "put": puts[0]}


@dataclass(frozen=True)
class Point:
    """Where the first writer is stopped, and what it hears then."""

    name: str
    place: str
    scene: Callable
    swept: bool = False

    def then_swept(self) -> Point:
        """The version that was read, or put, is gone when the writer looks."""
        return replace(self, name=f"{self.name}, swept", swept=True)

    @property
    def unknown_outcome(self) -> bool:
        """Return True if the outcome of the commit may stay unknown.

        Also after a put that was answered: its version may be gone when the writer looks whether
        it is in the history.
        """
        return self.swept and self.place == "put" and self.name != "before the put, swept"


_POINTS = (
    Point("planned", "planned", pause),
    Point("files written", "files written", pause),
    Point("before the put", "put", pause),
    Point("put fails", "put", fail),
    Point("put arrives late", "put", arrive_late),
    Point("after the put", "put", pause_after),
    Point("answer lost", "put", functools.partial(pause_after, answer=lost)),
    Point("refused", "put", functools.partial(pause_after, answer=refused)),
)
# The same if other operations also remove all versions but the newest.
POINTS = {point.name: point for one in _POINTS for point in (one, one.then_swept())}


def sweep(path: str) -> None:
    """Other writers make versions that change no row, and remove all versions but the newest."""
    for number in range(2):
        open_dataset(path).update_config({"swept": str(number)})
    open_dataset(path).cleanup_old_versions(
        older_than=datetime.timedelta(0), error_if_tagged_old_versions=False
    )


def sweep_by_ours(path: str) -> None:
    """The same by this package."""
    for number in range(2):
        set_properties(Table(path), {"swept": str(number)})
    cleanup_old_versions(Table(path), CleanupPolicy(older_than_s=0, error_if_tagged=False))


def every_call(setup: Setup, name: str, *, swept: bool = True) -> Iterator[str]:
    """Points around all calls of the store; swept: with a cleanup at each of them."""
    first = "swept, " if swept else ""
    for number, (call, path) in enumerate(calls_alone(setup, name)):
        yield f"{first}before call {number}, {call} {kind_of(path)}"
        if call in ("put", "put_if_absent", "list"):
            yield f"{first}after call {number}, {call} {kind_of(path)}"


def kind_of(path: str) -> str:
    """The folder: names of files are other ones each time."""
    return path.partition("/")[0]


def point_called(name: str) -> Point:
    """The point of a name, be it one of ``every_call``."""
    if name in POINTS:
        return POINTS[name]
    *_, rest = name.rpartition("swept, ")
    when, _, number, *_ = rest.replace(",", "").split()
    return Point(name, number, pause if when == "before" else pause_after, swept=name != rest)


# One case ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One interleaving."""

    setup: Setup
    first: str
    second: tuple[str, ...]
    point: str
    sweep: Callable[[str], None] = sweep

    def __str__(self) -> str:
        by = "" if self.sweep is sweep else f", {self.sweep.__name__}"
        return f"{self.first} [{self.point}{by}] {', '.join(self.second)} ({self.setup})"


def run(case: Case) -> str | None:
    """Run the case; return how it ended, None if the first has no such point.

    Raises:
        AssertionError: It ended in no order.
    """
    point = point_called(case.point)
    if point.place.isdecimal():
        place = int(point.place)
    else:
        place = places(calls_alone(case.setup, case.first)).get(point.place)
    if place is None:
        return None
    path = new_copy(case.setup)
    reports: dict[object, object] = {}
    newest: dict[int, range] = {}

    def others() -> None:
        for who, name in enumerate(case.second, 1):
            before = newest_version(path)
            reports[name, who] = attempt(name, path, who)
            newest[who] = range(before, newest_version(path) + 1)
        if point.swept and Path(path, "_versions").exists():
            case.sweep(path)

    director = Director({place: point.scene(others)})
    before = newest_version(path)
    with directed(), in_charge(director):
        reports[case.first, 0] = attempt(case.first, path, 0)
    newest[0] = range(before, newest_version(path) + 1)
    assert len(reports) == 1 + len(case.second), "the writer was never stopped"
    ended = check_conflict(case, replace(state(path, reports), newest=newest))
    check_table(path, case.setup)
    shutil.rmtree(path, ignore_errors=True)
    return ended


def check_row_ids(found: Outcome, orders: Sequence[Outcome]) -> None:
    """A row has the id that it has in every order, where all agree."""
    for key, row_id in found.row_ids.items():
        expected = {order.row_ids.get(key) for order in orders}
        assert len(expected) > 1 or expected == {row_id}, (key, row_id, expected)


def check_conflict(case: Case, found: Outcome) -> str:
    """How it ended: its position among the operations, a conflict, or unknown."""
    ours = (case.first, 0)
    theirs = tuple((name, who) for who, name in enumerate(case.second, 1))
    orders = [(*theirs[:place], ours, *theirs[place:]) for place in range(len(theirs), -1, -1)]
    # What fits an order to the letter is of that order.
    for one_found in (replace(found, newest={}), found):
        different = []
        for order in orders:
            difference = compare(in_order(case.setup, order), one_found)
            if difference is None:
                check_row_ids(found, [in_order(case.setup, one) for one in orders])
                return f"after {order.index(ours)}"
            different.append(f"  {', '.join(name for name, _ in order)}: {difference}")
    report = found.reports[ours]
    kind = report.kind if isinstance(report, Failure) else type(None)
    was_swept = point_called(case.point).swept and kind is VersionNotFoundError
    # A folder may go while a file in it is being written.
    was_dropped = isinstance(report, Failure) and any("recreate" in name for name in case.second)
    if issubclass(kind, CommitConflictError) or was_gone(report) or was_swept or was_dropped:
        difference = compare(in_order(case.setup, theirs), found, without=[ours])
        if difference is None:
            return "conflict"
        different.append(f"  without it: {difference}")
    at = point_called(case.point)
    if issubclass(kind, StorageError) and (
        at.unknown_outcome or (at.swept and at.place.isdecimal())
    ):
        ends = (in_order(case.setup, order) for order in (theirs, *orders))
        if any(compare(end, found, without=[ours]) is None for end in ends):
            return "doubt"
    raise AssertionError(f"{case}: reported {report}, but it is no order\n" + "\n".join(different))


def was_gone(report: object) -> bool:
    """Whether a file was removed while it was read, and the error says so."""
    return isinstance(report, Failure) and "may have been cleaned up" in report.text


def compare(expected: Outcome, found: Outcome, without: Collection = ()) -> str | None:
    """What differs."""
    for one, report in found.reports.items():
        if one not in without and expected.reports[one] != report:
            return f"{one} reports {report}, expected {expected.reports[one]}"
    if expected.columns != found.columns:
        return f"columns {found.columns}, expected {expected.columns}"
    if not same_references(expected, found):
        return f"references {found.references}, expected {expected.references}"
    if expected.rows != found.rows:
        more = [dict(row) for row in found.rows if row not in expected.rows]
        less = [dict(row) for row in expected.rows if row not in found.rows]
        return f"{len(found.rows)} rows, expected {len(expected.rows)}; more {more}, less {less}"
    return None


def same_references(expected: Outcome, found: Outcome) -> bool:
    """Whether tags and branches have the same names and versions.

    An operation on the newest version may use any that was newest while it ran: other writers may
    have made some of them, which are those of no order.
    """
    if expected.references.keys() != found.references.keys():
        return False
    for name, version in found.references.items():
        may_be = {expected.references[name]}
        for who, versions in found.newest.items():
            if name.endswith(f" {NEWEST}{who}"):
                may_be |= set(versions)
        if version not in may_be:
            return False
    return True


def living_versions(store: LocalStore) -> list[ManifestLocation]:
    """The newest version and those right before it; what is below a gap was swept away."""
    found = list_versions(store)
    newest = found[-1].version
    return [one for back, one in enumerate(found[::-1]) if one.version == newest - back]


def check_table(path: str, setup: Setup) -> None:
    """What must hold of every table, after any history."""
    if not Path(path, "_versions").exists():
        return
    snapshot = Snapshot.open(Table(path))
    store = LocalStore(path)
    for location in living_versions(store):
        file = read_manifest(store, location)
        for fragment in file.manifest.fragments:
            for data_file in fragment.files:
                assert store.exists(data_path(data_file.path)), (location.version, data_file.path)
            if fragment.deletion_file is not None:
                name = deletion_path(fragment.id, fragment.deletion_file)
                assert store.exists(name), (location.version, name)
        for index in file.indices:
            assert Path(path, INDICES, str(index.uuid)).exists()
    assert verify(Table(path)).errors == ()
    for branch in branches_of(Table(path)):
        read_ours(path, branch=branch.name)
    dataset = open_dataset(path)
    dataset.validate()
    stable = snapshot.uses_stable_row_ids
    system = SYSTEM_COLUMNS if stable else (ROW_ID, ROW_ADDRESS)
    lineage = set(SYSTEM_COLUMNS) & set(system) - {ROW_ID, ROW_ADDRESS}
    theirs = dataset.scanner(
        columns=[*dataset.schema.names, *sorted(lineage)], with_row_id=True, with_row_address=True
    ).to_table()
    ours = read_ours(path, system_columns=system).select([*dataset.schema.names, *system])
    assert_same_rows(ours, theirs)
    assert pc.count_distinct(ours[ROW_ID]).as_py() == ours.num_rows
    if stable:
        check_fragments(snapshot)
    names = [index.name for index in snapshot.indices]
    for column in ("id", "n"):
        if f"by_{column}" in names and column in dataset.schema.names:
            condition = f"{column} >= 1"
            found, scanned = (
                dataset.scanner(filter=condition, use_scalar_index=by, with_row_id=True).to_table()
                for by in (True, False)
            )
            assert found.sort_by(ROW_ID).equals(scanned.sort_by(ROW_ID)), condition
