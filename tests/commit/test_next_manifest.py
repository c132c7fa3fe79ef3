"""Building the next manifest: what pylance offers no way to compare with, and what is refused."""

from __future__ import annotations

import operator
import uuid
from dataclasses import replace

import pytest
from commit_tables import SCHEMA, new_fragment, transaction
from pyroaring import BitMap

from pyspark_lance.commit.apply_operation import CreateOptions, next_manifest
from pyspark_lance.commit.manifest_builder import TableState
from pyspark_lance.errors import (
    CommitConflictError,
    InvalidInputError,
    RetryableCommitError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import SPILLED_ROW_ID, TOMBSTONE, Fragment
from pyspark_lance.format.index_metadata import (
    FRAGMENT_REUSE_DETAILS,
    FragmentDigest,
    IndexMetadata,
    ReuseDetails,
    ReuseGroup,
    ReuseVersion,
)
from pyspark_lance.format.manifest import BasePath
from pyspark_lance.format.operation import (
    Append,
    Clone,
    CreateIndex,
    DataReplacement,
    DataReplacementGroup,
    Delete,
    Merge,
    Overwrite,
    Project,
    ReserveFragments,
    Restore,
    Rewrite,
    RewriteGroup,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMap,
    UpdateMemWalState,
)
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.proto import table_pb2

NOW = 1_700_000_000_000_000_000


def created(*rows, stable=True, fields=(0, 1), schema=SCHEMA):
    operation = Overwrite(tuple(new_fragment(count, fields=fields) for count in rows), schema)
    return next_manifest(
        None, transaction(operation, 0), now_ns=NOW, create=CreateOptions(stable_row_ids=stable)
    )


def after(state, operation, **arguments):
    work = transaction(operation, state.manifest.version)
    return next_manifest(state, work, now_ns=NOW, **arguments)


def index(name, fields, covered, kind=""):
    message = table_pb2.IndexMetadata(
        uuid=table_pb2.Uuid(uuid=uuid.uuid4().bytes), name=name, fields=fields
    )
    message.index_details.type_url = kind
    if covered is not None:
        message.fragment_bitmap = BitMap(covered).serialize()
    # A field of a newer format, which has to survive.
    raw = message.SerializeToString() + b"\xa2\x06\x03abc"
    return IndexMetadata.from_bytes(raw)


def with_indices(state, *indices):
    return TableState(state.manifest, indices)


def coverage(state):
    return {i.name: i.fragment_bitmap and list(i.fragment_bitmap) for i in state.indices}


def with_deletions(fragment, count):
    file = DeletionFile(DeletionFileType.ARROW_ARRAY, 1, 7, count, None)
    return replace(fragment, deletion_file=file)


def row_ids(fragment):
    return RowIdSequence.from_bytes(fragment.row_ids).to_array().tolist()


# Numbers -----------------------------------------------------------------------------------


def test_empty_table_has_no_max_fragment_id():
    state = created()
    assert state.manifest.max_fragment_id is None
    assert after(state, Append((new_fragment(2),))).manifest.fragments[0].id == 0


def test_overwrite_continues_counters_and_keeps_configuration():
    state = created(3, 3)
    config = UpdateConfig(
        config_updates=UpdateMap((("k", "1"), ("l", "1"))),
        table_metadata_updates=UpdateMap((("t", "1"),)),
    )
    state = with_indices(after(state, config), index("i", [1], [0, 1]))
    schema = LanceSchema((Field(0, "other", "double"),), {"s": b"1"})
    overwrite = Overwrite((new_fragment(2, fields=(0,)),), schema, {"l": "2"})
    manifest = after(state, overwrite).manifest
    assert [fragment.id for fragment in manifest.fragments] == [2]
    assert row_ids(manifest.fragments[0]) == [6, 7]
    assert (manifest.schema, manifest.config) == (schema, {"k": "1", "l": "2"})
    assert manifest.table_metadata == {"t": "1"}
    assert after(state, overwrite).indices == ()
    assert manifest.uses_stable_row_ids


def test_overwrite_changes_file_version_on_request():
    state = created(3)
    other = replace(new_fragment(1), files=(replace(new_fragment(1).files[0], minor_version=2),))
    with pytest.raises(InvalidInputError, match=r"version 2.2 for a table of version 2.1"):
        after(state, Overwrite((other,), SCHEMA))
    manifest = after(state, Overwrite((other,), SCHEMA), data_storage_version="2.2").manifest
    assert manifest.data_storage_version == "2.2"
    with pytest.raises(InvalidInputError):
        after(state, Append((other,)))


def test_reserved_fragment_ids_are_skipped_and_usable():
    state = after(created(2), ReserveFragments(2))
    assert state.manifest.max_fragment_id == 2
    appended = after(state, Append((new_fragment(1), new_fragment(1, id=2))))
    assert [fragment.id for fragment in appended.manifest.fragments] == [0, 2, 3]
    with pytest.raises(InvalidInputError, match="id of an existing one"):
        after(appended, Append((new_fragment(1, id=3),)))


def test_ids_beyond_format_limits_are_refused():
    state = after(created(2), ReserveFragments(2**32 - 1))
    with pytest.raises(InvalidInputError, match=r"2\^32"):
        after(state, Append((new_fragment(1),)))
    state = created(2)
    full = replace(state.manifest, next_row_id=2**64 - 3)
    with pytest.raises(InvalidInputError, match=r"2\^64"):
        after(TableState(full), Append((new_fragment(3),)))


def test_row_ids_continue_beyond_32_bits():
    state = created(2)
    state = TableState(replace(state.manifest, next_row_id=2**40))
    manifest = after(state, Append((new_fragment(2),))).manifest
    assert row_ids(manifest.fragments[1]) == [2**40, 2**40 + 1]
    assert manifest.next_row_id == 2**40 + 2


def test_table_without_stable_row_ids_has_no_lineage():
    state = after(created(2, stable=False), Append((new_fragment(2),)))
    manifest = state.manifest
    assert (manifest.reader_flags, manifest.writer_flags, manifest.next_row_id) == (0, 0, 0)
    for fragment in manifest.fragments:
        assert (fragment.row_ids, fragment.created_at, fragment.last_updated_at) == (None,) * 3


def test_restore_keeps_counters():
    old = created(3)
    new = after(old, Overwrite((new_fragment(2), new_fragment(2)), SCHEMA, {"k": "v"}))
    manifest = after(new, Restore(1), restored=old).manifest
    assert manifest.fragments == old.manifest.fragments
    assert (manifest.max_fragment_id, manifest.next_row_id, manifest.version) == (2, 7, 3)
    assert (manifest.config, manifest.writer_flags) == ({}, 2)
    assert manifest.timestamp_ns > new.manifest.timestamp_ns
    with pytest.raises(InvalidInputError):
        after(new, Restore(1))


# Rows --------------------------------------------------------------------------------------


def test_moved_rows_keep_created_at_through_several_updates():
    state = after(created(3), Append((new_fragment(2),)))
    first = state.manifest.fragments[0]
    update = Update(
        updated_fragments=(with_deletions(first, 1),), new_fragments=(new_fragment(3, row_ids=[1]),)
    )
    state = after(state, update)
    moved = state.manifest.fragments[2]
    assert row_ids(moved) == [1, 5, 6]
    assert RowDatasetVersionSequence.from_bytes(moved.created_at).to_array().tolist() == [1, 3, 3]
    state = after(
        state, Update(removed_fragment_ids=(2,), new_fragments=(new_fragment(2, row_ids=[6, 1]),))
    )
    moved = state.manifest.fragments[-1]
    assert RowDatasetVersionSequence.from_bytes(moved.created_at).to_array().tolist() == [3, 1]
    assert RowDatasetVersionSequence.from_bytes(moved.last_updated_at).to_array().tolist() == [4, 4]


def test_provided_created_at_is_kept():
    state = created(3)
    brought = RowDatasetVersionSequence.constant(2, 1).to_bytes()
    fragment = replace(new_fragment(3, row_ids=[0, 2]), created_at=brought)
    deleted = with_deletions(state.manifest.fragments[0], 2)
    state = after(state, Update(updated_fragments=(deleted,), new_fragments=(fragment,)))
    moved = state.manifest.fragments[1]
    assert RowDatasetVersionSequence.from_bytes(moved.created_at).to_array().tolist() == [1, 1, 2]


def test_missing_fragment_is_conflict():
    state = created(2)
    gone = new_fragment(2, id=9)
    for operation in (
        Delete((gone,)),
        Delete((), (9,)),
        Update(removed_fragment_ids=(9,)),
        Rewrite((RewriteGroup((gone,), (new_fragment(2),)),)),
        DataReplacement((DataReplacementGroup(9, gone.files[0]),)),
    ):
        with pytest.raises(CommitConflictError, match="fragment 9 is not in version 1"):
            after(state, operation)


def test_commits_never_restore_deleted_rows():
    state = created(4)
    (fragment,) = state.manifest.fragments
    state = after(state, Delete((with_deletions(fragment, 2),)))
    with pytest.raises(CommitConflictError, match="would come back"):
        after(state, Delete((with_deletions(fragment, 1),)))
    other_files = replace(with_deletions(fragment, 3), files=new_fragment(4).files)
    with pytest.raises(CommitConflictError, match="other data files"):
        after(state, Delete((other_files,)))


def test_in_place_update_defaults_to_created_at():
    state = after(created(2), Append((new_fragment(3),)))
    old = replace(state.manifest.fragments[1], last_updated_at=None)
    state = TableState(replace(state.manifest, fragments=(state.manifest.fragments[0], old)))
    new_file = new_fragment(3, fields=(1,)).files[0]
    in_place = replace(old, files=(replace(old.files[0], fields=(0, TOMBSTONE)), new_file))
    update = Update(
        updated_fragments=(in_place,),
        fields_modified=(1,),
        update_mode=1,
        updated_fragment_offsets={1: (2,)},
    )
    fragment = after(state, update).manifest.fragments[1]
    versions = RowDatasetVersionSequence.from_bytes(fragment.last_updated_at)
    assert versions.to_array().tolist() == [2, 2, 3]


def test_rewrite_changing_row_count_or_ids_is_refused():
    state = created(4)
    (old,) = state.manifest.fragments
    shorter = replace(old, id=0, physical_rows=3)
    with pytest.raises(InvalidInputError, match="4 rows into 3"):
        after(state, Rewrite((RewriteGroup((old,), (shorter,)),)))
    with pytest.raises(InvalidInputError, match="without row ids"):
        after(state, Rewrite((RewriteGroup((old,), (new_fragment(4),)),)))
    moved = replace(new_fragment(4), row_ids=old.row_ids, created_at=old.created_at)
    moved = replace(moved, last_updated_at=old.last_updated_at)
    manifest = after(state, Rewrite((RewriteGroup((old,), (moved,)),))).manifest
    assert [fragment.id for fragment in manifest.fragments] == [1]


def test_excess_row_ids_are_refused():
    with pytest.raises(InvalidInputError, match="3 row ids for a fragment of 2 rows"):
        after(created(4), Update(new_fragments=(new_fragment(2, row_ids=[0, 1, 2]),)))


# Columns -----------------------------------------------------------------------------------


def test_merge_conflicts_with_reserved_fragment_id():
    state = created(2, 2)
    merge = Merge((*state.manifest.fragments, new_fragment(2, id=2)), SCHEMA)
    assert [one.id for one in after(state, merge).manifest.fragments] == [0, 1, 2]
    with pytest.raises(RetryableCommitError, match="fragment id 2 was reserved"):
        after(after(state, ReserveFragments(1)), merge)


def test_merge_must_list_every_fragment():
    state = created(2, 2)
    with pytest.raises(CommitConflictError, match="lists no fragment 1"):
        after(state, Merge(state.manifest.fragments[:1], SCHEMA))
    longer = replace(state.manifest.fragments[0], physical_rows=3)
    with pytest.raises(CommitConflictError, match="2 rows, the Merge says 3"):
        after(state, Merge((longer, state.manifest.fragments[1]), SCHEMA))


def test_files_without_live_columns_are_removed():
    state = created(2, 2)
    first, second = state.manifest.fragments
    dead = replace(first.files[0], fields=(TOMBSTONE, TOMBSTONE))
    (new_file,) = new_fragment(2).files
    merged = replace(first, files=(dead, new_file))
    manifest = after(state, Merge((merged, second), SCHEMA)).manifest
    assert manifest.fragments[0].files == (new_file,)
    assert manifest.fragments[1] is second


def test_project_removes_files_and_indices_of_dropped_columns():
    state = created(2, 2)
    files = (new_fragment(2, fields=(0,)).files[0], new_fragment(2, fields=(1,)).files[0])
    split = tuple(replace(fragment, files=files) for fragment in state.manifest.fragments)
    state = after(state, Merge(split, SCHEMA))
    state = with_indices(state, index("on id", [0], [0]), index("on a", [1], [0]))
    state = after(state, Project(LanceSchema(SCHEMA.fields[:1])))
    assert {fragment.files for fragment in state.manifest.fragments} == {files[:1]}
    assert coverage(state) == {"on id": [0]}


def test_delete_adds_no_file_of_dropped_column():
    state = created(3)
    (planned,) = state.manifest.fragments
    (added,) = new_fragment(3, fields=(2,)).files
    planned = replace(planned, files=(*planned.files, added))
    wider = LanceSchema((*SCHEMA.fields, Field(2, "b", "int64")))
    state = after(after(state, Merge((planned,), wider)), Project(SCHEMA))
    state = after(state, Delete((with_deletions(planned, 1),)))
    (fragment,) = state.manifest.fragments
    assert added not in fragment.files
    assert fragment.num_deleted_rows == 1


def test_project_keeps_row_id_files():
    state = created(2)
    (whole,) = state.manifest.fragments
    files = tuple(new_fragment(2, fields=(one,)).files[0] for one in (0, 1, SPILLED_ROW_ID))
    state = after(state, Merge((replace(whole, files=files),), SCHEMA))
    state = after(state, Project(LanceSchema(SCHEMA.fields[:1])))
    assert state.manifest.fragments[0].files == (files[0], files[2])


def test_merge_and_project_keep_schema_metadata():
    schema = LanceSchema(SCHEMA.fields, {"k": b"v"})
    state = created(2, schema=schema)
    assert after(state, Merge(state.manifest.fragments, SCHEMA)).manifest.schema == schema
    assert after(state, Project(SCHEMA)).manifest.schema == schema


def test_config_update_keeps_key_columns():
    key = {"lance-schema:unenforced-primary-key": b"true"}
    field = Field(0, "id", "int64", False, metadata=key, unenforced_primary_key=True)
    state = created(2, schema=LanceSchema((field, SCHEMA.fields[1])))
    with pytest.raises(InvalidInputError, match="key of column 'id'"):
        after(state, UpdateConfig(field_metadata_updates={0: UpdateMap((), replace=True)}))
    other = UpdateConfig(field_metadata_updates={0: UpdateMap((("x", "y"),))})
    assert after(state, other).manifest.schema.fields[0].metadata == {**key, "x": b"y"}
    made = UpdateConfig(
        field_metadata_updates={1: UpdateMap((("lance-schema:unenforced-primary-key", "1"),))}
    )
    assert after(state, made).manifest.schema.fields[1].unenforced_primary_key
    with pytest.raises(InvalidInputError, match="field 5"):
        after(state, UpdateConfig(field_metadata_updates={5: UpdateMap((("x", "y"),))}))


def test_invalid_data_replacement_is_refused():
    state = created(2)
    (file,) = state.manifest.fragments[0].files
    part = replace(file, path="other.lance", fields=(1,), column_indices=(0,))
    with pytest.raises(InvalidInputError, match="nothing to replace"):
        after(state, DataReplacement((DataReplacementGroup(0, part),)))
    two = (DataReplacementGroup(0, part), DataReplacementGroup(0, file))
    with pytest.raises(InvalidInputError, match="different columns"):
        after(state, DataReplacement(two))


# Indices -----------------------------------------------------------------------------------


def test_indices_keep_bytes_and_lose_only_coverage():
    state = with_indices(
        created(2, 2, 2),
        index("on a", [1], [0, 1, 2]),
        index("on id", [0], [0, 1]),
        index("unknown", [1], None),
    )
    same = after(state, Append((new_fragment(1),)))
    assert same.indices == state.indices
    first = state.manifest.fragments[0]
    new_file = replace(new_fragment(2, fields=(1,)).files[0])
    in_place = replace(first, files=(replace(first.files[0], fields=(0, TOMBSTONE)), new_file))
    update = Update(updated_fragments=(in_place,), fields_modified=(1,), update_mode=1)
    changed = after(state, update)
    assert coverage(changed) == {"on a": [1, 2], "on id": [0, 1]}
    assert b"\xa2\x06\x03abc" in changed.indices[0].raw
    assert changed.indices[1].raw == state.indices[1].raw
    # Rows that left for another fragment changed nothing of those that stay.
    moved = Update(
        updated_fragments=(with_deletions(first, 1),),
        new_fragments=(new_fragment(1, row_ids=[0]),),
        fields_modified=(1,),
    )
    assert coverage(after(state, moved)) == {"on a": [0, 1, 2], "on id": [0, 1], "unknown": None}


def rewritten(state, *numbers):
    """The state after these fragments became one."""
    old = tuple(f for f in state.manifest.fragments if f.id in numbers)
    new = new_fragment(sum(fragment.num_rows for fragment in old))
    if old[0].row_ids is not None:
        count, first = new.physical_rows, row_ids(old[0])[0]
        version = RowDatasetVersionSequence.constant(count, 1).to_bytes()
        ids = RowIdSequence.from_array(range(first, first + count)).to_bytes()
        new = replace(new, row_ids=ids, created_at=version, last_updated_at=version)
    return after(state, Rewrite((RewriteGroup(old, (new,)),)))


def test_compaction_keeps_coverage_of_indexed_fragment_names():
    state = with_indices(
        created(2, 2, 2, 2, stable=False),
        index("one", [0], [0, 1]),
        index("two", [0], [0]),
        index("two", [0], [1, 2]),
        index("none", [0], [0]),
        index("unknown", [0], None),
    )
    state = rewritten(state, 0)
    assert [(one.name, list(one.fragment_bitmap)) for one in state.indices] == [
        ("one", [0, 1]),
        ("two", []),
        ("two", [1, 2]),
        ("none", []),
    ]
    # An index may have rows of a fragment that it gave up, since its values changed.
    state = rewritten(state, 2, 3)
    assert [(one.name, list(one.fragment_bitmap)) for one in state.indices] == [
        ("one", [0, 1, 2, 3]),
        ("two", []),
        ("two", [1, 2, 3]),
        ("none", []),
    ]


def test_compaction_updates_coverage_by_index_kind():
    kept, lost = index("kept", [0], [0, 1]), index("lost", [0], [0, 1])
    known = replace(kept, details_type="/lance.index.pb.VectorIndexDetails")
    state = with_indices(created(2, 2), known, lost)
    assert coverage(rewritten(state, 0)) == {"kept": [1, 2], "lost": [1]}
    one, other = state.manifest.fragments
    manifest = replace(state.manifest, fragments=(with_deletions(one, 1), other))
    # The index still has the row that was deleted.
    state = rewritten(TableState(manifest, state.indices), 0)
    assert coverage(state) == {"kept": [0, 1, 2], "lost": [1]}


def test_index_loses_coverage_when_column_indices_change():
    state = with_indices(created(2, 2), index("on a", [1], [0, 1]))
    first, second = state.manifest.fragments
    swapped = replace(first, files=(replace(first.files[0], column_indices=(1, 0)),))
    merged = after(state, Merge((swapped, second), SCHEMA))
    assert coverage(merged) == {"on a": [1]}


def test_list_index_loses_coverage_when_items_are_replaced():
    """Files of 2.1 name the field of the items only, and the index that of the lists."""
    lists = Field(1, "l", "list", children=(Field(2, "item", "string"),))
    schema = LanceSchema((Field(0, "id", "int64"), lists))
    state = with_indices(created(2, 2, fields=(0, 2), schema=schema), index("on l", [1], [0, 1]))
    first = state.manifest.fragments[0]
    (new_file,) = new_fragment(2, fields=(2,)).files
    in_place = replace(first, files=(replace(first.files[0], fields=(0, TOMBSTONE)), new_file))
    update = Update(updated_fragments=(in_place,), fields_modified=(1, 2), update_mode=1)
    assert coverage(after(state, update)) == {"on l": [1]}


def test_row_id_index_follows_only_completely_covered_rows():
    kind = "/lance.table.BitmapIndexDetails"
    bitmaps = index("all", [1], [0, 1], kind), index("some", [1], [0], kind)
    state = with_indices(created(2, 2), *bitmaps)
    moved = moved_fragment([0, 1, 2, 3], [1] * 4, [1] * 4)
    rewrite = Rewrite((RewriteGroup(state.manifest.fragments, (moved,)),))
    assert coverage(after(state, rewrite)) == {"all": [2], "some": BitMap()}


def reuse_entry(number, *versions, file=""):
    """An entry that says where rows went: (old fragments, new fragments) for each version."""
    groups = [
        ReuseGroup(b"", *(tuple(FragmentDigest(i, 2, 0) for i in ids) for ids in version))
        for version in versions
    ]
    known = tuple(ReuseVersion(1, (group,)) for group in groups)
    details = ReuseDetails(None if file else known, file).to_bytes()
    message = table_pb2.IndexMetadata(
        uuid=table_pb2.Uuid(uuid=bytes([number]) * 16),
        name="__lance_frag_reuse",
        index_details=table_pb2.AnyMessage(type_url=FRAGMENT_REUSE_DETAILS, value=details),
    )
    return IndexMetadata.from_bytes(message.SerializeToString())


def test_coverage_applies_deferred_remapping_first():
    entry = reuse_entry(1, ([5, 6], [7]), ([7], [0]), ([8, 9], [1]))
    all_of_them, some = index("all", [0], [5, 6]), index("some", [0], [8])
    state = with_indices(created(2, 2, 2, stable=False), all_of_them, some, entry)
    assert after(state, Append((new_fragment(1),))).indices == state.indices
    rewritten = after(state, Update(fields_modified=(9,), update_mode=1))
    assert rewritten.indices == state.indices
    (*_, other) = state.manifest.fragments
    moved = after(state, Rewrite((RewriteGroup((other,), (new_fragment(2),)),)))
    # Fragment 2 is gone, and only named.
    assert coverage(moved) == {"all": [0, 2], "some": BitMap(), "__lance_frag_reuse": None}
    assert moved.indices[-1].raw == entry.raw


def test_coverage_is_dropped_for_external_reuse_details():
    entry = reuse_entry(1, file="details.binpb")
    state = with_indices(created(2, 2, stable=False), index("i", [0], [0]), entry)
    assert after(state, Append((new_fragment(1),))).indices == state.indices
    (old, _) = state.manifest.fragments
    moved = after(state, Rewrite((RewriteGroup((old,), (new_fragment(2),)),)))
    assert coverage(moved) == {"i": BitMap(), "__lance_frag_reuse": None}


def test_reuse_entry_replaces_its_predecessor():
    first, second = reuse_entry(1, ([0], [2])), reuse_entry(2, ([0], [2]), ([2], [3]))
    state = with_indices(created(2, 2, stable=False), index("i", [0], [0]))
    (old, other) = state.manifest.fragments

    def noted(state, old, entry, replaces):
        groups = (RewriteGroup((old,), (new_fragment(2),)),)
        return after(state, Rewrite(groups, reuse_index=entry, replaces=replaces))

    once = noted(state, old, first, None)
    assert once.indices == (state.indices[0], first)
    assert noted(once, other, second, first.uuid).indices == (state.indices[0], second)
    for replaces in (None, second.uuid):
        with pytest.raises(RetryableCommitError, match="another compaction"):
            noted(once, other, second, replaces)


def test_segments_of_one_index_must_not_overlap():
    state = with_indices(created(2, 2), index("i", [0], [0]))
    assert len(after(state, CreateIndex((index("i", [0], [1]),))).indices) == 2
    with pytest.raises(InvalidInputError, match="I10"):
        after(state, CreateIndex((index("i", [0], [0, 1]),)))
    with pytest.raises(InvalidInputError, match="I10"):
        after(state, CreateIndex((index("j", [7], [0]),)))
    assert after(state, CreateIndex((), state.indices)).indices == ()


# Refusals ----------------------------------------------------------------------------------


def test_unsafe_tables_are_refused():
    state = created(2)
    unknown = TableState(replace(state.manifest, has_unknown_fields=True))
    with pytest.raises(UnsupportedFeatureError, match="newer format"):
        after(unknown, Append((new_fragment(1),)))
    with pytest.raises(UnsupportedFeatureError, match="write-ahead log"):
        after(with_indices(state, index("__lance_mem_wal", [], None)), Append())
    with pytest.raises(UnsupportedFeatureError, match="newer format"):
        after(state, Restore(1), restored=unknown)


@pytest.mark.parametrize("operation", [Clone(True, 1, "/x"), UpdateMemWalState()])
def test_uncommittable_operations_are_refused(operation):
    with pytest.raises(UnsupportedFeatureError, match=type(operation).__name__):
        after(created(2), operation)


@pytest.mark.parametrize(
    ("broken", "invariant"),
    [
        (lambda f: replace(f, physical_rows=0), "I4"),
        (lambda f: replace(f, files=f.files * 2), "I3"),
        (lambda f: replace(f, files=(replace(f.files[0], column_indices=(0,)),)), "I3"),
        (lambda f: replace(f, files=(replace(f.files[0], base_id=3),)), "I9"),
        (lambda f: with_deletions(f, f.physical_rows), "I4"),
        (lambda f: with_deletions(f, 0), "I4"),
    ],
)
def test_fragment_violating_invariant_is_refused(broken, invariant):
    with pytest.raises(InvalidInputError, match=invariant):
        after(created(2), Append((broken(new_fragment(2)),)))


def moved_fragment(row_ids, created_at, updated_at):
    return replace(
        new_fragment(4),
        row_ids=RowIdSequence.from_array(row_ids).to_bytes(),
        created_at=RowDatasetVersionSequence.from_array(created_at).to_bytes(),
        last_updated_at=RowDatasetVersionSequence.from_array(updated_at).to_bytes(),
    )


@pytest.mark.parametrize(
    ("row_ids", "created_at", "updated_at", "invariant"),
    [
        ([0, 1, 2, 4], [1] * 4, [1] * 4, "I5"),
        ([0, 1, 2], [1] * 4, [1] * 4, "I5"),
        ([0, 1, 2, 3], [1] * 3, [1] * 4, "I7"),
        ([0, 1, 2, 3], [0] * 4, [1] * 4, "I7"),
        ([0, 1, 2, 3], [1] * 4, [1, 1, 1, 3], "I7"),
        ([0, 1, 2, 3], [1, 1, 2, 1], [1, 1, 1, 2], "I7"),
    ],
)
def test_lineage_violating_invariant_is_refused(row_ids, created_at, updated_at, invariant):
    state = created(4)
    moved = moved_fragment(row_ids, created_at, updated_at)
    with pytest.raises(InvalidInputError, match=invariant):
        after(state, Rewrite((RewriteGroup(state.manifest.fragments, (moved,)),)))


def test_base_paths_are_numbered_and_unique():
    state = after(
        created(1), UpdateBases((BasePath(0, None, True, "/a"), BasePath(7, "b", True, "/b")))
    )
    state = after(state, UpdateBases((BasePath(0, "c", False, "/c"),)))
    assert [base.id for base in state.manifest.base_paths] == [1, 7, 8]
    assert (state.manifest.reader_flags, state.manifest.writer_flags) == (18, 18)
    for repeated in (
        BasePath(7, "x", True, "/x"),
        BasePath(0, "b", True, "/y"),
        BasePath(0, None, True, "/c"),
    ):
        with pytest.raises(InvalidInputError, match="repeats"):
            after(state, UpdateBases((repeated,)))


# Cost --------------------------------------------------------------------------------------


def test_append_reuses_100_000_fragment_objects():
    state = created(10)
    (first,) = state.manifest.fragments
    many = tuple(
        Fragment(
            number, first.files, 10, None, first.row_ids, first.created_at, first.last_updated_at
        )
        for number in range(100_000)
    )
    large = replace(state.manifest, fragments=many, max_fragment_id=99_999, next_row_id=1_000_000)
    manifest = after(TableState(large), Append((new_fragment(5),))).manifest
    assert manifest.fragments[-1].id == 100_000
    assert all(map(operator.is_, manifest.fragments, many))
