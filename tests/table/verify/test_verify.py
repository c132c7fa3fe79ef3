"""Verification finds every injected damage, and nothing in tables that are in order."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from local_changes import delete_rows
from managed_blobs import blob_rows
from pyroaring import BitMap
from random_seeds import seeds
from row_changes import set_to
from table_access import append, random_history_or_skip, write_table

from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.metafile.deletion_file import write_deletion_file
from pyspark_lance.metafile.manifest_file import encode_manifest, list_versions, read_manifest
from pyspark_lance.metafile.paths import deletion_path
from pyspark_lance.proto import table_pb2
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.refs import create_branch, set_tag
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.verify.verify_manifest import REMEDIES, check_unique, live_row_ids
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

# What old releases did wrong in tables that are kept because of it.
KNOWN = {
    "field_ids_twice": {"field_in_two_files"},
    "files_of_two_versions": {"fragment_ids"},
    "indices_of_one_fragment": {"index_overlap"},
    "offsets_that_lance_refuses": {"bad_deletion_file"},
    "short_sequence": {"bad_row_ids"},
}
GOLDEN = Path(__file__).resolve().parents[2] / "golden"


@pytest.fixture
def path(tmp_path):
    """Three fragments, one with deleted rows, one of rows that moved; two indices, a tag."""
    path = str(tmp_path / "t")
    rows = pa.table({"id": range(20), "kind": ["a", "b"] * 10, "n": range(20)})
    write_table(path, rows, max_rows_per_file=10)
    lance.dataset(path).create_scalar_index("kind", "BITMAP")
    delete_rows(path, "id = 3 OR id = 12")
    set_to(path, "id = 5", kind="c")
    set_tag(Table(path), "kept")
    create_branch(Table(path), "side")
    return path


# In order ----------------------------------------------------------------------------------


def test_intact_table_has_no_findings(path):
    result = verify(Table(path), read_data=True)
    assert result.findings == ()
    assert (result.version, result.num_fragments, result.num_files, result.num_rows) == (
        4,
        3,
        3,
        18,
    )
    assert verify(Table(path, branch="side")).findings == ()
    assert verify(Table(f"{path}/tree/side")).findings == ()
    assert verify(Table(path), 2).findings == ()


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("seed", seeds(10, in_ci=2))
def test_pylance_tables_have_no_findings(tmp_path, seed, version):
    path = str(tmp_path / "t")
    random_history_or_skip(path, seed, version)
    assert verify(Table(path), read_data=True).findings == ()
    compact(Table(path), CompactionRequest(target_rows_per_fragment=500))
    assert verify(Table(path), read_data=True).findings == ()


def test_spilled_lineage_has_no_findings(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(
        pa.table({"id": range(40)}), path, enable_stable_row_ids=True, max_rows_per_file=10
    )
    lance.dataset(path).update_config(
        {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "1"}
    )
    lance.dataset(path).update({"id": "id + 100"}, where="id % 3 = 0")
    lance.dataset(path).optimize.compact_files(materialize_deletions_threshold=0.0)
    assert verify(Table(path), read_data=True).findings == ()


@pytest.mark.parametrize(
    "case", sorted(GOLDEN.glob("pylance-*/*")), ids=lambda case: f"{case.parent.name}-{case.name}"
)
def test_old_tables_have_known_findings(case, tmp_path):
    if not (case / "_versions").exists():
        pytest.skip("no table")
    shutil.copytree(case, tmp_path / "t")
    result = verify(Table(str(tmp_path / "t")))
    assert {one.kind for one in result.errors} == KNOWN.get(case.name, set())


# Damage ------------------------------------------------------------------------------------


def change_manifest(path, change, *, indices=lambda found: found):
    """Rewrite the newest manifest with a change."""
    store = Table(path).store()
    location = list_versions(store)[-1]
    file = read_manifest(store, location)
    manifest = change(file.manifest)
    store.put(location.path, encode_manifest(manifest, indices(file.indices), file.transaction()))


def change_fragment(path, number, **changes):
    def change(manifest):
        fragments = list(manifest.fragments)
        values = {
            name: value(fragments[number]) if callable(value) else value
            for name, value in changes.items()
        }
        fragments[number] = replace(fragments[number], **values)
        return replace(manifest, fragments=tuple(fragments))

    change_manifest(path, change)


def change_file(path, **changes):
    def files(fragment):
        first, *others = fragment.files
        return (replace(first, **changes), *others)

    change_fragment(path, 0, files=files)


def first_file(path):
    file = read_manifest(Table(path).store(), list_versions(Table(path).store())[-1])
    return Path(path, "data", file.manifest.fragments[0].files[0].path)


def deletion_file(path):
    file = read_manifest(Table(path).store(), list_versions(Table(path).store())[-1])
    return Path(path, deletion_path(0, file.manifest.fragments[0].deletion_file))


def cut(file, to=0.5):
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * to)])


def overwrite_middle(file):
    content = bytearray(file.read_bytes())
    content[:40] = os.urandom(40)
    file.write_bytes(bytes(content))


def overwrite_all(file):
    """Everything but the end, by which a file is taken for one of Lance."""
    content = file.read_bytes()
    file.write_bytes(b"\xff" * (len(content) - 40) + content[-40:])


def other_deletions(path, offsets):
    def deletions(fragment):
        store = Table(path).store()
        vector = DeletionVector.of(np.array(offsets, np.uint32))
        made = write_deletion_file(store, fragment.id, 3, vector, id=7)
        return replace(made, num_deleted_rows=1)

    change_fragment(path, 0, deletion_file=deletions)


def versions_of(*runs):
    lengths, versions = zip(*runs, strict=True)
    ends = np.cumsum(lengths, dtype=np.int64)
    return RowDatasetVersionSequence(ends, np.array(versions, np.uint64)).to_bytes()


def ids(*values):
    return RowIdSequence.from_array(list(values)).to_bytes()


def transaction_file(path):
    file = read_manifest(Table(path).store(), list_versions(Table(path).store())[-1])
    return Path(path, "_transactions", file.manifest.transaction_file)


def forget_transaction(path):
    transaction_file(path).unlink()
    store = Table(path).store()
    location = list_versions(store)[-1]
    file = read_manifest(store, location)
    store.put(location.path, encode_manifest(file.manifest, file.indices, None))


def other_transaction(path):
    file = transaction_file(path)
    other = next(one for one in file.parent.iterdir() if one != file)
    shutil.copy(other, file)


def orphan(path):
    file = Path(path, "data", "orphan.lance")
    file.write_bytes(b"nothing")
    long_ago = time.time() - 8 * 24 * 3600
    os.utime(file, (long_ago, long_ago))


def tag_of_nothing(path):
    file = Path(path, "_refs", "tags", "kept.json")
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "version": 77}))


def index_file(path):
    (file,) = Path(path, "_indices").glob("*/*.lance")
    return file


def other_end(path):
    def without_sizes(found):
        messages = [table_pb2.IndexMetadata.FromString(index.raw) for index in found]
        for message in messages:
            assert message.files
            del message.files[:]
        return tuple(IndexMetadata.from_bytes(one.SerializeToString()) for one in messages)

    change_manifest(path, lambda m: m, indices=without_sizes)
    assert verify(Table(path)).findings == ()
    cut(index_file(path))


def deletions_by_row_id(path):
    """As pylance 0.30 wrote them; behind the rows of the fragment, where Lance reads over them."""

    def deletions(fragment):
        vector = DeletionVector.of(np.array([3, 10, 11], np.uint32))
        return write_deletion_file(Table(path).store(), fragment.id, 3, vector, id=7)

    change_fragment(path, 0, deletion_file=deletions)


def with_bitmaps(*bitmaps):
    return lambda found: tuple(found[0].with_fragment_bitmap(BitMap(one)) for one in bitmaps)


def lose_blobs(path):
    shutil.rmtree(path)
    write_table(path, blob_rows({1: b"x" * 70_000}, managed=True), file_version="2.2")
    (held,) = Path(path, "_blobs").iterdir()
    held.unlink()


DAMAGE = {
    "manifest cut short": (
        "bad_manifest",
        lambda p: cut(Path(p, list_versions(Table(p).store())[-1].path)),
    ),
    "fragment id beyond the highest": (
        "fragment_ids",
        lambda p: change_manifest(p, lambda m: replace(m, max_fragment_id=1)),
    ),
    "two fragments of one id": ("fragment_ids", lambda p: change_fragment(p, 2, id=1)),
    "field id again": (
        "bad_manifest",
        lambda p: change_manifest(
            p,
            lambda m: replace(
                m,
                schema=replace(
                    m.schema, fields=(*m.schema.fields[:2], replace(m.schema.fields[2], id=0))
                ),
            ),
        ),
    ),
    "column in two files": (
        "field_in_two_files",
        lambda p: change_fragment(p, 0, files=lambda f: (*f.files, *f.files)),
    ),
    "file without a column in use": (
        "dead_file",
        lambda p: change_fragment(
            p, 0, files=lambda f: (*f.files, replace(f.files[0], fields=(-2, -2, -2)))
        ),
    ),
    "column that the file lacks": (
        "file_columns",
        lambda p: change_file(p, column_indices=(0, 1, 9)),
    ),
    "all rows deleted": (
        "deleted_count",
        lambda p: change_fragment(
            p, 0, deletion_file=lambda f: replace(f.deletion_file, num_deleted_rows=10)
        ),
    ),
    "deletion file gone": ("missing_deletion_file", lambda p: deletion_file(p).unlink()),
    "deletion file cut short": ("bad_deletion_file", lambda p: cut(deletion_file(p))),
    "deletion file with more rows than said": (
        "bad_deletion_file",
        lambda p: other_deletions(p, [1, 2, 4]),
    ),
    "no row ids": ("bad_manifest", lambda p: change_fragment(p, 0, row_ids=None)),
    "row ids too few": ("bad_row_ids", lambda p: change_fragment(p, 0, row_ids=ids(0, 1, 2))),
    "row ids that are none": (
        "bad_row_ids",
        lambda p: change_fragment(p, 0, row_ids=b"\xff\xff\xff"),
    ),
    "row ids not used up": (
        "row_ids_not_used_up",
        lambda p: change_manifest(p, lambda m: replace(m, next_row_id=15)),
    ),
    "row ids twice": (
        "duplicate_row_ids",
        lambda p: change_fragment(p, 0, row_ids=ids(*range(10, 20))),
    ),
    "versions too few": (
        "bad_versions",
        lambda p: change_fragment(p, 0, created_at=versions_of((3, 1))),
    ),
    "versions that are none": (
        "bad_versions",
        lambda p: change_fragment(p, 0, last_updated_at=b"\xff\xff\xff"),
    ),
    "versions of the future": (
        "impossible_versions",
        lambda p: change_fragment(p, 0, last_updated_at=versions_of((10, 9))),
    ),
    "updated before created": (
        "impossible_versions",
        lambda p: change_fragment(p, 0, created_at=versions_of((10, 3))),
    ),
    "flag for deletions missing": (
        "flags",
        lambda p: change_manifest(p, lambda m: replace(m, reader_flags=2, writer_flags=2)),
    ),
    "flag for row ids missing": (
        "flags",
        lambda p: change_manifest(p, lambda m: replace(m, reader_flags=1, writer_flags=1)),
    ),
    "unknown base": ("unknown_base", lambda p: change_file(p, base_id=5)),
    "index over a dropped column": (
        "index_fields",
        lambda p: change_manifest(
            p, lambda m: replace(m, schema=replace(m.schema, fields=m.schema.fields[:1]))
        ),
    ),
    "index parts that overlap": (
        "index_overlap",
        lambda p: change_manifest(p, lambda m: m, indices=with_bitmaps([0, 1], [1])),
    ),
    "index file gone": ("bad_index_file", lambda p: index_file(p).rename(f"{index_file(p)}.old")),
    "index file cut short": ("bad_index_file", lambda p: cut(index_file(p))),
    "index file with another end, of no noted size": ("bad_index_file", other_end),
    "index file with other bytes": ("index_content", lambda p: overwrite_all(index_file(p))),
    "deletion file of row ids": ("deletions_elsewhere", deletions_by_row_id),
    "index without files": ("missing_index", lambda p: shutil.rmtree(Path(p, "_indices"))),
    "data file gone": ("missing_data_file", lambda p: first_file(p).unlink()),
    "data file cut short": ("file_size", lambda p: cut(first_file(p))),
    "data file of another size than said": ("file_size", lambda p: change_file(p, size_bytes=99)),
    "data file with another footer": (
        "bad_data_file",
        lambda p: first_file(p).write_bytes(first_file(p).read_bytes()[:-4] + b"PAR1"),
    ),
    "more rows than the file has": (
        "file_rows",
        lambda p: change_fragment(
            p, 2, physical_rows=2, row_ids=ids(5, 6), created_at=None, last_updated_at=None
        ),
    ),
    "data file of another version": ("file_version", lambda p: change_file(p, minor_version=2)),
    "values overwritten": ("unreadable_rows", lambda p: overwrite_middle(first_file(p))),
    "transaction gone": ("missing_transaction", forget_transaction),
    "transaction of another version": ("transaction_differs", other_transaction),
    "clock that went back": (
        "time_runs_back",
        lambda p: change_manifest(p, lambda m: replace(m, timestamp_ns=10**18)),
    ),
    "tag of a version that is gone": ("dangling_tag", tag_of_nothing),
    "tag that cannot be read": (
        "bad_reference",
        lambda p: Path(p, "_refs", "tags", "kept.json").write_text("{"),
    ),
    "branch without versions": ("dangling_branch", lambda p: shutil.rmtree(Path(p, "tree"))),
    "object of blobs gone": ("missing_blobs", lose_blobs),
    "file of no version": ("orphans", orphan),
    "both naming schemes": (
        "naming_schemes",
        lambda p: shutil.copy(
            Path(p, list_versions(Table(p).store())[-1].path), Path(p, "_versions", "9.manifest")
        ),
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_with_remedy(path, name):
    kind, damage = DAMAGE[name]
    damage(path)
    found = verify(Table(path), read_data=kind == "unreadable_rows").findings
    assert kind in {one.kind for one in found}, found
    (one, *_) = [one for one in found if one.kind == kind]
    assert one.remedy == REMEDIES[kind]
    assert one.what
    assert one.where


def test_damages_cover_every_finding_kind():
    assert {kind for kind, _ in DAMAGE.values()} == REMEDIES.keys()


def test_older_version_is_intact_despite_damaged_newest(path):
    # The fragment of rows that moved is in the newest version alone.
    append(path, 50)
    newest = read_manifest(Table(path).store(), list_versions(Table(path).store())[-1])
    Path(path, "data", newest.manifest.fragments[-1].files[0].path).unlink()
    assert [one.kind for one in verify(Table(path)).errors] == ["missing_data_file"]
    assert verify(Table(path), 4).is_sound


@pytest.mark.parametrize("seed", range(30))
def test_duplicate_row_ids_are_counted(tmp_path, seed):
    """In segments of any kind; compared with all ids."""
    rng = np.random.default_rng(seed)
    write_table(str(tmp_path / "t"), pa.table({"id": [1]}))
    manifest = Snapshot.open(Table(str(tmp_path / "t"))).manifest
    live, owners = [], {}
    for number in range(4):
        size = int(rng.integers(1, 60))
        values = np.sort(rng.choice(int(rng.choice([60, 5000])), size, replace=False))
        sequence = RowIdSequence.concat(
            [RowIdSequence.from_array(part) for part in np.array_split(values, 3)]
        )
        deleted = DeletionVector.of(np.flatnonzero(rng.random(size) < 0.3))
        fragment = Fragment(id=number, files=(), physical_rows=size)
        live.append(live_row_ids(fragment, sequence, deleted))
        for one in sequence.without(deleted).to_array().tolist():
            owners.setdefault(one, []).append(number)
    shared = {one: those for one, those in owners.items() if len(those) > 1}
    found = list(check_unique(manifest, live))
    assert len(found) == bool(shared)
    if shared:
        number = sum(len(those) - 1 for those in shared.values())
        first = min(shared)
        assert found[0].what.startswith(f"{number} row ids belong to two rows; {first} to rows of")
        named = {int(word) for word in found[0].what.split("fragments")[1].split(" and ")}
        assert named <= set(shared[first])
