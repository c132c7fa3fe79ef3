import pickle
import tracemalloc

import numpy as np
import pytest
from format.row_id_strategies import damaged, u64_arrays
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.u64_segment import choose_segment
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence as Versions
from pyspark_lance.proto import row_ids_pb2

versions_of_rows = st.lists(st.sampled_from([0, 1, 2, 3, 2**40, 2**64 - 1]), max_size=40).map(
    lambda values: np.array(values, dtype=np.uint64)
)


@given(values=versions_of_rows)
def test_version_sequence_round_trips(values):
    sequence = Versions.from_array(values)
    assert sequence == Versions.from_bytes(sequence.to_bytes())
    assert sequence == pickle.loads(pickle.dumps(sequence))
    assert sequence.to_array().tolist() == values.tolist()
    assert sequence.to_array().dtype == np.uint64
    assert len(sequence) == len(values)
    assert sequence.min_version == (values.min() if len(values) else None)
    assert sequence.max_version == (values.max() if len(values) else None)


@given(values=versions_of_rows, data=st.data())
def test_version_operations_equal_array_model(values, data):
    sequence, count = Versions.from_array(values), len(values)
    start = data.draw(st.integers(0, count))
    end = data.draw(st.integers(start, count))
    assert sequence.slice(start, end).to_array().tolist() == values[start:end].tolist()
    chosen = data.draw(st.lists(st.integers(0, count - 1), max_size=30)) if count else []
    offsets = np.array(chosen, dtype=np.uint32)
    assert sequence.take(offsets).tolist() == values[offsets].tolist()
    live = sequence.without(DeletionVector.of(offsets))
    assert live.to_array().tolist() == np.delete(values, offsets).tolist()
    version = data.draw(st.sampled_from([1, 2, 9]))
    replaced = values.copy()
    replaced[offsets] = version
    assert sequence.replace_at(offsets, version) == Versions.from_array(replaced)
    pieces = [sequence.slice(0, start), sequence.slice(start, end), sequence.slice(end, count)]
    assert Versions.concat(pieces) == sequence


def test_single_run_bytes_equal_reference_writer():
    encoded = bytes.fromhex("0a080a040a0210021001")
    assert Versions.constant(2, 1).to_bytes() == encoded
    assert Versions.from_bytes(encoded) == Versions(np.array([2]), np.array([1], np.uint64))


@given(spans=st.lists(st.tuples(u64_arrays(max_size=10), st.integers(0, 3)), max_size=6))
def test_run_length_is_number_of_span_values(spans):
    message = row_ids_pb2.RowDatasetVersionSequence()
    for ids, version in spans:
        message.runs.add(span=choose_segment(ids).to_proto(), version=version)
    expected = [version for ids, version in spans for _ in ids]
    sequence = Versions.from_bytes(message.SerializeToString())
    assert sequence.to_array().tolist() == expected
    assert sequence == Versions.from_array(expected)


@given(values=versions_of_rows, data=st.data())
def test_damaged_versions_are_corrupt_or_valid(values, data):
    broken = data.draw(damaged(Versions.from_array(values).to_bytes()))
    try:
        found = Versions.from_bytes(broken)
    except CorruptFileError:
        return
    if len(found) < 100_000:
        assert len(found.to_array()) == len(found)
    else:
        with pytest.raises(CorruptFileError):
            found.expect_length(len(values))


def test_wrong_lengths_are_corrupt():
    with pytest.raises(CorruptFileError, match="3 row versions for 4 physical rows"):
        Versions.constant(3, 1).expect_length(4)
    with pytest.raises(CorruptFileError):
        Versions.concat([Versions.constant(2**32, 1), Versions.constant(1, 2)])
    with pytest.raises(CorruptFileError, match="deleted offset 7"):
        Versions.from_array([1, 2]).without(DeletionVector.of([7]))


def test_rows_outside_version_sequence_are_refused():
    sequence = Versions.from_array([1, 2, 2])
    for call in (
        lambda: sequence.slice(0, 4),
        lambda: sequence.take([3]),
        lambda: sequence.take([-1]),
        lambda: sequence.replace_at([3], 9),
    ):
        with pytest.raises(InvalidInputError):
            call()


@pytest.mark.parametrize("count", [3, 40])
def test_runs_longer_than_fragment_are_corrupt(count):
    """Whether they are few, or so many that they are decoded together."""
    message = row_ids_pb2.RowDatasetVersionSequence()
    for number in range(count):
        run = message.runs.add(version=number)
        run.span.range.end = 2**31
    with pytest.raises(CorruptFileError, match="more than a fragment"):
        Versions.from_bytes(message.SerializeToString())
    with pytest.raises(CorruptFileError, match="more than a fragment"):
        Versions.concat([Versions.constant(2**31, number) for number in range(count)])
    with pytest.raises(CorruptFileError, match="more than a fragment"):
        Versions(np.array([2**32 + 1]), np.array([1], np.uint64))


def test_memory_of_many_runs_is_bounded():
    encoded = Versions.from_array(np.arange(100_000) % 2 + 1).to_bytes()
    tracemalloc.start()
    try:
        sequence = Versions.from_bytes(encoded)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        assert sequence.slice(50_000, 50_010).to_array().tolist() == [1, 2] * 5
        assert sequence.take([50_000, 50_001]).tolist() == [1, 2]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 20 * 100_000
    assert peak < held + 100_000
