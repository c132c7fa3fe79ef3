from dataclasses import replace

import pyarrow as pa
import pytest
from extension_types import with_extension_types
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.field import Field
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.proto import schema_pb2

leaves = st.sampled_from(
    [
        pa.int64(),
        pa.string(),
        pa.bool_(),
        pa.timestamp("us", "UTC"),
        pa.decimal128(20, 3),
        pa.list_(pa.float32(), 3),
        pa.null(),
        pa.dictionary(pa.int8(), pa.string()),
    ]
)


def field_of(types):
    return st.builds(
        lambda name, data_type, nullable, metadata: pa.field(
            name, data_type, nullable or data_type == pa.null(), metadata
        ),
        st.text(st.characters(codec="utf-8", exclude_characters=".\0"), min_size=1, max_size=4),
        types,
        st.booleans(),
        st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3), min_size=1),
    )


def struct_of(types):
    members = st.lists(field_of(types), max_size=3, unique_by=lambda field: field.name)
    return members.map(pa.struct)


types = st.recursive(
    leaves,
    lambda inner: st.one_of(
        struct_of(inner),
        field_of(inner).map(pa.list_),
        field_of(inner).map(pa.large_list),
        st.tuples(st.sampled_from([pa.string(), pa.int8()]), inner).map(lambda kv: pa.map_(*kv)),
        field_of(struct_of(inner)).map(lambda item: pa.list_(item, 2)),
    ),
    max_leaves=6,
)
schemas = st.lists(field_of(types), max_size=4, unique_by=lambda field: field.name).map(pa.schema)


@given(schemas)
def test_arrow_schemas_round_trip(schema):
    lance_schema = LanceSchema.from_arrow(schema)
    assert lance_schema.to_arrow().equals(schema, check_metadata=True)
    ids = [field.id for field in lance_schema.walk()]
    assert ids == list(range(len(ids)))


@given(schemas, st.integers(0, 100))
def test_schemas_round_trip_through_protobuf(schema, first_id):
    made = LanceSchema.from_arrow(schema.with_metadata({"k": "v"}), first_id)
    messages = [
        schema_pb2.Field.FromString(message.SerializeToString()) for message in made.to_protos()
    ]
    assert LanceSchema.from_protos(messages, made.metadata) == made


NESTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("f", pa.struct([("c", pa.list_(pa.int32())), ("d", pa.int32())])),
        pa.field("m", pa.map_(pa.string(), pa.int8())),
    ]
)


def test_field_ids_run_depth_first_with_parent_ids():
    messages = LanceSchema.from_arrow(NESTED).to_protos()
    assert [(m.name, m.id, m.parent_id) for m in messages] == [
        ("id", 0, -1),
        ("f", 1, -1),
        ("c", 2, 1),
        ("item", 3, 2),
        ("d", 4, 1),
        ("m", 5, -1),
        ("entries", 6, 5),
        ("key", 7, 6),
        ("value", 8, 6),
    ]
    # -1 takes ten bytes and must be there: absent means "child of field 0".
    assert b"\x20" + b"\xff" * 9 + b"\x01" in messages[0].SerializeToString()


def test_new_fields_can_start_at_any_id():
    schema = LanceSchema.from_arrow(NESTED, first_id=10)
    assert [field.id for field in schema.fields] == [10, 11, 15]
    assert schema.max_field_id == 18
    assert LanceSchema().max_field_id == -1


def test_fields_are_found_by_id_and_name():
    schema = LanceSchema.from_arrow(NESTED)
    assert schema.field_by_id(3).name == "item"
    assert schema.field("m").is_map
    assert schema.select(["m", "id"]).names == ("m", "id")
    with pytest.raises(InvalidInputError):
        schema.field_by_id(99)
    with pytest.raises(InvalidInputError, match="did you mean 'id'"):
        schema.select(["idd"])


def test_field_kinds_are_distinguished():
    schema = LanceSchema.from_arrow(NESTED)
    record = schema.field("f")
    assert record.is_struct
    assert not record.is_packed
    assert record.children[0].is_list
    assert not record.children[0].is_large_list
    assert record.children[1].is_leaf
    packed = pa.field(
        "p", pa.struct([("a", pa.int8())]), metadata={"lance-encoding:packed": "true"}
    )
    vector = pa.field("v", pa.list_(pa.float32(), 4))
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    made = LanceSchema.from_arrow(pa.schema([packed, vector, blob]))
    assert made.field("p").is_packed
    assert made.field("v").is_fixed_size_list
    assert made.field("v").is_leaf
    assert made.field("b").is_blob
    assert not made.field("b").is_blob_v2


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (pa.schema([("a", pa.struct([("b", pa.decimal32(3, 1))]))]), "column 'a.b': .*decimal32"),
        (pa.schema([("a", pa.list_(pa.month_day_nano_interval()))]), "column 'a.item': .*interval"),
        (pa.schema([("a", pa.list_(pa.list_(pa.int8()), 2))]), "column 'a': fixed size lists of"),
        (pa.schema([("a", pa.list_view(pa.int8()))]), "column 'a'"),
    ],
)
def test_refused_type_error_names_column(schema, complaint):
    with pytest.raises(UnsupportedFeatureError, match=complaint):
        LanceSchema.from_arrow(schema)


def test_deeply_nested_types_are_refused():
    data_type = pa.int8()
    for _ in range(80):
        data_type = pa.list_(data_type)
    with pytest.raises(UnsupportedFeatureError, match="deeper"):
        LanceSchema.from_arrow(pa.schema([("a", data_type)]))


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), "'a' occurs twice"),
        (
            pa.schema([("s", pa.struct([("a", pa.int8()), ("a", pa.int8())]))]),
            "'a' occurs twice in 's'",
        ),
        (pa.schema([("a.b", pa.int8())]), "dot"),
        (pa.schema([("_rowid", pa.int8())]), "reserved"),
        (pa.schema([("_row_created_at_version", pa.uint64())]), "reserved"),
    ],
)
def test_ambiguous_names_are_refused(schema, complaint):
    with pytest.raises(InvalidInputError, match=complaint):
        LanceSchema.from_arrow(schema)


def message(field_id, parent_id=-1, logical_type="int32", name="x"):
    return schema_pb2.Field(id=field_id, parent_id=parent_id, logical_type=logical_type, name=name)


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([message(0), message(0)], "the id 0"),
        ([message(0, parent_id=5)], "not an earlier field"),
        ([message(0, parent_id=1), message(1)], "not an earlier field"),
        ([message(0, parent_id=0)], "not an earlier field"),
        ([message(i, parent_id=i - 1, logical_type="struct") for i in range(100)], "deeper"),
    ],
)
def test_fields_not_forming_tree_are_corrupt(messages, complaint):
    with pytest.raises(CorruptFileError, match=complaint):
        LanceSchema.from_protos(messages)


def test_children_may_follow_parent_later():
    made = LanceSchema.from_protos(
        [message(0, logical_type="struct"), message(1, name="b"), message(2, 0, name="a")]
    )
    assert [field.id for field in made.walk()] == [0, 2, 1]


def test_blob_pseudo_fields_are_not_columns():
    blob = message(0, logical_type="struct", name="b")
    blob.extension_name = "lance.blob.v2"
    pseudo = [message(-1, -1, kind, kind) for kind in ("uint8", "uint64", "uint64", "string")]
    made = LanceSchema.from_protos([blob, *pseudo, message(1)])
    assert made.names == ("b", "x")
    assert made.field("b").is_blob_v2


def test_columns_with_one_difference_have_own_arrow_fields():
    plain = Field(1, "a", "int32", nullable=True)
    others = {
        "b": replace(plain, name="b"),
        "nullable": replace(plain, nullable=False),
        "type": replace(plain, logical_type="int64"),
        "metadata": replace(plain, metadata={"k": b"v"}),
        "extension": replace(plain, extension_name="e"),
    }
    assert plain.to_arrow() == pa.field("a", pa.int32())
    found = {name: one.to_arrow() for name, one in others.items()}
    assert found["b"] == pa.field("b", pa.int32())
    assert found["nullable"] == pa.field("a", pa.int32(), nullable=False)
    assert found["type"] == pa.field("a", pa.int64())
    assert found["metadata"].metadata == {b"k": b"v"}
    assert found["extension"].metadata == {b"ARROW:extension:name": b"e"}
    assert plain.to_arrow().metadata is None


def test_blob_columns_are_recognized_by_metadata_alone():
    named = {"ARROW:extension:name": b"lance.blob.v2"}
    packed = {"lance-encoding:packed": b"true", "lance-encoding:blob": b"true"}
    for metadata, expected in ((named, True), (packed, True), ({"k": b"v"}, False), ({}, False)):
        field = Field(1, "a", "struct", metadata=metadata)
        assert field.is_blob_v2 == field.is_blob == expected


def test_unknown_type_error_names_column_on_use():
    made = LanceSchema.from_protos([message(0, logical_type="quux", name="q")])
    with pytest.raises(UnsupportedFeatureError, match=r"column 'q': .*'quux'"):
        made.to_arrow()


def test_required_null_column_is_corrupt():
    field = message(0, logical_type="null")
    with pytest.raises(CorruptFileError, match="non-nullable"):
        LanceSchema.from_protos([field]).to_arrow()


def test_primary_keys_are_read_from_metadata():
    def key_of(metadata):
        field = LanceSchema.from_arrow(
            pa.schema([pa.field("k", pa.int8(), False, metadata)])
        ).fields[0]
        return (
            field.unenforced_primary_key,
            field.unenforced_primary_key_position,
            field.unenforced_clustering_key_position,
        )

    primary = "lance-schema:unenforced-primary-key"
    assert key_of({primary: "Yes"}) == (True, 0, 0)
    assert key_of({primary: "false"}) == (False, 0, 0)
    assert key_of({primary: "true", f"{primary}:position": "3"}) == (True, 3, 0)
    assert key_of({f"{primary}:position": "2"}) == (True, 2, 0)
    assert key_of({f"{primary}:position": "x"}) == (False, 0, 0)
    assert key_of({"lance-schema:unenforced-clustering-key:position": "2"}) == (False, 0, 2)


def test_extension_types_round_trip_through_metadata():
    schema = pa.schema(
        [
            ("u", pa.uuid()),
            ("t", pa.fixed_shape_tensor(pa.float32(), [2, 3])),
            ("o", pa.opaque(pa.int32(), "a", "b")),
            ("l", pa.list_(pa.field("item", pa.uuid()))),
            ("j", pa.json_()),
        ]
    )
    made = LanceSchema.from_arrow(schema)
    assert made.field("u").extension_name == "arrow.uuid"
    assert made.field("t").metadata["ARROW:extension:metadata"] == b'{"shape":[2,3]}'
    assert made.field("j").logical_type == "json"
    storage = made.to_arrow()
    assert storage.field("u").type == pa.binary(16)
    assert storage.field("j").type == pa.large_binary()
    assert with_extension_types(storage).equals(schema)
    assert LanceSchema.from_arrow(storage) == made


def test_list_of_extension_structs_is_list_of_structs():
    storage = pa.struct([("a", pa.int8())])
    item = pa.field("item", storage, metadata={"ARROW:extension:name": "x.y"})
    made = LanceSchema.from_arrow(pa.schema([("l", pa.list_(item))]))
    assert made.fields[0].logical_type == "list.struct"
    assert made.fields[0].children[0].extension_name == "x.y"


def test_extension_name_appears_in_arrow_metadata():
    field = Field(0, "u", "fixed_size_binary:16", extension_name="arrow.uuid")
    assert field.to_arrow().metadata[b"ARROW:extension:name"] == b"arrow.uuid"
