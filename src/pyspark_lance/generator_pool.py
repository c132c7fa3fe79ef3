"""A thread pool for generators, which the garbage collector may close."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor


class GeneratorPool(ThreadPoolExecutor):
    """A thread pool whose ``with`` block a generator may leave at a ``yield``.

    The garbage collector closes an abandoned generator in any thread, also in one that holds the
    lock of ``threading`` that joining a thread needs before Python 3.13: joining there waits
    forever.  So the threads are not joined if the generator is closed; they end by themselves.  On
    any error, what has not begun is cancelled.
    """

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.shutdown(wait=kind is not GeneratorExit, cancel_futures=kind is not None)
