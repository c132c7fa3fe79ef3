"""PySpark's daemon, whose workers need no imports of their own once one of them has had a task.

Spark starts a daemon that forks the workers of tasks, and each worker imports what its tasks need:
half a second of the processor for a Lance table. ``spark.python.daemon.module`` names this module
in the place of PySpark's. It runs that one as it is; but the first worker that has a task of ours
sends it a signal, and then it imports once what all workers that it forks afterwards begin with.
Sessions without Lance tables have PySpark's daemon, and nothing else.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark.daemon import manager

from pyspark_lance.spark.source.early_worker import READS, WRITES
from pyspark_lance.spark.source.worker_overhead import forget_archives, print_no_left_workers

_WORKER = "pyspark.worker"
_ALLOCATOR = "JE_ARROW_MALLOC_CONF"

# Workers have these as they were at their fork.
process = os.getpid()
# Elsewhere than on Linux, libraries of the system may not be used on both sides of a fork.
is_warm = sys.platform != "linux"


def prepare() -> None:
    """Makes this process, a daemon, import when it gets the signal of ``warm_daemon``.

    Its workers end without a traceback where Spark leaves them, those that do nothing of ours too.
    """
    print_no_left_workers()
    signal.signal(signal.SIGUSR1, lambda *_: _warm())
    os.register_at_fork(after_in_child=_settle_worker)


def _warm() -> None:
    global is_warm
    if is_warm:
        return
    is_warm = True
    asked = sys.argv[1:2] if sys.argv[1:] and sys.argv[1].startswith("pyspark.") else [_WORKER]
    with _without_allocator_thread():
        for name in (*asked, *READS, *WRITES):
            with suppress(Exception):  # the task that needs it says what is wrong
                importlib.import_module(name)
    forget_archives()
    gc.freeze()


@contextmanager
def _without_allocator_thread() -> Iterator[None]:
    """A thread is not there on the other side of a fork, and what it holds stays locked."""
    if _ALLOCATOR in os.environ:
        yield
        return
    os.environ[_ALLOCATOR] = "background_thread:false"
    try:
        yield
    finally:
        del os.environ[_ALLOCATOR]


def _settle_worker() -> None:
    if os.getppid() != process:
        return  # forked by a worker
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()  # else all workers would have the same random numbers


if __name__ == "__main__":
    prepare()
    manager()
