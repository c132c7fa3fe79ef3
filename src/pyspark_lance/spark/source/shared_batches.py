"""Batches for the JVM plugin by way of memory that both processes map.

Spark's own way copies a batch four times and makes rows of it. The plugin takes batches as they
are: each is written once, as an Arrow stream, to an anonymous file in memory, which the plugin
opens by way of ``/proc`` and maps. What goes through Spark is one row for each batch, which says
where it is. The plugin gives a file back, over a pipe, when it is done with the batch. Such a
file has no name, so it is gone with the two processes, however they end.

Where that does not work (no Linux, ``/proc`` out of reach) the batch itself goes into the row.
"""

from __future__ import annotations

import json
import mmap
import os
import select
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.plain_values import plain_array, single_value
from pyspark_lance.spark.options import internal_keys as keys

_SHARED, _COPIED = "shared", "copied"

# The Java class BatchReader reads these rows.
_MESSAGES = pa.schema(
    [
        ("acknowledge", pa.string()),
        ("memory", pa.string()),
        ("length", pa.int64()),
        ("bytes", pa.binary()),
    ]
)
# One that Spark works on, one that is ready, one that is being written.
_FILES = 3
_PAGE = 4096
_TOKEN_BYTES = 16
# What the plugin answers when it sees the token.
_SEEN = 0xFF
_IMPATIENCE_MS = 1000
# What is larger goes in pieces: the JVM maps at most 2 GiB at once.
_MAX_BYTES = 1 << 30


def columns_of_batches(options: Mapping[str, str]) -> StructType:
    """The columns that the batches have."""
    return StructType.fromJson(json.loads(options[keys.BATCHES_OF]))


def transfer_mode(options: Mapping[str, str]) -> str:
    """How the user wants batches: by shared memory, or copied."""
    way = options.get(keys.WAY, _SHARED)
    if way not in (_SHARED, _COPIED):
        raise InvalidInputError(
            f"spark.sql.lance.columnar is {way!r}", hint="it is shared, copied or off"
        )
    return way


class SharedBatchReader(DataSourceReader):
    """Gives what another reader reads to the plugin."""

    def __init__(self, reader: DataSourceReader, options: Mapping[str, str]) -> None:
        self._reader = reader
        self._is_shared = transfer_mode(options) == _SHARED and hasattr(os, "memfd_create")

    def partitions(self) -> Sequence[InputPartition]:
        """Those of the other reader."""
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One row of ``_MESSAGES`` for each batch, and some more."""
        batches = _in_pieces(self._reader.read(partition))
        hand_over = _HandOver.started() if self._is_shared else None
        if hand_over is None:
            yield from (_inline(batch) for batch in batches)
            return
        try:
            yield hand_over.handshake()
            for batch in batches:
                yield from hand_over.messages(batch)
                if hand_over.is_refused:
                    return
            yield from hand_over.wait_until_free(every=True)
        finally:
            hand_over.close()


def _in_pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        pieces = min(batch.num_rows, batch.nbytes // _MAX_BYTES + 1)
        rows = -(-batch.num_rows // max(1, pieces))
        for first in range(0, batch.num_rows, max(1, rows)):
            yield batch.slice(first, rows)


def _message(
    acknowledge: str | None = None,
    memory: str | None = None,
    length: int = 0,
    content: bytes | pa.Buffer = b"",
) -> pa.RecordBatch:
    texts = [None if text is None else text.encode() for text in (acknowledge, memory)]
    arrays = [
        *(single_value(text, pa.string()) for text in texts),
        plain_array(np.array([length])),
        single_value(content, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_MESSAGES)


def stream_of(batch: pa.RecordBatch) -> pa.Buffer:
    """An Arrow stream of one batch, as the plugin reads it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue()


def _inline(batch: pa.RecordBatch) -> pa.RecordBatch:
    content = stream_of(batch)
    return _message(length=content.size, content=content)


class _MemoryFile:
    """An anonymous file in memory, written through a map."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("lance-batch", os.MFD_CLOEXEC)
        self._map: mmap.mmap | None = None
        self._size = 0
        self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def write(self, content: bytes) -> None:
        self._grow(len(content))
        assert self._map is not None
        self._map[: len(content)] = content

    def write_batch(self, batch: pa.RecordBatch) -> int:
        """Writes an Arrow stream of one batch; returns its length in bytes."""
        self._grow(_stream_bytes(batch))
        with pa.FixedSizeBufferWriter(pa.py_buffer(self._map)) as sink:
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            return sink.tell()

    def _grow(self, size: int) -> None:
        if size > self._size:
            # Some room, so that batches of about one size seldom need another map.
            self._size = -(-size * 5 // 4 // _PAGE) * _PAGE
            os.ftruncate(self._descriptor, self._size)
            self._map = mmap.mmap(self._descriptor, self._size)

    def close(self) -> None:
        os.close(self._descriptor)


def _stream_bytes(batch: pa.RecordBatch) -> int:
    """At least the bytes of an Arrow stream of one batch."""
    sizes = [pa.ipc.get_record_batch_size(batch), batch.schema.serialize().size, _PAGE]
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            items = pa.RecordBatch.from_arrays([column.dictionary], ["items"])
            sizes += [pa.ipc.get_record_batch_size(items), _PAGE]
    return sum(sizes)


class _HandOver:
    """Files for batches, and the pipe on which they come back."""

    def __init__(self) -> None:
        self._files = [_MemoryFile()]
        self._free = [0]
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._reading, select.POLLIN | select.POLLHUP)
        self._is_seen = False
        self.is_refused = False
        # Spark collects this many bytes before it sends them; see ``_flushing``.
        self._filler = bytes(int(os.environ.get("SPARK_BUFFER_SIZE", 65536)) + 8)

    @classmethod
    def started(cls) -> _HandOver | None:
        """None where a process may have no such files."""
        try:
            return cls()
        except OSError:
            return None

    def handshake(self) -> pa.RecordBatch:
        """Tells the plugin where the pipe is, and lets it show that it can map files."""
        token = os.urandom(_TOKEN_BYTES)
        self._files[0].write(token)
        # Not the length of a batch: the token comes in the row and, to compare, in the file.
        channel = f"/proc/{os.getpid()}/fd/{self._writing}"
        return _message(channel, self._files[0].path, _TOKEN_BYTES, token + self._filler)

    def messages(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """What tells the plugin of one batch, with signs of life while all files are in use."""
        self._rollback(0)
        if not self._is_seen:
            yield _inline(batch)
            return
        if not self._free and len(self._files) < _FILES:
            self._files.append(_MemoryFile())
            self._free.append(len(self._files) - 1)
        yield from self.wait_until_free()
        if self.is_refused:
            return
        index = self._free.pop()
        memory = self._files[index]
        length = memory.write_batch(batch)
        yield _message(f"{index}", memory.path, length, self._filler)

    def wait_until_free(self, *, every: bool = False) -> Iterator[pa.RecordBatch]:
        """Signs of life until the plugin gave back a file, or all: it opens them by path."""
        enough = len(self._files) if every else 1
        while len(self._free) < enough and not self.is_refused:
            if not self._rollback(_IMPATIENCE_MS):
                yield _message(content=self._filler)

    def _rollback(self, wait_ms: int) -> bool:
        """Receives the numbers of files that the plugin is done with; whether there were any."""
        if not self._poll.poll(wait_ms):
            return False
        answers = os.read(self._reading, 64)
        if not answers:  # the task has ended
            self.is_refused = True
        for answer in answers:
            if answer == _SEEN:
                # From now on the pipe ends when the plugin closes it.
                os.close(self._writing)
                self._is_seen = True
            else:
                self._free.append(answer)
        return True

    def close(self) -> None:
        os.close(self._reading)
        if not self._is_seen:
            os.close(self._writing)
        for memory in self._files:
            memory.close()
