"""Primary keys are declared once, in a form that pylance reads; and those of pylance are seen."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from table_access import write_table

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.schema import primary_key
from pyspark_lance.table.columns.change_columns import ColumnResult, set_primary_key
from pyspark_lance.table.history.history import detail
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

MARK = "lance-schema:unenforced-primary-key"
POSITION = f"{MARK}:position"


def make(path: str, *, by=write_table, **keys: dict[str, str]) -> Table:
    fields = [
        pa.field("region", pa.string(), nullable=False, metadata=keys.get("region")),
        pa.field("id", pa.int64(), nullable=False, metadata=keys.get("id")),
        pa.field("n", pa.int64()),
        pa.field("place", pa.struct([("x", pa.int64())]), nullable=False),
    ]
    columns = [["a", "b"], [1, 2], [3, None], [{"x": 1}, {"x": 2}]]
    by(path, pa.table(columns, schema=pa.schema(fields)))
    return Table(path)


def key_of(table: Table) -> tuple[str, ...]:
    return primary_key(Snapshot.open(table).schema)


def test_primary_key_is_ordered_and_set_once(tmp_path):
    table = make(str(tmp_path / "t"))
    assert key_of(table) == ()
    assert set_primary_key(table, ["ID", "region"]) == ColumnResult(2)
    assert key_of(table) == detail(table).primary_key == ("id", "region")
    assert set_primary_key(table, ["id", "region"]) == ColumnResult()
    with pytest.raises(InvalidInputError, match=r"primary key \(id, region\), which cannot"):
        set_primary_key(table, ["id"])
    schema = lance.dataset(str(tmp_path / "t")).schema
    assert schema.field("id").metadata == {MARK.encode(): b"true", POSITION.encode(): b"1"}
    assert schema.field("region").metadata[POSITION.encode()] == b"2"


def test_pylance_merge_by_primary_key_records_inserted_keys(tmp_path):
    path = str(tmp_path / "t")
    table = make(path)
    set_primary_key(table, ["region", "id"])
    dataset = lance.dataset(path)
    dataset.merge_insert(["region", "id"]).when_not_matched_insert_all().execute(
        pa.table([["c"], [9], [1], [{"x": 3}]], schema=dataset.schema)
    )
    made = Snapshot.open(table)
    assert made.num_rows() == 3
    assert made.file.transaction().operation.inserted_rows is not None
    assert key_of(table) == ("region", "id")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"id": {MARK: "yes"}}, ("id",)),
        ({"id": {POSITION: "1"}, "region": {POSITION: "2"}}, ("id", "region")),
        ({"id": {MARK: "true"}, "region": {MARK: "1", POSITION: "7"}}, ("region", "id")),
        ({"id": {MARK: "false"}}, ()),
    ],
)
def test_primary_keys_of_pylance_are_read(tmp_path, keys, expected):
    table = make(str(tmp_path / "t"), by=lambda path, rows: lance.write_dataset(rows, path), **keys)
    assert key_of(table) == expected


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], "at least one column"),
        (["n"], r"'n' of the primary key may be null(.|\n)*changeColumn\('n', nullable=False\)"),
        (["id", "ID"], "named twice"),
        (["place"], "'place' cannot be part"),
        (["place.x"], "'place.x' cannot be part"),
        (["ids"], "no column 'ids'"),
    ],
)
def test_invalid_primary_keys_are_refused(tmp_path, columns, message):
    table = make(str(tmp_path / "t"))
    with pytest.raises(InvalidInputError, match=message):
        set_primary_key(table, columns)
    assert Snapshot.open(table).version == 1
