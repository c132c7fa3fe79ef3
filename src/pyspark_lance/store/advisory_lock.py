"""Advisory lock: writers of one table on one machine commit one after another.

Without it, many concurrent writers put the same version, only one succeeds, and a single writer may
lose every race.  The lock (``flock``) is fair: the writer that has waited longest is next, and the
kernel releases the lock of a process that dies.  For a table on a local file system the lock is on
one of the table's folders and leaves no file behind.  For a table in an object store it is on one
of 4,096 empty files in a per-user folder under the system's temporary directory.

Correctness never depends on the lock.  Other writers, such as pylance and writers on other
machines, do not take it, many network file systems do not support it, and the wait is bounded.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final
from zlib import crc32

from pyspark_lance.cancellation import check_cancelled
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.object_store import ObjectStore

_POLL_SLEEP_S: Final = 0.0005
# Interval at which a waiting writer checks for progress of the lock's holder.
_POLL_S: Final = 0.25
# Upper bound of the wait while other writers progress, as a multiple of ``timeout_s``.
_MAX_WAIT_FACTOR: Final = 5
# After a wait that timed out, no new wait for the folder within this time unless it changes.
_BACKOFF_S: Final = 60.0
_ANY_CHANGE: Final = -1
_UNKNOWN_CHANGE: Final = -2
# Number of lock files for tables in object stores; tables that share a file share the lock.
_NUM_LOCK_FILES: Final = 4096

_of_thread = threading.local()
# By server and folder: end of the no-wait period, and the last change seen in the folder.
_timed_out: dict[str, tuple[float, int]] = {}


@contextlib.contextmanager
def advisory_lock(
    store: ObjectStore,
    folder: str,
    timeout_s: float,
    *,
    meanwhile: Callable[[], object] = lambda: None,
    poll_s: float = 0.0,
) -> Iterator[bool]:
    """Wait until no other writer holds the lock of the table; reentrant within a thread.

    Args:
        store: Store at the table root.
        folder: Folder of the table that the lock is on.
        timeout_s: Maximum wait in seconds without progress of other writers; the whole wait is at
            most five times as long.
        meanwhile: Called once before waiting, if another writer holds the lock.
        poll_s: Time of polling before the caller gets in line; for one that is the next anyway,
            since a thread that waits for the lock costs more.

    Yields:
        Whether the lock was acquired; the caller proceeds either way.
    """
    key, held = _lock_key(store, folder), _held_by_thread()
    if key in held:
        yield True
        return
    descriptor = _acquire(store, folder, timeout_s, meanwhile, poll_s)
    if descriptor is None:
        yield False
        return
    held.add(key)
    try:
        yield True
    finally:
        held.discard(key)
        _release(descriptor)


def _held_by_thread() -> set[str]:
    """Return the folders whose locks this thread holds."""
    if not hasattr(_of_thread, "held"):
        _of_thread.held = set()
    held: set[str] = _of_thread.held
    return held


def _acquire(
    store: ObjectStore,
    folder: str,
    timeout_s: float,
    meanwhile: Callable[[], object],
    poll_s: float,
) -> int | None:
    """Return a descriptor that holds the lock; None if it was not acquired."""
    full, is_local = _lock_key(store, folder), isinstance(store, LocalStore)
    try:
        descriptor = _open_folder(full) if is_local else _open_lock_file(full, folder)
    except (OSError, AttributeError):  # on Windows there is neither
        return None
    is_free = _try_lock(descriptor)
    if is_free is False:
        try:
            meanwhile()
            is_free = _poll(descriptor, poll_s)
        except BaseException:
            os.close(descriptor)
            raise
        is_free = is_free or _wait_in_queue(full, descriptor, timeout_s)
    elif is_free is None:
        os.close(descriptor)
    if not is_free:
        return None
    _timed_out.pop(full, None)
    if not is_local:
        with contextlib.suppress(OSError):
            os.utime(descriptor)  # signals progress to waiting writers
    return descriptor


def _poll(descriptor: int, poll_s: float) -> bool:
    """Return whether the lock was acquired within the time, without a place in the queue."""
    until = time.monotonic() + poll_s
    while poll_s and time.monotonic() < until:
        if _try_lock(descriptor):
            return True
        check_cancelled()
        time.sleep(_POLL_SLEEP_S)
    return False


def _lock_key(store: ObjectStore, folder: str) -> str:
    """Return a key of a table's folder; two servers may have tables of the same URI."""
    return f"{store.server}{store.uri}/{folder}"


def _open_folder(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _open_lock_file(full: str, folder: str) -> int:
    """Open the local lock file for a folder of a table in an object store.

    The folder of lock files must be private to the user: another user could hold the locks or place
    links in it.
    """
    user = os.getuid()
    directory = os.path.join(tempfile.gettempdir(), f"pyspark-lance-locks-{user}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o077:
        raise PermissionError(f"{directory} is not a private folder of this user")
    number = crc32(full.encode(errors="surrogateescape")) % _NUM_LOCK_FILES
    return os.open(f"{directory}/{number:04}{folder}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _wait_in_queue(folder: str, descriptor: int, timeout_s: float) -> bool:
    """Return whether the lock was acquired in time; if not, the descriptor gets closed."""
    until, change = _timed_out.get(folder, (0.0, 0))
    if time.monotonic() < until and change in (_ANY_CHANGE, _last_change(descriptor)):
        timeout_s = 0.0
    try:
        queue = _Queue(descriptor) if timeout_s > 0 else None
    except RuntimeError:  # no more threads
        queue = None
    if queue is None:
        os.close(descriptor)
        return False
    try:
        _wait_for_progress(folder, descriptor, queue, timeout_s)
    except BaseException:
        if queue.leave():
            _release(descriptor)
        raise
    return queue.leave()


def _wait_for_progress(folder: str, descriptor: int, queue: _Queue, timeout_s: float) -> None:
    """Wait for the lock; each change in the folder counts as progress and restarts the timeout."""
    began = since = time.monotonic()
    seen = _last_change(descriptor)
    while not queue.wait(min(_POLL_S, timeout_s)):
        check_cancelled()
        now, change = time.monotonic(), _last_change(descriptor)
        if change != seen:
            seen, since = change, now
        if now - since >= timeout_s:
            _remember_timeout(folder, now, seen)
            return
        if now - began >= _MAX_WAIT_FACTOR * timeout_s:
            _remember_timeout(folder, now, _ANY_CHANGE)
            return


def _remember_timeout(folder: str, now: float, change: int) -> None:
    if len(_timed_out) >= _NUM_LOCK_FILES:
        _timed_out.clear()
    _timed_out[folder] = now + _BACKOFF_S, change


def _last_change(folder: int) -> int:
    try:
        return os.fstat(folder).st_mtime_ns
    except OSError:  # such as ESTALE: then nothing is known of other writers
        return _UNKNOWN_CHANGE


class _Queue:
    """A place in the kernel's FIFO queue for a lock.

    A separate thread waits, because a blocking ``flock`` cannot be cancelled.  Once the caller has
    left, the thread releases the lock as soon as it gets it and closes the descriptor.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._mutex = threading.Lock()
        self._is_done = threading.Event()
        self._is_left = False
        self._has_lock = False
        threading.Thread(target=self._wait_for_lock, name="advisory-lock", daemon=True).start()

    def wait(self, timeout_s: float) -> bool:
        """Return True once the lock was acquired or has failed."""
        return self._is_done.wait(timeout_s)

    def leave(self) -> bool:
        """Return whether the lock was acquired; if not, the descriptor is closed, now or later."""
        with self._mutex:
            self._is_left = not self._has_lock
            if self._is_left and self._is_done.is_set():
                os.close(self._descriptor)
            return self._has_lock

    def _wait_for_lock(self) -> None:
        import fcntl  # noqa: PLC0415

        has_lock = True
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except OSError:
            has_lock = False
        with self._mutex:
            self._has_lock = has_lock and not self._is_left
            self._is_done.set()
            if self._is_left:
                _release(self._descriptor)


def _try_lock(descriptor: int) -> bool | None:
    """Lock without waiting: False if another process holds the lock, None if unsupported."""
    try:
        import fcntl  # noqa: PLC0415  not on every system

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def _release(descriptor: int) -> None:
    """Unlock, also for forked processes that share the descriptor."""
    import fcntl  # noqa: PLC0415

    # The caller has finished its work, and may have committed: a failure here must not fail it.
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    with contextlib.suppress(OSError):
        os.close(descriptor)
