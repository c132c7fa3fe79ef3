"""Where a stream begins, what it shows, and how much a batch of it holds."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark_lance.format.field import Field
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.table.feed.change_mode import Deduplication
from pyspark_lance.table.feed.change_window import OPEN, Bound


class Updates(enum.Enum):
    """What a stream does with commits that do not only add rows."""

    SHOWN = "all changes are shown"
    REFUSED = "an error"
    SKIPPED = "skipChangeCommits"
    DELETES_IGNORED = "ignoreDeletes"


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Most of a batch; None is no limit."""

    versions: int | None = None
    rows: int | None = None
    num_bytes: int | None = None

    @property
    def are_none(self) -> bool:
        """Whether a batch takes all there is."""
        return self == StreamLimits()


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Where a stream begins, and what it shows.

    Attributes:
        starting: Where it begins; open is the snapshot of the newest version.
        begins_after_newest: It begins after what is newest with the first batch.
        updates: What becomes of commits that do not only add rows.
        mode: What to leave out of changes.
        fails_on_data_loss: Whether versions that were removed before they were read are an error.
    """

    starting: Bound = OPEN
    begins_after_newest: bool = False
    updates: Updates = Updates.REFUSED
    mode: Deduplication = Deduplication.DROP_CARRYOVERS
    fails_on_data_loss: bool = True

    def __post_init__(self) -> None:
        """Refuses a plain value."""
        check_enum(self.mode, Deduplication)

    @property
    def has_snapshot(self) -> bool:
        """Whether the stream begins with the rows of a snapshot, as inserts."""
        return self.starting.is_open and not self.begins_after_newest

    @property
    def done_before(self) -> int:
        """The version after which the stream begins that starts at a given one; 0 is none."""
        if self.starting.version is None:
            raise ValueError("the stream does not begin at a given version")
        return max(0, self.starting.version + self.starting.is_exclusive - 1)


@dataclass(frozen=True, slots=True)
class BatchView:
    """What is shown of a batch.

    Attributes:
        shown: All columns of the table, as shown.
        columns: Those that are wanted, possibly cut down.
        predicate: Rows of the feed to return; None for all.
        checks_text: Whether strings that are not UTF-8 are an error.
    """

    shown: Sequence[Field]
    columns: Sequence[Field]
    predicate: Predicate | None
    batch_rows: int
    checks_text: bool = False
