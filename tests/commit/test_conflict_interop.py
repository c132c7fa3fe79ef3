"""Our conflict table and pylance's own, asked about the same pairs of transactions."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from commit_replay import latest_pylance_version, read_pylance_version
from lance import LanceOperation
from lance.commit import CommitConflictError
from lance.fragment import write_fragments

from pyspark_lance.commit.conflict import Resolution, check_conflict

pytestmark = pytest.mark.interop


def stricter_on_purpose(ours: str, theirs: str) -> bool:
    """See "Stricter than Lance" in conflict.py."""
    same_map = ours.split()[0] == theirs.split()[0]
    replaces_map = same_map and "replace" in ours + theirs
    return replaces_map or (ours == "CreateIndex new" and theirs.startswith("UpdCols"))


def prepared_operations(root: str) -> tuple[int, dict[str, object]]:
    """A table of two fragments, and concrete operations planned on its latest version."""
    rows = pa.table({"id": pa.array(range(8), pa.int64()), "a": [f"a{i}" for i in range(8)]})
    table = lance.write_dataset(rows, root, max_rows_per_file=4)
    table.create_scalar_index("a", "BTREE")
    fragments = table.get_fragments()
    metadata = [fragment.metadata for fragment in fragments]

    def new_fragments(count=1):
        new = {"id": pa.array(range(100, 100 + count), pa.int64()), "a": ["n"] * count}
        return write_fragments(pa.table(new), root, schema=table.schema)

    def columns_updated(number):
        changed = pa.table({"id": pa.array([4 * number], pa.int64()), "a": ["ZZ"]})
        fragment, fields = fragments[number].update_columns(changed, "id", "id")
        return LanceOperation.Update([], [fragment], [], list(fields), [], "rewrite_columns")

    def index(name, fields, covered):
        entry = sys.modules["lance.dataset"].Index(
            uuid=str(uuid.uuid4()),
            name=name,
            fields=fields,
            dataset_version=table.version,
            fragment_ids=covered,
            index_version=0,
            index_details=("/lance.table.BTreeIndexDetails", b""),
        )
        return LanceOperation.CreateIndex([entry], [])

    def merge(*preserves):
        merged = [
            fragment.merge_columns(
                lambda batch: pa.record_batch([pa.array([1] * batch.num_rows)], names=["z"])
            )
            for fragment in fragments
        ]
        return LanceOperation.Merge([m[0] for m in merged], merged[0][1], *preserves)

    def replacement(number):
        new = pa.table({"id": pa.array(range(4), pa.int64()), "a": ["r"] * 4})
        file = write_fragments(new, root, schema=table.schema)[0].files[0]
        return LanceOperation.DataReplacement([LanceOperation.DataReplacementGroup(number, file)])

    def config(**maps):
        return LanceOperation.UpdateConfig(**maps)

    def update_map(key, value="v", *, replace=False):
        return LanceOperation.UpdateMap({key: value}, replace)

    op = LanceOperation
    projected = lance.write_dataset(rows.rename_columns(["idx", "a"]), root + ".project")
    operations = {
        "Append": op.Append(new_fragments()),
        "Delete f0": op.Delete([fragments[0].delete("id=1")], [], "id=1"),
        "Delete f1": op.Delete([fragments[1].delete("id=5")], [], "id=5"),
        "Delete all f0": op.Delete([], [0], "id<4"),
        "Overwrite": op.Overwrite(table.lance_schema, new_fragments()),
        "Update f0": op.Update(
            [], [fragments[0].delete("id=2")], new_fragments(), [], [1], "rewrite_rows"
        ),
        "Update f1": op.Update(
            [], [fragments[1].delete("id=6")], new_fragments(), [], [1], "rewrite_rows"
        ),
        "Update gone f0": op.Update([], [fragments[0].delete("id=3")], [], [], [], "rewrite_rows"),
        "Update none": op.Update([], [], [], [], [], "rewrite_rows"),
        "Update all f1": op.Update([1], [], new_fragments(), [], [1], "rewrite_rows"),
        "UpdCols f0": columns_updated(0),
        "UpdCols f1": columns_updated(1),
        "Rewrite f0": op.Rewrite([op.RewriteGroup([metadata[0]], new_fragments(4))], []),
        "Rewrite f1": op.Rewrite([op.RewriteGroup([metadata[1]], new_fragments(4))], []),
        "CreateIndex new": index("newidx", [1], {0, 1}),
        "CreateIndex f1": index("newidx2", [0], {1}),
        "Merge": merge(),
        "Merge pn": merge(True),
        "Restore": op.Restore(1),
        "Project": op.Project(projected.lance_schema),
        "Project pn": op.Project(projected.lance_schema, True),
        "Config k1": config(config_updates=update_map("k1")),
        "Config k2": config(config_updates=update_map("k2")),
        "Config -k1": config(config_updates=update_map("k1", None)),
        "TableMeta k1": config(table_metadata_updates=update_map("k1")),
        "Config replace": config(config_updates=update_map("k3", replace=True)),
        "TableMeta replace": config(table_metadata_updates=update_map("k3", replace=True)),
        "TableMeta -k1": config(table_metadata_updates=update_map("k1", None)),
        "TableMeta k2": config(table_metadata_updates=update_map("k2")),
        "SchemaMeta": config(schema_metadata_updates=update_map("k1")),
        "SchemaMeta k2": config(schema_metadata_updates=update_map("k2")),
        "FieldMeta 0": config(field_metadata_updates={0: update_map("k1")}),
        "FieldMeta 1": config(field_metadata_updates={1: update_map("k1")}),
        "DataRepl f0": replacement(0),
        "DataRepl f1": replacement(1),
    }
    return table.version, operations


class Table:
    """One folder in which commits are undone by removing their manifests."""

    def __init__(self, root: str, version: int) -> None:
        self.root, self.version = root, version

    def commit(self, operation: object) -> Resolution:
        try:
            lance.LanceDataset.commit(self.root, operation, read_version=self.version)
        except CommitConflictError as error:
            return Resolution.RETRY if error.retryable else Resolution.INCOMPATIBLE
        return Resolution.COMPATIBLE

    def undo_after(self, version: int) -> None:
        for later in range(version + 1, latest_pylance_version(self.root) + 1):
            (Path(self.root) / "_versions" / f"{2**64 - 1 - later:020d}.manifest").unlink()


def test_conflict_checks_equal_pylance(tmp_path):
    root = str(tmp_path / "table.lance")
    version, operations = prepared_operations(root)
    table = Table(root, version)
    parsed = {}
    for name, operation in operations.items():
        assert table.commit(operation) is Resolution.COMPATIBLE, name
        parsed[name] = read_pylance_version(root, version + 1).transaction.operation
        table.undo_after(version)

    wrong = []
    for theirs, operation in operations.items():
        assert table.commit(operation) is Resolution.COMPATIBLE
        for ours, other in operations.items():
            expected = table.commit(other)
            table.undo_after(version + 1)
            resolution = check_conflict(parsed[ours], parsed[theirs]).resolution
            if (
                resolution is Resolution.REBASE
            ):  # a raw transaction does not say which rows it changes
                resolution = Resolution.RETRY
            stricter = stricter_on_purpose(ours, theirs) and resolution is not Resolution.COMPATIBLE
            if resolution is not expected and not stricter:
                wrong.append(f"{ours} after {theirs}: {resolution.name}, pylance {expected.name}")
        table.undo_after(version)
    assert not wrong
