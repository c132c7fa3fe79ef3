import uuid

import pyarrow as pa
import pytest
from damage import bit_flips, splices, survive_every, truncations
from pyroaring import BitMap

from pyspark_lance.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.fragment import DataFile, Fragment
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
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.format.wire import encode_varint, length_delimited
from pyspark_lance.proto import table_pb2, transaction_pb2

ID = "c650018c-0000-4000-8000-00000000aed9"
FILE = DataFile("a.lance", (0,), (0,), 2, 2, 636)
FRAGMENTS = (Fragment(0, (FILE,), 2), Fragment(7, (FILE,), 3, None, b"ids", b"c", b"u"))
SCHEMA = LanceSchema.from_arrow(pa.schema([("id", pa.int64())], metadata={"k": "v"}))
BASES = (BasePath(0, None, True, "/a"), BasePath(3, "n", False, "/b"))
INDEX = IndexMetadata.from_bytes(
    table_pb2.IndexMetadata(
        uuid=table_pb2.Uuid(uuid=uuid.UUID(ID).bytes),
        name="i",
        fields=[0],
        fragment_bitmap=BitMap([1]).serialize(),
    ).SerializeToString()
)
REWRITTEN = transaction_pb2.Transaction.Rewrite.RewrittenIndex(
    old_id=table_pb2.Uuid(uuid=b"o" * 16), new_id=table_pb2.Uuid(uuid=b"n" * 16)
).SerializeToString()
KEY_FILTER = transaction_pb2.Transaction.KeyFilter(
    field_ids=[0], exact=transaction_pb2.Transaction.KeyFilter.Exact(key_hashes=[1, 2])
).SerializeToString()

# Field number in the message -> examples.
OPERATIONS = {
    100: [Append(FRAGMENTS), Append()],
    101: [Delete(FRAGMENTS, (1, 2), "id = 2"), Delete()],
    102: [Overwrite(FRAGMENTS, SCHEMA, {"c": "1"}, BASES), Overwrite()],
    103: [CreateIndex((INDEX,), (INDEX,)), CreateIndex()],
    104: [Rewrite((RewriteGroup(FRAGMENTS, FRAGMENTS[:1]),), (REWRITTEN,)), Rewrite()],
    105: [Merge(FRAGMENTS, SCHEMA, True), Merge()],
    106: [Restore(4), Restore(0)],
    107: [ReserveFragments(4), ReserveFragments(0)],
    108: [
        Update(
            (1,),
            FRAGMENTS,
            FRAGMENTS,
            (0, 3),
            (b"wal",),
            (4,),
            1,
            KEY_FILTER,
            {2: (1, 5), 3: ()},
            {7: BitMap([1]).serialize()},
        ),
        Update(),
    ],
    109: [Project(LanceSchema(SCHEMA.fields), True), Project()],
    110: [
        UpdateConfig(
            UpdateMap((("a", "1"), ("b", None), ("c", "")), True),
            UpdateMap(),
            None,
            {0: UpdateMap((("x", "y"),)), -1: UpdateMap()},
            {"old": "form"},
            ("gone",),
            {"s": "m"},
            {5: {"f": "m"}, 6: {}},
        ),
        UpdateConfig(),
    ],
    111: [DataReplacement((DataReplacementGroup(3, FILE),)), DataReplacement()],
    112: [UpdateMemWalState((b"g",)), UpdateMemWalState()],
    113: [Clone(True, 3, "/origin", "tag", "branch"), Clone(False, 0, "")],
    114: [UpdateBases(BASES), UpdateBases()],
}
ALL = [operation for examples in OPERATIONS.values() for operation in examples]


@pytest.mark.parametrize("operation", ALL, ids=lambda operation: type(operation).__name__)
def test_operations_round_trip(operation):
    transaction = Transaction(3, ID, operation, "tag", {"key": "value"})
    assert Transaction.from_bytes(transaction.to_bytes()) == transaction


@pytest.mark.parametrize("number", OPERATIONS)
def test_operations_are_stored_under_field_number(number):
    for operation in OPERATIONS[number]:
        data = Transaction(0, "", operation).to_bytes()
        assert data.startswith(encode_varint(number << 3 | 2))


def test_examples_cover_every_operation():
    descriptor = transaction_pb2.Transaction.DESCRIPTOR
    numbers = {field.number for field in descriptor.oneofs_by_name["operation"].fields}
    assert numbers == set(OPERATIONS)


def test_future_operation_is_unknown_operation():
    data = Transaction(5, ID, Append()).to_bytes().replace(b"\xa2\x06\x00", b"")
    found = Transaction.from_bytes(data + length_delimited(116, b"abc"))
    assert isinstance(found.operation, UnknownOperation)
    assert found.operation.field_number == 116
    assert (found.read_version, found.uuid) == (5, ID)
    assert found.has_unknown_fields
    with pytest.raises(InvalidInputError, match="116"):
        found.to_bytes()
    assert Transaction.from_bytes(data).operation == UnknownOperation(0, data)


@pytest.mark.parametrize(
    "wrap", [lambda b: b, lambda b: length_delimited(100, length_delimited(1, b))]
)
def test_unknown_transaction_fields_are_detected_at_any_depth(wrap):
    data = Transaction(1, ID, Restore(1)).to_bytes()
    assert not Transaction.from_bytes(data).has_unknown_fields
    assert Transaction.from_bytes(data + wrap(length_delimited(99, b"x"))).has_unknown_fields


def test_unknown_index_fields_are_kept():
    raw = INDEX.raw + length_delimited(88, b"future")
    operation = CreateIndex((IndexMetadata.from_bytes(raw),))
    again = Transaction.from_bytes(Transaction(1, ID, operation).to_bytes())
    assert again.operation.new_indices[0].raw == raw


def test_ungrouped_rewrite_of_old_writers_becomes_group():
    message = transaction_pb2.Transaction(
        rewrite=transaction_pb2.Transaction.Rewrite(
            old_fragments=[FRAGMENTS[0].to_proto()], new_fragments=[FRAGMENTS[1].to_proto()]
        )
    )
    operation = Transaction.from_bytes(message.SerializeToString()).operation
    assert operation == Rewrite((RewriteGroup(FRAGMENTS[:1], FRAGMENTS[1:]),))


def test_field_metadata_id_accepts_any_32_bit_number():
    update = UpdateConfig(field_metadata_updates={2**31 - 1: UpdateMap((("k", None),))})
    again = Transaction.from_bytes(Transaction(1, ID, update).to_bytes()).operation
    assert again == update


def test_map_updates_apply_in_order():
    values = {"a": "1", "b": "2"}
    changes = UpdateMap((("a", None), ("c", "3"), ("missing", None)))
    assert changes.apply_to(values) == {"b": "2", "c": "3"}
    assert UpdateMap((("c", "3"),), replace=True).apply_to(values) == {"c": "3"}
    assert values == {"a": "1", "b": "2"}


def test_overlays_in_transaction_error_names_location():
    fragment = table_pb2.DataFragment(physical_rows=1, overlays=[b""])
    message = transaction_pb2.Transaction(
        append=transaction_pb2.Transaction.Append(fragments=[fragment])
    )
    with pytest.raises(UnsupportedFeatureError, match="overlay") as caught:
        Transaction.from_bytes(message.SerializeToString(), "x.txn")
    assert caught.value.where == "x.txn"


def test_replacement_without_file_is_corrupt():
    group = transaction_pb2.Transaction.DataReplacement.Group(fragment_id=3)
    message = transaction_pb2.Transaction(
        data_replacement=transaction_pb2.Transaction.DataReplacement(replacements=[group])
    )
    with pytest.raises(CorruptFileError, match="fragment 3"):
        Transaction.from_bytes(message.SerializeToString())


def test_damaged_transactions_are_refused_or_read():
    refused = 0
    for operation in ALL:
        data = Transaction(3, ID, operation, "tag", {"key": "value"}).to_bytes()
        refused += survive_every(truncations(data, 100), Transaction.from_bytes)
        refused += survive_every(bit_flips(data, 100), Transaction.from_bytes)
        refused += survive_every(splices(data, 100), Transaction.from_bytes)
    assert refused > 2000
