"""Writers killed by SIGKILL at every named point of every operation.

    python tests/proofs/crashes.py --runs 3000

After each kill the table must be as before the operation or as after it, never between; verified;
and the same work done once more, with the same transaction key, must have exactly one effect.
Then a cleanup must leave exactly the files that the table refers to.  Points are where a file is
synced (half of it or all), gets its name, or is removed, and where an external manifest store is
informed; each is met before and after it.  Tables and rows come from the seed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    _TESTS = Path(__file__).parents[1]
    sys.path[:0] = [str(one) for one in (_TESTS / "support", _TESTS, _TESTS.parent)]

import pyarrow as pa
import pyarrow.compute as pc
from indexed_texts import INDICES, add_texts, assert_searches_find_rows, build_index, text_of
from local_changes import delete_rows, merge_rows, update_rows
from proofs.crash_points import calls_of, kill_at, points_of
from proofs.proof_report import Report, arguments
from row_changes import insert, matched_update
from table_access import append, write_table

from pyspark_lance.commit.application_versions import ApplicationVersion
from pyspark_lance.errors import VersionNotFoundError
from pyspark_lance.format.column_names import ROW_ID
from pyspark_lance.metafile.paths import branch_path, tag_path
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.columns.change_columns import (
    add_columns,
    compute_columns,
    drop_columns,
    rename_column,
)
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.index_build.column_indices import refresh_indices
from pyspark_lance.table.refs import branches_of, create_branch, remove_branch, set_tag, tags_of
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.unit_of_work import restore, set_properties
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.removable_files import (
    manifests_below,
    paths_used_by,
    read_manifests,
)
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import (
    WriteSettings,
    commit_write,
    plan_write,
    write_rows,
)

KEY = ApplicationVersion("crashes", 1).properties()
ONCE = ChangeSettings(properties=KEY)
FIRST_ID, NEW_ID = 0, 1000


# Tables ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """What a table is like before.

    Attributes:
        fragments: How many.
        rows: In each.
        stable_row_ids: Whether rows have them.
        is_external: Whether an external manifest store decides which versions there are.
        row: The row that is changed.
    """

    fragments: int
    rows: int
    stable_row_ids: bool
    is_external: bool
    row: int

    @classmethod
    def of(cls, rng: random.Random) -> Shape:
        fragments, rows = rng.randint(1, 4), rng.randint(2, 6)
        external = rng.random() < 0.2
        row = rng.randrange(fragments * rows)
        return cls(fragments, rows, rng.random() < 0.75, external, row)


def rows_of(ids: list[int], n: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array([n] * len(ids), pa.int64())})


class Tables:
    """Makes copies of tables; each shape is made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[Shape, Path] = {}
        self._numbers = itertools.count()

    def new(self, shape: Shape) -> Table:
        base = self._made.get(shape)
        if base is None:
            base = self._made[shape] = self._folder / f"base{len(self._made)}"
            _make(str(base), shape)
        path = self._folder / f"work{next(self._numbers)}"
        shutil.copytree(base, path / "t")
        if not shape.is_external:
            return Table(str(path / "t"))
        table = Table(str(path / "t"), {"storage.manifest_store": f"sqlite:{path / 'v.db'}"})
        set_properties(table, {"made": "by the external store"})
        return table

    def remove(self, table: Table) -> None:
        shutil.rmtree(Path(table.root).parent)


def _make(path: str, shape: Shape) -> None:
    """The first version has rows that no later one has; the last has a deleted row."""
    settings = {"enable_stable_row_ids": shape.stable_row_ids}
    write_table(path, rows_of([-1, -2], 0), **settings)
    for number in range(shape.fragments):
        first = number * shape.rows
        write_table(path, rows_of(list(range(first, first + shape.rows)), 0))
    delete_rows(path, "id < 0")
    append(path, 500, 2)
    delete_rows(path, "id = 501")


# Operations --------------------------------------------------------------------------------


def write(table: Table, ids: list[int], **settings: object) -> None:
    data = rows_of(ids, 7)
    plan = plan_write(
        table, data.schema, WriteSettings(properties=KEY, **settings), existing=Snapshot.open(table)
    )
    commit_write(plan, write_rows(plan, data.to_batches()))


def delete(table: Table, row: int) -> None:
    delete_rows(table.root, f"id = {row}", options=table.storage, settings=ONCE)


def update(table: Table, row: int) -> None:
    def plus(batch):
        return {"n": pc.add(batch["n"], 1)}

    update_rows(table.root, f"id = {row}", ["n"], plus, options=table.storage, settings=ONCE)


def merge(table: Table, row: int) -> None:
    source = rows_of([row, NEW_ID], 9)
    names = source.column_names
    clauses = [matched_update(names), insert(names)]
    merge_rows(table.root, source, ["id"], clauses, options=table.storage, settings=ONCE)


def add_column(table: Table, row: int) -> None:
    plus = compute_columns(["id"], lambda batch: [pc.add(batch.column("id"), 1)])
    add_columns(table, pa.schema([("m", pa.int64())]), plus, ONCE)


def compaction(table: Table, row: int) -> None:
    compact(
        table, CompactionRequest(target_rows_per_fragment=100, materialize_deletions_threshold=0.0)
    )


def tag(table: Table, row: int) -> None:
    if not tags_of(table):
        set_tag(table, "t", VersionSpec(version=2))


def branch(table: Table, row: int) -> None:
    if not branches_of(table):
        create_branch(table, "b")


def drop_branch(table: Table, row: int) -> None:
    with contextlib.suppress(VersionNotFoundError):
        remove_branch(table, "b")


def with_a_branch(table: Table) -> None:
    create_branch(table, "b")
    set_properties(table.on_branch("b"), {"on": "b"})


def with_texts(table: Table) -> None:
    """A column of texts without an index."""
    add_texts(table)


def with_text_indices(table: Table) -> None:
    """Two indices of texts, behind which the table is by an append, an update and a delete."""
    add_texts(table)
    for name in INDICES:
        build_index(table, name)
    ids = [NEW_ID + 10, NEW_ID + 11, NEW_ID + 12]
    data = rows_of(ids, 3).append_column("s", pa.array(map(text_of, ids), pa.string()))
    plan = plan_write(table, data.schema, WriteSettings(), existing=Snapshot.open(table))
    commit_write(plan, write_rows(plan, data.to_batches()))
    update_texts(table, FIRST_ID, ChangeSettings())
    delete_rows(table.root, f"id = {NEW_ID + 12}", options=table.storage)


def with_texts_to_compact(table: Table) -> None:
    """As above; indices by address cover all rows, as they cover none of a compacted table."""
    with_text_indices(table)
    if not Snapshot.open(table).uses_stable_row_ids:
        refresh_indices(table)


def update_texts(table: Table, row: int, settings: ChangeSettings = ONCE) -> None:
    def other(batch):
        return {"s": pa.array([text_of(row + 1)] * batch.num_rows, pa.string())}

    update_rows(table.root, f"id = {row}", ["s"], other, options=table.storage, settings=settings)


OPERATIONS: dict[str, Callable[[Table, int], object]] = {
    "append": lambda table, row: write(table, [NEW_ID, NEW_ID + 1]),
    "append of two files": lambda table, row: write(
        table, [NEW_ID, NEW_ID + 1], max_rows_per_file=1
    ),
    "overwrite": lambda table, row: write(table, [NEW_ID], overwrite=True),
    "replaceWhere": lambda table, row: write(
        table, [row], overwrite=True, replace_where=f"id = {row}"
    ),
    "delete": delete,
    "update": update,
    "merge": merge,
    "add column": add_column,
    "drop column": lambda table, row: drop_columns(table, ["n"], ONCE),
    "rename column": lambda table, row: rename_column(table, "n", "m", ONCE),
    "compact": compaction,
    "restore": lambda table, row: restore(table, VersionSpec(version=1), ONCE),
    "properties": lambda table, row: set_properties(table, {"k": "v"}, ONCE),
    "tag": tag,
    "branch": branch,
    "drop branch": drop_branch,
    "cleanup": lambda table, row: clean(table, delete_unverified=False),
    "build an inverted index": lambda table, row: build_index(table, "by_words"),
    "build an n-gram index": lambda table, row: build_index(table, "by_grams"),
    "refresh indices of texts": lambda table, row: refresh_indices(table),
    "join segments of texts": lambda table, row: refresh_indices(table, joins_segments=True),
    "update of indexed texts": update_texts,
    "compact indexed texts": compaction,
}
PREPARED: dict[str, Callable[[Table], object]] = {
    "drop branch": with_a_branch,
    "build an inverted index": with_texts,
    "build an n-gram index": with_texts,
    "refresh indices of texts": with_text_indices,
    "join segments of texts": with_text_indices,
    "update of indexed texts": with_text_indices,
    "compact indexed texts": with_texts_to_compact,
}


# What must hold ----------------------------------------------------------------------------


def contents(table: Table) -> tuple:
    """Version, columns, rows with their ids, tags and branches."""
    snapshot = Snapshot.open(table)
    tasks = plan_scan(snapshot, ScanRequest(system_columns=(ROW_ID,)))
    rows = sorted(
        (tuple(row.items()) for task in tasks for one in task.run() for row in one.to_pylist()),
        key=repr,
    )
    names = tuple(snapshot.schema.names)
    references = [one.name for one in (*tags_of(table), *branches_of(table))]
    return snapshot.version, names, rows, references, dict(snapshot.manifest.table_metadata)


def clean(table: Table, *, delete_unverified: bool = True) -> None:
    policy = CleanupPolicy(
        older_than_s=0, delete_unverified=delete_unverified, error_if_tagged=False
    )
    for branch in (None, *(one.name for one in branches_of(table))):
        cleanup_old_versions(table.on_branch(branch), policy)


def left_over(table: Table) -> set[str]:
    """Files that are there and that nothing refers to, and the other way round."""
    root, store = Path(table.root), table.store()
    there = {str(one.relative_to(root)) for one in root.rglob("*") if one.is_file()}
    # Manifests refer to the folders of indices.
    there = {re.sub("(_indices/[^/]+)/.*", r"\1", one) for one in there}
    used = {one for one in there if one.endswith("_versions/latest_version_hint.json")}
    used |= {tag_path(one.name) for one in tags_of(table)}
    used |= {branch_path(one.name) for one in branches_of(table)}
    for folder in ("_versions", "tree"):
        for location in manifests_below(store, folder):
            used.add(location.path)
            prefix = location.path.partition("_versions/")[0]
            for file in read_manifests(store, [location]):
                # Data of a branch that was just made are those of the table.
                used |= {
                    prefix + one if one.startswith("_transactions") else one
                    for one in paths_used_by(file)
                }
    return there ^ used


def prepared(tables: Tables, name: str, shape: Shape) -> Table:
    """A table for an operation."""
    table = tables.new(shape)
    if name in PREPARED:
        PREPARED[name](table)
    return table


def run_once(tables: Tables, name: str, shape: Shape, point: tuple[int, str, str], after: tuple):
    """One kill and what follows.

    Returns:
        How it ended: ``before`` or ``after``.

    Raises:
        AssertionError: It is neither, or something is left.
    """
    work, table = OPERATIONS[name], prepared(tables, name, shape)
    before = contents(table)
    number, moment, _ = point
    assert kill_at(lambda: work(table, shape.row), number, moment), "it was not killed"
    found = contents(table)
    assert found in (before, after), f"between: {found}, neither {before} nor {after}"
    check(table)
    work(table, shape.row)
    again = contents(table)
    assert again == after, f"run again: {again}, expected {after}"
    clean(table)
    check(table)
    assert contents(table) == after, "other contents after the cleanup"
    left = left_over(table)
    assert not left, f"left over, or missing: {sorted(left)}"
    tables.remove(table)
    return "after" if found == after else "before"


def check(table: Table) -> None:
    errors = verify(table).errors
    assert errors == (), errors
    if "s" in Snapshot.open(table).schema.names:
        assert_searches_find_rows(table)


@dataclass(frozen=True)
class Plan:
    """An operation on a table, its points, and what it comes to."""

    name: str
    shape: Shape
    points: list[tuple[int, str, str]]
    after: tuple


def planned(tables: Tables, name: str, shape: Shape) -> Plan:
    """The operation once without a kill."""
    table = prepared(tables, name, shape)
    calls = calls_of(lambda: OPERATIONS[name](table, shape.row), table.root)
    after = contents(table)
    tables.remove(table)
    return Plan(name, shape, points_of(calls), after)


def cases(tables: Tables, rng: random.Random) -> Iterator[tuple[Plan, tuple[int, str, str]]]:
    """All points of all operations, again and again, on other tables each time."""
    while True:
        for name in OPERATIONS:
            plan = planned(tables, name, Shape.of(rng))
            for point in plan.points:
                yield plan, point


def prove(runs: int, seed: int) -> Report:
    """That many kills."""
    report = Report("crashes", seed)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a sync costs nothing there
    folder = Path(tempfile.mkdtemp(prefix="pyspark-lance-crashes-", dir=memory))
    tables, names = Tables(folder), set()
    rng = random.Random(seed)
    try:
        for plan, point in itertools.islice(cases(tables, rng), runs):
            names.add((plan.name, point[2]))
            report.counts["kills"] += 1
            report.counts["with an external manifest store"] += plan.shape.is_external
            try:
                ended = run_once(tables, plan.name, plan.shape, point, plan.after)
                report.counts[f"as {ended} the operation"] += 1
            except Exception as error:  # noqa: BLE001
                report.anomalies.append(
                    f"{plan.name}, {point[2]} (call {point[0]}), {plan.shape}\n"
                    f"{type(error).__name__}: {error}"
                )
        report.counts["operations"] = len({operation for operation, _ in names})
        report.counts["named points of operations"] = len(names)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return report


def main() -> int:
    given = arguments(__doc__, runs=3000).parse_args()
    return prove(given.runs, given.seed).show()


if __name__ == "__main__":
    sys.exit(main())
