"""Stale handles: retry calls whose file an NFS client has cached and the server has removed.

A client of NFS caches which file a name refers to.  If another machine removed or replaced that
file, or its folder, a call may fail with ``ESTALE`` before the client has looked the name up again.
So the error neither means that the file exists nor that it is missing: the call is repeated by
name.  If it keeps failing, that is a failure of the store, never a missing object.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import Final, TypeVar

_T = TypeVar("_T")

# The first failure makes the client drop its cached name.
_PAUSES_S: Final = (0.0, 0.01, 0.05, 0.25)


def retry_stale_handles(call: Callable[[], _T]) -> _T:
    """Return the result of ``call``, repeated while a handle is stale.

    ``call``: opens the file by name, so that each attempt looks the name up; must be repeatable.
    """
    for pause in _PAUSES_S:
        try:
            return call()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            time.sleep(pause)
    return call()
