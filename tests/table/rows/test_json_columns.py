import json

import lance
import pyarrow as pa
import pytest
from table_access import assert_same_rows, read_ours, read_pylance, write_table

from pyspark_lance.codec.jsonb import encode_jsonb
from pyspark_lance.errors import CorruptFileError, InvalidInputError, SchemaMismatchError
from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.rows.convert_parts import json_from_text, json_to_text
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

DOCUMENTS = ['{"b":[1,2.5,null],"a":"é\\n"}', None, "[]", '"text"', "-7", "true", '{"a":{"b":{}}}']


def documents(count=40):
    return [DOCUMENTS[i % len(DOCUMENTS)] for i in range(count)]


def values(texts):
    return [None if text is None else json.loads(text) for text in texts]


def read_shown(path, **request):
    schema = logical_schema(Snapshot.open(Table(path)).schema)
    return read_ours(path, schema=schema, system_columns=("_rowaddr",), **request)


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_pylance_json_reads_as_same_text(tmp_path, version):
    path = str(tmp_path)
    table = pa.table({"id": range(40), "j": pa.array(documents(), pa.json_())})
    lance.write_dataset(table, path, data_storage_version=version, max_rows_per_file=25)
    ours = read_shown(path)
    assert ours.schema.field("j").type == pa.string()
    assert ours["j"].to_pylist() == lance.dataset(path).to_table()["j"].to_pylist()
    assert values(ours["j"].to_pylist()) == values(documents())


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_appended_text_becomes_json(tmp_path, version):
    path = str(tmp_path)
    table = pa.table({"id": range(40), "j": pa.array(documents(), pa.json_())})
    lance.write_dataset(table, path, data_storage_version=version)
    for column in (
        pa.array(documents()),
        pa.array(documents(), pa.large_string()),
        pa.array(documents(), pa.json_()),
        pa.array(documents()).dictionary_encode(),
    ):
        write_table(path, pa.table({"id": range(40), "j": column}))
    dataset = lance.dataset(path)
    assert str(dataset.schema.field("j").type) == "extension<arrow.json>"
    assert values(dataset.to_table()["j"].to_pylist()) == values(5 * documents())
    assert dataset.count_rows("json_exists(j, '$.b')") == 30
    assert_same_rows(read_shown(path).drop(["j"]), read_pylance(path))


@pytest.mark.parametrize("version", ["0.1", "2.1", "2.2"])
def test_table_with_json_is_created(tmp_path, version):
    path = str(tmp_path)
    table = pa.table({"j": pa.array(documents(), pa.json_())})
    write_table(path, table, file_version=version)
    dataset = lance.dataset(path)
    assert str(dataset.schema.field("j").type) == "extension<arrow.json>"
    assert values(dataset.to_table()["j"].to_pylist()) == values(documents())
    lance.write_dataset(table, path, mode="append")
    assert values(read_shown(path)["j"].to_pylist()) == values(2 * documents())


def test_nested_json_reads_as_text(tmp_path):
    path = str(tmp_path)
    inner = pa.array(documents(12), pa.json_())
    lists = pa.ListArray.from_arrays(pa.array([0, 3, 3, None, 12], pa.int32()), inner)
    structs = pa.StructArray.from_arrays([inner.slice(2, 4), pa.array(range(4))], ["j", "n"])
    table = pa.table({"l": lists, "s": structs})
    write_table(path, table, file_version="2.1")
    expected = [documents(12)[:3], [], documents(12)[3:], None]
    found = read_shown(path)
    assert [row and values(row) for row in found["l"].to_pylist()] == [
        row and values(row) for row in expected
    ]
    members = found["s"].combine_chunks()
    assert members.field("n").to_pylist() == [0, 1, 2, 3]
    assert values(members.field("j").to_pylist()) == values(documents(12)[2:6])
    from_pylance = lance.dataset(path).to_table()
    assert from_pylance.num_rows == 4


def test_conditions_see_json_as_text(tmp_path):
    path = str(tmp_path)
    write_table(path, pa.table({"id": range(40), "j": pa.array(documents(), pa.json_())}))
    predicate = parse_predicate(
        "j LIKE '%\"b\":{}%' OR j = 'true'", predicate_schema(Snapshot.open(Table(path)).schema)
    )
    expected = [i for i in range(40) if i % 7 in (5, 6)]
    assert read_shown(path, predicate=predicate)["id"].to_pylist() == expected
    # The stored form can be returned while the condition sees text.
    raw = read_ours(path, predicate=predicate, system_columns=())
    assert raw["id"].to_pylist() == expected
    assert raw["j"].type == pa.large_binary()


def test_invalid_json_error_names_column(tmp_path):
    path = str(tmp_path)
    write_table(path, pa.table({"j": pa.array(["{}"], pa.json_())}))
    with pytest.raises(InvalidInputError, match=r"'j': value 1 of a batch, '\{oops' is not JSON"):
        write_table(path, pa.table({"j": ["[]", "{oops"]}))
    with pytest.raises(SchemaMismatchError, match="'j'"):
        write_table(path, pa.table({"j": [b"{}"]}))
    assert lance.dataset(path).count_rows() == 1


def test_damaged_json_error_names_column(tmp_path):
    path = str(tmp_path)
    write_table(path, pa.table({"j": pa.array(['{"key":"value"}'], pa.json_())}))
    (file,) = (tmp_path / "data").iterdir()
    content = file.read_bytes()
    assert content.count(b"\x40\x00\x00\x01") == 1
    file.write_bytes(content.replace(b"\x40\x00\x00\x01", b"\x40\x00\xff\x01"))
    with pytest.raises(CorruptFileError, match="column 'j'"):
        read_shown(path)


def test_json_conversion_respects_slices():
    kind = pa.list_(pa.field("item", pa.json_()))
    schema = LanceSchema.from_arrow(pa.schema({"l": kind}))
    (stored,), (shown,) = schema.fields, logical_schema(schema).fields
    texts = pa.array([["{}"], ["1", None], None, ["[2]"]])
    for start in range(4):
        part = texts.slice(start)
        assert json_to_text(json_from_text(part, stored), shown).to_pylist() == part.to_pylist()


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_invalid_json_of_deleted_row_is_ignored(tmp_path, version):
    path = str(tmp_path)
    stored = encode_jsonb(pa.array(["[1]"] * 6)).to_pylist()
    kind = pa.field("j", pa.large_binary(), metadata={"ARROW:extension:name": "lance.json"})
    table = pa.table(
        [range(6), [b"\xff\xfe\xff\xff", *stored[1:]]],
        schema=pa.schema([pa.field("id", pa.int64()), kind]),
    )
    lance.write_dataset(table, path, data_storage_version=version)
    with pytest.raises(CorruptFileError):
        read_shown(path)
    lance.dataset(path).delete("id = 0")
    assert read_shown(path)["j"].to_pylist() == ["[1]"] * 5
    for condition in ("j = '[1]'", "id < 4", "j = '[1]' AND id > 2"):
        predicate = parse_predicate(condition, predicate_schema(Snapshot.open(Table(path)).schema))
        found = read_shown(path, predicate=predicate)["id"].to_pylist()
        assert found == {"j = '[1]'": [1, 2, 3, 4, 5], "id < 4": [1, 2, 3]}.get(
            condition, [3, 4, 5]
        )
