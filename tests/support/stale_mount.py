"""A mount of a network file system on which calls fail with ``ESTALE``, by their numbers.

    with stale_mount(root) as mount:         counts calls
    with stale_mount(root, {3}):             the fourth call fails, and is not carried out
    with stale_mount(root, {3}, after=True)  it is carried out, and fails all the same
    with stale_mount(root, since=3):         the fourth call and all after it fail

Only calls that reach files below ``root`` count.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import mmap
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

BY_NAME = ("open", "stat", "scandir", "listdir", "link", "replace", "unlink", "mkdir")
BY_DESCRIPTOR = ("read", "fstat", "fsync")


@dataclass
class StaleMount:
    """What is called, and what fails.

    Attributes:
        root: Of the mount.
        fails: Numbers of calls.
        since: From this number on all calls fail.
        after: Whether calls that fail have been carried out.
        calls: Names so far.
    """

    root: str
    fails: Collection[int] = ()
    since: int | None = None
    after: bool = False
    calls: list[str] = field(default_factory=list)

    def around(self, name: str, full: str, call):
        if not full.startswith(self.root):
            return call()
        number = len(self.calls)
        self.calls.append(name)
        if number in self.fails or (self.since is not None and number >= self.since):
            if self.after:
                call()
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), full)
        return call()


class _Entries:
    """A listing each of whose steps is a call."""

    def __init__(self, mount: StaleMount, folder: str, inner) -> None:
        self._mount, self._folder, self._inner = mount, folder, inner

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self._inner.close()

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> _Entry:
        return _Entry(
            self._mount, self._mount.around("next", self._folder, lambda: next(self._inner))
        )


class _Entry:
    """One name of a listing on a file system that says of no name what it stands for."""

    def __init__(self, mount: StaleMount, inner: os.DirEntry) -> None:
        self._mount, self._inner, self.name = mount, inner, inner.name

    def _call(self, name: str, **how: object):
        call = getattr(self._inner, name)
        return self._mount.around(f"entry.{name}", self._inner.path, lambda: call(**how))

    def is_file(self) -> bool:
        return self._call("is_file")

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._call("is_dir", follow_symlinks=follow_symlinks)

    def stat(self) -> os.stat_result:
        return self._call("stat")


@contextlib.contextmanager
def stale_mount(
    root: object, fails: Collection[int] = (), *, since: int | None = None, after: bool = False
) -> Iterator[StaleMount]:
    """Calls of the system go through the mount."""
    mount = StaleMount(str(root), fails, since, after)
    real = {name: getattr(os, name) for name in (*BY_NAME, *BY_DESCRIPTOR)}
    real_file, real_map = builtins.open, mmap.mmap

    def by_name(name):
        def call(path, *rest, **how):
            full = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
            return mount.around(name, str(full), lambda: real[name](path, *rest, **how))

        return call

    def path_of(descriptor: int) -> str:
        return os.readlink(f"/proc/self/fd/{descriptor}")

    def by_descriptor(name):
        def call(descriptor, *rest):
            return mount.around(name, path_of(descriptor), lambda: real[name](descriptor, *rest))

        return call

    def scandir(path="."):
        found = mount.around("scandir", str(path), lambda: real["scandir"](path))
        return _Entries(mount, str(path), found) if str(path).startswith(mount.root) else found

    def file(path, *rest, **how):
        return mount.around("open file", str(path), lambda: real_file(path, *rest, **how))

    def map_file(descriptor, *rest, **how):
        full = path_of(descriptor) if descriptor >= 0 else ""
        return mount.around("mmap", full, lambda: real_map(descriptor, *rest, **how))

    try:
        for name in BY_NAME:
            setattr(os, name, by_name(name))
        for name in BY_DESCRIPTOR:
            setattr(os, name, by_descriptor(name))
        os.scandir = scandir
        builtins.open, mmap.mmap = file, map_file
        yield mount
    finally:
        for name, function in real.items():
            setattr(os, name, function)
        builtins.open, mmap.mmap = real_file, real_map
