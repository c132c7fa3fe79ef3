"""Several sources of batches, read one after another; of those to come, the first batches are made.

To begin with a file takes some round trips to the store, which are waited for together this way.
Pure but for threads: knows neither files nor stores.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

_MAX_SOURCES: Final = 16
# A task of the usual size: all of it is asked for at once.
_MAX_BYTES: Final = 144 << 20

_B = TypeVar("_B")


@dataclass(frozen=True, slots=True)
class Source(Generic[_B]):
    """Batches that come from one place.

    ``num_bytes``: about what is held once the first batch is made.
    """

    num_bytes: int
    batches: Callable[[], Iterator[_B]]


def read_ahead(sources: Iterable[Source[_B]]) -> Iterator[_B]:
    """All batches of all sources, in order.

    A source goes on only when those before it are done; so what is held is bounded by the sources
    that have begun, which are few or small.
    """
    coming = iter(sources)
    begun: deque[tuple[int, Future[_Begun[_B]]]] = deque()
    with ThreadPoolExecutor(_MAX_SOURCES, thread_name_prefix="lance-ahead") as threads:
        try:
            held_back: Source[_B] | None = None
            while True:
                while len(begun) < _MAX_SOURCES:
                    source = held_back or next(coming, None)
                    held_back = source
                    held = sum(num_bytes for num_bytes, _ in begun)
                    # One is always ahead of the one that is read.
                    if source is None or (len(begun) > 1 and held + source.num_bytes > _MAX_BYTES):
                        break
                    begun.append((source.num_bytes, threads.submit(_begin, source)))
                    held_back = None
                if not begun:
                    return
                yield from begun[0][1].result().batches()
                begun.popleft()
        finally:
            for _, future in begun:
                future.cancel()


@dataclass(frozen=True, slots=True)
class _Begun(Generic[_B]):
    """What has come of a source so far."""

    first: tuple[_B, ...]
    rest: Iterator[_B]

    def batches(self) -> Iterator[_B]:
        yield from self.first
        yield from self.rest


def _begin(source: Source[_B]) -> _Begun[_B]:
    batches = source.batches()
    for batch in batches:
        return _Begun((batch,), batches)
    return _Begun((), batches)
