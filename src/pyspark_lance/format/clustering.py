"""Clustering: which fragments were sorted together, and by which columns.

Stored in the table's configuration, which Lance preserves.  It only shows which work is done
already; readers do not use it.  Pure, no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyroaring import FrozenBitMap

CLUSTERING_KEY: Final = "pyspark_lance.clustering"


@dataclass(frozen=True, slots=True)
class Clustering:
    """Fragments whose rows are sorted."""

    field_ids: tuple[int, ...]  # Of the columns, the first one first.
    order: str  # Public name of the order.
    fragment_ids: FrozenBitMap = field(default_factory=FrozenBitMap)
    num_split: int = 0  # Number of leading columns with one value per fragment.

    @classmethod
    def of(cls, config: Mapping[str, str]) -> Clustering | None:
        """Parse the configuration of a table; None if it has no valid entry."""
        try:
            known = json.loads(config[CLUSTERING_KEY])
            spans = [range(first, last + 1) for first, last in known["fragments"]]
            ids = FrozenBitMap().union(*map(FrozenBitMap, spans))
            fields = tuple(map(int, known["fields"]))
            return cls(fields, str(known["order"]), ids, int(known.get("split", 0)))
        except (KeyError, TypeError, ValueError, OverflowError):
            return None

    def to_text(self) -> str:
        """Return the text that ``of`` parses."""
        spans: list[list[int]] = []
        for number in self.fragment_ids:
            if spans and spans[-1][1] == number - 1:
                spans[-1][1] = number
            else:
                spans.append([number, number])
        own: dict[str, Any] = {"fields": self.field_ids, "order": self.order, "fragments": spans}
        if self.num_split:
            own["split"] = self.num_split
        return json.dumps(own, separators=(",", ":"))

    def satisfies(self, other: Clustering) -> bool:
        """Return whether rows in this order are also in the other order."""
        is_same = (self.field_ids, self.order) == (other.field_ids, other.order)
        return is_same and self.num_split >= other.num_split

    def after(
        self, config: Mapping[str, str], sorted_now: Iterable[int], live: Iterable[int]
    ) -> dict[str, str]:
        """Return the configuration after more fragments were sorted.

        ``live``: all existing fragments; others are dropped.
        """
        known = Clustering.of(config)
        before = FrozenBitMap()
        if known is not None and known.satisfies(self):
            before = known.fragment_ids
        now = (before | FrozenBitMap(sorted_now)) & FrozenBitMap(live)
        text = replace(self, fragment_ids=now).to_text()
        return {**config, CLUSTERING_KEY: text}
