"""A store that stops a writer at one of its calls and runs other operations in between.

While ``directed()`` is in force, every local table that the package opens lies in such a store; the
calls of the writer that is being directed are numbered, and ``Director.scenes`` says what happens
at which number.  Nothing is random: the other operations run inside the call, and no threads race.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from faulty_store import FaultyStore

from pyspark_lance.errors import StorageError
from pyspark_lance.store import open_store as opening
from pyspark_lance.store.local_store import LocalStore

Call = Callable[[], object]
Others = Callable[[], None]
Scene = Callable[["Director", Call], object]


@dataclass
class Director:
    """What happens at which call of one writer.

    Attributes:
        scenes: By the number of the call.
        calls: Name and path of every call so far.
        at_next_list: Carried out before the writer's next listing: a request that was under way.
    """

    scenes: dict[int, Scene] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    at_next_list: list[Call] = field(default_factory=list)

    def around(self, name: str, path: str, call: Call) -> object:
        """The call, or what the scene makes of it."""
        number = len(self.calls)
        self.calls.append((name, path))
        while name == "list" and self.at_next_list:
            self.at_next_list.pop()()
        scene = self.scenes.get(number)
        return call() if scene is None else scene(self, call)


_directors: list[Director | None] = []


@contextlib.contextmanager
def in_charge(director: Director | None) -> Iterator[None]:
    """Calls go to this director; to none, inside a pause."""
    _directors.append(director)
    try:
        yield
    finally:
        _directors.pop()


class DirectedStore(FaultyStore):
    """A store whose calls the director of the moment sees."""

    def _run(self, call, path, action):
        director = _directors[-1] if _directors else None
        run = super()._run
        if director is None:
            return run(call, path, action)
        return director.around(call, path, lambda: run(call, path, action))

    def list(self, prefix, *, first=None):
        director = _directors[-1] if _directors else None
        run = super().list
        if director is None:
            return run(prefix, first=first)
        return iter(director.around("list", prefix, lambda: list(run(prefix, first=first))))

    def list_names(self, folder):
        director = _directors[-1] if _directors else None
        run = super().list_names
        if director is None:
            return run(folder)
        return director.around("list", folder, lambda: run(folder))


@contextlib.contextmanager
def directed() -> Iterator[None]:
    """Tables of this process are opened in directed stores."""
    opening.LocalStore = lambda root: DirectedStore(LocalStore(root))
    try:
        yield
    finally:
        opening.LocalStore = LocalStore


# Scenes ------------------------------------------------------------------------------------


def pause(others: Others) -> Scene:
    """Run the other operations before the call."""

    def scene(director, call):
        with in_charge(None):
            others()
        return call()

    return scene


def pause_after(
    others: Others, answer: Callable[[object], object] = lambda response: response
) -> Scene:
    """Run the operations after the call; ``answer`` makes of its answer the writer's response."""

    def scene(director, call):
        response = call()
        with in_charge(None):
            others()
        return answer(response)

    return scene


def fail(others: Others) -> Scene:
    """Run the other operations, and fail without the call."""

    def scene(director, call):
        with in_charge(None):
            others()
        return lost(None)

    return scene


def arrive_late(others: Others) -> Scene:
    """The call fails, and is carried out all the same when the writer looks next."""

    def scene(director, call):
        director.at_next_list.append(call)
        with in_charge(None):
            others()
        return lost(None)

    return scene


def lost(response: object) -> object:
    """The answer does not arrive."""
    raise StorageError("the answer was lost", where="a store that is directed")


def refused(response: object) -> object:
    """A client that repeats a request by itself hears of its own object that it is there."""
    return False
