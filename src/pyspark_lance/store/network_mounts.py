"""Detection of network mounts, whose files are read instead of mapped.

A page of a mapped file is fetched when it is first touched.  If another machine has removed the
file, or the server does not respond, that kills the process (``SIGBUS``), while a read only fails.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Final

_KINDS: Final = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "fuse", "gfs2", "glusterfs", "gpfs", "lustre"}
    | {"nfs", "nfs4", "ocfs2", "orangefs", "smb3", "smbfs", "virtiofs"}
)
_MOUNTS: Final = "/proc/self/mountinfo"
# A process uses few mounts; each is looked up once.
_MAX_DEVICES: Final = 256


@lru_cache(maxsize=_MAX_DEVICES)
def is_on_network(device: int) -> bool:
    """Return whether the files of a device (``st_dev``) are known to be on another machine.

    Supported on Linux only; elsewhere all devices count as local.
    """
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            return device in network_devices(file.read())
    except (OSError, ValueError, IndexError):
        return False


def network_devices(mounts: str) -> frozenset[int]:
    """Return the devices of network mounts.

    ``mounts``: the contents of ``/proc/self/mountinfo``, one line per mount.
    """
    found = set()
    for line in mounts.splitlines():
        mount, _, rest = line.partition(" - ")
        kind = rest.split()[0]
        if kind in _KINDS or kind.startswith("fuse."):
            major, _, minor = mount.split()[2].partition(":")
            found.add(os.makedev(int(major), int(minor)))
    return frozenset(found)
