"""Transfer of Arrow batches to the JVM plugin through shared memory.

Spark's protocol copies a batch four times and converts it to rows. The plugin reads batches
directly: each is written once, as an Arrow stream, to an anonymous memory file, which the plugin
opens through ``/proc`` and maps. Spark only transfers one row per batch, with the path and the
length. The plugin releases a file over a pipe when it has read the batch. An anonymous file is
freed with the two processes, even if they crash.

Without shared memory (not Linux, no access to ``/proc``) the row contains the batch itself.
"""

from __future__ import annotations

import mmap
import os
import select
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.plain_values import plain_array, single_value

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
# One that Spark reads, one that is ready, one that is being written.
_FILES = 3
_PAGE = 4096
_TOKEN_BYTES = 16
# The plugin's response to the token of the handshake.
_SEEN = 0xFF
_KEEP_ALIVE_MS = 1000
# Larger batches are sliced: the JVM maps at most 2 GiB at once.
_MAX_BYTES = 1 << 30


def check_transfer_mode(mode: str) -> str:
    """Return the transfer mode that the user chose, if it is ``shared`` or ``copied``."""
    if mode not in (_SHARED, _COPIED):
        raise InvalidInputError(
            f"spark.sql.lance.columnar is {mode!r}", hint="it is shared, copied or off"
        )
    return mode


class SharedBatchReader(DataSourceReader):
    """Reader that transfers the batches of another reader to the plugin.

    ``mode``: ``shared`` or ``copied``.
    """

    def __init__(self, reader: DataSourceReader, mode: str) -> None:
        self._reader = reader
        self._is_shared = check_transfer_mode(mode) == _SHARED and hasattr(os, "memfd_create")

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions of the other reader."""
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return one row of ``_MESSAGES`` for each batch, and rows of the handshake."""
        batches = _in_pieces(self._reader.read(partition))
        channel = _SharedMemoryChannel.started() if self._is_shared else None
        if channel is None:
            yield from (_inline(batch) for batch in batches)
            return
        try:
            yield channel.handshake()
            for batch in batches:
                yield from channel.messages(batch)
                if channel.is_refused:
                    return
            yield from channel.wait_until_free(every=True)
        finally:
            channel.close()


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
    """Serialize one batch as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue()


def _inline(batch: pa.RecordBatch) -> pa.RecordBatch:
    content = stream_of(batch)
    return _message(length=content.size, content=content)


class _MemoryFile:
    """An anonymous memory file, written through a memory map."""

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
        """Write an Arrow stream of one batch and return its length in bytes."""
        self._grow(_stream_bytes(batch))
        with pa.FixedSizeBufferWriter(pa.py_buffer(self._map)) as sink:
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            return sink.tell()

    def _grow(self, size: int) -> None:
        if size > self._size:
            # Spare room, so that batches of similar size seldom need a new map.
            self._size = -(-size * 5 // 4 // _PAGE) * _PAGE
            os.ftruncate(self._descriptor, self._size)
            self._map = mmap.mmap(self._descriptor, self._size)

    def close(self) -> None:
        os.close(self._descriptor)


def _stream_bytes(batch: pa.RecordBatch) -> int:
    """Return an upper bound of the bytes of an Arrow stream of one batch."""
    sizes = [pa.ipc.get_record_batch_size(batch), batch.schema.serialize().size, _PAGE]
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            items = pa.RecordBatch.from_arrays([column.dictionary], ["items"])
            sizes += [pa.ipc.get_record_batch_size(items), _PAGE]
    return sum(sizes)


class _SharedMemoryChannel:
    """Memory files for batches, and the pipe on which the plugin releases them."""

    def __init__(self) -> None:
        self._files = [_MemoryFile()]
        self._free = [0]
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._reading, select.POLLIN | select.POLLHUP)
        self._is_seen = False
        self.is_refused = False
        # Spark buffers this many bytes before it sends them; see ``_flushing``.
        self._filler = bytes(int(os.environ.get("SPARK_BUFFER_SIZE", 65536)) + 8)

    @classmethod
    def started(cls) -> _SharedMemoryChannel | None:
        """Open a channel; None if the platform has no anonymous memory files."""
        try:
            return cls()
        except OSError:
            return None

    def handshake(self) -> pa.RecordBatch:
        """Return the row that sends the plugin the pipe, and a token in a file for it to map."""
        token = os.urandom(_TOKEN_BYTES)
        self._files[0].write(token)
        # The plugin compares the token in the row with the token in the file.
        channel = f"/proc/{os.getpid()}/fd/{self._writing}"
        return _message(channel, self._files[0].path, _TOKEN_BYTES, token + self._filler)

    def messages(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Return the row of one batch, after keep-alive rows while all files are in use."""
        self._receive_released(0)
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
        """Return keep-alive rows until the plugin has released a file, or all of them."""
        needed = len(self._files) if every else 1
        while len(self._free) < needed and not self.is_refused:
            if not self._receive_released(_KEEP_ALIVE_MS):
                yield _message(content=self._filler)

    def _receive_released(self, wait_ms: int) -> bool:
        """Receive the numbers of released files; return whether there were any."""
        if not self._poll.poll(wait_ms):
            return False
        released = os.read(self._reading, 64)
        if not released:  # the task has ended
            self.is_refused = True
        for number in released:
            if number == _SEEN:
                # From now on the pipe reports its end when the plugin closes it.
                os.close(self._writing)
                self._is_seen = True
            else:
                self._free.append(number)
        return True

    def close(self) -> None:
        os.close(self._reading)
        if not self._is_seen:
            os.close(self._writing)
        for memory in self._files:
            memory.close()
