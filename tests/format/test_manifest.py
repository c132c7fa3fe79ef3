from itertools import accumulate

import pyarrow as pa
import pytest
from damage import bit_flips, splices, survive_every, truncations

from pyspark_lance.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType
from pyspark_lance.format.fragment import SPILLED, DataFile, Fragment
from pyspark_lance.format.manifest import BasePath, Manifest, WriterVersion, cut_manifest
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.wire import length_delimited
from pyspark_lance.proto import table_pb2

SCHEMA = LanceSchema.from_arrow(
    pa.schema([("id", pa.int64()), ("val", pa.string())], metadata={"k": "v"})
)
FILE = DataFile("a.lance", (0, 1), (0, 1), 2, 2, 636)
SEQUENCE = bytes.fromhex("0a040a021002")
VERSIONS = bytes.fromhex("0a080a040a0210021001")
FULL = Manifest(
    version=12,
    schema=SCHEMA,
    fragments=(
        Fragment(0, (FILE,), 2, None, SEQUENCE, VERSIONS, VERSIONS),
        Fragment(
            5,
            (FILE,),
            2,
            DeletionFile(DeletionFileType.BITMAP, 3, 2**63 + 1, 1, 0),
            SPILLED,
            SPILLED,
            VERSIONS,
        ),
    ),
    timestamp_ns=1_795_203_709_822_118_521,
    tag="t",
    reader_flags=2 | 1 | 16 | 2048,
    writer_flags=2 | 1 | 16 | 8 | 2048 | 32768,
    max_fragment_id=9,
    transaction_file="11-x.txn",
    writer_version=WriterVersion("pyspark-lance", "0.1.0", "rc1", "build"),
    next_row_id=2**40,
    data_storage_version="2.2",
    config={"lance.x": "y"},
    table_metadata={"tm": "1"},
    base_paths=(BasePath(0, None, True, "/root"), BasePath(7, "n", False, "s3://b/p")),
    branch="feat/x",
    index_section=0,
    transaction_section=100,
    max_allocated_field_id=0,
    version_aux_data=3,
)
EMPTY = Manifest(version=1, schema=LanceSchema())


def read_message(message, where=""):
    return Manifest.from_bytes(message.SerializeToString(), where)


@pytest.mark.parametrize("manifest", [FULL, EMPTY], ids=["full", "empty"])
def test_manifest_round_trips(manifest):
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest
    assert Manifest.from_bytes(memoryview(manifest.to_bytes())) == manifest


def test_format_example_decodes_and_keeps_length():
    body = bytes.fromhex(
        "0a1a 12026964 20ffffffffffffffffff01 2a05696e743634 3001 3801"
        "0a1e 120376616c 1801 20ffffffffffffffffff01 2a06737472696e67 3001 3802"
        "122d 1209 0a0161 12020001 1a00 2002 2a060a040a021002"
        "3a0a0a080a040a0210021001 4a0a0a080a040a0210021001"
        "1801 3a0c089dc782d806109ed5e6e202 4802 5002 5800 6203302d63"
        "6a0f0a056c616e6365120631342e302e32 7002 7a0c0a056c616e6365 1203322e32 b80100".replace(
            " ", ""
        )
    )
    manifest = Manifest.from_bytes(body)
    assert manifest.version == 1
    assert manifest.schema.names == ("id", "val")
    assert manifest.uses_stable_row_ids
    assert manifest.max_fragment_id == 0
    assert manifest.timestamp_ns == 1_795_203_997_744_073_886
    assert manifest.writer_version == WriterVersion("lance", "14.0.2")
    assert manifest.transaction_section == 0
    assert manifest.index_section is None
    (fragment,) = manifest.fragments
    assert fragment.row_ids == SEQUENCE
    assert fragment.created_at == fragment.last_updated_at == VERSIONS
    assert len(manifest.to_bytes()) == len(body)  # fragments stay byte for byte


def test_absent_manifest_fields_stay_absent():
    assert FULL.max_fragment_id == 9
    assert read_message(table_pb2.Manifest()).max_fragment_id is None
    assert read_message(table_pb2.Manifest(max_fragment_id=0)).max_fragment_id == 0
    assert read_message(table_pb2.Manifest(index_section=0)).index_section == 0
    assert read_message(table_pb2.Manifest()).branch is None
    assert read_message(table_pb2.Manifest()).writer_version is None
    assert read_message(table_pb2.Manifest()).data_storage_version == ""


def test_transaction_section_supports_old_and_new_field():
    old = read_message(table_pb2.Manifest(transaction_section_21=9))
    assert old.transaction_section == 9
    both = table_pb2.Manifest(transaction_section_21=9, transaction_section=4)
    assert read_message(both).transaction_section == 4
    written = table_pb2.Manifest.FromString(old.to_bytes())
    assert written.transaction_section == 9
    assert not written.HasField("transaction_section_21")


@pytest.mark.parametrize("seconds_nanos", [(0, 1), (-1, 999_999_999), (1_795_203_709, 0)])
def test_timestamps_keep_their_nanoseconds(seconds_nanos):
    seconds, nanos = seconds_nanos
    message = table_pb2.Manifest(timestamp=table_pb2.Timestamp(seconds=seconds, nanos=nanos))
    manifest = read_message(message)
    assert manifest.timestamp_ns == seconds * 10**9 + nanos
    assert table_pb2.Manifest.FromString(manifest.to_bytes()).timestamp == message.timestamp


@pytest.mark.parametrize("seconds_nanos", [(2**62, 0), (-(2**62), 0), (0, -1), (0, 10**9)])
def test_impossible_timestamps_are_corrupt(seconds_nanos):
    seconds, nanos = seconds_nanos
    message = table_pb2.Manifest(timestamp=table_pb2.Timestamp(seconds=seconds, nanos=nanos))
    with pytest.raises(CorruptFileError, match="commit time"):
        read_message(message)


UNKNOWN = length_delimited(99, b"from the future")


@pytest.mark.parametrize(
    "addition",
    [
        UNKNOWN,
        length_delimited(1, SCHEMA.to_protos()[0].SerializeToString() + UNKNOWN),
        length_delimited(2, b"\x20\x01" + UNKNOWN),
        length_delimited(2, b"\x20\x01" + length_delimited(2, b"\x0a\x01x" + UNKNOWN)),
        length_delimited(18, UNKNOWN),
    ],
    ids=["manifest", "field", "fragment", "data file", "base path"],
)
def test_unknown_manifest_fields_are_detected_at_any_depth(addition):
    assert not Manifest.from_bytes(EMPTY.to_bytes()).has_unknown_fields
    assert Manifest.from_bytes(EMPTY.to_bytes() + addition).has_unknown_fields


def test_fragments_are_found_by_id():
    assert FULL.fragment(5) is FULL.fragments[1]
    for missing in (1, 6):
        with pytest.raises(InvalidInputError, match=f"no fragment {missing}"):
            FULL.fragment(missing)


def test_fragments_are_sorted_and_duplicates_block_writes():
    def manifest(*ids):
        return table_pb2.Manifest(
            fragments=[table_pb2.DataFragment(id=number, physical_rows=1) for number in ids]
        )

    assert [fragment.id for fragment in read_message(manifest(3, 1, 2)).fragments] == [1, 2, 3]
    doubled = read_message(manifest(3, 1, 3))
    assert [fragment.id for fragment in doubled.fragments] == [1, 3, 3]
    with pytest.raises(UnsupportedFeatureError, match="two fragments have the id 3"):
        doubled.check_fragment_ids()


def test_excess_deleted_rows_are_corrupt_if_writer_counted():
    file = table_pb2.DeletionFile(num_deleted_rows=3)
    message = table_pb2.Manifest(
        fragments=[table_pb2.DataFragment(physical_rows=2, deletion_file=file)]
    )
    assert read_message(message).fragments[0].num_deleted_rows == 3
    message.writer_version.library = "lance"
    with pytest.raises(CorruptFileError, match="3 deleted rows of 2"):
        read_message(message)


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (table_pb2.Manifest(fragment_tree=b""), "tree"),
        (
            table_pb2.Manifest(
                fragments=[table_pb2.DataFragment(physical_rows=1, overlays=[b"x"])]
            ),
            "overlay",
        ),
        (table_pb2.Manifest(reader_feature_flags=64), "data overlay files"),
        (table_pb2.Manifest(reader_feature_flags=1 << 40), "1099511627776"),
        (
            table_pb2.Manifest(data_format=table_pb2.DataStorageFormat(file_format="parquet")),
            "parquet",
        ),
    ],
)
def test_unsupported_manifest_error_names_location(message, complaint):
    with pytest.raises(UnsupportedFeatureError, match=complaint) as caught:
        read_message(message, "t/_versions/x bytes 4..9")
    assert caught.value.where == "t/_versions/x bytes 4..9"


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (
            table_pb2.Manifest(
                reader_feature_flags=2, fragments=[table_pb2.DataFragment(physical_rows=1)]
            ),
            "no row ids",
        ),
        (table_pb2.Manifest(reader_feature_flags=256), "256"),
        (table_pb2.Manifest(writer_feature_flags=32768), "32768"),
        (
            table_pb2.Manifest(
                fields=LanceSchema.from_arrow(pa.schema([("a", pa.int8())]), -7).to_protos()
            ),
            "negative field id",
        ),
    ],
)
def test_contradictory_manifest_error_names_location(message, complaint):
    with pytest.raises(CorruptFileError, match=complaint) as caught:
        read_message(message, "here")
    assert caught.value.where == "here"


def test_damaged_manifests_are_refused_or_read():
    data = FULL.to_bytes()
    assert survive_every(truncations(data), Manifest.from_bytes) > 100
    assert survive_every(bit_flips(data, 1500), Manifest.from_bytes) > 200
    assert survive_every(splices(data, 1500), Manifest.from_bytes) > 500


def test_manifest_with_100_000_fragments_round_trips():
    file = DataFile("0" * 50 + ".lance", (0, 1, 2), (0, 1, 2), 2, 1, 12345)
    manifest = Manifest(
        version=1,
        schema=SCHEMA,
        fragments=tuple(
            Fragment(number, (file,), 1000, None, SEQUENCE, VERSIONS, VERSIONS)
            for number in range(100_000)
        ),
        max_fragment_id=99_999,
        reader_flags=2,
        writer_flags=2,
    )
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest


def test_base_path_with_nul_is_corrupt():
    with pytest.raises(CorruptFileError, match="NUL"):
        BasePath.from_proto(table_pb2.BasePath(id=1, path="/tables/a\0b"))


@pytest.mark.parametrize("end", ["", "cut"])
def test_fragments_of_all_lengths_are_found(end):
    """Lengths of one to three bytes, at their limits."""
    messages = [
        table_pb2.DataFragment(id=number, inline_row_ids=bytes(size)).SerializeToString()
        for number, size in enumerate([0, 100, 123, 124, 300, 16370, 16377, 17000, 70000])
    ]
    pieces = [length_delimited(2, message) for message in messages]
    data = b"".join(pieces)
    found = cut_manifest(data[:-1] if end else data, None)
    if end:
        assert found is None
        return
    assert found.encoded.pieces == (data,)
    bounds = list(accumulate(map(len, pieces), initial=0))
    assert [found.encoded.starts.tolist(), found.encoded.ends.tolist()] == [bounds[:-1], bounds[1:]]
