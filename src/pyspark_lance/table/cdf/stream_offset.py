"""Offsets of a stream in its checkpoint, and the settings of a stream.

Everything up to a version is done; inside the next step, or inside the first snapshot, a cursor
counts the rows that are done as well.  Spark compares offsets by their JSON text, so the keys have
one order, and absent values are left out.  A checkpoint of an older release has no identity of
the table; the next batch adds it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.field import Field
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.table.cdf.change_window import OPEN, Bound, Deduplication
from pyspark_lance.table.cdf.unchanged_rows import LiveRows
from pyspark_lance.table.version.table_identity import TableIdentity

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A position in the history of a table."""

    # Everything up to this version is done; -1 as long as the first snapshot is not.
    version: int = -1
    rows: int = 0  # Rows that are done of the step to ``target``, or of the snapshot ``target``.
    target: int | None = None  # The version that the cursor is in; None if ``rows`` is 0.
    # Of the table, by the version ``reached``; None if it is not known.
    identity: TableIdentity | None = field(default=None, compare=False)
    # The rows of ``version``, by which a later one with the same rows is recognized; None if
    # nothing could recognize them.
    live: LiveRows | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Reject an inconsistent cursor."""
        if (self.rows > 0) != (self.target is not None) or self.version < -1 or self.rows < 0:
            raise CorruptFileError(f"{self} is not a valid stream offset")

    @property
    def is_in_snapshot(self) -> bool:
        """Whether the first snapshot is not complete."""
        return self.version < 0

    @property
    def reached(self) -> int:
        """The newest version that was read, at least in part; 0 or less for none."""
        return self.version if self.target is None else self.target

    def to_json(self) -> dict[str, int | str]:
        """Serialize for the checkpoint."""
        known: dict[str, int | str] = {"f": _FORMAT, "v": self.version}
        if self.target is not None:
            known |= {"i": self.rows, "t": self.target}
        if self.identity is not None:
            known["id"] = self.identity.stamp
            if self.identity.first:
                known["first"] = self.identity.first
        if self.live is not None:
            known["live"] = self.live.to_text()
        return known

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> StreamOffset:
        """Parse the output of ``to_json``."""
        if value.get("f") != _FORMAT:
            raise CorruptFileError(
                f"the checkpoint of the stream holds {dict(value)!r}",
                hint="read it with the release that wrote it, or begin with a new checkpoint",
            )
        version, rows, target = value.get("v"), value.get("i", 0), value.get("t")
        if not isinstance(version, int) or not isinstance(rows, int):
            raise CorruptFileError(f"the checkpoint of the stream holds {dict(value)!r}")
        offset = cls(version, rows, target if isinstance(target, int) else None)
        stamp, first = value.get("id", ""), value.get("first", "")
        if not isinstance(stamp, str) or not isinstance(first, str):
            raise CorruptFileError(f"the checkpoint of the stream holds {dict(value)!r}")
        identity = TableIdentity(offset.reached, stamp, first) if stamp else None
        live = value.get("live")
        return replace(
            offset, identity=identity, live=None if live is None else LiveRows.from_text(str(live))
        )


BEGINNING = StreamOffset()
"""Where every stream begins.  What that means is decided with the first batch."""


class Updates(enum.Enum):
    """Policy of a stream for commits that do more than add rows."""

    SHOWN = "all changes are shown"
    REFUSED = "an error"
    SKIPPED = "skipChangeCommits"
    DELETES_IGNORED = "ignoreDeletes"


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Maximum size of a batch; None is no limit."""

    versions: int | None = None
    rows: int | None = None
    num_bytes: int | None = None

    @property
    def are_none(self) -> bool:
        """Whether a batch is unlimited."""
        return self == StreamLimits()


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Start and output of a stream."""

    starting: Bound = OPEN  # Where it begins; open is the snapshot of the newest version.
    begins_after_newest: bool = False  # It begins after what is newest with the first batch.
    updates: Updates = Updates.REFUSED  # What becomes of commits that do not only add rows.
    mode: Deduplication = Deduplication.DROP_CARRYOVERS  # What to leave out of changes.
    # Whether versions that were removed before they were read are an error.
    fails_on_data_loss: bool = True

    def __post_init__(self) -> None:
        """Reject a plain value."""
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
    """Rows and columns that a batch shows."""

    shown: Sequence[Field]  # All columns of the table, as shown.
    columns: Sequence[Field]  # Those that are wanted, possibly cut down.
    predicate: Predicate | None  # Rows of the feed to return; None for all.
    batch_rows: int
    checks_text: bool = False  # Whether strings that are not UTF-8 are an error.
