"""LocalStore: a folder of a POSIX file system, mapped or read, also over NFS.

Reads are views of memory maps without a copy, except on network mounts. Writes go to a staging file
beside the final name, ``.tmp_{name}_{uuid}.part``, which no reader takes for a manifest, and are
renamed when complete, so no reader sees a partial file. Everything is synced before the rename: a
manifest that survives a power failure must not refer to data that did not.

Resident memory of maps is bounded (``MappedPages``). The pages of a map count as memory of the
process until the system reclaims them, which it only does when memory is short; container limits
and monitors count them before. Dropping them is always safe: a read-only map reads them again from
the page cache.

Files on network mounts are read instead of mapped. A page of a mapped file is fetched when it is
first touched. If another machine has removed the file, or the server does not respond, that kills
the process (``SIGBUS``), while a read only fails.

Calls that fail with ``ESTALE`` are repeated. A client of NFS caches which file a name refers to; if
another machine removed or replaced that file or its folder, a call may fail before the client has
looked the name up again. So the error neither means that the file exists nor that it is missing. If
it keeps occurring, that is a failure of the store, never a missing object.
"""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
import stat
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import BinaryIO, Final, TypeVar

from pyspark_lance.errors import StorageError, UnsupportedFeatureError
from pyspark_lance.store.object_store import (
    Buffer,
    ByteRange,
    Content,
    ObjectInfo,
    ObjectStore,
    as_byte_view,
    check_path,
    folder_prefix,
    is_out_of_room,
    missing,
    staging_path,
    too_short,
)

MAX_RESIDENT_BYTES: Final = 192 << 20
_MIN_BYTES: Final = 256 << 10
_COPIED_BYTES: Final = 4 << 20
_PAGE: Final = mmap.PAGESIZE
_DONT_NEED: Final = getattr(mmap, "MADV_DONTNEED", None)


class MappedPages:
    """LRU of large memory-mapped views; drops the pages of the oldest ones.

    ``limit``: approximate number of bytes that stay resident.
    """

    def __init__(self, limit: int = MAX_RESIDENT_BYTES) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._pieces: deque[tuple[weakref.ref[mmap.mmap], int, int]] = deque()
        self._total = 0

    def record_view(self, view: memoryview, start: int, end: int) -> None:
        """Record a view; small ones do not count."""
        content = view.obj
        if end - start < _MIN_BYTES or _DONT_NEED is None or not isinstance(content, mmap.mmap):
            return
        with self._lock:
            self._pieces.append((weakref.ref(content), start, end))
            self._total += end - start
            old = []
            while self._total > self._limit and len(self._pieces) > 1:
                piece = self._pieces.popleft()
                self._total -= piece[2] - piece[1]
                old.append(piece)
        for reference, first, last in old:
            whole = reference()
            if whole is not None:
                _drop_pages(whole, first, last)

    @staticmethod
    def copied(view: Buffer, start: int) -> bytes:
        """Return a copy of a view, and drop its pages, which are not needed any more.

        ``start``: position of the view in its object.
        """
        content = view.obj if isinstance(view, memoryview) else None
        if len(view) < _MIN_BYTES or not isinstance(content, mmap.mmap):
            return bytes(view)
        # In parts, so that pages and copy are not in memory together.
        copy = io.BytesIO()
        for first in range(0, len(view), _COPIED_BYTES):
            part = view[first : first + _COPIED_BYTES]
            copy.write(part)
            _drop_pages(content, start + first, start + first + len(part))
        return copy.getvalue()


def _drop_pages(content: mmap.mmap, start: int, end: int) -> None:
    if _DONT_NEED is not None:
        start = start // _PAGE * _PAGE
        content.madvise(_DONT_NEED, start, end - start)


MAPPED_PAGES: Final = MappedPages()
"""Tracker of all maps of this process."""


_KINDS: Final = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "fuse", "gfs2", "glusterfs", "gpfs", "lustre"}
    | {"nfs", "nfs4", "ocfs2", "orangefs", "smb3", "smbfs", "virtiofs"}
)
_MOUNTS: Final = "/proc/self/mountinfo"
# A process uses few mounts; each is looked up once.
_MAX_DEVICES: Final = 256


@lru_cache(maxsize=_MAX_DEVICES)
def is_on_network(device: int) -> bool:
    """Return whether the files of a device (``st_dev``) are known to be on another machine.

    Supported on Linux only; elsewhere all devices count as local.
    """
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            return device in network_devices(file.read())
    except (OSError, ValueError, IndexError):
        return False


def network_devices(mounts: str) -> frozenset[int]:
    """Return the devices of network mounts.

    ``mounts``: the contents of ``/proc/self/mountinfo``, one line per mount.
    """
    found = set()
    for line in mounts.splitlines():
        mount, _, rest = line.partition(" - ")
        kind = rest.split()[0]
        if kind in _KINDS or kind.startswith("fuse."):
            major, _, minor = mount.split()[2].partition(":")
            found.add(os.makedev(int(major), int(minor)))
    return frozenset(found)


_T = TypeVar("_T")

# The first failure makes the client drop its cached name.
_PAUSES_S: Final = (0.0, 0.01, 0.05, 0.25)


def retry_stale_handles(call: Callable[[], _T]) -> _T:
    """Return the result of ``call``, repeated while a handle is stale.

    ``call``: opens the file by name, so that each attempt looks the name up; must be repeatable.
    """
    for pause in _PAUSES_S:
        try:
            return call()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            time.sleep(pause)
    return call()


MAX_OPEN_MAPS = 32
WRITE_BUFFER_BYTES = 1 << 20
# A read system call returns at most 2 GB.
_MAX_READ_BYTES = 1 << 30
# Windows has no O_CLOEXEC, and translates ends of lines without O_BINARY.
_READING = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

# As in object stores, a folder, or a path below a plain file, is not an object.
_NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
# A folder without subfolders has two links, its name and "."; each subfolder adds one by "..".
_LINKS_WITHOUT_FOLDERS = 2
_VERBS_OF_READERS = ("read", "stat", "list", "delete")
_HINTS = {
    errno.EACCES: "grant the Spark user read and write permission on the folder, on every machine",
    errno.EPERM: "grant the Spark user read and write permission on the folder, on every machine",
    errno.ENOTSUP: "choose a local disk, NFS, or an object store such as s3://",
    errno.EROFS: "the file system is mounted read-only; choose another path",
    errno.ENOSPC: "free space on the disk",
    errno.EDQUOT: "free space within the quota",
    errno.ENOTDIR: "the path leads through a file; choose another path",
    errno.ESTALE: "the server no longer has the file of this network mount; mount it again",
}


class LocalStore(ObjectStore):
    """Objects are the regular files below a folder.

    ``root``: absolute path of the folder, which may be a symbolic link; it need not exist before
    the first write. ``allowed_roots``: other folders. Nothing is created, replaced or removed
    where a link below the root leads outside of all of them.
    """

    unproven_server = ""
    lists_in_order = False
    lists_names_only = True

    def __init__(self, root: str, allowed_roots: tuple[str, ...] = ()) -> None:
        self._allowed_roots = allowed_roots
        self.uri = root.rstrip("/") or "/"
        self._prefix = self.uri.rstrip("/") + "/"
        self._maps = _OpenMaps(MAX_OPEN_MAPS)

    def __repr__(self) -> str:
        return f"LocalStore({self.uri!r})"

    def get(self, path: str) -> Buffer:
        """Return the whole object as a view."""
        with self._errors("read", path):
            content = self._map_object(path)
            return self._read(path, None)[0] if content is None else content

    def get_tail(self, path: str, length: int) -> tuple[Buffer, int]:
        """Return the last bytes and the object's size; a view of a map if the object is longer."""
        with self._errors("read", path):
            full = self._absolute_path(path)
            small = retry_stale_handles(lambda: _read_small(full, length))
            content = self._map_object(path) if small is None else small
            if content is None:
                return self._read_tail(path, length)
        return content[max(len(content) - length, 0) :], len(content)

    def get_range(self, path: str, start: int, end: int) -> Buffer:
        """Return exactly the bytes from ``start`` to ``end`` as a view."""
        return self.get_ranges(path, [ByteRange(start, end)])[0]

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Buffer]:
        """Return the bytes of each range as views of one map."""
        with self._errors("read", path):
            content = self._map_object(path)
            if content is None:
                return self._read(path, ranges)
        size = len(content)
        pieces: list[Buffer] = []
        for start, end in ranges:
            if not 0 <= start <= end <= size:
                raise too_short(self.uri, path, start, end, size)
            pieces.append(content[start:end])
            MAPPED_PAGES.record_view(content, start, end)
        return pieces

    def _map_object(self, path: str) -> memoryview | None:
        """Return the whole object as a view; None if it must not be mapped."""
        full = self._absolute_path(path)
        return retry_stale_handles(lambda: self._maps.view(full))

    def _read(self, path: str, ranges: Sequence[ByteRange] | None) -> list[Buffer]:
        """Return a copy of the bytes of each range, or of all bytes."""
        full = self._absolute_path(path)

        def read() -> list[Buffer]:
            with _open(full) as (descriptor, size):
                wanted = [ByteRange(0, size)] if ranges is None else ranges
                for start, end in wanted:
                    if not 0 <= start <= end <= size:
                        raise too_short(self.uri, path, start, end, size)
                return [_read_range(descriptor, start, end) for start, end in wanted]

        return retry_stale_handles(read)

    def _read_tail(self, path: str, length: int) -> tuple[Buffer, int]:
        full = self._absolute_path(path)

        def read() -> tuple[Buffer, int]:
            with _open(full) as (descriptor, size):
                return _read_range(descriptor, max(size - length, 0), size), size

        return retry_stale_handles(read)

    def stat(self, path: str) -> ObjectInfo:
        """Return size and modification time."""
        with self._errors("stat", path):
            full = self._absolute_path(path)
            return _info(path, retry_stale_handles(lambda: _stat_file(full)))

    def put(self, path: str, data: Buffer) -> None:
        """Create or replace the object by renaming a complete staging file."""
        output = self.open_output(path)
        try:
            output.write(data)
            output.close()
        finally:
            output.abort()

    def copy(self, source: str, target: str) -> None:
        """Create or replace ``target`` by renaming a complete staging file.

        On a full disk ``target`` becomes a hard link, which needs no space: objects are never
        changed in place.
        """
        try:
            self.put(target, self.get(source))
        except StorageError as error:
            if not is_out_of_room(error):
                raise
            self._link_copy(source, target)

    def _link_copy(self, source: str, target: str) -> None:
        with self._errors("create", target):
            final = self._writable_path(target)
            staging = staging_path(final)
            origin = self._absolute_path(source)
            with contextlib.suppress(FileExistsError):  # the staging name is unique
                retry_stale_handles(lambda: os.link(origin, staging))
            number = retry_stale_handles(lambda: os.stat(staging)).st_ino
            try:
                _rename(staging, final, number)
            finally:
                # A rename between two links of one file does nothing.
                with contextlib.suppress(*_NOT_THERE):
                    retry_stale_handles(lambda: os.unlink(staging))
            _sync_folder(final)

    def put_if_absent(self, path: str, data: Content) -> bool:
        """Create the object by linking a complete staging file to its name.

        ``link`` fails if the name exists and otherwise creates it, atomically for all processes.
        """
        with self._errors("create", path):
            final = self._writable_path(path)
            staging, file = _open_staging(final)
            try:
                with file:
                    file.writelines(
                        data if isinstance(data, list | tuple) else [as_byte_view(data)]
                    )
                    _sync(file)
                return retry_stale_handles(lambda: _link(staging, final))
            finally:
                with contextlib.suppress(*_NOT_THERE):  # removed by a call whose response was lost
                    retry_stale_handles(lambda: os.unlink(staging))
                _sync_folder(final)

    def open_output(self, path: str) -> LocalOutput:
        """Create a staging file that is renamed at close."""
        with self._errors("create", path):
            return LocalOutput(self, path, self._writable_path(path))

    def list_names(self, folder: str) -> list[str]:
        """Return the names of the files directly in the folder, without a system call for each.

        If the folder's link count shows that it has no subfolders, as on most file systems, the
        types of the entries are not read either, which would dominate the time.
        """
        full = self._prefix + folder_prefix(folder)
        with self._errors("list", folder):
            return retry_stale_handles(lambda: _names(full))

    def list(self, prefix: str, *, first: int | None = None) -> Iterator[ObjectInfo]:
        """List all files in the folder and below; symbolic links to folders are not followed."""
        folder = folder_prefix(prefix)
        with self._errors("list", folder):
            for path, entry in self._walk(folder):
                with contextlib.suppress(*_NOT_THERE):  # removed since the listing
                    status = retry_stale_handles(entry.stat)
                    if stat.S_ISREG(status.st_mode):
                        yield _info(path, status)

    def delete(self, path: str) -> None:
        """Remove the file; its folder stays."""
        with self._errors("delete", path):
            full = self._writable_path(path)
            # The map would keep the disk space of the removed file.
            self._maps.forget(full)
            with contextlib.suppress(*_NOT_THERE):
                retry_stale_handles(lambda: os.unlink(full))

    def delete_many(self, paths: Iterable[str]) -> None:
        """Remove the files."""
        for path in paths:
            self.delete(path)

    def _absolute_path(self, path: str) -> str:
        return self._prefix + check_path(path)

    def _writable_path(self, path: str) -> str:
        """Return the absolute path of an object to be created, replaced or removed.

        Raises:
            UnsupportedFeatureError: A folder of the path is a link out of the root.
        """
        full = self._absolute_path(path)
        folder = self.uri.rstrip("/")
        for name in path.split("/")[:-1]:
            folder += f"/{name}"
            try:
                status = retry_stale_handles(lambda: os.lstat(folder))  # noqa: B023 - called at once
            except _NOT_THERE:
                break
            if stat.S_ISLNK(status.st_mode):
                self._check_target(folder)
        return full

    def _check_target(self, link: str) -> None:
        """Raise UnsupportedFeatureError if a link leads out of the root and of allowed folders."""
        target = os.path.realpath(link)
        for root in (self.uri, *self._allowed_roots):
            if f"{target}/".startswith(f"{os.path.realpath(root).rstrip('/')}/"):
                return
        raise UnsupportedFeatureError(
            f"a folder of the table is a symbolic link to {target!r}, outside the table; "
            "nothing is written or removed there",
            where=link,
            hint="mount the place there instead of linking it; if you trust it, name it in "
            "storage.allowed_base_paths",
        )

    def _walk(self, folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """List the files below ``folder`` ('' or ending with a slash)."""
        files, folders = retry_stale_handles(lambda: _list_folder(self._prefix + folder))
        for entry in files:
            yield folder + entry.name, entry
        for name in folders:
            yield from self._walk(f"{folder}{name}/")

    @contextlib.contextmanager
    def _errors(self, verb: str, path: str) -> Iterator[None]:
        """Translate system errors to the errors common to all stores."""
        try:
            yield
        except OSError as error:
            if isinstance(error, _NOT_THERE) and verb in _VERBS_OF_READERS:
                raise missing(self.uri, path) from error
            what = "folder" if verb == "list" else "object"
            raise StorageError(
                f"cannot {verb} the {what}: {error.strerror}",
                where=f"{self.uri}/{path}",
                hint=_HINTS.get(error.errno or 0, ""),
            ) from error


class LocalOutput:
    """A staging file that is renamed to its final name at close."""

    def __init__(self, store: LocalStore, path: str, final: str) -> None:
        self._store = store
        self._path = path
        self._final = final
        self._staging, opened = _open_staging(final)
        self._file: BinaryIO | None = opened
        self._written = 0

    def write(self, data: object) -> int:
        """Append the bytes."""
        if self._file is None:
            raise ValueError("write to a closed output file")
        view = as_byte_view(data)
        with self._store._errors("write", self._path):
            self._file.write(view)
        self._written += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._written

    def close(self) -> None:
        """Sync the staging file and rename it to the final name; remove it on failure."""
        if self._file is None:
            return
        try:
            with self._store._errors("write", self._path):
                _sync(self._file)
                number = os.fstat(self._file.fileno()).st_ino
                self._file.close()
                _rename(self._staging, self._final, number)
                self._file = None
                _sync_folder(self._final)
        finally:
            self.abort()

    def abort(self) -> None:
        """Remove the staging file."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # flushing the buffer fails on a full disk
                file.close()
            with contextlib.suppress(OSError):
                retry_stale_handles(lambda: os.unlink(self._staging))


class _OpenMaps:
    """Cache of the most recently used memory maps, each with the identity of its file.

    A map is only used while the file still has the size it was mapped with: touching pages past
    the end of a truncated file kills the process.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._views: OrderedDict[str, tuple[tuple[int, ...], memoryview]] = OrderedDict()

    def view(self, full: str) -> memoryview | None:
        """Return the whole file, read-only; None for a file on a network mount."""
        status = _stat_file(full)
        if is_on_network(status.st_dev):
            return None
        identity = _identity(status)
        with self._lock:
            known = self._views.get(full)
            if known is not None and known[0] == identity:
                self._views.move_to_end(full)
                return known[1]
        identity, content = _map(full)
        with self._lock:
            self._views[full] = (identity, content)
            self._views.move_to_end(full)
            if len(self._views) > self._capacity:
                self._views.popitem(last=False)
        return content

    def forget(self, full: str) -> None:
        """Drop the map of a file; existing views stay valid."""
        with self._lock:
            self._views.pop(full, None)


def _map(full: str) -> tuple[tuple[int, ...], memoryview]:
    descriptor = os.open(full, _READING)
    try:
        status = os.fstat(descriptor)
        if status.st_size == 0:  # an empty file cannot be mapped
            return _identity(status), memoryview(b"")
        content = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
        return _identity(status), memoryview(content)
    except ValueError as error:  # truncated between the two calls
        raise OSError(errno.EIO, "the file changes while it is read") from error
    finally:
        os.close(descriptor)  # the map has its own descriptor


@contextlib.contextmanager
def _open(full: str) -> Iterator[tuple[int, int]]:
    """Return a descriptor and the size of the file."""
    descriptor = os.open(full, _READING)
    try:
        yield descriptor, os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _read_range(descriptor: int, start: int, end: int) -> memoryview:
    content = bytearray(end - start)
    left = memoryview(content)
    while left:
        count = _read_into(descriptor, left[:_MAX_READ_BYTES], end - len(left))
        if not count:
            raise OSError(errno.EIO, "the file changes while it is read")
        left = left[count:]
    return memoryview(content).toreadonly()


def _read_into(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Fill the buffer from the offset as far as one read does; return the number of bytes."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [buffer], offset)
    os.lseek(descriptor, offset, os.SEEK_SET)  # each reader has its own descriptor
    content = os.read(descriptor, len(buffer))
    buffer[: len(content)] = content
    return len(content)


def _list_folder(full: str) -> tuple[list[os.DirEntry[str]], list[str]]:
    """Return the files of a folder and the names of its subfolders; nothing if it does not exist.

    The listing is complete before the first entry is used, so that it can be repeated on failure.
    """
    files: list[os.DirEntry[str]] = []
    folders: list[str] = []
    try:
        entries = os.scandir(full)
    except _NOT_THERE:
        return files, folders
    with entries:
        for entry in entries:
            if entry.is_file():
                files.append(entry)
            elif entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
    return files, folders


def _names(full: str) -> list[str]:
    """Return the names of the files directly in a folder; nothing if it does not exist."""
    try:
        if os.stat(full).st_nlink == _LINKS_WITHOUT_FOLDERS:
            return os.listdir(full)
        return [entry.name for entry in _list_folder(full)[0]]
    except _NOT_THERE:
        return []


def _read_small(full: str, most: int) -> memoryview | None:
    """Return a whole file of at most ``most`` bytes, without mapping; None if larger."""
    descriptor = os.open(full, _READING | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), full)
        return memoryview(os.read(descriptor, most)) if status.st_size <= most else None
    finally:
        os.close(descriptor)


def _stat_file(full: str) -> os.stat_result:
    """Return ``os.stat`` of a regular file; other files count as missing."""
    status = os.stat(full)
    if not stat.S_ISREG(status.st_mode):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), full)
    return status


def _info(path: str, status: os.stat_result) -> ObjectInfo:
    tag = f"{status.st_ino}:{status.st_mtime_ns}"
    return ObjectInfo(path, status.st_size, status.st_mtime_ns, tag)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _open_staging(final: str) -> tuple[str, BinaryIO]:
    """Create a file in the folder of ``final``; create the folder if missing."""

    def opened() -> tuple[str, BinaryIO]:
        # A new name for each attempt: a failed call may have created the file.
        staging = staging_path(final)
        return staging, open(staging, "xb", buffering=WRITE_BUFFER_BYTES)

    try:
        return retry_stale_handles(opened)
    except FileNotFoundError:
        retry_stale_handles(lambda: os.makedirs(os.path.dirname(final), exist_ok=True))
        return retry_stale_handles(opened)


def _link(staging: str, final: str) -> bool:
    """Link the staging file to its final name; return False if the name exists."""
    try:
        os.link(staging, final)
    except FileExistsError:
        # A network file system may repeat a request whose response was lost: a link count of two
        # means that the first one succeeded.
        return os.stat(staging).st_nlink == 2
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise OSError(
                errno.ENOTSUP, "this file system has no hard links, which commits require"
            ) from error
        raise
    return True


def _rename(staging: str, final: str, number: int) -> None:
    """Rename the staging file, whose inode is ``number``, to its final name."""
    try:
        retry_stale_handles(lambda: os.replace(staging, final))
    except FileNotFoundError:
        # As in ``_link``: the rename succeeded if the response to the first request was lost.
        if retry_stale_handles(lambda: os.stat(final)).st_ino != number:
            raise


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(final: str) -> None:
    """Sync the folder of ``final`` to disk, so that its names survive a power failure."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows opens no folders
    folder = final.rpartition("/")[0] or "/"
    descriptor = retry_stale_handles(lambda: os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
    try:
        # Some network file systems cannot sync a folder; they persist names themselves.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
