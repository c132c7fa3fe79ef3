"""Operations that pylance's own methods never make: committed raw by pylance, replayed by us."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from commit_replay import check_replay, decoded, latest_pylance_version
from lance import LanceOperation
from lance.fragment import DataFile, write_fragments

pytestmark = pytest.mark.interop


@pytest.fixture(params=[True, False], ids=["stable row ids", "addresses"])
def table(request, tmp_path):
    rows = pa.table({"id": pa.array(range(8), pa.int64()), "a": [f"a{i}" for i in range(8)]})
    dataset = lance.write_dataset(
        rows, tmp_path / "t.lance", enable_stable_row_ids=request.param, max_rows_per_file=4
    )
    dataset.create_scalar_index("a", "BTREE")
    dataset.create_scalar_index("id", "ZONEMAP")
    return lance.dataset(tmp_path / "t.lance")


def new_rows(table, count=1):
    rows = {"id": pa.array(range(100, 100 + count), pa.int64()), "a": ["n"] * count}
    return write_fragments(pa.table(rows), table.uri, schema=table.schema)


def commit_and_replay(table, operation):
    lance.LanceDataset.commit(table.uri, operation, read_version=table.version)
    last = latest_pylance_version(table.uri)
    for version in range(1, last + 1):
        state = check_replay(table.uri, version)
    return state


def test_data_replacement(table):
    file = new_rows(table, 4)[0].files[0]
    group = LanceOperation.DataReplacementGroup(1, file)
    state = commit_and_replay(table, LanceOperation.DataReplacement([group]))
    if state.manifest.uses_stable_row_ids:
        assert decoded(state.manifest.fragments[0])["last_updated_at"] == [1] * 4
        assert decoded(state.manifest.fragments[1])["last_updated_at"] == [4] * 4
    assert [list(index.fragment_bitmap) for index in state.indices] == [[0], [0]]


def test_replay_fills_null_column_of_one_fragment(table):
    table.add_columns(pa.field("z", pa.int32()))
    table = lance.dataset(table.uri)
    rows = pa.table({"z": pa.array([1, 2, 3, 4], pa.int32())})
    written = write_fragments(rows, table.uri, schema=rows.schema, mode="append")[0].files[0]
    file = DataFile(
        path=written.path,
        fields=[2],
        column_indices=[0],
        file_major_version=2,
        file_minor_version=2,
        file_size_bytes=written.file_size_bytes,
    )
    group = LanceOperation.DataReplacementGroup(0, file)
    state = commit_and_replay(table, LanceOperation.DataReplacement([group]))
    assert [len(fragment.files) for fragment in state.manifest.fragments] == [2, 1]


@pytest.mark.parametrize("with_offsets", [True, False])
def test_columns_updated_in_place(table, with_offsets):
    changed = pa.table({"id": pa.array([1], pa.int64()), "a": ["ZZ"]})
    fragment, fields = table.get_fragments()[0].update_columns(changed, "id", "id")
    more = {}
    if with_offsets:
        from pyroaring import BitMap

        more["updated_fragment_offsets"] = {0: BitMap([1]).serialize()}
    update = LanceOperation.Update([], [fragment], [], list(fields), [], "rewrite_columns", **more)
    state = commit_and_replay(table, update)
    if state.manifest.uses_stable_row_ids:
        expected = [1, 4, 1, 1] if with_offsets else [1, 1, 1, 1]
        assert decoded(state.manifest.fragments[0])["last_updated_at"] == expected
    by_field = {index.fields: list(index.fragment_bitmap) for index in state.indices}
    assert by_field == {(1,): [1], (0,): [0, 1]}


def test_replay_of_update_without_row_ids(table):
    deleted = table.get_fragments()[0].delete("id=2")
    update = LanceOperation.Update([], [deleted], new_rows(table), [], [1], "rewrite_rows")
    state = commit_and_replay(table, update)
    if state.manifest.uses_stable_row_ids:
        assert decoded(state.manifest.fragments[2])["row_ids"] == [8]
        assert decoded(state.manifest.fragments[2])["created_at"] == [4]


def test_replay_of_append_with_fragment_id(table):
    fragments = new_rows(table)
    fragments[0].id = 77
    state = commit_and_replay(table, LanceOperation.Append(fragments))
    assert state.manifest.max_fragment_id == 77


def test_replay_of_restore_keeps_counters(table):
    lance.write_dataset(table.head(5), table.uri, mode="append", max_rows_per_file=2)
    state = commit_and_replay(lance.dataset(table.uri), LanceOperation.Restore(1))
    assert len(state.manifest.fragments) == 2
    assert state.manifest.max_fragment_id == 4
    assert state.indices == ()


def test_replay_of_table_with_base_paths(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    bases = [lance.DatasetBasePath(str(other), name="other", is_dataset_root=True)]
    rows = pa.table({"a": [1, 2]})
    lance.write_dataset(
        rows, tmp_path / "t.lance", mode="create", initial_bases=bases, target_bases=["other"]
    )
    lance.write_dataset(rows, tmp_path / "t.lance", mode="append")
    for version in (1, 2):
        state = check_replay(tmp_path / "t.lance", version)
    assert [base.id for base in state.manifest.base_paths] == [1]
    assert state.manifest.fragments[0].files[0].base_id == 1


def test_replay_of_branch_and_clone(tmp_path):
    rows = pa.table({"a": [1, 2]})
    lance.write_dataset(rows, tmp_path / "t.lance")
    branch = lance.dataset(tmp_path / "t.lance").create_branch("dev")
    branch.delete("a = 1")
    lance.dataset(tmp_path / "t.lance").shallow_clone(str(tmp_path / "c.lance"), reference=1)
    lance.write_dataset(rows, tmp_path / "c.lance", mode="append")
    state = check_replay(tmp_path / "t.lance" / "tree" / "dev", 2)
    assert state.manifest.branch == "dev"
    assert len(state.manifest.base_paths) == 1
    state = check_replay(tmp_path / "c.lance", 2)
    assert [fragment.files[0].base_id for fragment in state.manifest.fragments] == [0, None]
