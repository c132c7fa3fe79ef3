"""Stale handles: what a network file system says of a name that it remembers and the server not.

A client of NFS remembers which file a name stands for.  Where another machine removed or replaced
that file, or the folder it is in, a call may fail with ``ESTALE`` before the client has looked the
name up anew.  So that error says nothing of what is there now, neither that there is a file nor
that there is none: the call is made again, by the name.  Where it fails for good, it is a failure
of the store, never a missing object.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import Final, TypeVar

_T = TypeVar("_T")

# With the first failure the client forgets what it knew of the name.
_PAUSES_S: Final = (0.0, 0.01, 0.05, 0.25)


def looked_up_anew(call: Callable[[], _T]) -> _T:
    """What ``call`` returns, which is made again as long as a handle is stale.

    ``call``: names the file itself, so that each time the name is looked up; may be made again.
    """
    for pause in _PAUSES_S:
        try:
            return call()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            time.sleep(pause)
    return call()
