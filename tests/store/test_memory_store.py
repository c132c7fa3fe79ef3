import pytest
from store_conformance import StoreConformance

from pyspark_lance.store.memory_store import MemoryStore


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self):
        return MemoryStore()


def test_memory_stores_are_isolated():
    first, second = MemoryStore(), MemoryStore()
    first.put("x", b"1")
    assert not second.exists("x")


def test_view_is_unchanged_by_later_put():
    store = MemoryStore()
    store.put("x", bytearray(b"one"))
    view = store.get_range("x", 0, 3)
    store.put("x", b"two")
    assert bytes(view) == b"one"


def test_memory_store_clock_is_injectable():
    store = MemoryStore(now_ns=lambda: 42)
    store.put("x", b"")
    assert store.stat("x").modified_ns == 42
