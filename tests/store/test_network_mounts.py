"""Mounts of other machines: their files are read, so that no page is missing later."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from store_conformance import StoreConformance

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.store import local_store
from pyspark_lance.store.local_store import LocalStore, is_on_network, network_devices
from pyspark_lance.store.object_store import ByteRange

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
31 22 0:27 / /data rw shared:1 - nfs4 server:/export rw,vers=4.2
32 22 0:28 / /home/a\\040b rw shared:2 master:3 - fuse.sshfs a@b:/ rw
33 22 0:29 / /dev/shm rw - tmpfs tmpfs rw
"""


def mounts_of(device: int) -> str:
    major, minor = os.major(device), os.minor(device)
    return f"22 1 {major}:{minor} / / rw - nfs4 server:/export rw\n"


@pytest.fixture
def mounted(tmp_path, monkeypatch):
    """A folder of which the system says that it is on another machine."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(mounts_of(tmp_path.stat().st_dev))
    monkeypatch.setattr(local_store, "_MOUNTS", str(mounts))
    is_on_network.cache_clear()
    yield str(tmp_path / "table")
    is_on_network.cache_clear()


def test_network_devices_are_read_from_mounts(tmp_path):
    assert network_devices(MOUNTS) == {os.makedev(0, 27), os.makedev(0, 28)}
    assert network_devices("") == frozenset()


@pytest.mark.parametrize("text", [None, "", "x y", "1 2 a:b / / rw - nfs server:/ rw"])
def test_devices_are_local_without_mount_information(tmp_path, monkeypatch, text):
    if text is not None:
        tmp_path.joinpath("mountinfo").write_text(text)
    monkeypatch.setattr(local_store, "_MOUNTS", str(tmp_path / "mountinfo"))
    is_on_network.cache_clear()
    assert not is_on_network(tmp_path.stat().st_dev)
    is_on_network.cache_clear()


class TestStoreOnAnotherMachine(StoreConformance):
    @pytest.fixture
    def store(self, mounted):
        return LocalStore(mounted)


def test_ranges_and_tail_are_read_on_network_mount(mounted):
    store, content = LocalStore(mounted), bytes(range(256)) * 4000
    store.put("data/x", content)
    pieces = store.get_ranges("data/x", [ByteRange(5, 9), ByteRange(3, 3), ByteRange(1000, 99_000)])
    assert [bytes(one) for one in pieces] == [content[5:9], b"", content[1000:99_000]]
    tail, size = store.get_tail("data/x", 70_000)
    assert bytes(tail) == content[-70_000:] and size == len(content)
    assert bytes(store.get("data/x")) == content
    with pytest.raises(CorruptFileError, match="data/x"):
        store.get_range("data/x", 0, len(content) + 1)
    with pytest.raises(FileNotFoundError):
        store.get("data/y")


def test_truncated_network_file_keeps_read_views(tmp_path):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(mounts_of(tmp_path.stat().st_dev))
    program = (
        "import os\n"
        "from pyspark_lance.store import local_store\n"
        "from pyspark_lance.store.local_store import LocalStore\n"
        f"local_store._MOUNTS = {str(mounts)!r}\n"
        f"store = LocalStore({str(tmp_path)!r})\n"
        "store.put('x', b'content' * 100_000)\n"
        "content = store.get('x')\n"
        f"os.truncate({str(tmp_path / 'x')!r}, 0)\n"
        "print(bytes(content) == b'content' * 100_000)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
