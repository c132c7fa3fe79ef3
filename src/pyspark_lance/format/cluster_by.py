"""ClusterBy: the columns that a table is to be clustered by, as its configuration keeps them.

Compactions that name no columns of their own sort rows by these.  Columns are kept by name, since
an overwrite gives other ids to columns of the same names.  Pure, no I/O.
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
    """What a table asks of compactions."""

    columns: tuple[str, ...]  # As the table spells them; a field of a struct is ``struct.field``.
    order: str = DEFAULT_ORDER  # As users call it.

    @classmethod
    def of(cls, config: Mapping[str, str]) -> ClusterBy | None:
        """What the configuration of a table asks; None for nothing that is understood."""
        try:
            known = json.loads(config[CLUSTER_BY_KEY])
            columns, order = tuple(map(str, known["columns"])), str(known["order"])
        except (KeyError, TypeError, ValueError):
            return None
        return cls(columns, order) if columns else None

    def to_text(self) -> str:
        """What ``of`` understands; without columns, that there are none."""
        return json.dumps({"columns": self.columns, "order": self.order}, separators=(",", ":"))

    def within(self, schema: LanceSchema, field_ids: Iterable[int]) -> tuple[str, ...]:
        """Those of the columns that are some fields of a schema."""
        paths, ids = dict(_paths(schema.fields)), set(field_ids)
        return tuple(name for name in self.columns if paths.get(name) in ids)


def with_renamed_columns(
    config: Mapping[str, str], before: LanceSchema, after: LanceSchema
) -> Mapping[str, str]:
    """The configuration once columns, which keep their ids, have other names."""
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
