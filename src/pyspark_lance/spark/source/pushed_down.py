"""What the JVM companion adds to options: hidden ones that start with ``_lance.``.

The companion plans, Python reads: the companion pins the version, and passes on conditions as
typed JSON and the limit of rows.  Users never set these options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.options.option_table import INTERNAL_PREFIX

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_lance.predicate.conditions import Predicate

CALL = f"{INTERNAL_PREFIX}call"
NAME = f"{INTERNAL_PREFIX}name"
"""The name of a table in a catalog."""
STATE = f"{INTERNAL_PREFIX}state"
"""Of a procedure whose tasks are run; it is known to this package alone."""
BATCHES_OF = f"{INTERNAL_PREFIX}batches_of"
"""The columns that a scan gives in batches."""
BASE = f"{INTERNAL_PREFIX}base"
"""Which version it is that a command changes, should the table be made anew."""
_ROOT, _VERSION = f"{INTERNAL_PREFIX}root", f"{INTERNAL_PREFIX}version"


@dataclass(frozen=True, slots=True)
class PushedDown:
    """What one scan, or all scans of a command that changes rows, are narrowed by.

    Attributes:
        filter: A condition as JSON text; None for all rows.
        limit: Rows that are enough; None for all.
    """

    filter: str | None = None
    limit: int | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> PushedDown:
        """Reads the hidden options."""
        limit = options.get(f"{INTERNAL_PREFIX}limit")
        return cls(
            filter=options.get(f"{INTERNAL_PREFIX}filter"),
            limit=None if limit is None else _whole(limit),
        )

    def predicate(self, schema: pa.Schema) -> Predicate | None:
        """The condition on columns of ``schema``."""
        if self.filter is None:
            return None
        from pyspark_lance.predicate.json import predicate_from_json

        return predicate_from_json(self.filter, schema)


NOTHING_PUSHED = PushedDown()


def pinned_version(options: Mapping[str, str]) -> tuple[str, int] | None:
    """Root and version that the companion decided on; None when it was not involved."""
    root, version = options.get(_ROOT), options.get(_VERSION)
    return None if root is None or version is None else (root, _whole(version))


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InvalidInputError(f"a hidden option holds {text!r} instead of a number") from error
