"""Read sources of batches sequentially, and prefetch the first batches of the next ones.

Opening a file takes several round trips to the store, which are overlapped this way. Independent of
files and stores.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

_MAX_SOURCES: Final = 16
# The size of a usual task, which is requested at once.
_MAX_BYTES: Final = 144 << 20

_B = TypeVar("_B")


@dataclass(frozen=True, slots=True)
class Source(Generic[_B]):
    """A source of batches.

    ``num_bytes``: estimated memory once the first batch is decoded.
    """

    num_bytes: int
    batches: Callable[[], Iterator[_B]]


def read_ahead(sources: Iterable[Source[_B]]) -> Iterator[_B]:
    """Yield all batches of all sources, in order.

    A source continues only after the previous ones are exhausted, so memory is bounded by the
    started sources, which are few or small.
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
                    # At least one source is prefetched.
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
    """The prefetched batches of a source."""

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
