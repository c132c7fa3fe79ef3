import pytest
from faulty_store import Fault, FaultyStore
from store_conformance import StoreConformance

from pyspark_lance.errors import StorageError
from pyspark_lance.store.memory_store import MemoryStore


class TestFaultyStoreWithoutFaults(StoreConformance):
    @pytest.fixture
    def store(self):
        return FaultyStore(MemoryStore())


@pytest.fixture
def store():
    return FaultyStore(MemoryStore())


def test_lost_response_fault_hides_success(store):
    store.plan("put_if_absent", Fault.LOST_ANSWER)
    with pytest.raises(StorageError, match="lost"):
        store.put_if_absent("x", b"ours")
    assert bytes(store.get("x")) == b"ours"
    assert store.pending == 0


def test_repeated_put_if_absent_fault_returns_false(store):
    store.plan("put_if_absent", Fault.REPEATED)
    assert store.put_if_absent("x", b"ours") is False
    assert bytes(store.get("x")) == b"ours"


def test_faults_apply_in_planned_order_and_path(store):
    store.plan("put", Fault.PASS, Fault.FAIL, path="b/")
    store.put("a/1", b"")
    store.put("b/1", b"")
    store.put("a/2", b"")
    with pytest.raises(StorageError):
        store.put("b/2", b"")
    store.put("b/3", b"")
    assert [info.path for info in store.list("")] == ["a/1", "a/2", "b/1", "b/3"]
    assert store.count("put", "b/") == 3


def test_torn_read_returns_half(store):
    store.put("x", b"0123456789")
    store.plan("get", Fault.TORN)
    store.plan("get_tail", Fault.TORN)
    assert bytes(store.get("x")) == b"01234"
    tail, size = store.get_tail("x", 4)
    assert (bytes(tail), size) == (b"67", 10)
    assert bytes(store.get("x")) == b"0123456789"


def test_callback_runs_before_operation(store):
    store.before("put_if_absent", lambda path: store.inner.put(path, b"theirs"))
    assert store.put_if_absent("x", b"ours") is False
    assert bytes(store.get("x")) == b"theirs"


def test_output_fails_at_close(store):
    store.plan("output.close", Fault.FAIL)
    output = store.open_output("x")
    output.write(b"1")
    with pytest.raises(StorageError):
        output.close()
    output.abort()
    assert not store.exists("x")
