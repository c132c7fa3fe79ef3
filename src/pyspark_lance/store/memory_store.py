"""MemoryStore: an object store in a dict, for tests and examples."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from pyspark_lance.store.object_store import (
    Buffer,
    ByteRange,
    Content,
    ObjectInfo,
    ObjectStore,
    as_byte_view,
    check_path,
    folder_prefix,
    missing,
    names_directly_in,
    too_short,
)


class MemoryStore(ObjectStore):
    """Objects in a dict of this process."""

    lists_in_order = True
    lists_names_only = False
    unproven_server = ""

    def __init__(
        self, uri: str = "memory://store", *, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self.uri = uri
        self._now_ns = now_ns
        self._objects: dict[str, tuple[bytes, int]] = {}

    def __repr__(self) -> str:
        return f"MemoryStore({self.uri!r})"

    def get(self, path: str) -> Buffer:
        """Return the whole object."""
        return self._object(path)[0]

    def get_tail(self, path: str, length: int) -> tuple[Buffer, int]:
        """Return the last bytes and the object's size."""
        content = self.get(path)
        return memoryview(content)[max(len(content) - length, 0) :], len(content)

    def get_range(self, path: str, start: int, end: int) -> Buffer:
        """Return exactly the bytes from ``start`` to ``end`` as a view."""
        content = self.get(path)
        if not 0 <= start <= end <= len(content):
            raise too_short(self.uri, path, start, end, len(content))
        return memoryview(content)[start:end]

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Buffer]:
        """Return the bytes of each range as views."""
        return [self.get_range(path, start, end) for start, end in ranges]

    def stat(self, path: str) -> ObjectInfo:
        """Return size and modification time."""
        content, modified_ns = self._object(path)
        return ObjectInfo(path, len(content), modified_ns)

    def put(self, path: str, data: Buffer) -> None:
        """Create or replace the object."""
        self._objects[check_path(path)] = (bytes(as_byte_view(data)), self._now_ns())

    def copy(self, source: str, target: str) -> None:
        """Create or replace ``target`` with the content of ``source``."""
        self.put(target, self.get(source))

    def put_if_absent(self, path: str, data: Content) -> bool:
        """Create the object unless there is one."""
        ours = (bytes(as_byte_view(data)), self._now_ns())
        # setdefault is atomic across threads.
        return self._objects.setdefault(check_path(path), ours) is ours

    def open_output(self, path: str) -> MemoryOutput:
        """Start an object that is written in pieces."""
        return MemoryOutput(self, check_path(path))

    def list_names(self, folder: str) -> list[str]:
        """Return the names of the objects directly in the folder."""
        return names_directly_in(folder, self.list(folder))

    def list(self, prefix: str, *, first: int | None = None) -> Iterator[ObjectInfo]:
        """List all objects in the folder and below, in order."""
        folder = folder_prefix(prefix)
        for path, (content, modified_ns) in sorted(self._objects.items()):
            if path.startswith(folder):
                yield ObjectInfo(path, len(content), modified_ns)

    def delete(self, path: str) -> None:
        """Remove the object."""
        self._objects.pop(check_path(path), None)

    def delete_many(self, paths: Iterable[str]) -> None:
        """Remove the objects."""
        for path in paths:
            self.delete(path)

    def _object(self, path: str) -> tuple[bytes, int]:
        try:
            return self._objects[check_path(path)]
        except KeyError:
            raise missing(self.uri, path) from None


class MemoryOutput:
    """Buffer of the written bytes, stored at close."""

    def __init__(self, store: MemoryStore, path: str) -> None:
        self._store = store
        self._path = path
        self._content: bytearray | None = bytearray()
        self._written = 0

    def write(self, data: object) -> int:
        """Append the bytes."""
        if self._content is None:
            raise ValueError("write to a closed output file")
        view = as_byte_view(data)
        self._content += view
        self._written += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._written

    def close(self) -> None:
        """Store the object."""
        content, self._content = self._content, None
        if content is not None:
            self._store.put(self._path, memoryview(content))

    def abort(self) -> None:
        """Discard the written bytes."""
        self._content = None
