"""Spark's Python workers live long, and look after what they have loaded at every request."""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
from types import TracebackType
from typing import Any
from zipimport import zipimporter

_print_exc = traceback.print_exc
_DAEMON = "pyspark_lance.spark.daemon"


def trim_worker_overhead() -> None:
    """Leaves what is loaded by now, mostly modules, out of what a worker does at every request.

    That is a full garbage collection, 30 ms for all the modules, and on Spark 4.1 a call of
    ``importlib.invalidate_caches``, by which each importer of an archive reads the whole list of
    its files anew: of PySpark's own archive there is one for every package, 0.1 s for them all.
    Spark names its archives in PYTHONPATH; they do not change while a process runs. Without an
    importer, the next import out of an archive makes one of a list that is kept elsewhere.
    """
    print_no_left_workers()
    warm_daemon()
    gc.freeze()
    forget_archives()


def forget_archives() -> None:
    """Drops the importers of the archives that Spark names."""
    given = {os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and finder.archive in given:
            sys.path_importer_cache.pop(path, None)


def warm_daemon() -> bool:
    """Has the daemon that forked this worker import what tasks need, for the workers to come.

    Returns:
        False where that is PySpark's own daemon, or where it had done so before it forked this one.
    """
    daemon: Any = sys.modules.get("__main__")
    if not _runs(_DAEMON) or daemon.is_warm or daemon.process != os.getppid():
        return False
    daemon.is_warm = True  # here; this worker asks only once
    os.kill(daemon.process, signal.SIGUSR1)
    return True


def _runs(module: str) -> bool:
    """Whether this process, or the one that forked it, was started to run ``module``."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == module


def end_quietly() -> None:
    """What ``trim_worker_overhead`` does for the end of a worker that may do no work of ours.

    Spark imports this package in a worker to learn the name of the source, and keeps the worker.
    """
    if _runs("pyspark.daemon"):
        print_no_left_workers()


def print_no_left_workers() -> None:
    """PySpark's daemon in this process, and in its forks, is silent about workers that are left."""
    traceback.print_exc = _print_unless_left


def _print_unless_left(*args: Any, **kwargs: Any) -> None:
    """Like ``traceback.print_exc``, but silent about a worker that the JVM has left.

    PySpark's daemon prints that the last bytes of such a worker went nowhere, though nothing is
    wrong: the session ends, a limit has had enough of the rows, or there was no task for a minute.
    """
    error = sys.exc_info()[1]
    if not (isinstance(error, BrokenPipeError) and _is_daemons(error.__traceback__)):
        _print_exc(*args, **kwargs)


def _is_daemons(trace: TracebackType | None) -> bool:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = None if trace is None else trace.tb_frame.f_code
    return (
        code is not None
        and code.co_name == "worker"
        and os.path.basename(code.co_filename) == "daemon.py"
    )
