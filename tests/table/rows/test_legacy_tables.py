import uuid

import lance
import numpy as np
import pyarrow as pa
import pytest
from commit_tables import commit
from legacy_tables import as_legacy_reads, legacy_columns
from local_changes import delete_rows
from row_changes import add_to, set_to, upsert
from table_access import assert_same_rows, read_ours, read_pylance, write_table

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.format.operation import Delete, Restore
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.predicate.conditions import evaluate
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.rows.legacy_pruning import matching_rows
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

NAMES = ["int64", "string", "list_struct", "vector", "bool", "large_list"]


def rows(count, seed=0):
    columns = legacy_columns(count, seed)
    table = pa.table({name: columns[name] for name in NAMES})
    table = table.add_column(
        0, "dictionary", pa.array(list("pqrqp") * 100)[:count].dictionary_encode()
    )
    return table.add_column(0, "id", pa.array(np.arange(count) + seed * 1000))


def written_by_pylance(path, table, **options):
    return lance.write_dataset(table, path, data_storage_version="legacy", **options)


def assert_read_equally(path):
    assert_same_rows(read_ours(path, system_columns=("_rowaddr",)), read_pylance(path))


@pytest.mark.parametrize("stable", [False, True])
def test_legacy_table_reads_correctly_after_pylance_changes(tmp_path, stable):
    path, first = str(tmp_path), rows(90)
    dataset = written_by_pylance(
        path, first, max_rows_per_file=40, max_rows_per_group=9, enable_stable_row_ids=stable
    )
    lance.write_dataset(first.slice(10, 30), path, mode="append", max_rows_per_group=11)
    assert_read_equally(path)
    dataset = lance.dataset(path)
    dataset.add_columns({"twice": "id * 2"})
    assert_read_equally(path)
    dataset.delete("id % 7 = 3")
    assert_read_equally(path)
    dataset.update({"string": "'new'"}, where="id > 60")
    assert_read_equally(path)
    dataset.drop_columns(["string", "vector"])
    assert_read_equally(path)
    dataset.optimize.compact_files(target_rows_per_fragment=1000)
    assert_read_equally(path)
    dataset.drop_columns(["dictionary"])
    dataset.alter_columns({"path": "bool", "name": "flag"})
    assert_read_equally(path)


CONDITIONS = [
    "n < 40", "n <= 40", "n > 250", "n >= 250", "n = 77", "n <> 77", "77 = n", "77 > n",
    "NOT n < 250", "n <=> 12", "n IN (3, 299)", "n BETWEEN 100 AND 110", "n < 10 OR n > 290",
    "n < 10 AND s > 'w'", "s = 'w150'", "s < 'w002'", "s >= 'w299'", "NOT (s >= 'w010')",
    "s IS NULL", "s IS NOT NULL AND n > 200", "f < 3.5", "f > 140", "f = double('NaN')",
    "f >= double('NaN')", "small < 3", "small = 200", "d > DATE '1970-10-01'", "t.x > 290",
    "t.x < 10 AND t.y = 'y5'", "flag AND n < 30", "m > 100.5", "m = 12.25", "long = 's'",
    "long > 'z'", "n < 10 AND nothing = 5", "n + 1 < 5", "u > 9223372036854775800", "n < NULL",
    "n IN (NULL)", "NOT (n > 10 OR s < 'w290')",
]  # fmt: skip


def clustered(count=300):
    numbers = np.arange(count)
    floats = numbers / 2
    floats[[17, 123]] = np.nan
    return pa.table(
        {
            "n": pa.array(numbers),
            "s": [None if i % 50 == 7 else "" if i % 50 == 8 else f"w{i:03}" for i in numbers],
            "f": floats,
            "small": pa.array((numbers % 256).astype(np.uint8)),
            "d": pa.array(numbers.astype(np.int32)).cast(pa.date32()),
            "t": [{"x": i, "y": f"y{i}"} for i in numbers.tolist()],
            "flag": pa.array(numbers < 20),
            "m": pa.array(numbers).cast(pa.decimal128(21, 2)),
            "long": [f"{chr(97 + i // 12)}" * 70 for i in numbers.tolist()],
            "nothing": pa.nulls(count, pa.int64()),
            "u": pa.array(numbers.astype(np.uint64) + np.uint64(2**63)),
        }
    )


@pytest.fixture(scope="module")
def clustered_path(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("clustered"))
    written_by_pylance(path, clustered(), max_rows_per_group=10)
    return path


@pytest.mark.parametrize("condition", CONDITIONS)
def test_pruned_pages_have_no_matching_rows(clustered_path, condition):
    snapshot = Snapshot.open(Table(clustered_path))
    predicate = parse_predicate(condition, predicate_schema(snapshot.schema))
    found = read_ours(clustered_path, predicate=predicate, system_columns=())
    whole = read_ours(clustered_path, system_columns=()).combine_chunks()
    (batch,) = whole.to_batches()
    assert repr(found.to_pylist()) == repr(batch.filter(evaluate(predicate, batch)).to_pylist())


@pytest.mark.parametrize(
    ("condition", "pages"),
    [("n < 40", 4), ("n = 77", 1), ("n BETWEEN 95 AND 104", 2), ("NOT n < 250", 5),
     ("s = 'w150'", 3), ("n IN (3, 299)", 2), ("t.x > 290", 1), ("small = 200", 2), ("f < 3.5", 1),
     ("m = 12", 1), ("d < DATE '1970-01-05'", 1), ("f > 140", 30), ("s IS NULL", 30),
     ("nothing = 5", 30), ("n + 1 < 5", 30), ("n < 10 OR s = 'w150'", 4)],
)  # fmt: skip
def test_conditions_on_clustered_columns_prune_pages(clustered_path, condition, pages):
    snapshot = Snapshot.open(Table(clustered_path))
    store, name = snapshot.files.locate(snapshot.manifest.fragments[0].files[0])
    reader = DataFileReader.open(store, name)
    predicate = parse_predicate(condition, predicate_schema(snapshot.schema))
    rows = matching_rows(predicate, snapshot.schema.fields, reader, 0, 300)
    assert (30 if rows is None else rows.sum() // 10) == pages


def test_pruned_pages_are_not_read(tmp_path):
    path = str(tmp_path)
    written_by_pylance(path, clustered().select(["n", "s"]), max_rows_per_group=10)
    (file,) = (tmp_path / "data").iterdir()
    content = file.read_bytes()
    place = content.index(b"w100")
    file.write_bytes(content[:place] + b"\xff\xff" + content[place + 2 :])
    predicate = parse_predicate("n < 50", predicate_schema(Snapshot.open(Table(path)).schema))
    assert read_ours(path, predicate=predicate, system_columns=()).num_rows == 50


def test_commits_keep_dictionary_values(tmp_path):
    path = str(tmp_path)
    written_by_pylance(path, rows(50), max_rows_per_file=20)
    before = lance.dataset(path).to_table()
    snapshot = Snapshot.open(Table(path))
    assert snapshot.manifest.dictionary_values
    operation = Delete(updated_fragments=(), deleted_fragment_ids=(0,), predicate="id < 20")
    commit(snapshot.store, Transaction(snapshot.version, str(uuid.uuid4()), operation))
    assert lance.dataset(path).to_table().equals(before.slice(20))
    assert_read_equally(path)
    restore = Restore(version=1)
    commit(snapshot.store, Transaction(2, str(uuid.uuid4()), restore))
    assert lance.dataset(path).to_table().equals(before)
    lance.write_dataset(before.slice(3, 5), path, mode="append")
    lance.dataset(path).update({"id": "id + 1"}, where="id > 40")
    assert_read_equally(path)


def test_append_keeps_legacy_version(tmp_path):
    path, table = str(tmp_path), pa.table({"id": [1, 2, 3], "s": ["a", None, "c"]})
    written_by_pylance(path, table)
    write_table(path, table)
    dataset = lance.dataset(path)
    assert dataset.data_storage_version == "0.1"
    assert dataset.to_table().to_pylist() == 2 * table.to_pylist()
    lance.write_dataset(table, path, mode="append")
    assert dataset.checkout_version(dataset.latest_version).count_rows("id = 2") == 3
    assert_read_equally(path)
    with pytest.raises(UnsupportedFeatureError, match=r"column id: .* cannot hold nulls"):
        write_table(path, pa.table({"id": pa.array([None], pa.int64()), "s": ["x"]}))
    assert len(list((tmp_path / "data").iterdir())) == 3


@pytest.mark.parametrize("stable", [True, False])
def test_created_legacy_table_is_usable_in_pylance(tmp_path, stable):
    path, table = str(tmp_path), rows(60).drop(["dictionary"])
    table = pa.table({n: as_legacy_reads(table[n].to_pylist()) for n in table.column_names})
    write_table(path, table, file_version="0.1", enable_stable_row_ids=stable, max_rows_per_file=25)
    dataset = lance.dataset(path)
    assert dataset.data_storage_version == "0.1"
    assert dataset.to_table().to_pylist() == table.to_pylist()
    dataset.delete("id < 5")
    dataset.update({"id": "id + 100"}, where="id > 50")
    dataset.optimize.compact_files()
    assert_read_equally(path)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary(), pa.int64()])
def test_appended_dictionary_values_must_be_known(tmp_path, kind):
    path = str(tmp_path)
    items = pa.array(["1", "22", "333"]).cast(kind)
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0], pa.int16()), items)
    pair = pa.StructArray.from_arrays([column], ["d"])
    written_by_pylance(path, pa.table({"id": range(4), "d": column, "s": pair}))
    before = lance.dataset(path).to_table()
    new = pa.table({"id": [7, 8, 9], "d": items.take([2, 0, 2]).dictionary_encode()})
    new = new.append_column("s", pa.StructArray.from_arrays([new["d"].chunk(0)], ["d"]))
    write_table(path, new)
    plain = pa.table(
        {"id": [10], "d": items[1:2], "s": pa.StructArray.from_arrays([items[1:2]], ["d"])}
    )
    write_table(path, plain)
    expected = [*before["d"].to_pylist(), *items.take([2, 0, 2, 1]).to_pylist()]
    found = lance.dataset(path).to_table()
    assert found["d"].to_pylist() == expected
    assert [row["d"] for row in found["s"].to_pylist()] == expected
    assert_read_equally(path)
    lance.write_dataset(before, path, mode="append")
    lance.dataset(path).optimize.compact_files()
    assert_read_equally(path)
    unknown = pa.concat_arrays([items[:1], pa.array(["77"]).cast(kind)])
    pairs = pa.StructArray.from_arrays([unknown], ["d"])
    with pytest.raises(UnsupportedFeatureError, match=r"column d: .*77.* not in the dictionary"):
        write_table(path, pa.table({"id": [1, 2], "d": unknown, "s": pairs}))
    nothing = pa.table({"id": [1], "d": pa.nulls(1, kind), "s": pair[:1]})
    with pytest.raises(UnsupportedFeatureError, match=r"column d: .* cannot hold nulls"):
        write_table(path, nothing)


def test_new_legacy_dictionaries_error_names_column(tmp_path):
    path = str(tmp_path)
    with pytest.raises(UnsupportedFeatureError, match="column dictionary: new dictionaries"):
        write_table(path, rows(5).select(["dictionary"]), file_version="0.1")
    written_by_pylance(path, rows(5).select(["id"]))
    with pytest.raises(UnsupportedFeatureError, match="column dictionary: new dictionaries"):
        write_table(path, rows(5).select(["id", "dictionary"]), merge_schema=True)


@pytest.mark.parametrize("stable", [True, False])
def test_legacy_rows_are_updated_merged_and_deleted(tmp_path, stable):
    path = str(tmp_path)
    names = pa.array(["p", "q"] * 10).dictionary_encode()
    table = pa.table({"id": range(20), "s": ["a", None] * 10, "d": names})
    written_by_pylance(path, table, max_rows_per_file=7, enable_stable_row_ids=stable)
    set_to(path, "id = 3 OR id >= 15", s="x")
    add_to(path, "id = 4", "id", 100)
    source = pa.table({"id": [2, 33], "s": ["m", "n"], "d": pa.array(["q", "p"])})
    upsert(path, source)
    delete_rows(path, "id = 5")
    expected = {row["id"]: row for row in table.to_pylist()}
    for key in (3, *range(15, 20)):
        expected[key]["s"] = "x"
    expected[104] = expected.pop(4) | {"id": 104}
    expected |= {row["id"]: row for row in source.to_pylist()}
    del expected[5]
    dataset = lance.dataset(path)
    dataset.validate()
    assert dataset.data_storage_version == "0.1"
    found = {row["id"]: row for row in dataset.to_table().to_pylist()}
    assert {key: row | {"s": row["s"] or None} for key, row in found.items()} == expected
    assert_read_equally(path)
    dataset.optimize.compact_files()
    assert_read_equally(path)


@pytest.mark.parametrize("version", ["0.1", "2.0"])
def test_change_unsupported_by_old_file_error_names_column(tmp_path, version):
    path = str(tmp_path)
    column = pa.array(["p", "q"]).dictionary_encode()
    lance.write_dataset(pa.table({"id": [1, 2], "d": column}), path, data_storage_version=version)
    if version == "2.0":
        upsert(path, pa.table({"id": pa.array([3], pa.int64()), "d": ["other"]}))
        assert lance.dataset(path).to_table()["d"].to_pylist() == ["p", "q", "other"]
        return
    with pytest.raises(UnsupportedFeatureError, match=r"column d: .*other.* not in the dictionary"):
        upsert(path, pa.table({"id": pa.array([3], pa.int64()), "d": ["other"]}))
    with pytest.raises(UnsupportedFeatureError, match=r"column id: .* cannot hold nulls"):
        set_to(path, "id = 1", id=None)
    assert lance.dataset(path).version == 1
