"""Blobs in change feeds: a row has changed if its bytes have, wherever they lie."""

import lance
import pyarrow as pa
import pytest
from local_changes import commit_rewritten, update_rows
from table_access import read_changes, write_table

from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.table.cdf.change_feed import ChangeCounts, count_changes
from pyspark_lance.table.cdf.change_window import ChangeWindow
from pyspark_lance.table.dml.rewrite_columns import plan_rewrite, rewrite_columns
from pyspark_lance.table.dml.row_change import plan_change
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

BLOB = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
KINDS = {
    "plain": (BLOB, lambda value: value),
    "struct": (pa.field("c", pa.struct([("i", pa.int64()), BLOB])), lambda v: {"i": 1, "b": v}),
    "list": (pa.field("c", pa.list_(BLOB)), lambda v: [b"same", v, None]),
}
CASES = [
    ("2.0", "plain"), ("2.1", "plain"), ("2.2", "plain"),
    ("2.1", "struct"), ("2.2", "struct"), ("2.2", "list"), ("2.0", "list"),
]  # fmt: skip
VALUES = [b"one", b"two", None, b""]


def make(path, version, kind):
    field, value = KINDS[kind]
    schema = pa.schema([("id", pa.int64()), field.with_name("c")])
    rows = {"id": range(4), "c": [value(one) for one in VALUES]}
    write_table(path, pa.table(rows, schema), file_version=version)
    return schema, value


def kept(path, start, mode):
    """(version, kind, id) of the changes up to the newest version."""
    newest = Snapshot.open(Table(path)).version
    found = read_changes(path, start, newest, mode)
    names = ("_commit_version", "_change_type", "id")
    return list(zip(*(found[name].to_pylist() for name in names), strict=True))


def update(path, schema, condition, value, how):
    """Other blobs for some rows: in new rows, or in place."""

    def values(batch):
        return {"c": pa.array([value] * batch.num_rows, schema.field("c").type)}

    if how == "rows":
        update_rows(path, condition, ["c"], values)
        return
    plan = plan_change(Table(path))
    request = plan_rewrite(plan.snapshot(), ["c"])
    row = int(condition.removeprefix("id = "))
    changed = pa.table(
        {"_rowaddr": pa.array([row], pa.uint64()), "c": [value]},
        schema=pa.schema([("_rowaddr", pa.uint64()), schema.field("c")]),
    )
    commit_rewritten(plan, request, list(rewrite_columns(request, changed.to_batches())))


@pytest.mark.parametrize("how", ["rows", "columns"])
@pytest.mark.parametrize(("version", "kind"), CASES)
def test_blob_changes_compare_bytes_of_same_size(tmp_path, version, kind, how):
    path = str(tmp_path / "t")
    schema, value = make(path, version, kind)
    update(path, schema, "id = 0", value(b"ONE"), how)
    pair = [(2, "update_preimage", 0), (2, "update_postimage", 0)]
    for mode in ("dropCarryovers", "netChanges", "none"):
        assert kept(path, 2, mode) == pair
    update(path, schema, "id = 1", value(b"two"), how)
    assert kept(path, 3, "dropCarryovers") == kept(path, 3, "netChanges") == []
    assert kept(path, 3, "none") == [(3, "update_preimage", 1), (3, "update_postimage", 1)]
    assert kept(path, 2, "netChanges") == pair
    assert count_changes(Table(path), ChangeWindow(3, 3)) == (ChangeCounts(3, 0, 1, 0),)


def test_blobs_moved_by_compaction_are_unchanged(tmp_path):
    path = str(tmp_path / "t")
    schema, _ = make(path, "2.1", "plain")
    write_table(path, pa.table({"id": [9], "c": [b"nine"]}, schema))
    update_rows(path, "id = 1", ["id"], lambda batch: {"id": batch["id"]})
    lance.dataset(path).optimize.compact_files()
    assert kept(path, 3, "dropCarryovers") == kept(path, 3, "netChanges") == []
    update_rows(path, "id = 2", ["c"], lambda batch: {"c": pa.array([b""], pa.large_binary())})
    found = kept(path, 3, "netChanges")
    assert {(kind, row) for _, kind, row in found} == {
        ("update_preimage", 2), ("update_postimage", 2),
    }  # fmt: skip


def test_external_blobs_compare_by_reference(tmp_path):
    objects = [tmp_path / "a.bin", tmp_path / "b.bin"]
    for one in objects:
        one.write_bytes(b"equal")
    path = str(tmp_path / "t")
    table = pa.table({"id": [0, 1], "c": lance.blob_array([one.as_uri() for one in objects])})
    lance.write_dataset(
        table, path, data_storage_version="2.2", enable_stable_row_ids=True,
        allow_external_blob_outside_bases=True,
    )  # fmt: skip
    update_rows(path, "id = 0", ["id"], lambda batch: {"id": batch["id"]})
    objects[0].unlink()
    assert kept(path, 2, "dropCarryovers") == []


def test_requested_blob_bytes_are_returned(tmp_path):
    path = str(tmp_path / "t")
    schema, value = make(path, "2.1", "plain")
    update(path, schema, "id = 0", value(b"ONE"), "columns")
    shown = logical_schema(Snapshot.open(Table(path)).schema, binary_blobs={"c"}).fields
    found = read_changes(path, 2, 2, "dropCarryovers", columns=shown, shown=shown)
    assert found["c"].to_pylist() == [b"one", b"ONE"]
