"""Build manifest N + 1 from manifest N and a transaction; pure, no I/O.

Everything that depends on the new version number is assigned here, again for every attempt:
fragment ids, row ids, row versions, feature flags and index coverage.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_lance.commit.application_versions import (
    application_version,
    config_with_application_version,
)
from pyspark_lance.commit.apply_operation import apply_operation, fill_new_table, overwrite, restore
from pyspark_lance.commit.invariants import check_next_manifest, check_writable
from pyspark_lance.commit.manifest_builder import ManifestBuilder, TableState
from pyspark_lance.format.feature_flags import STABLE_ROW_IDS
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.operation import Overwrite, Restore
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.transaction import Transaction


@dataclass(frozen=True, slots=True)
class CreateOptions:
    """Options that only the first version of a table can set."""

    stable_row_ids: bool = True  # Whether rows keep their ids when moved; fixed afterwards.
    data_storage_version: str = "2.1"  # File version of the data files, such as ``2.1``.


def next_manifest(
    current: TableState | None,
    transaction: Transaction,
    *,
    now_ns: int,
    restored: TableState | None = None,
    create: CreateOptions | None = None,
    data_storage_version: str | None = None,
) -> TableState:
    """Apply ``transaction`` to ``current`` and return the next version.

    The caller fills in ``transaction_file`` and the section offsets of the manifest.

    ``current``: the newest version; None to create a table. ``transaction``: compatible with
    ``current``. ``now_ns``: commit time, nanoseconds since the epoch.
    """
    operation = transaction.operation
    if current is None:
        builder = _empty_table(create or CreateOptions())
        fill_new_table(builder, operation)
    else:
        replaces_all = isinstance(operation, Restore | Overwrite)
        check_writable(current.manifest, current.indices, replaces_all=replaces_all)
        builder = ManifestBuilder.of(current)
        if isinstance(operation, Restore):
            restore(builder, operation, restored)
        elif isinstance(operation, Overwrite):
            overwrite(builder, operation, data_storage_version)
        else:
            apply_operation(builder, operation)
    builder.config = config_with_application_version(
        builder.config, application_version(transaction.properties)
    )
    state = builder.finish(tag=transaction.tag, now_ns=now_ns)
    before = current.manifest if current else None
    check_next_manifest(before, state.manifest, state.indices, operation, builder.touched)
    return state


def _empty_table(options: CreateOptions) -> ManifestBuilder:
    """Return the state before the first version."""
    manifest = Manifest(
        version=0,
        schema=LanceSchema(),
        reader_flags=STABLE_ROW_IDS if options.stable_row_ids else 0,
        data_storage_version=options.data_storage_version,
    )
    return ManifestBuilder.of(TableState(manifest))
