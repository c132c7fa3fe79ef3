"""Clustering columns: set, store in the configuration, and validate.

Later compactions sort rows by them; setting them moves no rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.clustering import CLUSTER_BY_KEY, DEFAULT_ORDER, ClusterBy
from pyspark_lance.format.operation import Operation, UpdateConfig, UpdateMap
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.table.columns.schema_change import find_field
from pyspark_lance.table.sort import Curve, RowOrder
from pyspark_lance.table.unit_of_work import CommitSettings, MetadataResult, change_metadata
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

OTHERS_HINT = (
    "LanceTable.clusterBy(…), or ALTER TABLE … CLUSTER BY (…), names other columns, and none "
    "with clusterBy() or CLUSTER BY NONE"
)


def set_cluster_by(
    table: Table,
    columns: Sequence[str],
    order: str = DEFAULT_ORDER,
    settings: CommitSettings | None = None,
) -> MetadataResult:
    """Set the clustering columns; commit nothing if they are unchanged.

    ``columns``: a struct field is ``struct.field``; empty to remove clustering. Raises as
    ``check_columns``.
    """

    def operation(snapshot: Snapshot) -> Operation | None:
        known = ClusterBy.of(snapshot.manifest.config)
        requested = check_columns(snapshot.schema, columns, order) if columns else None
        if requested == known:
            return None
        entry = (CLUSTER_BY_KEY, None if requested is None else requested.to_text())
        return UpdateConfig(config_updates=UpdateMap((entry,)))

    return change_metadata(table, operation, settings)


def check_columns(
    schema: LanceSchema, columns: Sequence[str], order: str = DEFAULT_ORDER
) -> ClusterBy:
    """Return the columns in the spelling of the table.

    Raises InvalidInputError: no such column or order, or a column twice. Raises
    UnsupportedFeatureError: values of a column have no order.
    """
    by = RowOrder.of(schema, columns, Curve.parse(order))
    return ClusterBy(tuple(".".join(column.names) for column in by.columns), by.curve.value)


def check_kept(schema: LanceSchema, known: ClusterBy | None, where: str) -> None:
    """Reject a schema that lacks the clustering columns of the table."""
    if known is None:
        return
    try:
        check_columns(schema, known.columns, known.order)
    except (InvalidInputError, UnsupportedFeatureError) as error:
        raise InvalidInputError(
            f"the table is clustered by {', '.join(known.columns)}, but {error.what}",
            where,
            OTHERS_HINT,
        ) from error


def check_not_clustered_by(snapshot: Snapshot, paths: Sequence[str]) -> None:
    """Reject dropping clustering columns."""
    known = ClusterBy.of(snapshot.manifest.config)
    if known is None:
        return
    for path in paths:
        fields = find_field(snapshot.schema, path)
        within = known.within(snapshot.schema, (part.id for part in fields[-1].walk()))
        if within:
            name = ".".join(field.name for field in fields)
            raise InvalidInputError(
                f"the column {name!r} cannot be dropped: the table is clustered by "
                f"{', '.join(within)}",
                snapshot.uri,
                OTHERS_HINT,
            )
