"""Every metadata file that pylance wrote is read, and is written again as the same message."""

import glob
import os
import shutil
import struct

import lance
import pytest
from damage import bit_flips, splices, survive_every, truncations
from metafile import pylance_tables

from pyspark_lance.errors import UnsupportedFeatureError, VersionNotFoundError
from pyspark_lance.format.operation import Append, Clone, Overwrite
from pyspark_lance.metafile.deletion_file import read_deletion_file
from pyspark_lance.metafile.manifest_file import (
    ManifestLocation,
    encode_manifest,
    find_version,
    latest_version,
    list_versions,
    read_manifest,
    read_transaction,
)
from pyspark_lance.metafile.paths import NamingScheme, parse_manifest_name
from pyspark_lance.metafile.refs_file import list_branches, list_tags, read_branch, read_tag
from pyspark_lance.proto import table_pb2, transaction_pb2
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.memory_store import MemoryStore

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pylance")
    pylance_tables.make_all(folder)
    return folder


@pytest.fixture(scope="module")
def roots(folder):
    manifests = glob.glob(f"{folder}/**/_versions/*.manifest", recursive=True)
    return sorted({os.path.dirname(os.path.dirname(path)) for path in manifests})


def files_of(root):
    store = LocalStore(root)
    for location in list_versions(store):
        with open(f"{root}/{location.path}", "rb") as file:
            yield store, read_manifest(store, location), file.read()


def message_in(data):
    position = struct.unpack("<q", data[-16:-8])[0]
    return table_pb2.Manifest.FromString(data[position + 4 : -16])


def test_sample_tables_cover_operations_and_flags(roots):
    operations, flags = set(), 0
    for root in roots:
        for _, file, _ in files_of(root):
            operations.add(type(file.transaction().operation).__name__)
            flags |= file.manifest.writer_flags
    assert operations == {
        *("Append", "Clone", "CreateIndex", "Delete", "Merge", "Overwrite", "Project"),
        *("ReserveFragments", "Restore", "Rewrite", "Update", "UpdateConfig"),
    }
    assert flags == 1 | 2 | 8 | 16 | 2048


def test_manifests_of_pylance_round_trip(roots):
    for root in roots:
        for _, file, data in files_of(root):
            again = table_pb2.Manifest.FromString(file.manifest.to_bytes())
            assert again == message_in(data)
            assert not file.manifest.has_unknown_fields


def test_fragments_keep_every_byte(roots):
    for root in roots:
        for _, file, data in files_of(root):
            for fragment, message in zip(
                file.manifest.fragments, message_in(data).fragments, strict=True
            ):
                assert fragment.to_proto().SerializeToString() == message.SerializeToString()


def test_manifest_files_of_pylance_keep_their_size(roots):
    for root in roots:
        for _, file, data in files_of(root):
            encoded = encode_manifest(file.manifest, file.indices, file.transaction())
            again = MemoryStore()
            again.put(file.location.path, encoded)
            assert read_manifest(again, file.location) == file
            # pylance leaves out an empty value of a map entry, the protobuf library does not.
            assert len(data) <= len(encoded) <= len(data) + 4


def test_index_entries_keep_every_byte(roots):
    found = set()
    for root in roots:
        for _, file, data in files_of(root):
            if file.manifest.index_section is None:
                assert file.indices == ()
                continue
            start = file.manifest.index_section
            length = struct.unpack("<I", data[start : start + 4])[0]
            section = data[start + 4 : start + 4 + length]
            assert section.startswith(b"\x0a")
            for index in file.indices:
                assert index.raw in section
                found.add(index.name)
    assert found == {"id_idx", "v_idx", "__lance_frag_reuse"}


def test_inline_transactions_equal_transaction_files(roots):
    for root in roots:
        for store, file, _ in files_of(root):
            inline = file.transaction()
            assert not inline.has_unknown_fields
            stored = file.transaction_bytes
            parse = transaction_pb2.Transaction.FromString
            assert parse(inline.to_bytes()) == parse(stored)
            assert read_transaction(store, file.manifest.transaction_file) == inline


def test_listed_versions_equal_pylance(roots):
    for root in roots:
        store = LocalStore(root)
        expected = [entry["version"] for entry in lance.dataset(root).versions()]
        locations = list_versions(store)
        assert [location.version for location in locations] == expected
        assert latest_version(store) == locations[-1]
        for location in locations:
            assert find_version(store, location.version) == location
        with pytest.raises(VersionNotFoundError):
            find_version(store, expected[-1] + 1)


def test_commit_times_equal_pylance(roots):
    for root in roots:
        shown = lance.dataset(root).versions()
        for (_, file, _), entry in zip(files_of(root), shown, strict=True):
            # pylance goes through a float, which loses a microsecond at times.
            microseconds = file.manifest.timestamp_ns // 1000
            assert abs(microseconds - round(entry["timestamp"].timestamp() * 1e6)) <= 1


def test_naming_schemes_are_distinguished(folder):
    old = LocalStore(f"{folder}/old_names.lance")
    assert {location.scheme for location in list_versions(old)} == {NamingScheme.V1}
    assert latest_version(old).version == 11
    new = LocalStore(f"{folder}/plain.lance")
    assert {location.scheme for location in list_versions(new)} == {NamingScheme.V2}


def test_detached_version_is_found_only_by_number(folder):
    root = f"{folder}/detached.lance"
    store = LocalStore(root)
    assert [location.version for location in list_versions(store)] == [1]
    assert latest_version(store).version == 1
    (name,) = [name for name in os.listdir(f"{root}/_versions") if name.startswith("d")]
    version = parse_manifest_name(name).version
    file = read_manifest(store, find_version(store, version))
    assert file.manifest.version == version
    assert file.manifest.is_detached
    assert isinstance(file.transaction().operation, Append)


def test_tags_and_branches_of_pylance_are_read(folder):
    root = f"{folder}/references.lance"
    store, dataset = LocalStore(root), lance.dataset(root)
    from_pylance = dataset.tags.list()
    assert {tag.name: (tag.version, tag.branch) for tag in list_tags(store)} == {
        name: (tag["version"], tag["branch"]) for name, tag in from_pylance.items()
    }
    assert read_tag(store, "v1.0").version == 2
    assert read_tag(store, "on-branch").branch == "feat/x"
    (branch,) = list_branches(store)
    assert branch == read_branch(store, "feat/x")
    assert (branch.name, branch.parent_branch, branch.parent_version) == ("feat/x", None, 2)
    assert branch.version_mapping[0][0] == 2


def test_clones_and_branches_refer_to_their_origin(folder):
    root = f"{folder}/references.lance"
    for child, branch in ((f"{root}.clone", None), (f"{root}/tree/feat/x", "feat/x")):
        store = LocalStore(child)
        first = read_manifest(store, list_versions(store)[0])
        assert isinstance(first.transaction().operation, Clone)
        assert first.manifest.branch == branch
        (base,) = first.manifest.base_paths
        assert base.is_dataset_root
        assert base.path.endswith("references.lance")
        assert {file.base_id for f in first.manifest.fragments for file in f.files} == {base.id}


def test_deletion_files_of_pylance_are_read(roots):
    seen = 0
    for root in roots:
        for store, file, _ in files_of(root):
            for fragment in file.manifest.fragments:
                if fragment.deletion_file is None or fragment.deletion_file.base_id is not None:
                    continue
                vector = read_deletion_file(
                    store, fragment.id, fragment.deletion_file, fragment.physical_rows
                )
                dataset = lance.dataset(root, version=file.manifest.version)
                live = dataset.get_fragment(fragment.id).count_rows()
                assert fragment.num_rows == live
                assert len(vector) == fragment.physical_rows - live
                seen += 1
    assert seen > 5


def test_mixed_naming_schemes_are_refused_like_pylance(tmp_path):
    root = str(tmp_path / "t.lance")
    lance.write_dataset(pylance_tables.rows([1]), root)
    (path,) = glob.glob(f"{root}/_versions/*.manifest")
    with open(path, "rb") as source, open(f"{root}/_versions/1.manifest", "wb") as target:
        target.write(source.read())
    with pytest.raises(Exception, match="naming scheme"):
        lance.dataset(root, session=lance.Session())
    store = LocalStore(root)
    for look in (list_versions, latest_version):
        with pytest.raises(UnsupportedFeatureError, match="naming scheme"):
            look(store)


def test_pylance_reads_manifests_written_here(roots, tmp_path):
    """Every manifest is replaced by our own encoding of it; pylance must not see a difference."""
    for number, root in enumerate(roots):
        if "/tree/" in root:
            continue
        before = lance.dataset(root).to_table(with_row_id=True)
        copy = str(tmp_path / f"{number}.lance")
        shutil.copytree(root, copy)
        for _, file, _ in files_of(root):
            path = f"{copy}/{file.location.path}"
            os.remove(path)
            with open(path, "wb") as target:
                target.write(encode_manifest(file.manifest, file.indices, file.transaction()))
        dataset = lance.dataset(copy, session=lance.Session())
        assert dataset.to_table(with_row_id=True) == before
        assert dataset.count_rows("id >= 0") == before.num_rows
        dataset.validate()
        dataset.insert(pylance_tables.rows([7]).select(dataset.schema.names[:1]))
        assert lance.dataset(copy).count_rows() == before.num_rows + 1


def test_damaged_manifest_files_are_refused_or_read(folder):
    root = f"{folder}/stable.lance"
    for _, file, data in files_of(root):
        path, version = file.location.path, file.location.version

        def read(damaged, path=path, version=version):
            store = MemoryStore()
            store.put(path, damaged)
            found = read_manifest(store, ManifestLocation(path, version, NamingScheme.V2))
            found.transaction()
            found.manifest.schema.to_arrow()

        cuts = [cut for cut in truncations(data, 100) if len(cut) < len(data)]
        assert survive_every(cuts, read) == len(cuts)
        assert survive_every(bit_flips(data, 150, version), read) > 25
        assert survive_every(splices(data, 150, version), read) > 100


def test_first_transaction_creates_table(roots):
    creators = {type(next(files_of(root))[1].transaction().operation) for root in roots}
    assert creators == {Overwrite, Clone}
