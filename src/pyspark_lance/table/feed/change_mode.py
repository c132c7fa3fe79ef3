"""What a change feed leaves out."""

from __future__ import annotations

import enum


class Deduplication(enum.StrEnum):
    """What a change feed leaves out.

    ``DROP_CARRYOVERS``: rows that a commit wrote anew without changing a value. ``NONE``: nothing
    that lineage calls an update. ``NET_CHANGES``: all but the net change of each row.
    """

    DROP_CARRYOVERS = "dropCarryovers"
    NONE = "none"
    NET_CHANGES = "netChanges"
