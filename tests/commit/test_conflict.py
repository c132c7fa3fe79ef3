"""The table of conflict rules: complete, and right where pylance offers no way to ask it."""

from __future__ import annotations

import typing
import uuid
from dataclasses import replace

import pytest
from commit_tables import SCHEMA, new_fragment
from pyroaring import BitMap

from pyspark_lance.commit.conflict import RULES, Resolution, check_conflict
from pyspark_lance.commit.inserted_keys import NUM_BYTES, key_filter_message
from pyspark_lance.format.field import Field
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.manifest import BasePath
from pyspark_lance.format.operation import (
    Append,
    Clone,
    CreateIndex,
    DataReplacement,
    DataReplacementGroup,
    Delete,
    Merge,
    Operation,
    Overwrite,
    Project,
    ReserveFragments,
    Restore,
    Rewrite,
    RewriteGroup,
    UnknownOperation,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMap,
    UpdateMemWalState,
)
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.proto import table_pb2

KINDS = typing.get_args(Operation)

OK, REBASE = Resolution.COMPATIBLE, Resolution.REBASE
RETRY, STOP = Resolution.RETRY, Resolution.INCOMPATIBLE


def index(name, fields, covered):
    message = table_pb2.IndexMetadata(
        uuid=table_pb2.Uuid(uuid=uuid.uuid4().bytes), name=name, fields=fields
    )
    if covered is not None:
        message.fragment_bitmap = BitMap(covered).serialize()
    return IndexMetadata.from_bytes(message.SerializeToString())


def replacement(fragment_id, *fields):
    (file,) = new_fragment(4, fields=fields).files
    return DataReplacement((DataReplacementGroup(fragment_id, file),))


F0, F1 = new_fragment(4), new_fragment(4, id=1)
SAMPLES = {
    "append": Append((new_fragment(1),)),
    "delete f0": Delete((F0,)),
    "delete f1": Delete((F1,)),
    "remove f1": Delete((), (1,)),
    "update f0": Update(updated_fragments=(F0,), new_fragments=(new_fragment(1),)),
    "update f1": Update(updated_fragments=(F1,), new_fragments=(new_fragment(1),)),
    "columns f0": Update(updated_fragments=(F0,), fields_modified=(1,), update_mode=1),
    "columns f0 of old writers": Update(updated_fragments=(F0,), fields_modified=(1,)),
    "overwrite": Overwrite((new_fragment(1),), SCHEMA),
    "overwrite k": Overwrite((), SCHEMA, {"k": "v"}),
    "index a": CreateIndex((index("a_idx", [1], [0, 1]),)),
    "rewrite f0": Rewrite((RewriteGroup((F0,), (new_fragment(4),)),)),
    "merge": Merge((F0, F1), SCHEMA),
    "merge pn": Merge((F0, F1), SCHEMA, True),
    "project": Project(SCHEMA),
    "project pn": Project(SCHEMA, True),
    "restore": Restore(1),
    "config k": UpdateConfig(config_updates=UpdateMap((("k", "v"),))),
    "schema metadata": UpdateConfig(schema_metadata_updates=UpdateMap((("k", "v"),))),
    "replace f0": replacement(0, 1),
    "reserve": ReserveFragments(3),
    "bases": UpdateBases((BasePath(0, "b", True, "/b"),)),
    "clone": Clone(True, 1, "/x"),
    "mem wal": UpdateMemWalState(),
    "unknown": UnknownOperation(116),
}


def test_every_operation_pair_has_rule():
    assert {(ours, theirs) for ours in KINDS for theirs in KINDS} == RULES.keys()


def test_incompatible_resolutions_have_reasons():
    for ours in SAMPLES.values():
        for theirs in SAMPLES.values():
            conflict_check = check_conflict(ours, theirs)
            assert bool(conflict_check.reason) == (conflict_check.resolution is not OK)


@pytest.mark.parametrize("kind", ["clone", "mem wal", "unknown"])
def test_uncheckable_operations_conflict_in_both_directions(kind):
    for other in SAMPLES.values():
        assert check_conflict(SAMPLES[kind], other).resolution is STOP
        assert check_conflict(other, SAMPLES[kind]).resolution is STOP
    assert "116" in check_conflict(SAMPLES["append"], SAMPLES["unknown"]).reason


def test_reserved_fragments_and_new_bases_never_conflict():
    for name, ours in SAMPLES.items():
        if name in ("clone", "mem wal", "unknown", "bases"):
            continue
        assert check_conflict(ours, SAMPLES["reserve"]).resolution is OK
        assert check_conflict(ours, SAMPLES["bases"]).resolution is OK


def test_reserve_conflicts_only_with_overwrite_and_restore():
    for name, theirs in SAMPLES.items():
        expected = STOP if name.split()[0] in ("overwrite", "restore") else OK
        if name not in ("clone", "mem wal", "unknown"):
            assert check_conflict(SAMPLES["reserve"], theirs).resolution is expected


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ("delete f0", "delete f0", REBASE),
        ("delete f0", "update f0", REBASE),
        ("update f0", "delete f0", REBASE),
        ("update f0", "update f0", REBASE),
        ("delete f0", "delete f1", OK),
        ("update f0", "columns f0", RETRY),
        ("columns f0", "delete f0", RETRY),
        ("columns f0", "columns f0", RETRY),
        ("update f0", "columns f0 of old writers", RETRY),
        ("delete f1", "remove f1", RETRY),
        ("remove f1", "delete f1", RETRY),
        ("remove f1", "delete f0", OK),
        ("index a", "columns f0", RETRY),
        ("index a", "update f0", OK),
        ("overwrite", "overwrite", RETRY),
        ("overwrite k", "overwrite k", STOP),
        ("overwrite k", "overwrite", RETRY),
        ("overwrite k", "config k", STOP),
        ("overwrite", "config k", OK),
        ("config k", "overwrite", OK),
        ("schema metadata", "overwrite", STOP),
        ("replace f0", "update f0", RETRY),
        ("replace f0", "columns f0", RETRY),
        ("replace f0", "delete f0", OK),
    ],
)
def test_selected_pairs_have_expected_resolution(ours, theirs, expected):
    assert check_conflict(SAMPLES[ours], SAMPLES[theirs]).resolution is expected


def test_merge_with_key_filter_retries_after_inserts():
    keys = key_filter_message([0], bytes(NUM_BYTES - 32) + b"\xff" * 32)
    filtered = Update(new_fragments=(new_fragment(1),), inserted_rows=keys)
    assert check_conflict(filtered, filtered).resolution is RETRY
    nothing = replace(filtered, inserted_rows=key_filter_message([0], bytes(NUM_BYTES)))
    assert check_conflict(filtered, nothing).resolution is OK
    assert check_conflict(filtered, SAMPLES["append"]).resolution is RETRY
    assert check_conflict(filtered, SAMPLES["update f0"]).resolution is RETRY
    assert check_conflict(filtered, Append()).resolution is OK
    assert check_conflict(filtered, SAMPLES["delete f0"]).resolution is OK
    assert check_conflict(SAMPLES["append"], filtered).resolution is OK


def test_append_conflicts_with_replaced_field():
    file = SAMPLES["append"].fragments[0].files[0]
    kept = LanceSchema(tuple(Field(one, f"c{one}", "int64") for one in file.fields))
    replaced = LanceSchema((*kept.fields[:-1], Field(99, kept.fields[-1].name, "int64")))
    assert (
        check_conflict(SAMPLES["append"], Merge(schema=kept, preserves_nullability=True)).resolution
        is OK
    )
    merge = Merge(schema=replaced, preserves_nullability=True)
    assert check_conflict(SAMPLES["append"], merge).resolution is RETRY


def test_index_of_unknown_coverage_conflicts_with_rewrite():
    unknown = CreateIndex((index("x", [0], None),))
    assert check_conflict(unknown, SAMPLES["rewrite f0"]).resolution is RETRY
    assert check_conflict(SAMPLES["rewrite f0"], unknown).resolution is RETRY
    elsewhere = CreateIndex((index("x", [0], [1]),))
    assert check_conflict(elsewhere, SAMPLES["rewrite f0"]).resolution is OK


def test_index_conflicts_with_dropped_column():
    without_a = LanceSchema((Field(0, "id", "int64"),))
    assert check_conflict(SAMPLES["index a"], Project(without_a)).resolution is RETRY
    assert check_conflict(SAMPLES["index a"], Merge((F0, F1), without_a)).resolution is RETRY
    assert check_conflict(SAMPLES["index a"], SAMPLES["project"]).resolution is OK


def test_replacements_of_different_columns_are_compatible():
    assert check_conflict(replacement(0, 0), replacement(0, 1)).resolution is OK
    assert check_conflict(replacement(0, 1), replacement(1, 1)).resolution is OK
    assert check_conflict(replacement(0, 1), replacement(0, 1)).resolution is RETRY


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (BasePath(0, "a", True, "/a"), BasePath(0, "b", True, "/b"), OK),
        (BasePath(3, "a", True, "/a"), BasePath(3, "b", True, "/b"), STOP),
        (BasePath(3, "a", True, "/a"), BasePath(4, "a", True, "/b"), STOP),
        (BasePath(3, None, True, "/a"), BasePath(4, None, True, "/b"), OK),
        (BasePath(0, None, True, "/a"), BasePath(0, None, True, "/a"), STOP),
    ],
)
def test_bases_conflict_on_same_id_name_or_path(ours, theirs, expected):
    assert check_conflict(UpdateBases((ours,)), UpdateBases((theirs,))).resolution is expected


def test_older_config_updates_conflict_like_new_ones():
    older = UpdateConfig(upsert_values={"k": "v"})
    assert check_conflict(older, SAMPLES["config k"]).resolution is STOP
    assert check_conflict(SAMPLES["overwrite k"], older).resolution is STOP
    deletes = UpdateConfig(delete_keys=("k",))
    assert check_conflict(deletes, deletes).resolution is OK
    assert check_conflict(deletes, older).resolution is STOP
    assert (
        check_conflict(UpdateConfig(schema_metadata={"a": "b"}), SAMPLES["restore"]).resolution
        is STOP
    )
    assert (
        check_conflict(SAMPLES["merge"], UpdateConfig(field_metadata={0: {"a": "b"}})).resolution
        is RETRY
    )
