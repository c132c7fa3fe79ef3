"""The invariants of the table format, looked up in the files of a version.

Source: docs/format/table-format.md, section 14.
The numbers are those of the section.  I12 and I13, which rows a step may touch, are for the caller
knows the rows.
"""

from __future__ import annotations

import contextlib

import numpy as np

from pyspark_lance.errors import VersionNotFoundError
from pyspark_lance.format.feature_flags import check_writable
from pyspark_lance.format.fragment import TOMBSTONE
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.operation import (
    Clone,
    Merge,
    Operation,
    Overwrite,
    Project,
    Restore,
    UpdateConfig,
)
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.metafile.manifest_file import (
    MAX_INLINE_TRANSACTION,
    load_transaction,
    read_manifest,
    read_transaction,
)
from pyspark_lance.metafile.paths import transaction_path
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

SCHEMA_CHANGES = (Overwrite, Merge, Project, UpdateConfig)


def check_invariants(path: str) -> Snapshot:
    """Check the newest version, also against the one before; return it."""
    snapshot = Snapshot.open(Table(path))
    manifest = read_manifest(snapshot.store, snapshot.file.location).manifest  # never a cached one
    assert manifest == snapshot.manifest
    _check_schema(manifest)
    check_fragments(snapshot)
    _check_flags(manifest)
    transaction = load_transaction(snapshot.store, snapshot.file)
    assert transaction is not None  # I15
    if snapshot.file.transaction() is None:
        assert len(transaction.to_bytes()) > MAX_INLINE_TRANSACTION
    is_clone = isinstance(transaction.operation, Clone)  # of which a branch begins
    assert transaction.read_version < manifest.version + is_clone
    name = transaction_path(transaction.read_version, transaction.uuid).rpartition("/")[2]
    assert read_transaction(snapshot.store, name) == transaction
    with contextlib.suppress(VersionNotFoundError):  # it may have been cleaned up
        before = Snapshot.open(Table(path), VersionSpec(version=max(1, manifest.version - 1)))
        if before.version < manifest.version:
            _check_step(before.manifest, manifest, transaction.operation)
    return snapshot


def _check_schema(manifest: Manifest) -> None:
    ids = [field.id for field in manifest.schema.walk()]
    assert len(ids) == len(set(ids))  # I2
    assert not ids or min(ids) >= 0


def _check_flags(manifest: Manifest) -> None:
    """I8."""
    has_deletions = any(one.deletion_file is not None for one in manifest.fragments)
    for word in (manifest.reader_flags, manifest.writer_flags):
        assert bool(word & 1) == has_deletions
        assert word & 2
        assert bool(word & 16) == bool(manifest.base_paths)
    assert bool(manifest.writer_flags & 8) == bool(manifest.config)
    check_writable(manifest.reader_flags, manifest.writer_flags)


def _check_step(before: Manifest, now: Manifest, operation: Operation) -> None:
    assert (now.max_fragment_id or 0) >= (before.max_fragment_id or 0)  # I1
    assert now.next_row_id >= before.next_row_id  # I6
    assert now.timestamp_ns > before.timestamp_ns  # I14
    if isinstance(operation, Restore):
        return
    if not isinstance(operation, SCHEMA_CHANGES):
        assert now.schema == before.schema  # I11
    rows = {fragment.id: fragment.physical_rows for fragment in before.fragments}
    for fragment in now.fragments:
        assert rows.get(fragment.id, fragment.physical_rows) == fragment.physical_rows


def check_fragments(snapshot: Snapshot) -> None:
    """Those of fragments and rows, in a version of any writer."""
    manifest = snapshot.manifest
    ids = [one.id for one in manifest.fragments]
    assert ids == sorted(set(ids))
    assert not ids or ids[-1] <= manifest.max_fragment_id
    live_ids = [np.empty(0, np.uint64)]
    bases = {base.id for base in manifest.base_paths}
    for fragment in manifest.fragments:
        columns = [field for file in fragment.files for field in file.fields if field >= 0]
        assert len(columns) == len(set(columns))  # I3
        for file in fragment.files:
            assert len(file.fields) == len(file.column_indices)
            assert any(field != TOMBSTONE for field in file.fields)
            assert file.base_id is None or file.base_id in bases  # I9
        row_ids = RowIdSequence.from_bytes(fragment.row_ids).to_array()
        created = RowDatasetVersionSequence.from_bytes(fragment.created_at).to_array()
        updated = RowDatasetVersionSequence.from_bytes(fragment.last_updated_at).to_array()
        assert len(row_ids) == len(created) == len(updated) == fragment.physical_rows
        assert (created >= 1).all()
        assert (created <= updated).all()
        assert (updated <= manifest.version).all()
        assert (row_ids < manifest.next_row_id).all()
        vector = snapshot.deletion_vector(fragment)
        if vector is None:
            live_ids.append(row_ids)
            continue
        assert len(vector) == fragment.num_deleted_rows < fragment.physical_rows
        assert vector.max_offset < fragment.physical_rows
        live_ids.append(row_ids[vector.keep_mask(0, fragment.physical_rows)])
    together = np.concatenate(live_ids)
    assert len(np.unique(together)) == len(together)
