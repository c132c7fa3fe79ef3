"""Where a stream begins, what it shows, and how much a batch of it holds."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark_lance.format.field import Field
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.table.cdf.change_mode import Deduplication
from pyspark_lance.table.cdf.change_window import OPEN, Bound


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
    """Where a stream begins, and what it shows."""

    starting: Bound = OPEN  # Where it begins; open is the snapshot of the newest version.
    begins_after_newest: bool = False  # It begins after what is newest with the first batch.
    updates: Updates = Updates.REFUSED  # What becomes of commits that do not only add rows.
    mode: Deduplication = Deduplication.DROP_CARRYOVERS  # What to leave out of changes.
    # Whether versions that were removed before they were read are an error.
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
    """What is shown of a batch."""

    shown: Sequence[Field]  # All columns of the table, as shown.
    columns: Sequence[Field]  # Those that are wanted, possibly cut down.
    predicate: Predicate | None  # Rows of the feed to return; None for all.
    batch_rows: int
    checks_text: bool = False  # Whether strings that are not UTF-8 are an error.
