"""ObjectStore: what the package asks of the place where bytes live.

Objects are named by paths relative to the store's root: ``/``-separated, never starting with a
slash, never containing ``..``. Objects appear whole or not at all. A store knows nothing of Lance.

Errors are the same for every store: a missing object is a ``FileNotFoundError``, an object that is
shorter than asked for is a ``CorruptFileError``, and everything else that goes wrong in the store
is a ``StorageError`` with its cause chained. No message holds a secret.
"""

from __future__ import annotations

import errno
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from pyspark_lance.errors import CorruptFileError, InvalidInputError, StorageError
from pyspark_lance.store.byte_range import ByteRange

Buffer: TypeAlias = bytes | memoryview
"""What reads return: read-only contiguous bytes; ``np.frombuffer`` and ``pa.py_buffer`` take it."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing says of one object."""

    path: str  # Path relative to the store's root.
    size: int  # Length in bytes.
    # Time of the last change, nanoseconds since 1970 UTC; 0 if the store keeps none.
    modified_ns: int
    # Another one for every content of the object, where the store has that: the time may be in
    # whole seconds.
    tag: str = field(default="", compare=False)

    @property
    def identity(self) -> str:
        """The same as long as the object stays the same."""
        return f"{self.size}:{self.tag or self.modified_ns}"


class OutputFile(Protocol):
    """An object being written; it appears at ``close`` and never when ``abort`` came first."""

    def write(self, data: object) -> int:
        """Appends bytes, a memoryview, a pyarrow buffer or a contiguous array; returns its size."""

    def tell(self) -> int:
        """Bytes written so far."""

    def close(self) -> None:
        """Makes the object appear; a second call does nothing."""

    def abort(self) -> None:
        """Drops what was written; does nothing after ``close``."""


class ObjectStore(Protocol):
    """A flat space of immutable objects below one root.

    Calls are synchronous; those that take many paths or ranges do their own concurrency. A store
    may be used by several threads and, if it was made before a fork, by both processes.
    """

    uri: str  # The root, for messages; it holds no secret and does not end with a slash.
    lists_in_order: bool  # Whether ``list`` yields paths in ascending order of their UTF-8 bytes.
    # Whether a listing has names alone and looks at each object afterwards, when it may be gone:
    # ``list`` leaves it out then, and nobody hears of it.
    lists_names_only: bool
    # Names the server that has the objects, where the root does not: stores of one server and root
    # show the same objects, whatever their options. '' for what the root names alone.
    server: str = ""
    # The server that has to honour the condition of ``put_if_absent``, if it is not known to; '' if
    # there is none.
    unproven_server: str
    # With a path, what an object is kept by that was read or written and never changes; equal for
    # stores that reach the same objects as the same user. None: such things are not kept.
    place: Hashable = None

    def get(self, path: str) -> Buffer:
        """The whole object."""

    def get_tail(self, path: str, length: int) -> tuple[Buffer, int]:
        """The last ``length`` bytes, or all of a shorter object, and the object's size."""

    def get_range(self, path: str, start: int, end: int) -> Buffer:
        """Exactly the bytes from ``start`` to ``end``."""

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Buffer]:
        """The bytes of each range, in the order given; neighbours share a request."""

    def stat(self, path: str) -> ObjectInfo:
        """Size and time of change."""

    def size(self, path: str) -> int:
        """Length in bytes."""
        return self.stat(path).size

    def exists(self, path: str) -> bool:
        """Whether the object is there."""
        try:
            self.stat(path)
        except FileNotFoundError:
            return False
        return True

    def put(self, path: str, data: Buffer) -> None:
        """Creates the object or replaces it as a whole."""

    def put_if_absent(self, path: str, data: Buffer) -> bool:
        """Creates the object unless there is one; atomic between any number of writers.

        Returns True when this call created it, False when it was there. After a lost answer the
        store may have repeated the request itself and say False of our own object, and an exception
        may hide a success, so a caller who must know compares the content.
        """

    def copy(self, source: str, target: str) -> None:
        """Creates or replaces ``target`` with what ``source`` holds, as a whole."""

    def open_output(self, path: str) -> OutputFile:
        """Starts an object that is written piece by piece, in bounded memory."""

    def list_names(self, folder: str) -> list[str]:
        """The names of the objects right in the folder, without a look at each object.

        A name may be that of something else, as a link that leads nowhere.
        """

    def list(self, prefix: str, *, first: int | None = None) -> Iterator[ObjectInfo]:
        """All objects in the folder ``prefix`` and below; '' means the root.

        A folder that does not exist has no objects. Never answered from a cache.

        ``first``: about how many the caller will look at, where that is known: a page of a thousand
        takes a store and its client much longer. None for all.
        """

    def delete(self, path: str) -> None:
        """Removes the object; a missing one is fine."""

    def delete_many(self, paths: Iterable[str]) -> None:
        """Removes the objects, in any order; missing ones are fine."""


def check_path(path: str) -> str:
    """The path itself, if it stays below the root.

    Paths may come out of a manifest someone else wrote, so they must not reach outside.
    """
    if not path or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise InvalidInputError(f"{path!r} is not a path below the table root")
    return path


def folder_prefix(prefix: str) -> str:
    """The folder as a string prefix of its paths: '' or a checked path with one slash."""
    folder = prefix.rstrip("/")
    return check_path(folder) + "/" if folder else ""


def names_right_in(folder: str, listed: Iterable[ObjectInfo]) -> list[str]:
    """The names of listed objects that are in no folder below ``folder``."""
    start = len(folder_prefix(folder))
    names = (info.path[start:] for info in listed)
    return [name for name in names if "/" not in name]


def missing(uri: str, path: str) -> FileNotFoundError:
    """The error for an object that is not there."""
    return FileNotFoundError(errno.ENOENT, "no such object", f"{uri}/{path}")


def too_short(
    uri: str, path: str, start: int, end: int, size: int | None = None
) -> CorruptFileError:
    """The error for a range that is not inside its object."""
    actual = "is shorter" if size is None else f"has {size} bytes"
    return CorruptFileError(
        f"the object {actual}, but bytes up to {end} are wanted",
        where=f"{uri}/{path} bytes {start}..{end}",
        hint="the file was cut short or the metadata that points into it is damaged",
    )


def is_out_of_room(error: StorageError) -> bool:
    """Whether the disk is full, or what the user may take of it."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


def as_byte_view(data: object) -> memoryview:
    """A flat view of the bytes of any contiguous buffer; nothing is copied."""
    view = memoryview(data)  # type: ignore[arg-type]  # Buffer is a typing name since 3.12 only
    # cast refuses shapes that contain a zero.
    return view.cast("B") if view.nbytes else memoryview(b"")
