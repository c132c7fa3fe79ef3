"""Spark's Python workers live long, and look after what they have loaded at every request."""

from __future__ import annotations

import gc
import os
import sys
from zipimport import zipimporter


def settle_worker() -> None:
    """Leaves what is loaded by now, mostly modules, out of what a worker does at every request.

    That is a full garbage collection, 30 ms for all the modules, and on Spark 4.1 a call of
    ``importlib.invalidate_caches``, by which each importer of an archive reads the whole list of
    its files anew: of PySpark's own archive there is one for every package, 0.1 s for them all.
    Spark names its archives in PYTHONPATH; they do not change while a process runs. Without an
    importer, the next import out of an archive makes one of a list that is kept elsewhere.
    """
    gc.freeze()
    given = {os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and finder.archive in given:
            sys.path_importer_cache.pop(path, None)
