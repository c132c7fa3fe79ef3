"""How far a stream has followed a table: what its checkpoint keeps.

Everything up to a version is done; inside the next step, or inside the first snapshot, a cursor
counts the rows that are done as well.  Spark compares offsets by their JSON text, so the keys have
one order, and what is not said is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_lance.errors import CorruptFileError

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A place in the history of a table."""

    # Everything up to this version is done; -1 as long as the first snapshot is not.
    version: int = -1
    rows: int = 0  # Rows that are done of the step to ``target``, or of the snapshot ``target``.
    target: int | None = None  # The version that the cursor is in; None if ``rows`` is 0.

    def __post_init__(self) -> None:
        """Refuses a cursor that is nowhere."""
        if (self.rows > 0) != (self.target is not None) or self.version < -1 or self.rows < 0:
            raise CorruptFileError(f"{self} is not a valid stream offset")

    @property
    def is_in_snapshot(self) -> bool:
        """Whether the first snapshot is not done."""
        return self.version < 0

    def to_json(self) -> dict[str, int]:
        """As the checkpoint keeps it."""
        known = {"f": _FORMAT, "v": self.version}
        return known if self.target is None else {**known, "i": self.rows, "t": self.target}

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> StreamOffset:
        """Reads what ``to_json`` made."""
        if value.get("f") != _FORMAT:
            raise CorruptFileError(
                f"the checkpoint of the stream holds {dict(value)!r}",
                hint="read it with the release that wrote it, or begin with a new checkpoint",
            )
        version, rows, target = value.get("v"), value.get("i", 0), value.get("t")
        if not isinstance(version, int) or not isinstance(rows, int):
            raise CorruptFileError(f"the checkpoint of the stream holds {dict(value)!r}")
        return cls(version, rows, target if isinstance(target, int) else None)


BEGINNING = StreamOffset()
"""Where every stream begins.  What that means is decided with the first batch."""
