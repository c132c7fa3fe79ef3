"""What a change feed leaves out, and in which form it shows the rest."""

from __future__ import annotations

import enum


class Deduplication(enum.StrEnum):
    """What a change feed leaves out.

    ``DROP_CARRYOVERS``: rows that a commit rewrote without changing a value. ``NONE``: nothing
    that lineage calls an update. ``NET_CHANGES``: all but the net change of each row.
    """

    DROP_CARRYOVERS = "dropCarryovers"
    NONE = "none"
    NET_CHANGES = "netChanges"


class Layout(enum.StrEnum):
    """The form of a change feed.

    ``ROWS``: the columns of the table and of the change, two rows for an update. ``DEBEZIUM``: the
    row before the change and the one after it, as two columns.
    """

    ROWS = "rows"
    DEBEZIUM = "debezium"
