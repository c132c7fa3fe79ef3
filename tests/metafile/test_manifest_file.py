import dataclasses
import struct
import tracemalloc

import pyarrow as pa
import pytest
from pyroaring import BitMap

from pyspark_lance.errors import (
    CorruptFileError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from pyspark_lance.format.fragment import DataFile, Fragment
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.operation import Append
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.manifest_file import (
    MAX_INLINE_TRANSACTION,
    ManifestLocation,
    encode_manifest,
    find_version,
    latest_version,
    list_versions,
    newest_versions,
    read_manifest,
)
from pyspark_lance.metafile.paths import NamingScheme, manifest_path
from pyspark_lance.proto import table_pb2
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.memory_store import MemoryStore

SCHEMA = LanceSchema.from_arrow(pa.schema([("id", pa.int64())]))
FILE = DataFile("a.lance", (0,), (0,), 2, 1, 636)
INDEX = IndexMetadata.from_bytes(
    table_pb2.IndexMetadata(
        uuid=table_pb2.Uuid(uuid=b"u" * 16),
        name="i",
        fields=[0],
        fragment_bitmap=BitMap([0]).serialize(),
    ).SerializeToString()
)


def fragments(count):
    return tuple(Fragment(number, (FILE,), 1) for number in range(count))


def manifest(version, count=1):
    return Manifest(version=version, schema=SCHEMA, fragments=fragments(count))


def transaction(count=1):
    return Transaction(0, "c650018c", Append(fragments(count)))


def put(store, version, *, scheme=NamingScheme.V2, indices=(), content=None, with_transaction=True):
    content = content or manifest(version)
    path = manifest_path(version, scheme)
    done = transaction(len(content.fragments)) if with_transaction else None
    data = encode_manifest(content, indices, done)
    store.put(path, data)
    return ManifestLocation(path, version, scheme, len(data)), data


@pytest.mark.parametrize("name", ["", "0-c650018c.txn"])
def test_long_transaction_is_inline_only_without_file(name):
    long = dataclasses.replace(transaction(), properties={"note": "x" * MAX_INLINE_TRANSACTION})
    data = encode_manifest(dataclasses.replace(manifest(4), transaction_file=name), (), long)
    assert (len(data) > MAX_INLINE_TRANSACTION) == (not name)


@pytest.mark.parametrize("indices", [(), (INDEX, INDEX)])
@pytest.mark.parametrize("with_transaction", [True, False])
@pytest.mark.parametrize("count", [1, 3000], ids=["in the tail", "longer than the tail"])
def test_manifest_file_round_trips(indices, with_transaction, count):
    store = MemoryStore()
    location, data = put(
        store, 4, indices=indices, content=manifest(4, count), with_transaction=with_transaction
    )
    file = read_manifest(store, location)
    assert file.location == location
    assert file.manifest.fragments == fragments(count)
    assert file.indices == indices
    assert file.transaction() == (transaction(count) if with_transaction else None)
    assert (file.manifest.index_section is not None) == bool(indices)
    position = struct.unpack("<q", data[-16:-8])[0]
    assert data[-8:] == b"\x00\x00\x02\x00LANC"
    assert position + 4 + struct.unpack("<I", data[position : position + 4])[0] + 16 == len(data)


def test_bytes_of_large_manifest_are_kept_once():
    file = dataclasses.replace(FILE, path="a" * 200)
    content = dataclasses.replace(
        manifest(4), fragments=tuple(Fragment(number, (file,), 1) for number in range(25_000))
    )
    store = MemoryStore()
    location, _ = put(store, 4, content=content, indices=(INDEX,))
    tracemalloc.start()
    try:
        found = read_manifest(store, location)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert found.manifest.fragments[24_999] == content.fragments[24_999]
    assert found.transaction() == transaction(25_000)
    assert found.indices == (INDEX,)
    manifest_bytes = len(content.to_bytes())
    assert manifest_bytes < held < 1.7 * manifest_bytes


def test_indices_can_be_skipped():
    store = MemoryStore()
    location, _ = put(store, 4, indices=(INDEX,))
    file = read_manifest(store, location, with_indices=False)
    assert file.indices == ()
    assert file.manifest.index_section == 0
    assert file.transaction() == transaction()


class CountingStore(MemoryStore):
    """Counts the reads and the bytes they ask for."""

    reads = 0
    bytes_read = 0

    def get_tail(self, path, length):
        tail, size = super().get_tail(path, length)
        self.reads, self.bytes_read = self.reads + 1, self.bytes_read + len(tail)
        return tail, size

    def get_range(self, path, start, end):
        self.reads, self.bytes_read = self.reads + 1, self.bytes_read + end - start
        return super().get_range(path, start, end)


def test_small_manifest_takes_one_read():
    store = CountingStore()
    location, _ = put(store, 1, indices=(INDEX,))
    read_manifest(store, location).transaction()
    assert store.reads == 1


def test_listed_manifest_takes_one_read_and_unlisted_two():
    store = CountingStore()
    location, data = put(store, 1, indices=(INDEX,), content=manifest(1, 10_000))
    assert 256 << 10 < len(data) < 4 << 20
    for known, reads in ((location, 1), (dataclasses.replace(location, size=None), 2)):
        store.reads = 0
        assert len(read_manifest(store, known, with_indices=False).manifest.fragments) == 10_000
        assert store.reads == reads


def test_large_transaction_is_read_on_demand():
    store = CountingStore()
    location, data = put(store, 1, indices=(INDEX,), content=manifest(1, 10_000))
    location = dataclasses.replace(location, size=5 << 20)  # smaller ones are read whole
    file = read_manifest(store, location)
    before = store.bytes_read
    assert before < 0.7 * len(data)
    file.transaction()
    assert store.bytes_read > before


def test_transaction_section_in_old_field_is_read():
    store = MemoryStore()
    _, data = put(store, 1)
    position = struct.unpack("<q", data[-16:-8])[0]
    message = table_pb2.Manifest.FromString(data[position + 4 : -16])
    message.transaction_section_21 = message.transaction_section
    message.ClearField("transaction_section")
    body = message.SerializeToString()
    store.put(
        manifest_path(1, NamingScheme.V2),
        data[:position] + struct.pack("<I", len(body)) + body + data[-16:],
    )
    file = read_manifest(store, latest_version(store))
    assert file.transaction() == transaction()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda data: data[:-1] + b"X", "magic"),
        (lambda data: data[:-16] + struct.pack("<q", -1) + data[-8:], "byte -1"),
        (lambda data: data[:-16] + struct.pack("<q", 2**62) + data[-8:], "puts the manifest"),
        (lambda data: data[:-16] + struct.pack("<q", len(data) - 18) + data[-8:], "puts the"),
        (lambda data: data[:-16] + b"\x00" + data[-16:], "does not end at the footer"),
        (lambda data: data[-16:], "too short"),
        (lambda data: b"", "too short"),
    ],
)
def test_invalid_framing_error_names_file(change, complaint):
    store = MemoryStore("memory://t")
    location, data = put(store, 1)
    store.put(location.path, change(data))
    with pytest.raises(CorruptFileError, match=complaint) as caught:
        read_manifest(store, location)
    assert caught.value.where.startswith(f"memory://t/{location.path}")


def test_version_other_than_file_name_is_corrupt():
    store = MemoryStore()
    location, _ = put(store, 3, content=manifest(4))
    with pytest.raises(CorruptFileError, match="version 4, its name says 3"):
        read_manifest(store, location)


@pytest.mark.parametrize("offset", [1, 60, 100_000, 2**63, 2**64 - 1])
def test_sections_outside_file_are_corrupt(offset):
    store = MemoryStore()
    location, _ = put(store, 1, with_transaction=False)
    for name in ("index_section", "transaction_section"):
        broken = dataclasses.replace(manifest(1), **{name: offset}).to_bytes()
        framed = struct.pack("<I", len(broken)) + broken + struct.pack("<qHH4s", 0, 0, 2, b"LANC")
        store.put(location.path, framed)
        with pytest.raises(CorruptFileError):
            read_manifest(store, location).transaction()


def test_overlong_section_is_corrupt():
    store = MemoryStore()
    location, data = put(store, 1, indices=(INDEX,))
    store.put(location.path, struct.pack("<I", 2**32 - 1) + data[4:])
    with pytest.raises(CorruptFileError, match="runs into"):
        read_manifest(store, location)


def test_unreadable_flags_error_names_file():
    store = MemoryStore("memory://t")
    location, _ = put(store, 1, content=dataclasses.replace(manifest(1), reader_flags=64))
    with pytest.raises(UnsupportedFeatureError, match=f"memory://t/{location.path}"):
        read_manifest(store, location)


def test_missing_manifest_raises_file_not_found():
    with pytest.raises(FileNotFoundError):
        read_manifest(MemoryStore(), ManifestLocation("_versions/1.manifest", 1, NamingScheme.V1))


@pytest.mark.parametrize("scheme", NamingScheme)
@pytest.mark.parametrize("kind", ["in order", "in any order", "folder"])
def test_versions_are_ordered_by_number(scheme, kind, tmp_path):
    store = LocalStore(str(tmp_path)) if kind == "folder" else MemoryStore()
    store.lists_in_order = kind == "in order"
    for version in (1, 2, 9, 10, 11, 100):
        put(store, version, scheme=scheme)
    put(store, 2**63 + 5)
    store.put("_versions/latest_version_hint.json", b'{"version":2}')
    store.put("_versions/x.manifest-staging", b"")
    store.put("_versions/folder/7.manifest", b"")
    assert [location.version for location in list_versions(store)] == [1, 2, 9, 10, 11, 100]
    latest = latest_version(store)
    assert (latest.version, latest.scheme) == (100, scheme)
    assert latest.size == store.size(latest.path)
    assert [location.version for location in newest_versions(store, 3)] == [100, 11, 10]
    assert find_version(store, 9) == list_versions(store)[2]
    assert find_version(store, 2**63 + 5).path == f"_versions/d{2**63 + 5}.manifest"


def test_missing_version_differs_from_missing_table():
    store = MemoryStore()
    assert latest_version(store) is None
    assert list_versions(store) == []
    with pytest.raises(TableNotFoundError) as caught:
        find_version(store, 1)
    assert not isinstance(caught.value, VersionNotFoundError)
    for version in (3, 5):
        put(store, version)
    for version in (0, -1, 4, 2**63 + 1, 2**64):
        with pytest.raises(VersionNotFoundError, match="from 3 to 5"):
            find_version(store, version)


@pytest.mark.parametrize("kind", ["in any order", "folder"])
def test_mixed_naming_schemes_are_refused(kind, tmp_path):
    store = LocalStore(str(tmp_path)) if kind == "folder" else MemoryStore()
    store.lists_in_order = False
    put(store, 1, scheme=NamingScheme.V1)
    put(store, 2, scheme=NamingScheme.V2)
    for look in (list_versions, latest_version):
        with pytest.raises(UnsupportedFeatureError, match="both naming schemes"):
            look(store)
