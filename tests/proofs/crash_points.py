"""The points at which a writer on a local disk can be killed, and the killing.

A writer makes names and contents in few ways: it syncs a file, gives it its name by ``replace`` or
by ``link``, or removes it; an external manifest store records a version and its final path.
Each of these calls is a point, before it and after it; at a sync half of the file can be there.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import stat
from collections.abc import Callable, Iterator

from pyspark_lance.store import local_store
from pyspark_lance.store.external_manifest_tables import SqliteManifests

WATCHED = ("fsync", "replace", "link", "unlink")
MAX_SECONDS = 120


class _WatchedSystem:
    """The module ``os`` as the local store sees it."""

    def __init__(self, watch: Callable) -> None:
        self._watch = watch

    def __getattr__(self, name: str) -> object:
        real = getattr(os, name)
        if name not in WATCHED:
            return real
        return lambda *arguments: self._watch(name, real, *arguments)


@contextlib.contextmanager
def watched(watch: Callable) -> Iterator[None]:
    """``watch(name, real, *arguments)`` is called in place of each of the calls."""
    insert, replace_path = SqliteManifests.insert, SqliteManifests.replace_path
    local_store.os = _WatchedSystem(watch)
    SqliteManifests.insert = lambda *a: watch("insert", insert, *a)
    SqliteManifests.replace_path = lambda *a: watch("replace_path", replace_path, *a)
    try:
        yield
    finally:
        local_store.os = os
        SqliteManifests.insert, SqliteManifests.replace_path = insert, replace_path


def points_of(calls: list[tuple[str, str]]) -> list[tuple[int, str, str]]:
    """Number of the call, the moment, and the name of the point."""
    points = []
    for number, (name, folder) in enumerate(calls):
        moments = ("half", "before", "after") if name == "fsync" and folder else ("before", "after")
        points += [(number, moment, f"{moment} {name} {folder}".strip()) for moment in moments]
    return points


def calls_of(work: Callable[[], object], root: str) -> list[tuple[str, str]]:
    """The calls that the work makes, each with its folder in the table; in a process of its own."""
    receiver, sender = os.pipe()
    child = os.fork()
    if not child:
        calls: list[tuple[str, str]] = []

        def note(name, real, *arguments):
            calls.append((name, _folder(root, arguments)))
            return real(*arguments)

        with watched(note):
            work()
        with os.fdopen(sender, "wb") as file:
            pickle.dump(calls, file)
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as file:
        content = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"the work itself failed with {status}"
    return pickle.loads(content)


def kill_at(work: Callable[[], object], number: int, moment: str) -> bool:
    """Run the work in a process that is killed at the point; whether it came there."""
    child = os.fork()
    if not child:
        signal.alarm(MAX_SECONDS)  # one that hangs is none that was killed
        count = -1

        def watch(name, real, *arguments):
            nonlocal count
            count += 1
            if count != number:
                return real(*arguments)
            if moment == "after":
                real(*arguments)
            if moment == "half" and _is_file(arguments[0]):  # threads change places
                os.ftruncate(arguments[0], os.fstat(arguments[0]).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("unreachable")

        code = 1
        with contextlib.suppress(Exception), watched(watch):
            work()
            code = 0
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def _is_file(descriptor: object) -> bool:
    return isinstance(descriptor, int) and stat.S_ISREG(os.fstat(descriptor).st_mode)


def _folder(root: str, arguments: tuple) -> str:
    """The folder of the table in which a call works; '' for a folder itself."""
    first = arguments[0]
    if isinstance(first, int):
        first = os.readlink(f"/proc/self/fd/{first}")
        if os.path.isdir(first):
            return ""
    if not isinstance(first, str):
        return "external"
    inside = os.path.relpath(first, root).split("/")
    return "/".join(inside[:-1]) if inside[0] in ("_refs", "tree") else inside[0]
