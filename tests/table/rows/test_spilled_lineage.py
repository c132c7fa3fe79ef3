"""Tables whose lineage is in hidden columns of data files (flag 2048)."""

from __future__ import annotations

import shutil
from datetime import timedelta

import lance
import numpy as np
import pyarrow as pa
import pytest
from local_changes import commit_rewritten, delete_rows
from row_changes import add_to, upsert
from table_access import (
    append,
    assert_same_rows,
    read_changes,
    read_dataset,
    read_ours,
    read_pylance,
    write_table,
)
from table_files import files_of, move_sequences_outside, used_files

from pyspark_lance.errors import CorruptFileError, MissingFileError
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.dml.rewrite_columns import plan_rewrite, rewrite_columns
from pyspark_lance.table.dml.row_change import plan_change
from pyspark_lance.table.refs import create_branch
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.unit_of_work import restore, set_properties
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

ALL_OLD = CleanupPolicy(older_than_s=0)


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


def test_versions_with_spilled_lineage_read_like_pylance(path):
    assert Snapshot.open(Table(path)).manifest.reader_flags & 2048
    for version in [v["version"] for v in lance.dataset(path).versions()]:
        ours = read_ours(path, VersionSpec(version=version))
        assert_same_rows(ours, read_pylance(path, version))


def test_conditions_on_hidden_lineage_find_their_rows(path):
    from_pylance = read_pylance(path).to_pylist()
    schema = predicate_schema(Snapshot.open(Table(path)).schema)
    for condition, keep in {
        "_rowid IN (1, 3, 5, 40, 41)": lambda r: r["_rowid"] in (1, 3, 5, 40, 41),
        "_row_last_updated_at_version > 3": lambda r: r["_row_last_updated_at_version"] > 3,
        "_row_created_at_version > 3 AND id > 100": lambda r: (
            r["_row_created_at_version"] > 3 and r["id"] > 100
        ),
    }.items():
        found = read_ours(path, predicate=parse_predicate(condition, schema))
        assert sorted(found["id"].to_pylist()) == sorted(r["id"] for r in from_pylance if keep(r))


def fragments_of(path):
    return Snapshot.open(Table(path)).manifest.fragments


def test_disabled_spilling_restores_inline_lineage(path):
    def lineage():
        return read_ours(path).drop(["_rowaddr"]).sort_by("_rowid").to_pylist()

    set_properties(Table(path), {"lance.row_lineage.spill": "false"})
    before = lineage()
    version = Snapshot.open(Table(path)).version
    feed = read_changes(path, 2, version, "none").num_rows
    # Two bins, of which one fragment is left out: it stays as it is, hidden columns and all.
    hidden = [one.id for one in fragments_of(path) if one.has_spilled_lineage]
    assert hidden
    some = compact(Table(path), CompactionRequest(excluded_fragment_ids=frozenset(hidden[:1])))
    assert some.fragments_removed
    assert [one.id for one in fragments_of(path) if one.has_spilled_lineage] == hidden[:1]
    assert Snapshot.open(Table(path)).manifest.writer_flags & 2048
    assert lineage() == before
    assert_same_rows(read_ours(path), read_pylance(path))
    assert (
        compact(Table(path), CompactionRequest(materialize_deletions_threshold=0.0)).fragments_added
        == 1
    )
    assert lineage() == before
    assert_same_rows(read_ours(path), read_pylance(path))
    lance.dataset(path).validate()
    assert read_changes(path, 2, Snapshot.open(Table(path)).version, "none").num_rows == feed
    # Nothing is hidden any more, so that older software may write again.
    assert not Snapshot.open(Table(path)).manifest.reader_flags & 2048
    append(path, 300, rows=1)
    lance.dataset(path).update({"v": "'again'"}, where="id = 7")
    assert_same_rows(read_ours(path), read_pylance(path))


def lineage_of(path: str, branch: str | None = None) -> list[dict]:
    """Ids and versions of the rows, which equal those of pylance."""
    ours = read_ours(path, branch=branch)
    from_pylance = lance.dataset(path, session=lance.Session())
    if branch is not None:
        from_pylance = from_pylance.checkout_version((branch, None))
    assert_same_rows(ours, read_dataset(from_pylance))
    assert verify(Table(path, branch=branch), read_data=True).findings == ()
    return ours.drop(["_rowaddr"]).sort_by("_rowid").to_pylist()


def hides_lineage(path: str, branch: str | None = None) -> bool:
    fragments = Snapshot.open(Table(path, branch=branch)).manifest.fragments
    return any(one.has_spilled_lineage for one in fragments)


def test_branch_keeps_and_extends_spilled_lineage(path):
    known, on_branch = lineage_of(path), Table(path, branch="b")
    create_branch(Table(path), "b")
    assert lineage_of(path, "b") == known
    there = lance.dataset(path).checkout_version(("b", None))
    there.update({"v": "'b'"}, where="id % 2 = 0")
    changed = lineage_of(path, "b")
    assert changed != known
    # The main line gives up its files of hidden lineage, as far as the branch has no use for them.
    compact(Table(path), CompactionRequest(materialize_deletions_threshold=0.0))
    for table in (Table(path), on_branch):
        cleanup_old_versions(table, ALL_OLD)
        assert lineage_of(path) == known
        assert lineage_of(path, "b") == changed
    compact(on_branch, CompactionRequest(materialize_deletions_threshold=0.0))
    assert hides_lineage(path, "b")
    for table in (Table(path), on_branch):
        cleanup_old_versions(table, ALL_OLD)
        assert lineage_of(path, "b") == changed
    assert lineage_of(path) == known


@pytest.mark.parametrize("kind", ["shallow", "deep"])
def test_clone_keeps_and_extends_spilled_lineage(path, tmp_path, kind):
    clone, known = str(tmp_path / "clone"), lineage_of(path)
    dataset, newest = lance.dataset(path), Snapshot.open(Table(path)).version
    if kind == "shallow":
        dataset.shallow_clone(clone, reference=newest)
    else:
        dataset.deep_clone(clone, newest)
    there = files_of(path)
    assert lineage_of(clone) == known
    add_row = rows([300])
    write_table(clone, add_row)
    delete_rows(clone, "id = 300")
    assert lineage_of(clone) == known
    compact(Table(clone), CompactionRequest(materialize_deletions_threshold=0.0))
    assert hides_lineage(clone)
    cleanup_old_versions(Table(clone), ALL_OLD)
    assert lineage_of(clone) == known
    assert files_of(path) == there
    assert lineage_of(path) == known
    if kind == "deep":
        shutil.rmtree(path)
        assert lineage_of(clone) == known
        assert files_of(clone) == used_files(clone)


def test_restored_versions_keep_spilled_lineage(path):
    known = {one["version"]: None for one in lance.dataset(path).versions()}
    for version in known:
        restore(Table(path), VersionSpec(version=version))
        known[version] = lineage_of(path)
    assert len({str(one) for one in known.values()}) > 3
    # From the newest version to one of the others, of which a cleanup keeps the files.
    newest = max(known)
    for version in (3, newest):
        restore(Table(path), VersionSpec(version=version))
        cleanup_old_versions(Table(path), CleanupPolicy(older_than_s=0, before_version=version))
        assert lineage_of(path) == known[version]
        assert hides_lineage(path)
    cleanup_old_versions(Table(path), ALL_OLD)
    assert lineage_of(path) == known[newest]
    assert files_of(path) == used_files(path)
    append(path, 300, rows=1)
    added = read_ours(path, predicate=is_id(300))
    assert added["_rowid"].to_pylist()[0] > max(row["_rowid"] for row in known[newest])


class Twins:
    """Two tables with one history, of which the first spills what it may."""

    def __init__(self, folder, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.spilled, self.inline = str(folder / "spilled"), str(folder / "inline")
        version = str(self.rng.choice(["2.0", "2.1", "2.2"]))
        limit = {"lance.row_lineage.inline_max_bytes": str(self.rng.choice([0, 20, 40, 100]))}
        for path, spills in ((self.spilled, "true"), (self.inline, "false")):
            lance.write_dataset(
                with_numbers(0, 60), path, enable_stable_row_ids=True, max_rows_per_file=25,
                data_storage_version=version,
            )  # fmt: skip
            set_properties(Table(path), {"lance.row_lineage.spill": spills, **limit})
            lance.dataset(path).create_scalar_index("id", "BTREE")
        self.next_id = 60
        self.was_hidden = False

    def both(self, change) -> None:
        """One change of each, after which both tables have equal contents for both readers."""
        for path in (self.spilled, self.inline):
            change(path)
        by_id = [("id", "ascending")]
        ours = read_ours(self.spilled)
        assert_same_rows(ours, read_pylance(self.spilled))
        kept = ours.drop(["_rowaddr"]).sort_by(by_id)
        assert kept.equals(read_ours(self.inline).drop(["_rowaddr"]).sort_by(by_id))
        self.was_hidden |= any(one.has_spilled_lineage for one in fragments_of(self.spilled))
        manifest = Snapshot.open(Table(self.inline)).manifest
        assert not manifest.reader_flags & 2048

    def step(self) -> None:
        rng = self.rng
        keys = rng.choice(self.next_id + 5, size=int(rng.integers(1, 30)), replace=False).tolist()
        condition = f"id IN ({', '.join(map(str, keys))})"
        rows, number = with_numbers(self.next_id, int(rng.integers(1, 9))), int(rng.integers(1000))
        known = sorted(key for key in keys if key < self.next_id)
        source = pa.concat_tables([with_number(known, number), rows])
        from_pylance = bool(rng.integers(2))
        match str(rng.choice(["append", "delete", "update", "columns", "merge", "compact", "add"])):
            case "append":
                self.both(lambda path: write(path, rows, from_pylance))
                self.next_id += rows.num_rows
            case "delete" if from_pylance:
                self.both(lambda path: lance.dataset(path).delete(condition))
            case "delete":
                self.both(lambda path: delete_rows(path, condition))
            case "update" if from_pylance:
                change = {"n": f"n + {number}"}
                self.both(lambda path: lance.dataset(path).update(change, where=condition))
            case "update":
                self.both(lambda path: add_to(path, condition, "n", number))
            case "columns":
                self.both(lambda path: rewrite_numbers(path, condition, number))
            case "merge":
                self.both(lambda path: merge(path, source, from_pylance))
                self.next_id += rows.num_rows
            case "compact":
                options = {"target_rows_per_fragment": int(rng.choice([20, 1000]))}
                options["materialize_deletions_threshold"] = 0.0
                self.both(lambda path: compact_by(path, options, from_pylance))
            case "add":
                extra = "extra" in lance.dataset(self.spilled).schema.names
                change = (lambda d: d.drop_columns(["extra"])) if extra else (
                    lambda d: d.add_columns({"extra": "n * 2"})
                )  # fmt: skip
                self.both(lambda path: change(lance.dataset(path)))


def is_id(key: int):
    schema = predicate_schema(LanceSchema.from_arrow(with_numbers(0, 1).schema))
    return parse_predicate(f"id = {key}", schema)


def with_numbers(first: int, rows: int) -> pa.Table:
    return with_number(list(range(first, first + rows)), first)


def with_number(ids: list[int], number: int) -> pa.Table:
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "n": pa.array([number] * len(ids), pa.int64())}
    )


def write(path: str, rows: pa.Table, from_pylance: bool) -> None:
    if from_pylance:
        lance.write_dataset(rows, path, mode="append")
    else:
        write_table(path, rows)


def merge(path: str, source: pa.Table, from_pylance: bool) -> None:
    if not from_pylance:
        upsert(path, source)
        return
    builder = lance.dataset(path).merge_insert("id").when_matched_update_all()
    builder.when_not_matched_insert_all().execute(source)


def rewrite_numbers(path: str, condition: str, number: int) -> None:
    plan = plan_change(Table(path))
    found = read_ours(path, predicate=parse_predicate(condition, predicate_schema(plan.schema)))
    if not found.num_rows:
        return
    found = found.select(["n", "_rowaddr"]).sort_by("_rowaddr")
    found = found.set_column(0, "n", pa.array([number] * found.num_rows))
    request = plan_rewrite(plan.snapshot(), ["n"])
    commit_rewritten(plan, request, list(rewrite_columns(request, found.to_batches())))


def compact_by(path: str, options: dict, from_pylance: bool) -> None:
    if from_pylance:
        lance.dataset(path).optimize.compact_files(**options)
    else:
        compact(Table(path), CompactionRequest(**options))


def run_twins(folder, seed: int) -> bool:
    twins = Twins(folder, seed)
    for _ in range(6):
        twins.step()
    path, newest = twins.spilled, lance.dataset(twins.spilled)
    # An index names rows by their ids, which may be in hidden columns by now.
    for key in range(0, twins.next_id, 7):
        looked_up = [read_ours(one, predicate=is_id(key)) for one in (path, twins.inline)]
        assert looked_up[0].drop(["_rowaddr"]).equals(looked_up[1].drop(["_rowaddr"]))
        assert looked_up[0].num_rows == newest.count_rows(f"id = {key}")
    newest.validate()
    assert verify(Table(path), read_data=True).findings == ()
    rows = read_ours(path)
    if rows.num_rows:
        ids = rows["_rowid"].take(pa.array(range(0, rows.num_rows, 3)))
        taken = newest._take_rows(ids.to_pylist(), columns=["id"])
        assert taken["id"].to_pylist() == rows["id"].to_pylist()[::3]
    order = [(name, "ascending") for name in ("_commit_version", "_rowid", "_change_type")]
    feeds = [
        read_changes(one, 4, newest.version, "none").drop(["_commit_timestamp"]).sort_by(order)
        for one in (twins.spilled, twins.inline)
    ]
    assert feeds[0].equals(feeds[1])
    # A restore to before the first change, and on from there.
    twins.both(lambda path: restore(Table(path), VersionSpec(version=4)))
    twins.step()
    cleanup_old_versions(Table(path), CleanupPolicy(older_than_s=0))
    assert_same_rows(read_ours(path), read_pylance(path))
    newest = lance.dataset(path)
    newest.cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert_same_rows(read_ours(path), read_pylance(path))
    return twins.was_hidden


def test_spilling_tables_equal_inline_tables(tmp_path):
    hidden = [run_twins(tmp_path / str(seed), seed) for seed in range(3)]
    assert sum(hidden) > 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_spilling_tables_equal_inline_tables_in_many_histories(tmp_path, seed):
    run_twins(tmp_path, seed)


def test_external_sequences_read_like_inline_sequences(tmp_path):
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


def spilled_updates(path: str, rows: int, limit: int, file_rows: int = 1 << 20) -> None:
    """A table of which every other row was updated, here and there."""
    ids = np.arange(rows)
    values = np.random.default_rng(5).permutation(rows)
    write_table(path, pa.table({"id": ids, "n": values}), max_rows_per_file=file_rows)
    spills = {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": str(limit)}
    set_properties(Table(path), spills)
    add_to(path, f"n < {rows // 2}", "n", rows)


@pytest.mark.parametrize("where", ["hidden column", "file of its own"])
@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_missing_or_truncated_lineage_is_named(tmp_path, where, damage):
    path = str(tmp_path / "t")
    spilled_updates(path, 200, 10 if where == "hidden column" else 1 << 20)
    if where == "hidden column":
        files = [file for fragment in fragments_of(path) for file in fragment.files]
        (hidden,) = (file for file in files if max(file.fields) < 0)
        broken = tmp_path / "t" / "data" / hidden.path
    else:
        move_sequences_outside(path)
        source = fragments_of(path)[-1].row_ids
        broken = tmp_path / "t" / source.path
    whole = broken.read_bytes()
    if damage == "missing":
        broken.unlink()
    else:
        broken.write_bytes(whole[: len(whole) // 2])
    kinds = {"missing": MissingFileError, "cut": CorruptFileError}
    with pytest.raises(kinds[damage], match=broken.name) as raised:
        read_ours(path)
    assert raised.value.where
    assert raised.value.hint
    assert "bad_row_ids" in {one.kind for one in verify(Table(path)).findings}
    broken.write_bytes(whole)
    assert verify(Table(path)).findings == ()
    assert read_ours(path).num_rows == 200


@pytest.mark.parametrize("rows", [40_000, pytest.param(8_000_000, marks=pytest.mark.slow)])
def test_scattered_updates_barely_grow_manifest(tmp_path, rows):
    path = str(tmp_path / "t")
    file_rows = min(1 << 20, rows // 4)
    spilled_updates(path, rows, 200 << 10 if rows > 1_000_000 else 1000, file_rows)
    compact(
        Table(path),
        CompactionRequest(materialize_deletions_threshold=0.0, target_rows_per_fragment=file_rows),
    )
    snapshot = Snapshot.open(Table(path))
    fragments = snapshot.manifest.fragments
    hidden = sum(one.has_spilled_lineage for one in fragments)
    assert hidden == len(fragments) >= 2
    size = snapshot.store.size(snapshot.file.location.path)
    # A fragment of a million rows says no more than one of few.
    computed = size / len(fragments) * 100_000_000 / (1 << 20)
    assert computed < 5_000_000
    assert_same_rows(read_ours(path), read_pylance(path))
