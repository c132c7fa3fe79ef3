"""Tables that need what this package lacks: read as far as readers may, refused by name elsewhere.

Each test makes the newest version of a real table one of such a table, byte by byte where pylance
does not make them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from table_access import append, read_ours, write_table

from pyspark_lance.errors import CommitConflictError, UnsupportedFeatureError
from pyspark_lance.metafile.manifest_file import latest_version, read_manifest
from pyspark_lance.proto import table_pb2, transaction_pb2
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.unit_of_work import set_properties
from pyspark_lance.table.version.snapshot import open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import (
    WriteSettings,
    commit_write,
    plan_write,
    write_rows,
)

pytestmark = pytest.mark.interop

NEWER = "a Lance newer than 14.0.2"
CLUSTERING = 4096
SEMANTIC_TYPES = 1 << 17


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0, rows=3)
    append(path, 3, rows=3)
    return path


def change_manifest(path: str, change: Callable[[table_pb2.Manifest], object]) -> None:
    """Rewrite the newest manifest with ``change`` applied."""
    (name,) = sorted(Path(path, "_versions").glob("*.manifest"))[:1]
    whole = name.read_bytes()
    (position,) = struct.unpack("<q", whole[-16:-8])
    message = table_pb2.Manifest.FromString(whole[position + 4 : -16])
    change(message)
    body = message.SerializeToString()
    name.write_bytes(
        whole[:position] + struct.pack("<I", len(body)) + body + struct.pack("<q", position)
        + whole[-8:]
    )  # fmt: skip


def everything(path: str) -> pa.Table:
    return read_ours(path, system_columns=())


def check_no_change(path: str, named: str, known_by: str = NEWER) -> None:
    """Every change is refused by the name of what is in the way, and leaves nothing behind."""
    before = {one for one in Path(path).rglob("*") if one.is_file()}
    for change in (
        lambda: append(path, 9, rows=1),
        lambda: compact(Table(path), CompactionRequest(materialize_deletions_threshold=0.0)),
        lambda: set_properties(Table(path), {"a": "b"}),
    ):
        with pytest.raises(UnsupportedFeatureError, match=named) as raised:
            change()
        assert known_by in raised.value.hint
    assert {one for one in Path(path).rglob("*") if one.is_file()} == before


def check_unread(path: str, named: str, known_by: str = NEWER) -> None:
    with pytest.raises(UnsupportedFeatureError, match=named) as raised:
        everything(path)
    assert known_by in raised.value.hint


def test_clustering_metadata_flag_blocks_only_writes(path):
    rows = everything(path)

    def cluster(manifest):
        manifest.writer_feature_flags |= CLUSTERING

    change_manifest(path, cluster)
    assert everything(path).equals(rows)
    check_no_change(path, r"4096 \(clustering metadata\)")


def test_semantic_types_flag_blocks_reads_and_writes(path):
    def mean(manifest):
        manifest.reader_feature_flags |= SEMANTIC_TYPES
        manifest.writer_feature_flags |= SEMANTIC_TYPES

    change_manifest(path, mean)
    check_unread(path, str(SEMANTIC_TYPES))
    check_no_change(path, str(SEMANTIC_TYPES))


def test_non_reusable_field_ids_are_supported(path):
    def keep_ids(manifest):
        manifest.writer_feature_flags |= 32768
        manifest.max_allocated_field_id = 41

    change_manifest(path, keep_ids)
    write_table(path, pa.table({"id": [9], "new": ["x"]}), merge_schema=True)
    assert lance.dataset(path).lance_schema.field("new").id() == 42
    assert everything(path).num_rows == lance.dataset(path).count_rows() == 7


def test_fragment_trees_are_refused_by_name(path):
    def plant(manifest):
        del manifest.fragments[:]
        manifest.fragment_tree = b"\x0a\x00"

    change_manifest(path, plant)
    check_unread(path, "fragments in a tree", "Lance 14.0.2")
    check_no_change(path, "fragments in a tree", "Lance 14.0.2")


@pytest.mark.parametrize("flag", [0, 64])
def test_data_overlays_are_refused_with_and_without_flag(path, flag):
    def lay(manifest):
        manifest.fragments[1].overlays.append(b"\x0a\x00")
        manifest.reader_feature_flags |= flag
        manifest.writer_feature_flags |= flag

    change_manifest(path, lay)
    known_by = "LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES"
    check_unread(path, "data overlay files", known_by)
    check_no_change(path, "data overlay files", known_by)


def test_unknown_manifest_fields_block_only_writes(path):
    rows = everything(path)
    change_manifest(path, lambda manifest: manifest.MergeFromString(b"\xfa\x3f\x01x"))
    assert everything(path).equals(rows)
    check_no_change(path, "fields of a newer format")


@pytest.mark.parametrize(("field", "named"), [(116, "Transactions V2"), (130, "a newer format")])
def test_unknown_transaction_conflicts_with_earlier_plans(path, field, named):
    rows = pa.table({"id": pa.array([9], pa.int64())})
    existing = open_existing(Table(path))
    plan = plan_write(Table(path), rows.schema, WriteSettings(), existing=existing)
    written = write_rows(plan, rows.to_batches())
    append(path, 6, rows=3)
    # What was just committed becomes an operation of another kind.
    store = open_store(path)
    file = read_manifest(store, latest_version(store))
    known = transaction_pb2.Transaction.FromString(
        bytes(store.get(f"_transactions/{file.manifest.transaction_file}"))
    )
    known.ClearField("append")
    key = field << 3 | 2
    unknown = known.SerializeToString() + bytes([key & 0x7F | 0x80, key >> 7, 0])
    store.put(f"_transactions/{file.manifest.transaction_file}", unknown)

    def forget(manifest):
        manifest.ClearField("transaction_section")
        manifest.ClearField("transaction_section_21")

    change_manifest(path, forget)
    assert everything(path).num_rows == 9
    with pytest.raises(CommitConflictError, match=rf"{named} \(transaction field {field}\)"):
        commit_write(plan, written)
    # A plan that starts now knows the result.
    append(path, 12, rows=1)
    assert everything(path).num_rows == 10


def test_data_files_of_2_3_are_refused_by_name(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [1, 2]}), path, data_storage_version="2.3")
    check_unread(path, "data files of version 2.3", "Lance 14.0.2, which calls them unstable")
    with pytest.raises(UnsupportedFeatureError, match=r"version 2\.3 are not written") as raised:
        append(path, 3, rows=1)
    assert "Lance 14.0.2" in raised.value.hint
