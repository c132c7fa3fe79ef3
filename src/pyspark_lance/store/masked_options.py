"""Masking of storage options in pickles, so that they contain no readable secrets.

Tasks carry the options to the executors, and Spark may spill tasks to disk and show them in dumps.
Masking is not encryption: with the pickle and this package, anyone can open the store.  The mask is
constant, so that equal tasks have equal pickles.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Final

_MASK: Final = b"storage options of pyspark-lance"


def mask_options(options: Mapping[str, str]) -> bytes:
    """Return the options as bytes that do not contain their names or values."""
    return _applied(json.dumps(dict(options)).encode()) if options else b""


def unmask_options(content: bytes) -> dict[str, str]:
    """Return the options from masked bytes."""
    options: dict[str, str] = json.loads(_applied(content)) if content else {}
    return options


def _applied(content: bytes) -> bytes:
    mask = hashlib.shake_256(_MASK).digest(len(content))
    mixed = int.from_bytes(content) ^ int.from_bytes(mask)
    return mixed.to_bytes(len(content))
