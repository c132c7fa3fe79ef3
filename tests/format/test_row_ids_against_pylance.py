"""Row ids and versions of tables that pylance made, deleted from, updated and compacted."""

import random
import struct

import lance
import numpy as np
import pyarrow as pa
import pytest

from pyspark_lance.format.deletion_vector import DeletionFile, DeletionVector
from pyspark_lance.format.row_id_index import RowIdIndex
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.proto import table_pb2

pytestmark = pytest.mark.interop


def fragments_of(root):
    newest = min((root / "_versions").glob("*.manifest"))
    data = newest.read_bytes()
    position = struct.unpack("<q", data[-16:-8])[0]
    length = struct.unpack("<I", data[position : position + 4])[0]
    return table_pb2.Manifest.FromString(data[position + 4 : position + 4 + length]).fragments


def deleted_rows(root, fragment) -> DeletionVector:
    if not fragment.HasField("deletion_file"):
        return DeletionVector.empty()
    stored = DeletionFile.from_proto(fragment.deletion_file)
    name = f"{fragment.id}-{stored.read_version}-{stored.id}.{stored.suffix}"
    path = root / "_deletions" / name
    if stored.suffix == "bin":
        vector = DeletionVector.from_bitmap_bytes(path.read_bytes())
    else:
        vector = DeletionVector.of(pa.ipc.open_file(path).read_all()["row_id"].to_numpy())
    assert len(vector) == stored.num_deleted_rows
    return vector


def rows(start, end):
    return pa.table({"i": pa.array(range(start, end), pa.int64()), "v": [0] * (end - start)})


def compact(root, **options):
    lance.dataset(root).optimize.compact_files(materialize_deletions_threshold=0.0, **options)


def random_condition(rng, count):
    modulus, start = rng.choice([2, 3, 7, 16, 17, 40, 90]), rng.randrange(count)
    stretch = f"i >= {start} and i < {start + rng.randrange(1, count)}"
    return rng.choice([f"i % {modulus} = 1", f"i % {modulus} != 1", stretch])


@pytest.mark.parametrize("seed", range(12))
def test_compacted_sequences_equal_pylance_bytes(tmp_path, seed):
    rng = random.Random(seed)
    root, count = tmp_path / "t.lance", rng.choice([150, 2000, 90_000])
    lance.write_dataset(
        rows(0, count), root, enable_stable_row_ids=True, max_rows_per_file=count // 3 + 1
    )
    # Every fragment loses a row, so that each is compacted.
    lance.dataset(root).delete(f"i % {count // 3 + 1} = {rng.choice([0, 9])}")
    for _ in range(rng.randrange(1, 3)):
        lance.dataset(root).delete(f"({random_condition(rng, count)}) and i != 5")
    before = fragments_of(root)
    vectors = [deleted_rows(root, fragment) for fragment in before]
    compact(root)
    after = fragments_of(root)
    assert {old.id for old in before}.isdisjoint(new.id for new in after)
    expected = RowIdSequence.concat(
        RowIdSequence.from_bytes(fragment.inline_row_ids).without(vector)
        for fragment, vector in zip(before, vectors, strict=True)
    )
    assert [fragment.inline_row_ids for fragment in after] == [expected.to_bytes()]


@pytest.mark.parametrize("seed", range(5))
def test_sequences_and_index_follow_updates_and_compactions(tmp_path, seed):
    rng = random.Random(seed)
    root, count = tmp_path / "t.lance", rng.choice([60, 3000])
    lance.write_dataset(
        rows(0, count), root, enable_stable_row_ids=True, max_rows_per_file=count // 4
    )
    for _ in range(5):
        action = rng.randrange(4)
        if action == 0:
            lance.dataset(root).delete(f"i % 11 = {rng.randrange(11)}")
        elif action == 1:
            lance.dataset(root).update({"v": "v + 1"}, where=random_condition(rng, count))
        elif action == 2:
            keys = pa.array(rng.sample(range(count), 20), pa.int64())
            merge = lance.dataset(root).merge_insert("i").when_matched_update_all()
            merge.execute(pa.table({"i": keys, "v": [7] * 20}))
        else:
            compact(root, target_rows_per_fragment=rng.choice([count // 3, 10 * count]))
    fragments = fragments_of(root)
    vectors = [deleted_rows(root, fragment) for fragment in fragments]
    ids, created, updated = [], [], []
    for fragment, vector in zip(fragments, vectors, strict=True):
        stored = RowIdSequence.from_bytes(fragment.inline_row_ids)
        assert stored.to_bytes() == fragment.inline_row_ids
        ids.append(stored.expect_length(fragment.physical_rows))
        for lineage, data in (
            (created, fragment.inline_created_at_versions),
            (updated, fragment.inline_last_updated_at_versions),
        ):
            versions = RowDatasetVersionSequence.from_bytes(data)
            lineage.append(versions.expect_length(fragment.physical_rows).without(vector))
    names = ["_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version"]
    table = lance.dataset(root).to_table(columns=names)
    row_ids, addresses, created_at, updated_at = (table[name].to_numpy() for name in names)
    live = [sequence.without(vector) for sequence, vector in zip(ids, vectors, strict=True)]
    assert (RowIdSequence.concat(live).to_array() == row_ids).all()
    assert (RowDatasetVersionSequence.concat(created).to_array() == created_at).all()
    assert (RowDatasetVersionSequence.concat(updated).to_array() == updated_at).all()
    index = RowIdIndex.build(
        (fragment.id, sequence, vector)
        for fragment, sequence, vector in zip(fragments, ids, vectors, strict=True)
    )
    index.check_unique()
    everything = np.arange(count + 10, dtype=np.uint64)
    found_addresses, found = index.addresses_of(everything)
    assert everything[found].tolist() == sorted(row_ids.tolist())
    expected = dict(zip(row_ids.tolist(), addresses.tolist(), strict=True))
    assert found_addresses[found].tolist() == [expected[i] for i in everything[found].tolist()]
