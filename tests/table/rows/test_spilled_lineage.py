"""Tables whose lineage is in hidden columns of data files (flag 2048)."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from table_access import append, assert_same_rows, read_changes, read_ours, read_theirs
from table_files import move_sequences_outside

from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.time_travel import VersionSpec

pytestmark = pytest.mark.interop


def rows(ids: list[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": ["x"] * len(ids)})


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(
        rows(list(range(40))), path, enable_stable_row_ids=True, max_rows_per_file=10,
        data_storage_version="2.1",
    )  # fmt: skip
    lance.dataset(path).update_config(
        {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "1"}
    )
    lance.dataset(path).update({"v": "'u'"}, where="id % 3 = 0")
    lance.dataset(path).optimize.compact_files(materialize_deletions_threshold=0.0)
    (
        lance.dataset(path)
        .merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(rows([1, 5, 100]))
    )
    lance.dataset(path).insert(rows([200]))
    return path


def test_every_version_reads_as_in_pylance(path):
    assert Snapshot.open(Table(path)).manifest.reader_flags & 2048
    for version in [v["version"] for v in lance.dataset(path).versions()]:
        ours = read_ours(path, VersionSpec(version=version))
        assert_same_rows(ours, read_theirs(path, version))


def test_conditions_on_hidden_lineage_find_their_rows(path):
    theirs = read_theirs(path).to_pylist()
    schema = predicate_schema(Snapshot.open(Table(path)).schema)
    for condition, keep in {
        "_rowid IN (1, 3, 5, 40, 41)": lambda r: r["_rowid"] in (1, 3, 5, 40, 41),
        "_row_last_updated_at_version > 3": lambda r: r["_row_last_updated_at_version"] > 3,
        "_row_created_at_version > 3 AND id > 100": lambda r: (
            r["_row_created_at_version"] > 3 and r["id"] > 100
        ),
    }.items():
        found = read_ours(path, predicate=parse_predicate(condition, schema))
        assert sorted(found["id"].to_pylist()) == sorted(r["id"] for r in theirs if keep(r))


def test_writing_is_refused_by_name(path):
    with pytest.raises(UnsupportedFeatureError, match=r"2048|spill"):
        append(path, 300, rows=1)


def fragments_of(path):
    return Snapshot.open(Table(path)).manifest.fragments


def test_a_compaction_moves_hidden_lineage_value_for_value(path):
    def lineage():
        return read_ours(path).drop(["_rowaddr"]).sort_by("_rowid").to_pylist()

    before = lineage()
    version = Snapshot.open(Table(path)).version
    feed = read_changes(path, 2, version, "none").num_rows
    # Two bins, of which one fragment is left out: it stays as it is, hidden columns and all.
    hidden = [one.id for one in fragments_of(path) if one.has_spilled_lineage]
    assert hidden
    some = compact(Table(path), {"excluded_fragment_ids": frozenset(hidden[:1])})
    assert some.fragments_removed
    assert [one.id for one in fragments_of(path) if one.has_spilled_lineage] == hidden[:1]
    assert Snapshot.open(Table(path)).manifest.writer_flags & 2048
    assert lineage() == before
    assert_same_rows(read_ours(path), read_theirs(path))
    assert compact(Table(path), {"materialize_deletions_threshold": 0.0}).fragments_added == 1
    assert lineage() == before
    assert_same_rows(read_ours(path), read_theirs(path))
    lance.dataset(path).validate()
    assert read_changes(path, 2, Snapshot.open(Table(path)).version, "none").num_rows == feed
    # Nothing is hidden any more, so that everybody may write again.
    assert not Snapshot.open(Table(path)).manifest.reader_flags & 2048
    append(path, 300, rows=1)
    lance.dataset(path).update({"v": "'again'"}, where="id = 7")
    assert_same_rows(read_ours(path), read_theirs(path))


def test_sequences_in_files_of_their_own_read_as_those_in_the_manifest(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(
        rows(list(range(40))), path, enable_stable_row_ids=True, max_rows_per_file=10
    )
    lance.dataset(path).update({"v": "'u'"}, where="id % 3 = 0")
    lance.dataset(path).delete("id % 4 = 1")
    condition = parse_predicate(
        "_row_last_updated_at_version = 2 AND _rowid > 7",
        predicate_schema(Snapshot.open(Table(path)).schema),
    )

    def everything():
        yield read_ours(path)
        yield read_ours(path, predicate=condition)
        for mode in ("none", "netChanges"):
            yield (
                read_changes(path, 1, 3, mode)
                .drop(["_commit_timestamp"])
                .sort_by(
                    [(name, "ascending") for name in ("_commit_version", "_rowid", "_change_type")]
                )
            )

    inline = list(everything())
    move_sequences_outside(path)
    assert list(everything()) == inline
