"""Clustering: which fragments were sorted together, and by which columns.

Kept among the configuration of the table, where Lance leaves it alone.  It only tells which work is
done already: nobody reads rows by it.  Pure, no I/O.
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
    """Fragments whose rows are in an order."""

    field_ids: tuple[int, ...]  # Of the columns, the first one first.
    order: str  # As users call it.
    fragment_ids: FrozenBitMap = field(default_factory=FrozenBitMap)
    num_split: int = 0  # Of the first so many columns each fragment has one value.

    @classmethod
    def of(cls, config: Mapping[str, str]) -> Clustering | None:
        """What the configuration of a table says; None if it says nothing that is understood."""
        try:
            known = json.loads(config[CLUSTERING_KEY])
            spans = [range(first, last + 1) for first, last in known["fragments"]]
            ids = FrozenBitMap().union(*map(FrozenBitMap, spans))
            fields = tuple(map(int, known["fields"]))
            return cls(fields, str(known["order"]), ids, int(known.get("split", 0)))
        except (KeyError, TypeError, ValueError, OverflowError):
            return None

    def to_text(self) -> str:
        """What ``of`` understands."""
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

    def is_as_good_as(self, other: Clustering) -> bool:
        """Whether rows that are in this order are in the other one, too."""
        is_same = (self.field_ids, self.order) == (other.field_ids, other.order)
        return is_same and self.num_split >= other.num_split

    def after(
        self, config: Mapping[str, str], sorted_now: Iterable[int], live: Iterable[int]
    ) -> dict[str, str]:
        """The configuration after more fragments were sorted so.

        ``live``: all fragments there are; others are forgotten.
        """
        known = Clustering.of(config)
        before = FrozenBitMap()
        if known is not None and known.is_as_good_as(self):
            before = known.fragment_ids
        now = (before | FrozenBitMap(sorted_now)) & FrozenBitMap(live)
        text = replace(self, fragment_ids=now).to_text()
        return {**config, CLUSTERING_KEY: text}
