"""A folder where a sync costs nothing, for tests of many small commits."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MEMORY = "/dev/shm"


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """An empty folder, in memory where the system has that."""
    there = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="pyspark-lance-", dir=there))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
