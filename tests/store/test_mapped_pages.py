"""What a scan leaves behind of a mapped file is unmapped, and can still be read."""

from __future__ import annotations

import mmap
import random
import sys
from pathlib import Path

import pytest

from pyspark_lance.store import local_store
from pyspark_lance.store.local_store import LocalStore, MappedPages
from pyspark_lance.store.object_store import ByteRange

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="measures /proc")

MIB = 1 << 20


def resident_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssFile:")[1].split()[0]) / 1024


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    (tmp_path / "x").write_bytes(bytes(range(256)) * (160 * MIB // 256))
    return LocalStore(str(tmp_path))


def read_all(store: LocalStore, size: int) -> list:
    pieces = []
    for start in range(0, 160 * MIB, size):
        (piece,) = store.get_ranges("x", [ByteRange(start, start + size)])
        assert bytes(piece[:: mmap.PAGESIZE]) == b"\0" * (size // mmap.PAGESIZE)
        pieces.append(piece)
    return pieces


def test_scan_keeps_only_recent_pages_resident(store, monkeypatch):
    monkeypatch.setattr(local_store, "MAPPED_PAGES", MappedPages(limit=32 * MIB))
    before = resident_mib()
    pieces = read_all(store, 4 * MIB)
    assert resident_mib() - before < 64
    # What was unmapped is still there.
    assert [bytes(piece[:3]) for piece in pieces] == [b"\0\1\2"] * 40
    assert bytes(pieces[0][-2:]) == b"\xfe\xff"


def test_pages_of_copies_are_dropped(store):
    before = resident_mib()
    view = store.get_range("x", 3, 64 * MIB)
    data = MappedPages.copied(view, 3)
    assert resident_mib() - before < 96
    assert data == view
    assert MappedPages.copied(memoryview(b"not a map"), 3) == b"not a map"


def test_small_views_are_not_tracked(store):
    pages = MappedPages(limit=MIB)
    view = store.get("x")
    for start in range(0, 8 * MIB, MIB // 8):
        pages.record_view(memoryview(view), start, start + MIB // 8)
    assert not pages._pieces
    pages.record_view(memoryview(b"not a map" * MIB), 0, 2 * MIB)
    assert not pages._pieces


def test_single_view_may_exceed_limit(store):
    pages = MappedPages(limit=MIB)
    view = memoryview(store.get("x"))
    for start in (0, 3 * MIB + 17):
        pages.record_view(view, start, start + 20 * MIB)
    assert [piece[1:] for piece in pages._pieces] == [(3 * MIB + 17, 23 * MIB + 17)]
    assert bytes(view[:3]) == b"\0\1\2"


def test_unused_map_is_closed(store):
    pages = MappedPages(limit=MIB)
    view = memoryview(store.get("x"))
    pages.record_view(view, 0, 20 * MIB)
    reference = pages._pieces[0][0]
    del view, store._maps
    assert reference() is None
    other = memoryview(mmap.mmap(-1, 4 * MIB))
    pages.record_view(other, 0, 4 * MIB)
    assert len(pages._pieces) == 1


def test_large_copies_are_complete(tmp_path):
    content = random.Random(1).randbytes(9 << 20)
    (tmp_path / "x").write_bytes(content)
    store = LocalStore(str(tmp_path))
    for start, end in [(0, len(content)), (4097, (4 << 20) + 4097), (5, (8 << 20) + 7)]:
        assert MappedPages.copied(store.get_range("x", start, end), start) == content[start:end]
    assert MappedPages.copied(memoryview(content)[3:], 3) == content[3:]
