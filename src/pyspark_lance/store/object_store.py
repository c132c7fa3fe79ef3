"""ObjectStore: the storage interface of the package, and the byte ranges of its requests.

Objects are named by paths relative to the store's root: ``/``-separated, never starting with a
slash, never containing ``..``. Objects appear whole or not at all. Stores are independent of Lance.

Errors are the same for every store: a missing object is a ``FileNotFoundError``, an object shorter
than requested is a ``CorruptFileError``, and every other failure is a ``StorageError`` with its
cause chained. No message contains a secret.
"""

from __future__ import annotations

import bisect
import errno
import uuid
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from pyspark_lance.errors import CorruptFileError, InvalidInputError, StorageError


class ByteRange(NamedTuple):
    """Bytes ``start`` (inclusive) to ``end`` (exclusive) of one object; ordered by start.

    A named tuple rather than a dataclass, because plans over many pages create many of them.
    """

    start: int
    end: int

    @property
    def num_bytes(self) -> int:
        """Return the number of bytes in the range."""
        return self.end - self.start


def merge_ranges(
    wanted: Iterable[ByteRange], *, max_gap: int, max_bytes: int | None = None
) -> tuple[ByteRange, ...]:
    """Return requests that cover every range in ``wanted``, in ascending order.

    Two ranges share a request when at most ``max_gap`` bytes are between them: reading the gap is
    cheaper than a second round trip.

    ``wanted``: ranges in any order; they may overlap, repeat or be empty. ``max_gap``: maximum
    number of unneeded bytes between two ranges. ``max_bytes``: maximum length of a merged request,
    so that a long run of ranges is still fetched concurrently. A single longer range stays whole,
    and ranges that overlap are always merged.
    """
    requests: list[ByteRange] = []
    for piece in sorted(wanted):
        if requests:
            last = requests[-1]
            merged = ByteRange(last.start, max(last.end, piece.end))
            overlaps = piece.start < last.end
            fits = max_bytes is None or merged.num_bytes <= max_bytes
            if overlaps or (fits and piece.start - last.end <= max_gap):
                requests[-1] = merged
                continue
        requests.append(piece)
    return tuple(requests)


def cut_ranges(
    wanted: Sequence[ByteRange],
    requests: Sequence[ByteRange],
    responses: Sequence[bytes | memoryview],
) -> list[memoryview]:
    """Return the bytes of each requested range, as views of the responses to the merged requests.

    ``wanted``: the ranges given to ``merge_ranges``, in the order of the result; ``requests``: the
    result of ``merge_ranges``; ``responses``: exactly ``requests[i].num_bytes`` bytes for each
    request.
    """
    starts = [request.start for request in requests]
    views = [memoryview(answer) for answer in responses]
    pieces = []
    for piece in wanted:
        # An empty range may be at the end of an earlier request; any request will do.
        index = max(bisect.bisect_right(starts, piece.start) - 1, 0)
        origin = starts[index]
        pieces.append(views[index][piece.start - origin : piece.end - origin])
    return pieces


Buffer: TypeAlias = bytes | memoryview
"""Read-only contiguous bytes, accepted by ``np.frombuffer`` and ``pa.py_buffer``."""

Content: TypeAlias = Buffer | Sequence[Buffer]
"""Bytes of an object, perhaps in pieces, which may be too large to be copied."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Attributes of an object in a listing."""

    path: str  # Path relative to the store's root.
    size: int  # Length in bytes.
    # Time of the last change, nanoseconds since 1970 UTC; 0 if the store has none.
    modified_ns: int
    # Identifies the content of the object, if the store supports that: modification times may be in
    # whole seconds.
    tag: str = field(default="", compare=False)

    @property
    def identity(self) -> str:
        """Return a text that is equal as long as the object is unchanged."""
        return f"{self.size}:{self.tag or self.modified_ns}"


class OutputFile(Protocol):
    """An object being written; visible after ``close``, unless ``abort`` was called first."""

    def write(self, data: object) -> int:
        """Append bytes, a memoryview, a pyarrow buffer or a contiguous array; return its size."""

    def tell(self) -> int:
        """Return the number of bytes written so far."""

    def close(self) -> None:
        """Publish the object; a second call does nothing."""

    def abort(self) -> None:
        """Discard the written bytes; do nothing after ``close``."""


class ObjectStore(Protocol):
    """A flat space of immutable objects below one root.

    Calls are synchronous; those that take many paths or ranges run requests concurrently. A store
    may be used by several threads and, if it was created before a fork, by both processes.
    """

    uri: str  # The root, for messages; no secret, no slash at the end.
    lists_in_order: bool  # Whether ``list`` yields paths in ascending order of their UTF-8 bytes.
    # Whether a listing reads names first and the attributes of each object afterwards; ``list``
    # omits objects that were removed between the two.
    lists_names_only: bool
    # Identifies the server of the objects if the root does not: stores with the same server and
    # root contain the same objects, whatever their options. '' if the root is sufficient.
    server: str = ""
    # The server whose support for the condition of ``put_if_absent`` has to be checked; '' for
    # none.
    unproven_server: str
    # Together with a path, cache key for objects that never change; equal for stores that reach the
    # same objects as the same user. None: no caching.
    cache_key: Hashable = None

    def check_writable(self) -> None:
        """Raise UnsupportedFeatureError if the store is read-only."""
        return None  # noqa: RET501 - so it is not abstract

    def get(self, path: str) -> Buffer:
        """Return the whole object."""

    def get_tail(self, path: str, length: int) -> tuple[Buffer, int]:
        """Return the last ``length`` bytes, or all of a shorter object, and the object's size."""

    def get_range(self, path: str, start: int, end: int) -> Buffer:
        """Return exactly the bytes from ``start`` to ``end``."""

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Buffer]:
        """Return the bytes of each range, in the order given; adjacent ranges share a request."""

    def stat(self, path: str) -> ObjectInfo:
        """Return size and modification time."""

    def size(self, path: str) -> int:
        """Return the length in bytes."""
        return self.stat(path).size

    def exists(self, path: str) -> bool:
        """Return whether the object exists."""
        try:
            self.stat(path)
        except FileNotFoundError:
            return False
        return True

    def put(self, path: str, data: Buffer) -> None:
        """Create the object, or replace it as a whole."""

    def put_if_absent(self, path: str, data: Content) -> bool:
        """Create the object unless it exists; atomic between any number of writers.

        Returns True if this call created it, False if it existed. After a lost response the store
        may have repeated the request itself and return False for our own object, and an exception
        may hide a success, so a caller that needs certainty compares the content.
        """

    def copy(self, source: str, target: str) -> None:
        """Create or replace ``target`` with the content of ``source``, as a whole."""

    def open_output(self, path: str) -> OutputFile:
        """Start an object that is written in pieces, in bounded memory."""

    def list_names(self, folder: str) -> list[str]:
        """Return the names of the objects directly in the folder, without reading their attributes.

        A name may belong to something else, such as a dangling link.
        """

    def list(self, prefix: str, *, first: int | None = None) -> Iterator[ObjectInfo]:
        """List all objects in the folder ``prefix`` and below; '' means the root.

        A folder that does not exist has no objects. Never served from a cache.

        ``first``: expected number of objects that the caller will use, if known: a page of a
        thousand objects takes a store and its client much longer. None for all.
        """

    def delete(self, path: str) -> None:
        """Remove the object; ignore a missing one."""

    def delete_many(self, paths: Iterable[str]) -> None:
        """Remove the objects, in any order; ignore missing ones."""


def check_path(path: str) -> str:
    """Return the path if it stays below the root; raise otherwise.

    Paths may come from a manifest of another writer, so they must not reach outside.
    """
    if not path or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise InvalidInputError(f"{path!r} is not a path below the table root")
    return path


def folder_prefix(prefix: str) -> str:
    """Return the folder as a string prefix of its paths: '' or a checked path with one slash."""
    folder = prefix.rstrip("/")
    return check_path(folder) + "/" if folder else ""


def staging_path(path: str) -> str:
    """Return a unique name in the folder of ``path``, which no reader takes for a version."""
    folder, _, name = path.rpartition("/")
    # Most file systems allow names of at most 255 bytes.
    return f"{folder}/.tmp_{name[:150]}_{uuid.uuid4().hex}.part"


def names_directly_in(folder: str, listed: Iterable[ObjectInfo]) -> list[str]:
    """Return the names of listed objects that are in no folder below ``folder``."""
    start = len(folder_prefix(folder))
    names = (info.path[start:] for info in listed)
    return [name for name in names if "/" not in name]


def missing(uri: str, path: str) -> FileNotFoundError:
    """Return the error for a missing object."""
    return FileNotFoundError(errno.ENOENT, "no such object", f"{uri}/{path}")


def too_short(
    uri: str, path: str, start: int, end: int, size: int | None = None
) -> CorruptFileError:
    """Return the error for a range that is not inside its object."""
    actual = "is shorter" if size is None else f"has {size} bytes"
    return CorruptFileError(
        f"the object {actual}, but bytes up to {end} were requested",
        where=f"{uri}/{path} bytes {start}..{end}",
        hint="the file was truncated, or metadata that refers to it is damaged",
    )


def is_out_of_room(error: StorageError) -> bool:
    """Return whether the disk or the user's quota is full."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


def as_byte_view(data: object) -> memoryview:
    """Return a flat view of the bytes of any contiguous buffer, without a copy; join pieces."""
    if isinstance(data, list | tuple):
        data = b"".join(data)
    view = memoryview(data)  # type: ignore[arg-type]  # Buffer is a typing name since 3.12 only
    # cast rejects shapes that contain a zero.
    return view.cast("B") if view.nbytes else memoryview(b"")
