"""What manifests of old releases of Lance have and lack does not stand in the way of a commit."""

import lance
import pyarrow as pa
import pytest
from table_access import read_ours, write_table

from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.metafile.manifest_file import latest_version, read_manifest
from pyspark_lance.proto import table_pb2
from pyspark_lance.store.local_store import LocalStore

pytestmark = pytest.mark.interop

ROWS = pa.table({"id": [1, 2], "s": ["a", "b"]})


def change_manifest(path, change) -> None:
    """Rewrite the only manifest of a table after ``change(message)``."""
    store = LocalStore(str(path))
    location = latest_version(store)
    content = bytes(store.get(location.path))
    position = int.from_bytes(content[-16:-8], "little")
    message = table_pb2.Manifest.FromString(content[position + 4 : -16])
    change(message)
    data = message.SerializeToString()
    store.delete(location.path)
    framed = content[:position] + len(data).to_bytes(4, "little") + data + content[-16:]
    store.put(location.path, framed)


def with_storage_class(name):
    def change(message):
        for field in message.fields:
            field.storage_class = name

    return change


def test_default_storage_class_is_accepted(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(ROWS, path)
    change_manifest(path, with_storage_class("default"))
    store = LocalStore(path)
    manifest = read_manifest(store, latest_version(store)).manifest
    assert not manifest.has_unknown_fields
    assert not any(f.storage_class for f in manifest.schema.to_protos())
    write_table(path, ROWS)
    assert read_ours(path, system_columns=())["id"].to_pylist() == [1, 2, 1, 2]
    assert lance.dataset(path).to_table()["id"].to_pylist() == [1, 2, 1, 2]


def test_blob_storage_class_is_refused_by_name(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(ROWS, path)
    change_manifest(path, with_storage_class("blob"))
    with pytest.raises(UnsupportedFeatureError, match="column 'id' has storage class 'blob'"):
        read_ours(path)


def test_missing_max_fragment_id_is_derived_from_fragments(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(ROWS, path)
    change_manifest(path, lambda message: message.ClearField("max_fragment_id"))
    write_table(path, ROWS)
    dataset = lance.dataset(path)
    assert [fragment.fragment_id for fragment in dataset.get_fragments()] == [0, 1]
    assert dataset.to_table()["id"].to_pylist() == [1, 2, 1, 2]


def test_max_fragment_id_is_none_without_fragments():
    assert Manifest.from_bytes(b"\x18\x01").max_fragment_id is None
