"""Storage options in pickles, where no text of theirs is to be read.

Tasks carry them to the executors, and Spark may spill tasks to disks and show them in dumps.  This
is no encryption: who has a pickle and this package can open the store, as the executor does.
The mask is always the same, so that equal tasks have equal pickles.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Final

_MASK: Final = b"storage options of pyspark-lance"


def masked(options: Mapping[str, str]) -> bytes:
    """The options as bytes that hold none of their names or values."""
    return _applied(json.dumps(dict(options)).encode()) if options else b""


def unmasked(content: bytes) -> dict[str, str]:
    """The options that were masked."""
    options: dict[str, str] = json.loads(_applied(content)) if content else {}
    return options


def _applied(content: bytes) -> bytes:
    mask = hashlib.shake_256(_MASK).digest(len(content))
    mixed = int.from_bytes(content) ^ int.from_bytes(mask)
    return mixed.to_bytes(len(content))
