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
    remaining = iter(sources)
    started: deque[tuple[int, Future[_StartedSource[_B]]]] = deque()
    with ThreadPoolExecutor(_MAX_SOURCES, thread_name_prefix="lance-ahead") as threads:
        try:
            postponed: Source[_B] | None = None
            while True:
                while len(started) < _MAX_SOURCES:
                    source = postponed or next(remaining, None)
                    postponed = source
                    num_buffered = sum(num_bytes for num_bytes, _ in started)
                    # At least one source is prefetched.
                    if source is None or (
                        len(started) > 1 and num_buffered + source.num_bytes > _MAX_BYTES
                    ):
                        break
                    started.append((source.num_bytes, threads.submit(_begin, source)))
                    postponed = None
                if not started:
                    return
                yield from started[0][1].result().batches()
                started.popleft()
        finally:
            for _, future in started:
                future.cancel()


@dataclass(frozen=True, slots=True)
class _StartedSource(Generic[_B]):
    """The prefetched batches of a source."""

    first: tuple[_B, ...]
    rest: Iterator[_B]

    def batches(self) -> Iterator[_B]:
        yield from self.first
        yield from self.rest


def _begin(source: Source[_B]) -> _StartedSource[_B]:
    batches = source.batches()
    for batch in batches:
        return _StartedSource((batch,), batches)
    return _StartedSource((), batches)
