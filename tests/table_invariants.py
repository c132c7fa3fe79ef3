"""The invariants of the table format, section 14, looked up in the files of a version."""

from __future__ import annotations

import numpy as np

from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.metafile.manifest_file import read_manifest
from pyspark_lance.metafile.paths import transaction_path
from pyspark_lance.metafile.transaction_file import read_transaction
from pyspark_lance.table.snapshot import Snapshot
from pyspark_lance.table.time_travel import VersionSpec


def check_invariants(path: str) -> Snapshot:
    """Checks the newest version, also against the one before; returns it."""
    snapshot = Snapshot.open(path)
    manifest = read_manifest(snapshot.store, snapshot.file.location).manifest  # never a cached one
    _check_fragments(snapshot)
    flags = manifest.reader_flags
    has_deletions = any(one.deletion_file is not None for one in manifest.fragments)
    assert bool(flags & 1) == has_deletions
    assert bool(flags & 2)
    transaction = snapshot.file.transaction()
    assert transaction is not None
    assert transaction.read_version < manifest.version
    name = transaction_path(transaction.read_version, transaction.uuid).rpartition("/")[2]
    assert read_transaction(snapshot.store, name) == transaction
    if manifest.version > 1:
        before = Snapshot.open(path, at=VersionSpec(version=manifest.version - 1)).manifest
        assert (manifest.max_fragment_id or 0) >= (before.max_fragment_id or 0)
        assert manifest.next_row_id >= before.next_row_id
        assert manifest.timestamp_ns > before.timestamp_ns
    return snapshot


def _check_fragments(snapshot: Snapshot) -> None:
    manifest = snapshot.manifest
    ids = [one.id for one in manifest.fragments]
    assert ids == sorted(set(ids))
    assert not ids or ids[-1] <= manifest.max_fragment_id
    live_ids = [np.empty(0, np.uint64)]
    for fragment in manifest.fragments:
        columns = [field for file in fragment.files for field in file.fields if field >= 0]
        assert len(columns) == len(set(columns))
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
