"""Replay what pylance committed through our own ``next_manifest`` and compare the two results.

pylance writes each transaction into its manifest, so every version of every table it made is a
question ("manifest N and this transaction") with an answer ("manifest N + 1").
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from pathlib import Path

from pyroaring import BitMap

from pyspark_lance.commit.apply_operation import CreateOptions, next_manifest
from pyspark_lance.commit.manifest_builder import TableState
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.index_metadata import indices_from_section
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.operation import Overwrite, Restore, Rewrite
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence


@dataclass(frozen=True)
class PylanceVersion:
    """One version that pylance committed."""

    state: TableState
    transaction: Transaction


def read_pylance_version(root: str | Path, version: int) -> PylanceVersion:
    """Read a version without any of the code under test that finds or frames manifests."""
    versions = Path(root) / "_versions"
    names = (f"{2**64 - 1 - version:020d}.manifest", f"{version}.manifest")
    path = next(versions / name for name in names if (versions / name).exists())
    data = path.read_bytes()

    def section(position: int) -> bytes:
        (length,) = struct.unpack_from("<I", data, position)
        return data[position + 4 : position + 4 + length]

    (position,) = struct.unpack_from("<q", data, len(data) - 16)
    manifest = Manifest.from_bytes(section(position), str(path))
    indices = ()
    if manifest.index_section is not None:
        indices = indices_from_section(section(manifest.index_section))
    return PylanceVersion(
        TableState(manifest, indices), Transaction.from_bytes(section(manifest.transaction_section))
    )


def latest_pylance_version(root: str | Path) -> int:
    names = [path.name for path in (Path(root) / "_versions").glob("*.manifest")]
    return max(2**64 - 1 - int(n[:20]) if len(n) == 29 else int(n.split(".")[0]) for n in names)


def question(version: PylanceVersion) -> Transaction:
    """The transaction that pylance committed, as we are to commit it."""
    operation = version.transaction.operation
    if isinstance(operation, Rewrite):
        # Coverage is dropped instead of remapped, so remapped indices are no question for us.
        operation = replace(operation, rewritten_indices=())
    if isinstance(operation, Overwrite):
        # pylance leaves the schema metadata out of its transactions.
        metadata = version.state.manifest.schema.metadata
        operation = replace(operation, schema=replace(operation.schema, metadata=metadata))
    return replace(version.transaction, operation=operation)


def replay(root: str | Path, version: int) -> tuple[TableState, TableState]:
    """One version twice: as next_manifest makes it of the one before, and as pylance wrote it."""
    theirs = read_pylance_version(root, version)
    current = read_pylance_version(root, version - 1).state if version > 1 else None
    operation = theirs.transaction.operation
    restored = None
    if isinstance(operation, Restore):
        restored = read_pylance_version(root, operation.version).state
    manifest = theirs.state.manifest
    ours = next_manifest(
        current,
        question(theirs),
        now_ns=manifest.timestamp_ns,
        restored=restored,
        create=CreateOptions(
            stable_row_ids=manifest.uses_stable_row_ids,
            data_storage_version=manifest.data_storage_version,
        ),
        data_storage_version=manifest.data_storage_version,
    )
    return ours, theirs.state


def decoded(fragment: Fragment) -> dict[str, object]:
    """A fragment with its sequences as values: encodings may differ, meaning may not."""

    def versions(source: object) -> object:
        return RowDatasetVersionSequence.from_bytes(source).to_array().tolist() if source else None

    return {
        "id": fragment.id,
        "files": fragment.files,
        "physical_rows": fragment.physical_rows,
        "deletion_file": fragment.deletion_file,
        "row_ids": RowIdSequence.from_bytes(fragment.row_ids).to_array().tolist()
        if fragment.row_ids
        else None,
        "created_at": versions(fragment.created_at),
        "last_updated_at": versions(fragment.last_updated_at),
    }


def compared(state: TableState) -> dict[str, object]:
    """Everything of a manifest that two writers must agree on."""
    manifest = state.manifest
    return {
        "version": manifest.version,
        "schema": manifest.schema,
        "fragments": [decoded(fragment) for fragment in manifest.fragments],
        "timestamp_ns": manifest.timestamp_ns,
        "tag": manifest.tag,
        "reader_flags": manifest.reader_flags,
        "writer_flags": manifest.writer_flags,
        "max_fragment_id": manifest.max_fragment_id,
        "next_row_id": manifest.next_row_id,
        "data_storage_version": manifest.data_storage_version,
        "config": manifest.config,
        "table_metadata": manifest.table_metadata,
        "base_paths": manifest.base_paths,
        "branch": manifest.branch,
        "max_allocated_field_id": manifest.max_allocated_field_id,
    }


def check_replay(root: str | Path, version: int) -> TableState:
    """Assert that ours equals pylance's, and that our indices claim nothing more."""
    ours, theirs = replay(root, version)
    mine, expected = compared(ours), compared(theirs)
    differing = {key: (mine[key], expected[key]) for key in mine if mine[key] != expected[key]}
    operation = read_pylance_version(root, version).transaction.operation
    assert not differing, (type(operation).__name__, differing)
    by_uuid = {index.uuid: index for index in theirs.indices}
    live = BitMap(fragment.id for fragment in ours.manifest.fragments)
    if not isinstance(operation, Rewrite):
        assert {index.uuid for index in ours.indices} == by_uuid.keys()
    for index in ours.indices:
        other = by_uuid.get(index.uuid)
        if other is not None and index.fragment_bitmap is not None:
            assert (index.fragment_bitmap & live).issubset(other.fragment_bitmap)
            assert index.with_fragment_bitmap(None).raw == other.with_fragment_bitmap(None).raw
    return ours
