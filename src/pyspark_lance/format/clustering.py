"""Clustering: which fragments were sorted together, and by which columns.

Kept among the configuration of the table, where Lance leaves it alone.  It only tells which work is
done already: nobody reads rows by it.  Pure, no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyroaring import FrozenBitMap

CLUSTERING_KEY: Final = "pyspark_lance.clustering"


@dataclass(frozen=True, slots=True)
class Clustering:
    """Fragments whose rows are in an order."""

    field_ids: tuple[int, ...]  # Of the columns, the first one first.
    order: str  # As users call it.
    fragment_ids: FrozenBitMap = field(default_factory=FrozenBitMap)

    @classmethod
    def of(cls, config: Mapping[str, str]) -> Clustering | None:
        """What the configuration of a table says; None if it says nothing that is understood."""
        try:
            known = json.loads(config[CLUSTERING_KEY])
            spans = [range(first, last + 1) for first, last in known["fragments"]]
            ids = FrozenBitMap().union(*map(FrozenBitMap, spans))
            return cls(tuple(map(int, known["fields"])), str(known["order"]), ids)
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
        own = {"fields": self.field_ids, "order": self.order, "fragments": spans}
        return json.dumps(own, separators=(",", ":"))

    def after(
        self, config: Mapping[str, str], sorted_now: Iterable[int], live: Iterable[int]
    ) -> dict[str, str]:
        """The configuration after more fragments were sorted so.

        ``live``: all fragments there are; others are forgotten.
        """
        known = Clustering.of(config)
        is_same = known is not None and (known.field_ids, known.order) == (
            self.field_ids,
            self.order,
        )
        before = known.fragment_ids if known is not None and is_same else FrozenBitMap()
        now = (before | FrozenBitMap(sorted_now)) & FrozenBitMap(live)
        text = Clustering(self.field_ids, self.order, now).to_text()
        return {**config, CLUSTERING_KEY: text}
