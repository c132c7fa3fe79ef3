"""Reduce the overhead per request of Spark's long-lived Python workers."""

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
    """Exclude loaded modules from the work that a worker repeats for every request.

    A worker runs a full garbage collection, 30 ms for all modules, and on Spark 4.1
    ``importlib.invalidate_caches``, after which each importer of an archive reads the list of its
    files again. PySpark's archive has an importer for every package, 0.1 s for all of them.
    Spark's archives are in PYTHONPATH and do not change while a process runs. After an importer is
    dropped, the next import from the archive creates one from the cached list of files.
    """
    silence_abandoned_workers()
    warm_daemon()
    gc.freeze()
    forget_archives()


def forget_archives() -> None:
    """Drop the importers of Spark's archives."""
    given = {os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and finder.archive in given:
            sys.path_importer_cache.pop(path, None)


def warm_daemon() -> bool:
    """Make the daemon that forked this worker import the modules of tasks, for later workers.

    Returns:
        False for PySpark's own daemon, and if the daemon had done so before it forked this worker.
    """
    daemon: Any = sys.modules.get("__main__")
    if not _runs(_DAEMON) or daemon.is_warm or daemon.process != os.getppid():
        return False
    daemon.is_warm = True  # in this process: the worker asks only once
    os.kill(daemon.process, signal.SIGUSR1)
    return True


def _runs(module: str) -> bool:
    """Return whether this process, or the one that forked it, was started to run ``module``."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == module


def end_quietly() -> None:
    """Silence the end of a worker, as ``trim_worker_overhead`` does, in one that runs no task.

    Spark imports this package in a worker to look up the data source, and keeps the worker.
    """
    if _runs("pyspark.daemon"):
        silence_abandoned_workers()


def silence_abandoned_workers() -> None:
    """Make PySpark's daemon in this process and its forks silent about abandoned workers."""
    traceback.print_exc = _print_unless_abandoned


def _print_unless_abandoned(*args: Any, **kwargs: Any) -> None:
    """Call ``traceback.print_exc`` except for a worker that the JVM has abandoned.

    PySpark's daemon prints a broken pipe of such a worker though there is no error: the session
    ended, a limit needed no more rows, or the worker was idle for a minute.
    """
    error = sys.exc_info()[1]
    if not (isinstance(error, BrokenPipeError) and _is_in_daemon(error.__traceback__)):
        _print_exc(*args, **kwargs)


def _is_in_daemon(trace: TracebackType | None) -> bool:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = None if trace is None else trace.tb_frame.f_code
    return (
        code is not None
        and code.co_name == "worker"
        and os.path.basename(code.co_filename) == "daemon.py"
    )
