"""Random histories of a table against a dict of rows, with pylance looking at every version.

After each step the newest version must be what the model says, row id by row id with the versions
that made and last changed each row, for our reader and for pylance's; the invariants of the table
format must hold; and there must be one more manifest where a step changed something.  A replica
follows the table by a stream, in batches that end anywhere and with a new reader for each; wherever
one ends between two versions, the replica must be the first of them.

In one history of ``REPLAYED`` pylance replays every step on a copy of its own
(``pylance_replay.py``), and contents, row ids, versions and ``next_row_id`` of both are compared
after each step.  To do so in all of them would double the time of the whole test.

12 histories of 30 steps run by default, always the same; 5,000 by ``poe nightly-histories``, other
ones by ``PYSPARK_LANCE_SEED=7``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from local_changes import (
    SOURCE_PREFIX,
    commit_rewritten,
    delete_rows,
    merge_rows,
    update_all,
    update_rows,
)
from pylance_replay import UID, PylanceReplay, catch_up, compact
from reference_table import ReferenceTable
from table_access import (
    assert_same_rows,
    read_batch,
    read_changes,
    read_ours,
    read_pylance,
    write_table,
)
from table_invariants import check_invariants

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.table.cdf.stream import TableStream
from pyspark_lance.table.cdf.stream_offset import BEGINNING, StreamLimits, StreamSettings, Updates
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.columns.change_columns import (
    add_columns,
    add_null_columns,
    compute_columns,
    copy_column,
    drop_columns,
    rename_column,
    widen_column,
)
from pyspark_lance.table.compaction.compact import compact as compact_table
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.compaction.stable_row_ids import enable_stable_row_ids
from pyspark_lance.table.dml.merge import Match, MergeClause
from pyspark_lance.table.dml.rewrite_columns import plan_rewrite, rewrite_columns
from pyspark_lance.table.dml.row_change import RowAction, plan_change
from pyspark_lance.table.refs import create_branch, set_tag, tags_of
from pyspark_lance.table.unit_of_work import restore as restore_version
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version import snapshot as snapshots
from pyspark_lance.table.version.snapshot import VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

HISTORIES = int(os.environ.get("PYSPARK_LANCE_HISTORIES", "12"))
STEPS = 30
SEED = int(os.environ.get("PYSPARK_LANCE_SEED", "0"))
PARTS = 4
BRANCH = "trial"
REPLAYED = 2

COLUMNS = {UID: pa.int64(), "id": pa.int64(), "n": pa.int32(), "s": pa.string()}
EXTRA = ("x", "y")
WIDER = {pa.int16(): pa.int32(), pa.int32(): pa.int64()}

SMALL = st.one_of(st.none(), st.integers(-5, 5))
ROWS = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 12)), SMALL, st.sampled_from("abc"), SMALL),
    max_size=7,
)
SOME_ROWS = ROWS.filter(len)

# Conditions, and what they mean in the model; null is no match in both.
CONDITIONS = {
    "true": lambda row: True,
    "id = 3": lambda row: row["id"] == 3,
    "id IS NULL": lambda row: row["id"] is None,
    "id % 3 = 1": lambda row: row["id"] is not None and row["id"] % 3 == 1,
    "n > 0 OR s = 'a'": lambda row: (row["n"] is not None and row["n"] > 0) or row["s"] == "a",
    "NOT (n < 2)": lambda row: row["n"] is not None and row["n"] >= 2,
    "id > 100": lambda row: False,
}
CONDITION = st.sampled_from(list(CONDITIONS))
# Conditions of clauses: over the joined table, over two rows, and for pylance.
CLAUSE_CONDITIONS = {
    "always": (None, None, None),
    "source n > 0": (
        lambda t: pc.greater(t[SOURCE_PREFIX + "n"], 0),
        lambda old, new: new["n"] is not None and new["n"] > 0,
        "source.n > 0",
    ),
    "s differs": (
        lambda t: pc.not_equal(t["s"], t[SOURCE_PREFIX + "s"]),
        lambda old, new: None not in (old["s"], new["s"]) and old["s"] != new["s"],
        "target.s != source.s",
    ),
    "target n < 0": (
        lambda t: pc.less(t["n"], 0),
        lambda old, new: old["n"] is not None and old["n"] < 0,
        "target.n < 0",
    ),
}
ALL = ()
COLUMN_SETS = st.sampled_from([ALL, ("id", "n"), ("s",), ("id", "s")])


@st.composite
def clause_lists(draw):
    """Clauses in an order that check_clauses accepts: (match, action, condition, columns)."""
    clauses = []
    for match, actions, conditions in (
        ("matched", ("update", "delete"), ("source n > 0", "s differs", "target n < 0")),
        ("not matched", ("insert",), ("source n > 0",)),
        ("not matched by source", ("delete", "update"), ("target n < 0",)),
    ):
        count = draw(st.integers(0, 2))
        for number in range(count):
            name = draw(st.sampled_from(conditions))
            if number == count - 1 and draw(st.booleans()):
                name = "always"
            clauses.append((match, draw(st.sampled_from(actions)), name, draw(COLUMN_SETS)))
    return clauses or [("matched", "update", "always", ALL)]


def following(row):
    return None if row["id"] is None else row["id"] + 1


def replaced(text):
    return text and text.replace("a", "b")


class TableHistory(RuleBasedStateMachine):
    """One table on disk, one in a dict, and perhaps one of pylance's own."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="pyspark-lance-history-")
        self.root = self.folder + "/t"
        self.path = self.root  # or that of a branch
        self.main = None  # what the main line is, once a branch goes on
        self.model = ReferenceTable(dict(COLUMNS))
        self.twin = None
        self.next_uid = 0
        self.twin_ids = {}
        self.unlike = set()  # versions in which the tables have other columns
        self.gone = set()  # versions that were cleaned up
        self.oldest = 1  # version from which on none is gone
        self.tags = {}
        self.replica, self.read_upto = {}, BEGINNING

    def teardown(self):
        if self.model.version:
            assert verify(Table(self.path)).findings == ()
        shutil.rmtree(self.folder, ignore_errors=True)

    @initialize(
        drawn=ROWS,
        per_file=st.sampled_from([2, 3, 100]),
        file_version=st.sampled_from(["2.1", "2.0", "2.2"]),
        number=st.integers(0, REPLAYED - 1),
        migrated=st.sampled_from([False, False, False, True]),
    )
    def create(self, drawn, per_file, file_version, number, migrated):
        if migrated:
            self.create_migrated(drawn, per_file, file_version, number)
            return
        rows, table = self.rows_of(drawn)
        write_table(self.path, table, max_rows_per_file=per_file, file_version=file_version)
        self.model.append(rows)
        if number == 0:
            self.twin = PylanceReplay(self.folder + "/twin")
            self.twin.create(table, per_file, file_version)
        self.compare()

    def create_migrated(self, drawn, per_file, file_version, number):
        """A table without stable row ids gets some: its rows are numbered as they lie there."""
        settings = {"max_rows_per_file": per_file, "enable_stable_row_ids": False}
        every = {}
        for part in (drawn[:3], [*drawn[3:], (0, 0, "a", 0)]):
            rows, table = self.rows_of(part)
            write_table(self.path, table, file_version=file_version, **settings)
            every |= {row[UID]: row for row in rows}
        lance.dataset(self.path).delete("id % 3 = 1")
        start, starts = 0, {}
        for fragment in lance.dataset(self.path).get_fragments():
            starts[fragment.fragment_id] = start
            start += fragment.physical_rows
        there = lance.dataset(self.path).to_table(columns=[UID], with_row_address=True)
        addresses = zip(there["_rowaddr"].to_pylist(), there[UID].to_pylist(), strict=True)
        version = enable_stable_row_ids(Table(self.path)).version
        self.model.migrate(
            version,
            start,
            {starts[one >> 32] + (one & 0xFFFFFFFF): every[uid] for one, uid in addresses},
        )
        self.oldest = version
        if number == 0:
            shutil.copytree(self.path, self.folder + "/twin")
            self.twin = PylanceReplay(self.folder + "/twin")
        self.compare()

    # Rows ------------------------------------------------------------------------------------

    @rule(drawn=ROWS, per_file=st.sampled_from([2, 100]))
    def append(self, drawn, per_file):
        rows, table = self.rows_of(drawn)
        result = write_table(self.path, table, max_rows_per_file=per_file)
        assert (result is not None) == bool(rows)
        self.model.append(rows)
        if self.twin and rows:
            self.twin.append(table, per_file)
        self.compare()

    @rule(drawn=ROWS, reset=st.booleans())
    def overwrite(self, drawn, reset):
        columns = COLUMNS if reset else self.model.columns
        rows, table = self.rows_of(drawn, columns)
        write_table(self.path, table, overwrite=True)
        self.model.overwrite(rows, columns)
        if self.twin:
            self.twin.overwrite(table)
        self.compare()

    @rule(drawn=ROWS, condition=CONDITION)
    def replace_where(self, drawn, condition):
        rows, _ = self.rows_of(drawn)
        rows = [row for row in rows if CONDITIONS[condition](row)]
        before = dict(self.model.rows)
        result = write_table(
            self.path, self.as_table(rows), overwrite=True, replace_where=condition
        )
        self.model.replace_where(CONDITIONS[condition], rows)
        assert (result is not None) == (self.model.rows != before)
        self.replay_rows(before)
        self.compare(result)

    @rule(condition=CONDITION)
    def delete(self, condition):
        result = delete_rows(self.path, condition)
        assert result.num_deleted_rows == self.model.delete(CONDITIONS[condition])
        if self.twin and result.version is not None:
            self.twin.delete(condition)
        self.compare(result)

    @rule(condition=CONDITION, to=st.integers(-9, 9), how=st.sampled_from(["rows", "columns"]))
    def update(self, condition, to, how):
        def values(batch):
            kind = self.model.columns["n"]
            return {
                "n": pa.array([to] * batch.num_rows, kind),
                "s": pc.replace_substring(batch["s"], "a", "b"),
            }

        if how == "rows":
            result = update_rows(self.path, condition, ["n", "s"], values)
        else:
            result = self.rewrite(condition, values)
        count = self.model.update(
            CONDITIONS[condition], lambda row: {"n": to, "s": replaced(row["s"])}
        )
        assert result.num_updated_rows == count
        if self.twin and count:
            self.twin.update(condition, {"n": str(to), "s": "replace(s, 'a', 'b')"})
        self.compare(result)

    def rewrite(self, condition, values):
        """The new values go beside the old ones, and the rows stay where they are."""
        plan = plan_change(Table(self.path))
        hit = self.model.matching(CONDITIONS[condition])
        found = read_ours(self.path, system_columns=("_rowid", "_rowaddr"))
        found = found.filter(pc.is_in(found["_rowid"], pa.array(hit, pa.uint64())))
        found = found.sort_by("_rowaddr").combine_chunks()
        changed = pa.table({"_rowaddr": found["_rowaddr"], **values(found)})
        request = plan_rewrite(plan.snapshot(), ["n", "s"])
        batches = changed.to_batches(max_chunksize=3)
        return commit_rewritten(plan, request, list(rewrite_columns(request, batches)))

    @rule(drawn=SOME_ROWS, clauses=clause_lists(), buckets=st.sampled_from([None, 0, 1]))
    def merge(self, drawn, clauses, buckets):
        rows, source = self.rows_of(drawn)
        every = tuple(name for name in self.model.columns if name != UID)
        ours, theirs = [], []
        for match, action, name, columns in clauses:
            given = columns or every
            if action == "insert":
                given = (UID, *given)
            if match == "not matched by source":
                values, expected = {"n": self.sevens}, {"n": 7}
            else:
                values, expected = update_all(given), given
            condition = CLAUSE_CONDITIONS[name]
            kind, what = Match[match.upper().replace(" ", "_")], RowAction[action.upper()]
            none = action == "delete"
            ours.append(MergeClause(kind, what, condition[0], {} if none else values))
            theirs.append((match, action, condition[1], () if none else expected))
        before = dict(self.model.rows)
        expected = self.model.merge(rows, "id", theirs)
        if expected == "ambiguous":
            with pytest.raises(InvalidInputError, match="more than one source row"):
                merge_rows(self.path, source, ["id"], ours, buckets=buckets)
            self.compare()
            return
        result = merge_rows(self.path, source, ["id"], ours, buckets=buckets)
        counts = (result.num_inserted_rows, result.num_updated_rows, result.num_deleted_rows)
        assert counts == expected
        plain = as_pylance_has_it(clauses, rows)
        if self.twin and result.version is not None and plain:
            has_insert = any(match == "not matched" for match, _, _ in plain)
            self.twin.merge(source if has_insert else source.drop([UID]), "id", plain)
        else:
            self.replay_rows(before)
        self.compare(result)

    def sevens(self, joined):
        return pa.array([7] * joined.num_rows, self.model.columns["n"])

    # Columns ---------------------------------------------------------------------------------

    @precondition(lambda self: not set(EXTRA) <= set(self.model.columns))
    @rule(drawn=SOME_ROWS, name=st.sampled_from(EXTRA))
    def append_with_column(self, drawn, name):
        if name in self.model.columns:
            return
        if self.twin:  # which needs two versions for this
            catch_up(self.path, self.model.version + 1)
            self.model.same_rows(self.model.version + 1)
            self.twin.add_nulls(name, pa.int16())
            self.unlike.add(self.model.version)
        rows, table = self.rows_of(drawn, {**self.model.columns, name: pa.int16()})
        write_table(self.path, table, merge_schema=True)
        self.model.append_with_column(name, pa.int16(), rows)
        if self.twin:
            self.twin.append(table, 100)
        self.compare()

    @precondition(lambda self: not set(EXTRA) <= set(self.model.columns))
    @rule(name=st.sampled_from(EXTRA), values=st.booleans())
    def add_column(self, name, values):
        if name in self.model.columns:
            return
        if values:
            run = compute_columns(
                ["id"], lambda batch: [pc.add(batch.column("id"), 1).cast(pa.int16())]
            )
            result = add_columns(Table(self.path), pa.schema([(name, pa.int16())]), run)
            self.model.add_column(name, pa.int16(), following)
            if self.twin:
                self.twin.add_values(name, "cast(id + 1 as smallint)")
        else:
            result = add_null_columns(Table(self.path), pa.schema([(name, pa.int16())]))
            self.model.add_column(name, pa.int16())
            if self.twin:
                self.twin.add_nulls(name, pa.int16())
        self.compare(result)

    @precondition(lambda self: set(EXTRA) & set(self.model.columns))
    @rule(name=st.sampled_from(EXTRA), new=st.sampled_from([*EXTRA, "z"]))
    def drop_or_rename_column(self, name, new):
        if name not in self.model.columns:
            return
        if new in self.model.columns or new == "z":
            result = drop_columns(Table(self.path), [name])
            self.model.drop_column(name)
            if self.twin:
                self.twin.drop(name)
        else:
            result = rename_column(Table(self.path), name, new)
            self.model.rename_column(name, new)
            if self.twin:
                self.twin.rename(name, new)
        self.compare(result)

    @precondition(lambda self: set(WIDER) & set(self.model.columns.values()))
    @rule(name=st.sampled_from(["n", *EXTRA]))
    def widen_column(self, name):
        kind = WIDER.get(self.model.columns.get(name))
        if kind is None:
            return
        written = self.rows_that_hold(name)
        if self.twin and written != set(self.model.rows):
            return  # pylance writes the column also where no file has it, and so changes more rows
        result = widen_column(Table(self.path), name, kind, copy_column(name))
        self.model.widen_column(name, kind, written)
        if self.twin:
            self.twin.widen(name, kind)
        self.compare(result)

    def rows_that_hold(self, name):
        """Ids of the rows of fragments in which a file has the column."""
        snapshot = snapshots.Snapshot.open(Table(self.path))
        field = snapshot.schema.field(name).id
        holding = [
            fragment.id
            for fragment in snapshot.manifest.fragments
            if any(field in file.fields for file in fragment.files)
        ]
        found = read_ours(self.path, system_columns=("_rowid", "_rowaddr"))
        fragments = pc.shift_right(found["_rowaddr"], pa.scalar(32, pa.uint64()))
        chosen = found.filter(pc.is_in(fragments, pa.array(holding, pa.uint64())))
        return set(chosen["_rowid"].to_pylist())

    # Versions --------------------------------------------------------------------------------

    @rule(size=st.sampled_from([3, 1000]))
    def compact_by_pylance(self, size):
        compact(self.path, size)
        self.model.same_rows(lance.dataset(self.path).version)
        if self.twin:
            self.twin.compact(size)
        self.compare()

    @rule(size=st.sampled_from([3, 1000]), threshold=st.sampled_from([0.0, 0.5]))
    def compact(self, size, threshold):
        request = CompactionRequest(
            target_rows_per_fragment=size, materialize_deletions_threshold=threshold
        )
        result = compact_table(Table(self.path), request)
        if result.version is None:
            return
        self.model.same_rows(result.version)
        if self.twin:
            catch_up(self.twin.path, result.version)
        self.compare(result)

    @rule(retain=st.integers(1, 12))
    def clean_up(self, retain):
        policy = CleanupPolicy(retain_versions=retain, error_if_tagged=False)
        result = cleanup_old_versions(Table(self.path), policy)
        branch = None if self.main is None else BRANCH
        kept = {tag.version for tag in tags_of(Table(self.path)) if tag.branch == branch}
        first = sorted(self.left())[-retain:][0]
        expected = {one for one in self.left() if one < first} - kept
        assert set(result.versions) == expected
        self.gone |= expected
        # From here on all versions are left.
        self.oldest = max(self.oldest, first)
        self.compare()

    def left(self):
        return set(range(1, self.model.version + 1)) - self.gone

    @rule(name=st.sampled_from(["one", "two"]), share=st.floats(0, 1))
    def tag(self, name, share):
        version = self.oldest + int(share * (self.model.version - self.oldest))
        set_tag(Table(self.path), name, VersionSpec(version=version), replaces=name in self.tags)
        self.tags[name] = version
        rows = read_ours(self.root, VersionSpec(tag=name))
        assert set(rows["_rowid"].to_pylist()) == set(self.model.history[version][1])
        assert lance.dataset(self.root).tags.list()[name]["version"] == version

    @precondition(lambda self: self.main is None and self.model.version > 3)
    @rule()
    def go_on_on_a_branch(self):
        """From here on all is written on a branch; the main line stays as it is."""
        create_branch(Table(self.root), BRANCH)
        self.path = Table(self.root, branch=BRANCH).uri
        self.main = self.model.version, read_ours(self.root)
        self.oldest = self.model.version
        self.gone = set(range(1, self.model.version))
        self.replica, self.read_upto = {}, BEGINNING
        self.compare()

    @precondition(lambda self: self.main is not None)
    @rule()
    def clean_up_the_main_line(self):
        """The branch needs files of the version that it was forked from."""
        policy = CleanupPolicy(retain_versions=1, error_if_tagged=False)
        cleanup_old_versions(Table(self.root), policy)
        version, rows = self.main
        assert lance.dataset(self.root).version == version
        assert read_ours(self.root).equals(rows)
        self.compare()

    @rule(share=st.floats(0, 1), by_pylance=st.booleans())
    def restore(self, share, by_pylance):
        version = self.oldest + int(share * (self.model.version - self.oldest))
        if version in self.unlike:
            version -= 1
        if version < self.oldest or version == self.model.version:
            return
        if by_pylance:
            lance.dataset(self.path, version=version).restore()
        else:
            restore_version(Table(self.path), VersionSpec(version=version))
        self.model.restore(version)
        if self.twin:
            self.twin.restore(version)
        self.compare()

    @rule(
        bounds=st.tuples(st.floats(0, 1), st.floats(0, 1)),
        mode=st.sampled_from(["dropCarryovers", "none", "netChanges"]),
    )
    def follow_changes(self, bounds, mode):
        first = self.oldest + (self.oldest > 1)
        if first > self.model.version:
            return
        start, end = sorted(first + int(bound * (self.model.version - first)) for bound in bounds)
        names = list(self.model.history[end][0])
        found = read_changes(self.path, start, end, mode)
        kept = ["_change_type", "_rowid"] + (["_commit_version"] if mode != "netChanges" else [])
        keys = zip(*(found[name].to_pylist() for name in kept), strict=True)
        values = zip(*(found[name].to_pylist() for name in names), strict=True)
        rows = [(*key, value) for key, value in zip(keys, values, strict=True)]
        assert sorted(rows, key=repr) == self.model.changes(start, end, mode)

    @rule(
        batches=st.lists(
            st.builds(StreamLimits, st.sampled_from([None, 1, 2]), st.sampled_from([None, 1, 4])),
            min_size=1, max_size=4,
        )
    )  # fmt: skip
    def follow_as_a_stream(self, batches):
        """Some batches more; it starts again if unread versions were cleaned up."""
        if not {self.read_upto.version, self.read_upto.target} - {None, 0, -1} <= self.left():
            self.replica, self.read_upto = {}, BEGINNING
        for limits in batches:
            newest = snapshots.Snapshot.open(Table(self.path))
            stream = TableStream.of(newest, StreamSettings(updates=Updates.SHOWN))
            end = stream.latest_offset(self.read_upto, limits)
            for row in read_batch(stream, self.read_upto, end):
                values = tuple(row[name] for name in COLUMNS)
                if row["_change_type"] in ("delete", "update_preimage"):
                    assert self.replica.pop(row["_rowid"]) == values
                else:
                    assert self.replica.setdefault(row["_rowid"], values) is values
            self.read_upto = end
            if end.target is None:
                _, rows = self.model.history[end.version]
                assert self.replica == {
                    row_id: tuple(row.values[name] for name in COLUMNS)
                    for row_id, row in rows.items()
                }

    @precondition(lambda self: self.model.version > 2)
    @rule()
    def reopen(self):
        snapshots._cache.clear()
        self.compare()

    # Comparing -------------------------------------------------------------------------------

    def rows_of(self, drawn, columns=None):
        """Rows with the values that were drawn, as dicts and as a table."""
        rows = []
        for key, n, s, extra in drawn:
            rows.append({UID: self.next_uid, "id": key, "n": n, "s": s, "x": extra, "y": n})
            self.next_uid += 1
        columns = self.model.columns if columns is None else columns
        rows = [{name: row[name] for name in columns} for row in rows]
        return rows, self.as_table(rows, columns)

    def as_table(self, rows, columns=None):
        schema = pa.schema(list((self.model.columns if columns is None else columns).items()))
        return pa.Table.from_pylist(rows, schema=schema)

    def replay_rows(self, before):
        """Let pylance make the difference to the rows that there were."""
        if self.twin is None or self.model.rows == before:
            return
        rows = self.model.rows
        gone = [row.values[UID] for row_id, row in before.items() if row_id not in rows]
        came = [row.values for row_id, row in rows.items() if before.get(row_id) != row]
        self.twin.change(
            self.as_table(came), gone, updates=any(row_id in before for row_id in rows)
        )

    def compare(self, result=None):
        """The newest version is what the model says, for us and for pylance."""
        if result is not None:
            assert result.version in (None, self.model.version)
        if self.twin and self.twin.version != self.model.version:
            self.level_versions()
        snapshot = check_invariants(self.path)
        assert snapshot.version == self.model.version
        assert snapshot.manifest.next_row_id == self.model.next_row_id
        manifests = Path(self.path, "_versions").glob("*.manifest")
        assert len(list(manifests)) == len(self.left())
        names = list(self.model.columns)
        schema = snapshot.schema.to_arrow()
        assert dict(zip(schema.names, schema.types, strict=True)) == self.model.columns
        ours = read_ours(self.path)
        assert rows_by(ours, "_rowid", [*names, *VERSIONS]) == {
            row_id: (*(row.values[name] for name in names), row.created, row.updated)
            for row_id, row in self.model.rows.items()
        }
        assert_same_rows(ours, read_pylance(self.path))
        if self.twin:
            self.compare_with_twin(ours)

    def level_versions(self):
        """Compaction is the one step whose versions pylance decides for each table."""
        highest = max(self.twin.version, self.model.version)
        catch_up(self.twin.path, highest)
        catch_up(self.path, highest)
        self.model.same_rows(highest)

    def compare_with_twin(self, ours):
        names = [name for name in self.model.columns if name != UID]
        theirs = read_pylance(self.twin.path)
        columns = [*names, *VERSIONS]
        assert rows_by(ours, UID, columns) == rows_by(theirs, UID, columns)
        ids = rows_by(theirs, UID, ["_rowid"])
        assert {one for (one,) in ids.values()} == set(self.model.rows)
        for uid, row_id in ids.items():
            # A merge of pylance's inserts rows in the order of its join; then they stay.
            assert self.twin_ids.setdefault(uid, row_id) == row_id
        twin = snapshots.Snapshot.open(Table(self.twin.path)).manifest
        assert twin.next_row_id == self.model.next_row_id


VERSIONS = ("_row_created_at_version", "_row_last_updated_at_version")


def rows_by(table, key, names):
    """Key -> the values of the other columns."""
    columns = (table[name].to_pylist() for name in names)
    found = dict(zip(table[key].to_pylist(), zip(*columns, strict=True), strict=True))
    assert len(found) == table.num_rows
    return found


def as_pylance_has_it(clauses, source):
    """The clauses for pylance's ``merge_insert``; None if it has no such merge.

    It updates all columns that the source has, so one that also inserts would need ours to give
    updated rows the number that distinguishes rows.
    """
    keys = [row["id"] for row in source if row["id"] is not None]
    kinds = [match for match, _, _, _ in clauses]
    if len(set(keys)) < len(keys) or len(set(kinds)) < len(kinds):
        return None
    if "matched" in kinds and "not matched" in kinds:
        return None
    # pylance 14.0.2 cannot delete both matched rows and those without a match ("a logical plan
    # pruning bug", it says).
    if ("matched", "delete") in {one[:2] for one in clauses} and "not matched by source" in kinds:
        return None
    plain = []
    for match, action, name, columns in clauses:
        condition = CLAUSE_CONDITIONS[name][2]
        if match == "matched" and action == "update" and columns == ALL:
            plain.append((match, action, condition))
        elif condition is None and (
            (match == "matched" and action == "delete")
            or (match == "not matched" and columns == ALL)
        ):
            plain.append((match, action, None))
        elif match == "not matched by source" and action == "delete":
            plain.append((match, action, condition and condition.replace("target.", "")))
        else:
            return None
    return plain


@pytest.mark.parametrize("part", range(PARTS))
def test_random_histories_equal_model_and_pylance(part):
    run_state_machine_as_test(
        seed(SEED * PARTS + part)(TableHistory),
        settings=settings(
            max_examples=-(-HISTORIES // PARTS),
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=False,  # which would make all parts the same
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
