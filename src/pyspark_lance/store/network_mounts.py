"""Network mounts: folders of other machines, whose files are read and never mapped.

A page of a mapped file that is not in memory yet is fetched when it is touched.  Where another
machine has removed the file meanwhile, or the server does not answer, that ends the process
(``SIGBUS``), while a read only fails.
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
# A process sees few mounts; one more is looked up when it is first met.
_MAX_DEVICES: Final = 256


@lru_cache(maxsize=_MAX_DEVICES)
def is_on_network(device: int) -> bool:
    """Whether the files of a device (``st_dev``) are those of another machine, as far as is known.

    Only Linux tells; anything else counts as a disk of this machine.
    """
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            return device in network_devices(file.read())
    except (OSError, ValueError, IndexError):
        return False


def network_devices(mounts: str) -> frozenset[int]:
    """The devices of network mounts.

    ``mounts``: as ``/proc/self/mountinfo`` has it: a line for each mount.
    """
    found = set()
    for line in mounts.splitlines():
        mount, _, rest = line.partition(" - ")
        kind = rest.split()[0]
        if kind in _KINDS or kind.startswith("fuse."):
            major, _, minor = mount.split()[2].partition(":")
            found.add(os.makedev(int(major), int(minor)))
    return frozenset(found)
