"""PySpark's daemon, which preloads the imports of workers after the first Lance task.

Spark starts a daemon that forks the workers of tasks. Each worker imports the modules of its tasks,
which takes half a second of processor time for a Lance table. ``spark.python.daemon.module`` names
this module, which runs PySpark's daemon. The first worker with a Lance task sends it a signal; then
it imports the modules once for all workers that it forks later. Sessions without Lance tables
behave as with PySpark's own daemon.
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
from pyspark_lance.spark.source.worker_overhead import forget_archives, silence_abandoned_workers

_WORKER = "pyspark.worker"
_ALLOCATOR = "JE_ARROW_MALLOC_CONF"

# Workers inherit the values at the time of their fork.
process = os.getpid()
# On other platforms than Linux, system libraries cannot be used on both sides of a fork.
is_warm = sys.platform != "linux"


def prepare() -> None:
    """Make this process, a daemon, import modules when it gets the signal of ``warm_daemon``.

    All of its workers end without a traceback when Spark abandons them.
    """
    silence_abandoned_workers()
    signal.signal(signal.SIGUSR1, lambda *_: _warm())
    os.register_at_fork(after_in_child=_reset_worker)


def _warm() -> None:
    global is_warm
    if is_warm:
        return
    is_warm = True
    worker = sys.argv[1:2] if sys.argv[1:] and sys.argv[1].startswith("pyspark.") else [_WORKER]
    with _without_allocator_thread():
        for name in (*worker, *READS, *WRITES):
            with suppress(Exception):  # the task that needs the module raises the error
                importlib.import_module(name)
    forget_archives()
    gc.freeze()


@contextmanager
def _without_allocator_thread() -> Iterator[None]:
    """Keep Arrow's allocator from starting a thread, whose locks would stay locked after a fork."""
    if _ALLOCATOR in os.environ:
        yield
        return
    os.environ[_ALLOCATOR] = "background_thread:false"
    try:
        yield
    finally:
        del os.environ[_ALLOCATOR]


def _reset_worker() -> None:
    if os.getppid() != process:
        return  # forked by a worker
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()  # otherwise all workers would generate the same random numbers


if __name__ == "__main__":
    prepare()
    manager()
