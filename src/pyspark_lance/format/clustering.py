"""ClusterBy and Clustering: the clustering columns of a table, and the fragments sorted together.

Both are stored in the table's configuration, which Lance preserves. Compactions without columns of
their own sort rows by ``ClusterBy``, which names columns, since an overwrite gives other ids to
columns of the same names. ``Clustering`` shows which work is done already; readers do not use it.
Pure, no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyroaring import FrozenBitMap

from pyspark_lance.format.field import Field
from pyspark_lance.format.schema import LanceSchema

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


CLUSTER_BY_KEY: Final = "pyspark_lance.cluster_by"
DEFAULT_ORDER: Final = "hilbert"


@dataclass(frozen=True, slots=True)
class ClusterBy:
    """Clustering columns and order of a table."""

    columns: tuple[str, ...]  # As spelled in the schema; a field of a struct is ``struct.field``.
    order: str = DEFAULT_ORDER  # Public name of the order.

    @classmethod
    def of(cls, config: Mapping[str, str]) -> ClusterBy | None:
        """Parse the configuration of a table; None if it has no valid entry."""
        try:
            known = json.loads(config[CLUSTER_BY_KEY])
            columns, order = tuple(map(str, known["columns"])), str(known["order"])
        except (KeyError, TypeError, ValueError):
            return None
        return cls(columns, order) if columns else None

    def to_text(self) -> str:
        """Return the text that ``of`` parses; without columns, that there are none."""
        return json.dumps({"columns": self.columns, "order": self.order}, separators=(",", ":"))

    def within(self, schema: LanceSchema, field_ids: Iterable[int]) -> tuple[str, ...]:
        """Return those of the columns whose ids are among some fields of a schema."""
        paths, ids = dict(_paths(schema.fields)), set(field_ids)
        return tuple(name for name in self.columns if paths.get(name) in ids)


def with_renamed_columns(
    config: Mapping[str, str], before: LanceSchema, after: LanceSchema
) -> Mapping[str, str]:
    """Return the configuration after columns, which keep their ids, were renamed."""
    requested = ClusterBy.of(config)
    if requested is None:
        return config
    ids = dict(_paths(before.fields))
    names = {field_id: name for name, field_id in _paths(after.fields)}
    columns = tuple(names.get(ids.get(name, -1), name) for name in requested.columns)
    if columns == requested.columns:
        return config
    return {**config, CLUSTER_BY_KEY: replace(requested, columns=columns).to_text()}


def _paths(fields: Iterable[Field], above: str = "") -> Iterator[tuple[str, int]]:
    """The names of columns and of fields of structs, with their ids."""
    for node in fields:
        name = above + node.name
        yield name, node.id
        if node.is_struct:
            yield from _paths(node.children, f"{name}.")
