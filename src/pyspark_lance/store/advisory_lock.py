"""Turns: writers of a table on one machine go one after another, as a courtesy.

Of many that put the same version at once only one can win, and chance may pass over one of them
for ever.  So they take turns, by a lock (``flock``): the kernel lets go of the lock of a writer
that dies.  Who has waited longest is next.  The lock of a table in a folder is on a folder of the
table, which leaves nothing behind.  That of a table in an object store is on one of some thousand
empty files, which lie in a folder of the user among the temporary files of the machine.

Nothing may depend on it.  Other writers, such as pylance and those on other machines, do not ask
for it; many network file systems do not have it; and nobody waits for long for one who does not
get on.
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

from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.object_store import ObjectStore

# Whether others get on is looked at so often.
_LOOK_S: Final = 0.25
# As long as they do, one may have to wait so many times as long.
_MAX_PATIENCE: Final = 5
# Who has waited in vain for a folder does not wait for it again so soon, unless others get on.
_NO_PATIENCE_S: Final = 60.0
_ANY_CHANGE: Final = -1
# So many tables of object stores are told apart; writers of two that are not wait for each other.
_TABLES: Final = 4096

_of_thread = threading.local()
# By server and folder: until when not to wait, and the last change that was seen in it.
_in_vain: dict[str, tuple[float, int]] = {}


@contextlib.contextmanager
def advisory_lock(
    store: ObjectStore,
    folder: str,
    patience_s: float,
    *,
    meanwhile: Callable[[], object] = lambda: None,
) -> Iterator[bool]:
    """Waits until no other writer is at work; whoever has the turn already keeps it.

    ``patience_s``: how long to wait at most, in seconds, while nobody gets on; five times as long
    in all. ``meanwhile``: done first if there is somebody to wait for. Returns whether it is our
    turn; if not, we go ahead all the same.
    """
    full, held = _full(store, folder), _held()
    if full in held:
        yield True
        return
    descriptor = _locked(store, folder, patience_s, meanwhile)
    if descriptor is None:
        yield False
        return
    held.add(full)
    try:
        yield True
    finally:
        held.discard(full)
        _release(descriptor)


def _held() -> set[str]:
    """The folders whose turn this thread has."""
    if not hasattr(_of_thread, "held"):
        _of_thread.held = set()
    held: set[str] = _of_thread.held
    return held


def _locked(
    store: ObjectStore, folder: str, patience_s: float, meanwhile: Callable[[], object]
) -> int | None:
    """A descriptor with the lock; None without."""
    full, is_local = _full(store, folder), isinstance(store, LocalStore)
    try:
        descriptor = _opened_folder(full) if is_local else _opened_file(full, folder)
    except (OSError, AttributeError):  # on Windows there is neither
        return None
    is_free = _try(descriptor)
    if is_free is False:
        try:
            meanwhile()
        except BaseException:
            os.close(descriptor)
            raise
        is_free = _waited(full, descriptor, patience_s)
    elif is_free is None:
        os.close(descriptor)
    if not is_free:
        return None
    _in_vain.pop(full, None)
    if not is_local:
        with contextlib.suppress(OSError):
            os.utime(descriptor)  # the sign for those who wait that others get on
    return descriptor


def _full(store: ObjectStore, folder: str) -> str:
    """Names a folder of a table; two servers may have tables of the same URI."""
    return f"{store.server}{store.uri}/{folder}"


def _opened_folder(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _opened_file(full: str, folder: str) -> int:
    """The file that stands on this machine for a folder of a table in an object store.

    Nobody else may write where it lies: they could make us wait, or open what they like.
    """
    user = os.getuid()
    place = os.path.join(tempfile.gettempdir(), f"pyspark-lance-turns-{user}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(place, 0o700)
    found = os.lstat(place)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o077:
        raise PermissionError(f"{place} is not a folder of this user alone")
    number = crc32(full.encode(errors="surrogateescape")) % _TABLES
    return os.open(f"{place}/{number:04}{folder}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _waited(folder: str, descriptor: int, patience_s: float) -> bool:
    """Whether the lock was to be had in time; if not, the descriptor is not ours any more."""
    until, change = _in_vain.get(folder, (0.0, 0))
    if time.monotonic() < until and change in (_ANY_CHANGE, _last_change(descriptor)):
        patience_s = 0.0
    try:
        queue = _Queue(descriptor) if patience_s > 0 else None
    except RuntimeError:  # no more threads
        queue = None
    if queue is None:
        os.close(descriptor)
        return False
    try:
        _be_patient(folder, descriptor, queue, patience_s)
    except BaseException:
        if queue.leave():
            _release(descriptor)
        raise
    return queue.leave()


def _be_patient(folder: str, descriptor: int, queue: _Queue, patience_s: float) -> None:
    """Waits, from anew with each sign that others get on: what they do is seen in the folder."""
    began = since = time.monotonic()
    seen = _last_change(descriptor)
    while not queue.wait(min(_LOOK_S, patience_s)):
        now, change = time.monotonic(), _last_change(descriptor)
        if change != seen:
            seen, since = change, now
        if now - since >= patience_s:
            _remember_in_vain(folder, now, seen)
            return
        if now - began >= _MAX_PATIENCE * patience_s:
            _remember_in_vain(folder, now, _ANY_CHANGE)
            return


def _remember_in_vain(folder: str, now: float, change: int) -> None:
    if len(_in_vain) >= _TABLES:
        _in_vain.clear()
    _in_vain[folder] = now + _NO_PATIENCE_S, change


def _last_change(folder: int) -> int:
    return os.fstat(folder).st_mtime_ns


class _Queue:
    """A place in the kernel's queue for a lock, where who came first is the next.

    A thread stands there, since nobody can go away who stands there himself.  If it is left, it
    keeps the descriptor until it has the lock, and lets go of it at once.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._mutex = threading.Lock()
        self._is_over = threading.Event()
        self._is_left = False
        self._has_lock = False
        threading.Thread(target=self._stand, name="turn", daemon=True).start()

    def wait(self, patience_s: float) -> bool:
        """Whether it is over."""
        return self._is_over.wait(patience_s)

    def leave(self) -> bool:
        """Whether we have the lock; if not, the descriptor is closed or will be."""
        with self._mutex:
            self._is_left = not self._has_lock
            if self._is_left and self._is_over.is_set():
                os.close(self._descriptor)
            return self._has_lock

    def _stand(self) -> None:
        import fcntl  # noqa: PLC0415

        has_lock = True
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except OSError:
            has_lock = False
        with self._mutex:
            self._has_lock = has_lock and not self._is_left
            self._is_over.set()
            if self._is_left:
                _release(self._descriptor)


def _try(descriptor: int) -> bool | None:
    """Locks unless another has the lock; None where there are no such locks."""
    try:
        import fcntl  # noqa: PLC0415  not on every system

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def _release(descriptor: int) -> None:
    """Unlocks, also for processes that were forked meanwhile and have the descriptor, too."""
    import fcntl  # noqa: PLC0415

    # The holder has finished its work, and may have committed: a failure here must not fail it.
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    with contextlib.suppress(OSError):
        os.close(descriptor)
