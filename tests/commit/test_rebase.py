"""Rebasing against a model of rows: which deletes rebase, and what is deleted afterwards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from commit_tables import SCHEMA, new_fragment
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_lance.commit.rebase import Rebased, RowConflict, rebase
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType, DeletionVector
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.operation import Delete, Update

ROWS = 6
FRAGMENTS = [replace(new_fragment(ROWS), id=number) for number in range(3)]


class Files:
    """Deletion vectors by the id of their file."""

    def __init__(self):
        self.vectors = {}

    def write(self, fragment_id, vector):
        number = len(self.vectors) + 1
        self.vectors[number] = vector
        return DeletionFile(DeletionFileType.BITMAP, 1, number, len(vector), None)

    def load(self, fragment):
        if fragment.deletion_file is None:
            return DeletionVector.empty()
        return self.vectors[fragment.deletion_file.id]


def vector(offsets):
    return DeletionVector.of(np.array(sorted(offsets), np.uint32))


def fragments_without(files, deleted):
    """The fragments after ``deleted`` went; those without a row left are gone."""
    return [
        replace(
            f, deletion_file=files.write(f.id, vector(deleted[f.id])) if deleted[f.id] else None
        )
        for f in FRAGMENTS
        if len(deleted[f.id]) < ROWS
    ]


rows = st.dictionaries(st.integers(0, 2), st.sets(st.integers(0, ROWS - 1)), max_size=3)


@given(rows, rows, st.booleans())
@example({0: {1}, 2: {4}}, {0: {2}, 1: {3}}, False)
@example({0: {1}, 2: {4}}, {0: {2}, 1: {3}}, True)
@example({0: {0, 1, 2, 3, 4}}, {0: {5}}, True)
@example({0: {1}}, {0: {1, 2}}, False)
def test_rebase_merges_distinct_rows_and_refuses_shared_rows(theirs, ours, as_update):
    files = Files()
    theirs = {number: theirs.get(number, set()) for number in range(3)}
    ours = {number: offsets for number, offsets in ours.items() if 0 < len(offsets) < ROWS}
    current = Manifest(2, SCHEMA, tuple(fragments_without(files, theirs)), max_fragment_id=2)
    updated = tuple(
        replace(FRAGMENTS[number], deletion_file=files.write(number, vector(offsets)))
        for number, offsets in ours.items()
    )
    operation = Update(updated_fragments=updated) if as_update else Delete(updated)
    common = {number for number in ours if theirs[number]}
    written = len(files.vectors)
    result = rebase(
        operation,
        {number: np.array(sorted(offsets), np.uint32) for number, offsets in ours.items()},
        common,
        current,
        load_deletions=files.load,
        write_deletions=files.write,
    )
    if any(ours[number] & theirs[number] or len(theirs[number]) == ROWS for number in common):
        assert isinstance(result, RowConflict)
        assert len(files.vectors) == written
        return
    assert isinstance(result, Rebased)
    moved = result.operation
    removed = moved.removed_fragment_ids if as_update else moved.deleted_fragment_ids
    after = {f.id: set(files.load(f).to_array().tolist()) for f in moved.updated_fragments}
    after.update({number: set(range(ROWS)) for number in removed})
    assert after == {number: ours[number] | theirs[number] for number in ours}
    assert len(files.vectors) == written + len(common - set(removed))
    for fragment in moved.updated_fragments:
        assert fragment.num_deleted_rows == len(after[fragment.id])


def rebased(files, now):
    """A delete of one row of the first fragment, which is ``now``."""
    mine = replace(FRAGMENTS[0], deletion_file=files.write(0, vector({1})))
    return rebase(
        Delete((mine,)),
        {0: np.array([1], np.uint32)},
        {0},
        Manifest(2, SCHEMA, (now,), max_fragment_id=2),
        load_deletions=files.load,
        write_deletions=files.write,
    )


def test_rebase_keeps_concurrent_fragment_metadata():
    now = replace(FRAGMENTS[0], last_updated_at=b"later")
    (fragment,) = rebased(Files(), now).operation.updated_fragments
    assert replace(fragment, deletion_file=None) == now


def test_fragment_with_other_files_is_not_rebased():
    other = replace(FRAGMENTS[0], files=new_fragment(ROWS).files)
    result = rebased(Files(), other)
    assert isinstance(result, RowConflict)
    assert "data files" in result.reason
