import pytest
from store_conformance import StoreConformance

from pyspark_lance.store.memory_store import MemoryStore


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self):
        return MemoryStore()


def test_two_memory_stores_share_nothing():
    first, second = MemoryStore(), MemoryStore()
    first.put("x", b"1")
    assert not second.exists("x")


def test_a_view_is_not_changed_by_a_later_put():
    store = MemoryStore()
    store.put("x", bytearray(b"one"))
    view = store.get_range("x", 0, 3)
    store.put("x", b"two")
    assert bytes(view) == b"one"


def test_the_clock_is_an_argument():
    store = MemoryStore(now_ns=lambda: 42)
    store.put("x", b"")
    assert store.stat("x").modified_ns == 42
