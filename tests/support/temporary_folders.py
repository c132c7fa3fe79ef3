"""Temporary folders in memory, where a sync costs nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MEMORY = "/dev/shm"
# Some tests need two; others leave their files there until the end of the run.
_MIN_FREE = 6 << 30


def use_memory() -> None:
    """Temporary folders of this process and of those that it starts are in memory from here on.

    Where the system has that, with room enough, and no setting chooses another place.  A
    commit syncs several files, which takes a disk longer than all else takes us.
    """
    if not os.access(_MEMORY, os.W_OK):
        return
    if shutil.disk_usage(_MEMORY).free >= _MIN_FREE:
        os.environ.setdefault("TMPDIR", _MEMORY)
        tempfile.tempdir = None


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """An empty folder, in memory where the system has that."""
    there = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="pyspark-lance-", dir=there))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
