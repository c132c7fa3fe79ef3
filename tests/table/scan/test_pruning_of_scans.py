"""A condition on lineage opens no file that cannot hold an answer: those files may be gone."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from table_access import append, read_ours, write_table

from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


def filtered(path: str, condition: str, **request: object) -> pa.Table:
    schema = predicate_schema(Snapshot.open(Table(path)).schema)
    return read_ours(path, predicate=parse_predicate(condition, schema), **request)


def data_files(path: str, fragment: int) -> list[Path]:
    found = lance.dataset(path).get_fragment(fragment)
    return [Path(path) / "data" / file.path for file in found.data_files()]


@pytest.fixture
def path(tmp_path):
    """Five fragments of ten rows, one for each version; row 13 was updated in version 6."""
    path = str(tmp_path / "t")
    for start in range(0, 50, 10):
        append(path, start, rows=10)
    lance.dataset(path).update({"id": "id"}, where="id = 13")
    return path


def forget_files(path: str, fragments: range | list[int]) -> None:
    for fragment in fragments:
        for file in data_files(path, fragment):
            file.unlink()


def test_new_rows_are_found_without_old_files(path):
    forget_files(path, range(3))
    found = filtered(path, "_row_created_at_version > 3")
    assert found["id"].to_pylist() == list(range(30, 50))
    with pytest.raises(CorruptFileError, match="data file of fragment 0 is missing"):
        read_ours(path)


def test_changed_rows_are_found_without_unchanged_files(path):
    forget_files(path, range(5))
    condition = "_row_created_at_version <= 5 AND _row_last_updated_at_version > 5"
    assert filtered(path, condition)["id"].to_pylist() == [13]


def test_unmatched_lineage_condition_opens_no_files(path):
    forget_files(path, range(6))
    assert filtered(path, "_row_created_at_version > 6").num_rows == 0
    assert filtered(path, "_rowid = 1000").num_rows == 0


def test_row_ids_resolve_to_current_fragment(path):
    forget_files(path, [0, 1, 3, 4])
    found = filtered(path, "_rowid IN (13, 27, 28)").sort_by("id")
    assert found["id"].to_pylist() == [13, 27, 28]
    assert found["_rowaddr"].to_pylist()[0] == 5 << 32


def test_row_addresses_restrict_to_fragments(path):
    forget_files(path, [0, 1, 3, 4, 5])
    condition = f"_rowaddr >= {2 << 32} AND _rowaddr < {3 << 32} AND id < 25"
    assert filtered(path, condition)["id"].to_pylist() == [20, 21, 22, 23, 24]


def test_addresses_beyond_fragment_match_no_rows(path):
    far = (2 << 32) + 10
    assert filtered(path, f"_rowaddr = {far}").num_rows == 0
    found = filtered(path, f"_rowaddr IN ({far}, {far - 1}, {far + 4_000_000})")
    assert found["id"].to_pylist() == [29]


def test_deleted_rows_are_not_found_by_address(path):
    moved = (1 << 32) + 3
    assert filtered(path, f"_rowaddr = {moved}").num_rows == 0
    assert filtered(path, f"_rowaddr IN ({moved}, {moved + 1})")["id"].to_pylist() == [14]


def test_addresses_in_many_fragments_are_found(path):
    condition = f"_rowaddr IN ({', '.join(str((n << 32) + n) for n in range(5))})"
    assert filtered(path, condition)["id"].to_pylist() == [0, 11, 22, 33, 44]


def test_guarded_condition_runs_after_its_guard(path):
    """The guard reads data, and would come after everything that lineage alone decides."""
    condition = "id <> 13 AND 26 / (_rowid - 13) = 2"
    assert filtered(path, condition)["id"].to_pylist() == [26]
    with pytest.raises(InvalidInputError, match="division by zero"):
        filtered(path, "26 / (_rowid - 13) = 2")


def test_lineage_is_read_without_data_files(path):
    forget_files(path, range(6))
    from pyspark_lance.format.schema import LanceSchema

    rows = read_ours(path, schema=LanceSchema())
    assert sorted(rows["_rowid"].to_pylist()) == list(range(50))


def test_lineage_and_data_conditions_equal_full_scan(tmp_path):
    path = str(tmp_path / "t")
    for start in range(0, 3000, 1000):
        table = pa.table(
            {
                "id": pa.array(range(start, start + 1000)),
                "s": pa.array([f"v{i % 11}" if i % 5 else None for i in range(1000)]),
                "v": pa.array([[float(i)] * 8 for i in range(1000)], pa.list_(pa.float32(), 8)),
            }
        )
        write_table(path, table, max_rows_per_file=400)
    dataset = lance.dataset(path)
    dataset.delete("id % 7 = 2")
    dataset.update({"s": "'new'"}, where="id % 100 = 5")
    everything = read_ours(path).sort_by("_rowid").to_pylist()
    cases = {
        "id % 3 = 0": lambda r: r["id"] % 3 == 0,
        "s = 'v3'": lambda r: r["s"] == "v3",
        "s IS NULL AND id > 2500": lambda r: r["s"] is None and r["id"] > 2500,
        "id = 1234": lambda r: r["id"] == 1234,
        "s = 'new' OR _rowid < 10": lambda r: r["s"] == "new" or r["_rowid"] < 10,
        "_row_last_updated_at_version > _row_created_at_version": lambda r: (
            r["_row_last_updated_at_version"] > r["_row_created_at_version"]
        ),
        "_row_created_at_version = 2 AND s LIKE 'v1%'": lambda r: (
            r["_row_created_at_version"] == 2 and (r["s"] or "").startswith("v1")
        ),
        "_rowid IN (5, 6, 1005, 2999) AND id <> 6": lambda r: (
            r["_rowid"] in (5, 6, 1005, 2999) and r["id"] != 6
        ),
        "NOT (id < 2990)": lambda r: r["id"] >= 2990,
    }
    for condition, keep in cases.items():
        found = filtered(path, condition).sort_by("_rowid").to_pylist()
        assert found == [row for row in everything if keep(row)], condition
