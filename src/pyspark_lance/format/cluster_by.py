"""ClusterBy: the clustering columns of a table, as stored in its configuration.

Compactions without columns of their own sort rows by these.  Columns are stored by name, since an
overwrite gives other ids to columns of the same names.  Pure, no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark_lance.format.field import Field
from pyspark_lance.format.schema import LanceSchema

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
    asked = ClusterBy.of(config)
    if asked is None:
        return config
    ids = dict(_paths(before.fields))
    names = {field_id: name for name, field_id in _paths(after.fields)}
    columns = tuple(names.get(ids.get(name, -1), name) for name in asked.columns)
    if columns == asked.columns:
        return config
    return {**config, CLUSTER_BY_KEY: replace(asked, columns=columns).to_text()}


def _paths(fields: Iterable[Field], above: str = "") -> Iterator[tuple[str, int]]:
    """The names of columns and of fields of structs, with their ids."""
    for field in fields:
        name = above + field.name
        yield name, field.id
        if field.is_struct:
            yield from _paths(field.children, f"{name}.")
