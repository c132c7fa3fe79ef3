"""Row ids and versions of new fragments, against a model that loops over rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from commit_tables import new_fragment
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.commit.assign_lineage import (
    assign_lineage,
    find_created_at,
    mark_all_updated,
    mark_updated,
)
from pyspark_lance.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.fragment import SPILLED, ExternalFile
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence


def versions(data):
    return RowDatasetVersionSequence.from_bytes(data).to_array().tolist()


@st.composite
def tables(draw):
    """Fragments whose row ids overlap as they do after updates: any shape, any order."""
    fragments = []
    for number in range(draw(st.integers(1, 5))):
        shape = draw(st.sampled_from(["range", "sparse", "shuffled", "two"]))
        start = draw(st.integers(0, 60)) + draw(st.sampled_from([0, 0, 2**33]))
        if shape == "range":
            sequence = RowIdSequence.consecutive(start, draw(st.integers(1, 30)))
        else:
            ids = draw(st.lists(st.integers(0, 90), min_size=1, max_size=20, unique=True))
            ids = [value + start for value in (ids if shape == "shuffled" else sorted(ids))]
            sequence = RowIdSequence.from_array(ids)
            if shape == "two":
                more = RowIdSequence.consecutive(ids[-1] + 200, 5)
                sequence = RowIdSequence.concat([sequence, more])
        rows = len(sequence)
        created = draw(
            st.one_of(st.none(), st.lists(st.integers(1, 9), min_size=rows, max_size=rows))
        )
        fragment = replace(new_fragment(rows, id=number), row_ids=sequence.to_bytes())
        if created is not None:
            created_at = RowDatasetVersionSequence.from_array(created).to_bytes()
            fragment = replace(fragment, created_at=created_at)
        fragments.append(fragment)
    return fragments


def model_of_created_at(fragments):
    """Row id to version: the first fragment wins, absent metadata read as 1."""
    found = {}
    for fragment in fragments:
        ids = RowIdSequence.from_bytes(fragment.row_ids).to_array().tolist()
        created = versions(fragment.created_at) if fragment.created_at else [1] * len(ids)
        for row_id, version in zip(ids, created, strict=True):
            found.setdefault(row_id, version)
    return found


def test_found_rows_need_no_more_fragments():
    """Each of them would be decoded."""

    def sources():
        yield replace(new_fragment(4), row_ids=RowIdSequence.consecutive(0, 4).to_bytes())
        raise AssertionError("all rows were found")

    assert find_created_at(np.array([1, 3], np.uint64), sources(), 7).tolist() == [1, 1]
    assert find_created_at(np.array([], np.uint64), sources(), 7).tolist() == []


@given(tables(), st.data())
def test_created_at_matches_model(fragments, data):
    model = model_of_created_at(fragments)
    known = st.sampled_from(sorted(model))
    wanted = data.draw(st.lists(known | st.integers(0, 400), max_size=30, unique=True))
    found = find_created_at(np.array(wanted, np.uint64), fragments, 77)
    assert found.tolist() == [model.get(row_id, 77) for row_id in wanted]


@given(tables(), st.integers(0, 6), st.data())
def test_assign_lineage_keeps_ids_of_moved_rows(fragments, num_new, data):
    model = model_of_created_at(fragments)
    moved = data.draw(st.lists(st.sampled_from(sorted(model)), max_size=10, unique=True))
    rows = len(moved) + num_new
    if not rows:
        return
    fragment = new_fragment(rows, row_ids=moved or None)
    done, after = assign_lineage(fragment, next_row_id=2**34, version=50, sources=fragments)
    expected = [*moved, *range(2**34, 2**34 + num_new)]
    assert RowIdSequence.from_bytes(done.row_ids).to_array().tolist() == expected
    assert versions(done.created_at) == [model[row_id] for row_id in moved] + [50] * num_new
    assert versions(done.last_updated_at) == [50] * rows
    assert after == 2**34 + num_new


def test_last_updated_changes_only_at_offsets():
    fragment = new_fragment(5)
    assert versions(mark_all_updated(fragment, 4).last_updated_at) == [4] * 5
    assert versions(mark_updated(fragment, np.array([1, 3], np.uint32), 4).last_updated_at) == [
        1, 4, 1, 4, 1,
    ]  # fmt: skip
    assert mark_updated(fragment, np.array([], np.uint32), 4) is fragment
    with pytest.raises(InvalidInputError, match="row offset 5 of 5 rows"):
        mark_updated(fragment, np.array([5], np.uint32), 4)


def test_sequences_of_wrong_length_are_corrupt():
    short = RowIdSequence.consecutive(0, 3).to_bytes()
    with pytest.raises(CorruptFileError):
        find_created_at(np.array([1], np.uint64), [replace(new_fragment(4), row_ids=short)], 1)
    wrong = RowDatasetVersionSequence.constant(3, 1).to_bytes()
    ids = RowIdSequence.consecutive(0, 4).to_bytes()
    fragment = replace(new_fragment(4), row_ids=ids, created_at=wrong, last_updated_at=wrong)
    with pytest.raises(CorruptFileError):
        find_created_at(np.array([1], np.uint64), [fragment], 1)
    with pytest.raises(CorruptFileError):
        mark_updated(fragment, np.array([0], np.uint32), 2)


@pytest.mark.parametrize("source", [SPILLED, ExternalFile("x", 0, 4)])
def test_external_sequences_are_refused_with_fragment_id(source):
    fragment = replace(new_fragment(4, id=6), row_ids=source)
    with pytest.raises(UnsupportedFeatureError, match="fragment 6"):
        find_created_at(np.array([1], np.uint64), [fragment], 1)
