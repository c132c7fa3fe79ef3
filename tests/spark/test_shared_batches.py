"""Batches by way of shared memory: what the Python side says, and when it stops."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceReader

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.source.shared_batches import SharedBatchReader

SEEN = b"\xff"


class Batches(DataSourceReader):
    """Yields the given batches and counts those that were asked for."""

    def __init__(self, batches):
        self.batches = batches
        self.asked = 0

    def partitions(self):
        return []

    def read(self, partition):
        for batch in self.batches:
            self.asked += 1
            yield batch


def rows(first, count):
    return pa.record_batch(
        {"id": range(first, first + count), "s": [f"row {i}" * (i % 3) for i in range(count)]}
    )


def content(message):
    """The batch that a message describes, and the number of its file."""
    row = message.to_pylist()[0]
    if row["memory"] is None:
        return pa.ipc.open_stream(row["bytes"][: row["length"]]).read_next_batch(), None
    with open(row["memory"], "rb") as memory:
        stream = memory.read(row["length"])
    return pa.ipc.open_stream(stream).read_next_batch(), int(row["acknowledge"])


def greeted(batches, **options):
    reader = Batches(batches)
    messages = SharedBatchReader(reader, "shared").read(None)
    handshake = next(messages).to_pylist()[0]
    return reader, messages, handshake


def test_shared_files_are_reused_after_acknowledgement():
    batches = [rows(i * 1000, 1000 + 100 * i) for i in range(10)]
    _, messages, handshake = greeted(batches)
    with open(handshake["memory"], "rb") as memory:
        assert memory.read(16) == handshake["bytes"][:16]
    files = set()
    with open(handshake["acknowledge"], "wb", buffering=0) as pipe:
        pipe.write(SEEN)
        for batch in batches:
            given, number = content(next(messages))
            assert given.equals(batch)
            files.add(number)
            pipe.write(bytes([number]))
        assert next(messages, None) is None
    assert files <= {0, 1, 2}


def test_dictionaries_may_change_between_batches():
    def repeated(count, items):
        texts = pa.array([f"a longer text, number {n}" for n in range(items)])
        indices = pa.array([None if n % 7 == 3 else n % items for n in range(count)], pa.uint16())
        return pa.DictionaryArray.from_arrays(indices, texts)

    batches = [
        pa.record_batch({f"c{n}": repeated(rows, 4000 // (n + 1)) for n in range(columns)})
        for rows, columns in ((10, 40), (5000, 3), (70_000, 1), (0, 2), (1, 1))
    ]
    batches += [rows(0, 10), batches[1].slice(100, 3000)]
    _, messages, handshake = greeted(batches)
    with open(handshake["acknowledge"], "wb", buffering=0) as pipe:
        pipe.write(SEEN)
        for batch in batches:
            if not batch.num_rows:
                continue
            given, number = content(next(messages))
            assert given.schema == batch.schema
            assert given.to_pylist() == batch.to_pylist()
            pipe.write(bytes([number]))
        assert next(messages, None) is None


def test_at_most_three_files_wait_for_slow_reader():
    reader, messages, handshake = greeted([rows(0, 10)] * 5)
    with open(handshake["acknowledge"], "wb", buffering=0) as pipe:
        pipe.write(SEEN)
        numbers = [content(next(messages))[1] for _ in range(3)]
        assert sorted(numbers) == [0, 1, 2]
        alive = next(messages).to_pylist()[0]  # a sign of life, which a dead socket would refuse
        assert alive["length"] == 0 and reader.asked == 4
        pipe.write(bytes([numbers[1]]))
        assert content(next(messages))[1] == numbers[1]
        messages.close()


def test_departed_reader_ends_scan():
    reader, messages, handshake = greeted([rows(0, 10)] * 9)
    with open(handshake["acknowledge"], "wb", buffering=0) as pipe:
        pipe.write(SEEN)
        next(messages)
    assert len(list(messages)) <= 2
    assert reader.asked < 9


def test_batches_are_inline_until_memory_is_acknowledged():
    before = len(os.listdir("/proc/self/fd"))
    batches = [rows(i, 3) for i in range(5)]
    _, messages, _ = greeted(batches)
    assert [content(message)[0] for message in messages] == batches
    assert len(os.listdir("/proc/self/fd")) <= before


def test_copied_mode_sends_inline_and_skips_empty_batches():
    batches = [rows(0, 3), rows(0, 0), rows(3, 4)]
    reader = SharedBatchReader(Batches(batches), "copied")
    given = [content(message)[0] for message in reader.read(None)]
    assert given == [batches[0], batches[2]]


def test_unknown_transfer_mode_is_refused():
    with pytest.raises(InvalidInputError, match="it is shared, copied or off"):
        SharedBatchReader(Batches([]), "by post")
