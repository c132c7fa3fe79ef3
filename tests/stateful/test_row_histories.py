"""Random histories of a table against a dict of rows, with pylance looking at every version.

300 histories of 30 steps: ``pytest tests/stateful -m slow``; more with
``PYSPARK_LANCE_HISTORIES=2000``.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from reference_table import ReferenceTable
from table_access import assert_same_rows, read_ours, read_theirs, write_table
from table_invariants import check_invariants

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.table import snapshot as snapshots
from pyspark_lance.table.delete import delete_rows
from pyspark_lance.table.merge import SOURCE_PREFIX, Match, MergeClause, merge_rows, update_all
from pyspark_lance.table.row_change import RowAction
from pyspark_lance.table.update import update_rows

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("s", pa.string())])
COLUMNS = SCHEMA.names

KEYS = st.one_of(st.none(), st.integers(0, 12))
ROWS = st.lists(
    st.fixed_dictionaries(
        {"id": KEYS, "n": st.one_of(st.none(), st.integers(-5, 5)), "s": st.sampled_from("abc")}
    ),
    max_size=7,
)
SOME_ROWS = ROWS.filter(len)

# (for us, for the model); null is no match in both.
CONDITIONS = {
    "true": lambda row: True,
    "id = 3": lambda row: row["id"] == 3,
    "id IS NULL": lambda row: row["id"] is None,
    "id % 3 = 1": lambda row: row["id"] is not None and row["id"] % 3 == 1,
    "n > 0 OR s = 'a'": lambda row: (row["n"] is not None and row["n"] > 0) or row["s"] == "a",
    "NOT (n < 2)": lambda row: row["n"] is not None and row["n"] >= 2,
    "id > 100": lambda row: False,
}
# Conditions of clauses: over the joined table, and over two rows.
CLAUSE_CONDITIONS = {
    "always": (None, None),
    "source n > 0": (
        lambda t: pc.greater(t[SOURCE_PREFIX + "n"], 0),
        lambda old, new: new["n"] is not None and new["n"] > 0,
    ),
    "s differs": (
        lambda t: pc.not_equal(t["s"], t[SOURCE_PREFIX + "s"]),
        lambda old, new: None not in (old["s"], new["s"]) and old["s"] != new["s"],
    ),
    "target n < 0": (
        lambda t: pc.less(t["n"], 0),
        lambda old, new: old["n"] is not None and old["n"] < 0,
    ),
}
COLUMN_SETS = st.sampled_from([COLUMNS, ["id", "n"], ["s"], ["id", "s"]])


@st.composite
def clause_lists(draw):
    """Clauses in an order that check_clauses accepts, for us and for the model."""
    clauses = []
    for match, actions, conditions in (
        ("matched", ("update", "delete"), ("source n > 0", "s differs", "target n < 0")),
        ("not matched", ("insert",), ("source n > 0",)),
        ("not matched by source", ("delete",), ("target n < 0",)),
    ):
        count = draw(st.integers(0, 2))
        for number in range(count):
            name = draw(st.sampled_from(conditions))
            if number == count - 1 and draw(st.booleans()):
                name = "always"
            columns = tuple(draw(COLUMN_SETS))
            clauses.append((match, draw(st.sampled_from(actions)), name, columns))
    return clauses or [("matched", "update", "always", tuple(COLUMNS))]


def as_table(rows):
    return pa.Table.from_pylist(rows, schema=SCHEMA)


class TableHistory(RuleBasedStateMachine):
    """One table on disk and one in a dict."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="pyspark-lance-history-")
        self.path = self.folder + "/t"
        self.model = ReferenceTable()

    def teardown(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    @initialize(rows=ROWS, per_file=st.sampled_from([2, 3, 100]))
    def create(self, rows, per_file):
        write_table(self.path, as_table(rows), max_rows_per_file=per_file)
        self.model.append(rows)
        self.compare()

    @rule(rows=ROWS, per_file=st.sampled_from([2, 100]))
    def append(self, rows, per_file):
        result = write_table(self.path, as_table(rows), max_rows_per_file=per_file)
        assert (result is not None) == bool(rows)
        self.model.append(rows)
        self.compare()

    @rule(rows=ROWS)
    def overwrite(self, rows):
        write_table(self.path, as_table(rows), overwrite=True)
        self.model.overwrite(rows)
        self.compare()

    @rule(condition=st.sampled_from(list(CONDITIONS)))
    def delete(self, condition):
        result = delete_rows(self.path, condition)
        assert result.num_deleted_rows == self.model.delete(CONDITIONS[condition])
        self.compare(result)

    @rule(condition=st.sampled_from(list(CONDITIONS)), to=st.integers(-9, 9))
    def update(self, condition, to):
        def values(batch):
            return {
                "n": pa.array([to] * batch.num_rows, pa.int32()),
                "s": pc.if_else(pc.fill_null(pc.equal(batch["s"], "a"), False), "b", "a"),
            }

        def change(row):
            return {"n": to, "s": "b" if row["s"] == "a" else "a"}

        result = update_rows(self.path, condition, ["n", "s"], values)
        assert result.num_updated_rows == self.model.update(CONDITIONS[condition], change)
        self.compare(result)

    @rule(source=SOME_ROWS, clauses=clause_lists())
    def merge(self, source, clauses):
        ours = [
            MergeClause(
                Match[match.upper().replace(" ", "_")],
                RowAction[action.upper()],
                CLAUSE_CONDITIONS[name][0],
                update_all(columns) if action != "delete" else {},
            )
            for match, action, name, columns in clauses
        ]
        theirs = [(m, a, CLAUSE_CONDITIONS[name][1], columns) for m, a, name, columns in clauses]
        expected = self.model.merge(source, "id", theirs)
        if expected == "ambiguous":
            with pytest.raises(InvalidInputError, match="more than one source row"):
                merge_rows(self.path, as_table(source), ["id"], ours)
            self.compare()
            return
        result = merge_rows(self.path, as_table(source), ["id"], ours)
        counts = (result.num_inserted_rows, result.num_updated_rows, result.num_deleted_rows)
        assert counts == expected
        self.compare(result)

    @rule(size=st.sampled_from([3, 1000]))
    def compact_by_pylance(self, size):
        dataset = lance.dataset(self.path, session=lance.Session())
        dataset.optimize.compact_files(
            target_rows_per_fragment=size, materialize_deletions_threshold=0.0
        )
        self.model.same_rows(lance.dataset(self.path).version)
        self.compare()

    @rule(share=st.floats(0, 1))
    def restore_by_pylance(self, share):
        version = 1 + int(share * (self.model.version - 1))
        lance.dataset(self.path, version=version).restore()
        self.model.restore(version)
        self.compare()

    @precondition(lambda self: self.model.version > 2)
    @rule()
    def reopen(self):
        snapshots._cache.clear()
        self.compare()

    def compare(self, result=None):
        """The newest version is what the model says, for us and for pylance."""
        if result is not None and result.version is not None:
            assert result.version == self.model.version
        snapshot = check_invariants(self.path)
        assert snapshot.version == self.model.version
        assert snapshot.manifest.next_row_id == self.model.next_row_id
        ours = read_ours(self.path)
        found = {
            row["_rowid"]: (
                *(row[name] for name in COLUMNS),
                row["_row_created_at_version"],
                row["_row_last_updated_at_version"],
            )
            for row in ours.to_pylist()
        }
        assert found == {
            row_id: (*(row.values[name] for name in COLUMNS), row.created, row.updated)
            for row_id, row in self.model.rows.items()
        }
        assert_same_rows(ours, read_theirs(self.path))


def run(histories, steps):
    run_state_machine_as_test(
        TableHistory,
        settings=settings(
            max_examples=histories,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_some_histories_are_those_of_the_model():
    run(25, 12)


@pytest.mark.slow
def test_many_long_histories_are_those_of_the_model():
    run(int(os.environ.get("PYSPARK_LANCE_HISTORIES", "300")), 30)
