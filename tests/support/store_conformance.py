"""The suite every ObjectStore runs: subclass it and give a ``store`` fixture with an empty root."""

import threading
import time

import numpy as np
import pyarrow as pa
import pytest

from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.store.object_store import ByteRange, ObjectInfo


def paths(store, prefix=""):
    return sorted(info.path for info in store.list(prefix))


class StoreConformance:
    """Tests take the fixture ``store``."""

    def test_put_round_trips(self, store):
        store.put("a/b/c.bin", b"hello")
        assert bytes(store.get("a/b/c.bin")) == b"hello"
        assert store.size("a/b/c.bin") == 5
        assert store.exists("a/b/c.bin")

    def test_put_replaces_whole_object(self, store):
        store.put("x", b"a longer text")
        before = store.get("x")
        store.put("x", b"short")
        assert bytes(store.get("x")) == b"short"
        assert bytes(before) == b"a longer text"

    def test_empty_object_exists(self, store):
        store.put("empty", b"")
        assert bytes(store.get("empty")) == b""
        assert store.size("empty") == 0
        tail, size = store.get_tail("empty", 10)
        assert (bytes(tail), size) == (b"", 0)
        assert bytes(store.get_range("empty", 0, 0)) == b""
        assert paths(store) == ["empty"]

    def test_put_accepts_any_buffer(self, store):
        values = np.arange(6, dtype="<i4")
        for name, content in {
            "view": memoryview(b"0123456789")[2:5],
            "bytearray": bytearray(b"234"),
            "arrow": pa.py_buffer(b"234"),
        }.items():
            store.put(name, content)
            assert bytes(store.get(name)) == b"234"
        store.put("array", values)
        assert bytes(store.get("array")) == values.tobytes()

    def test_results_support_numpy_and_arrow(self, store):
        store.put("numbers", np.arange(100, dtype="<u8"))
        piece = store.get_range("numbers", 80, 96)
        assert np.frombuffer(piece, dtype="<u8").tolist() == [10, 11]
        assert pa.py_buffer(piece).size == 16

    def test_get_range_returns_exact_bytes(self, store):
        store.put("x", bytes(range(100)))
        assert bytes(store.get_range("x", 10, 20)) == bytes(range(10, 20))
        assert bytes(store.get_range("x", 0, 100)) == bytes(range(100))
        assert bytes(store.get_range("x", 100, 100)) == b""

    def test_get_ranges_keeps_request_order(self, store):
        content = np.random.default_rng(1).bytes(3 << 20)
        store.put("x", content)
        ranges = [(2_500_000, 3 << 20), (5, 5), (0, 10), (5, 2000), (1_000_000, 1_000_001), (0, 10)]
        found = store.get_ranges("x", [ByteRange(*r) for r in ranges])
        assert [bytes(piece) for piece in found] == [content[a:b] for a, b in ranges]
        assert store.get_ranges("x", []) == []

    @pytest.mark.parametrize(("start", "end"), [(0, 11), (10, 11), (500, 600), (9, 1 << 40)])
    def test_range_beyond_end_is_corrupt(self, store, start, end):
        store.put("x", b"0123456789")
        with pytest.raises(CorruptFileError, match=f"bytes {start}..{end}"):
            store.get_range("x", start, end)
        with pytest.raises(CorruptFileError):
            store.get_ranges("x", [ByteRange(0, 3), ByteRange(start, end)])

    @pytest.mark.parametrize(("start", "end"), [(-1, 3), (5, 4)])
    def test_impossible_range_is_corrupt(self, store, start, end):
        store.put("x", b"0123456789")
        with pytest.raises(CorruptFileError):
            store.get_range("x", start, end)

    @pytest.mark.parametrize("length", [0, 1, 4, 10, 11, 1 << 20])
    def test_tail_is_limited_to_object_size(self, store, length):
        store.put("x", b"0123456789")
        tail, size = store.get_tail("x", length)
        assert size == 10
        assert bytes(tail) == b"0123456789"[max(10 - length, 0) :]

    def test_missing_object_is_not_found(self, store):
        store.put("folder/x", b"1")
        for path in ("nothing", "folder", "folder/y", "folder/x/y"):
            assert not store.exists(path)
            for call in (
                lambda p=path: store.get(p),
                lambda p=path: store.get_tail(p, 3),
                lambda p=path: store.get_range(p, 0, 1),
                lambda p=path: store.get_ranges(p, [ByteRange(0, 1)]),
                lambda p=path: store.size(p),
                lambda p=path: store.stat(p),
            ):
                with pytest.raises(FileNotFoundError, match=path):
                    call()

    @pytest.mark.parametrize(
        "path", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/./b", "a/"]
    )
    def test_path_outside_root_is_refused(self, store, path):
        for call in (
            lambda: store.get(path),
            lambda: store.exists(path),
            lambda: store.put(path, b""),
            lambda: store.put_if_absent(path, b""),
            lambda: store.open_output(path),
            lambda: store.delete(path),
        ):
            with pytest.raises(InvalidInputError):
                call()

    def test_copy_replaces_whole_object(self, store):
        store.put("v/a", b"first")
        store.put("v/b", b"longer than the first")
        store.copy("v/a", "v/b")
        store.copy("v/a", "w/c")
        assert {bytes(store.get(path)) for path in ("v/a", "v/b", "w/c")} == {b"first"}
        with pytest.raises(FileNotFoundError):
            store.copy("v/nothing", "v/b")
        assert bytes(store.get("v/b")) == b"first"

    def test_put_if_absent_creates_once(self, store):
        assert store.put_if_absent("v/1.manifest", b"first") is True
        assert store.put_if_absent("v/1.manifest", b"second") is False
        assert bytes(store.get("v/1.manifest")) == b"first"
        assert paths(store) == ["v/1.manifest"]

    def test_put_if_absent_joins_pieces(self, store):
        pieces = [b"one", memoryview(b"xtwox")[1:4], b""]
        assert store.put_if_absent("v/1.manifest", pieces) is True
        assert store.put_if_absent("v/1.manifest", [b"other"]) is False
        assert bytes(store.get("v/1.manifest")) == b"onetwo"
        assert store.stat("v/1.manifest").size == 6

    def test_concurrent_put_if_absent_creates_object_once(self, store):
        for round_number in range(5):
            barrier = threading.Barrier(6)
            won = []

            def race(me, name=f"v/{round_number}", barrier=barrier, won=won):
                barrier.wait()
                if store.put_if_absent(name, b"%d" % me):
                    won.append(me)

            threads = [threading.Thread(target=race, args=(me,)) for me in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(won) == 1
            assert bytes(store.get(f"v/{round_number}")) == b"%d" % won[0]

    def test_output_appears_on_close(self, store):
        output = store.open_output("data/x.lance")
        assert output.tell() == 0
        output.write(b"abc")
        output.write(memoryview(b"xdefx")[1:-1])
        output.write(np.arange(2, dtype="<u2"))
        output.write(np.empty(0, dtype="<u8"))
        output.write(pa.py_buffer(b"!"))
        assert output.tell() == 11
        assert not store.exists("data/x.lance")
        output.close()
        output.close()
        output.abort()
        assert bytes(store.get("data/x.lance")) == b"abcdef\0\0\1\0!"
        assert paths(store) == ["data/x.lance"]
        with pytest.raises(ValueError, match="closed"):
            output.write(b"more")

    def test_empty_output_creates_empty_object(self, store):
        store.open_output("x").close()
        assert bytes(store.get("x")) == b""

    def test_aborted_output_leaves_nothing(self, store):
        output = store.open_output("data/x.lance")
        output.write(b"abc" * 100_000)
        output.abort()
        output.abort()
        output.close()
        del output
        assert not store.exists("data/x.lance")
        assert paths(store) == []

    def test_large_output_round_trips_in_pieces(self, store):
        piece = np.random.default_rng(0).bytes(5 << 20)
        output = store.open_output("big")
        for _ in range(8):
            output.write(piece)
        output.close()
        assert store.size("big") == 8 * len(piece)
        assert bytes(store.get("big")) == piece * 8
        assert bytes(store.get_range("big", len(piece) * 3, len(piece) * 4)) == piece

    def test_aborted_large_output_leaves_nothing(self, store):
        output = store.open_output("big")
        for _ in range(5):
            output.write(bytes(5 << 20))
        output.abort()
        del output
        assert not store.exists("big")
        assert paths(store) == []

    def test_list_returns_all_files_below_folder(self, store):
        before = time.time_ns() - 5 * 10**9
        for path in ("a/1", "a/b/2", "a/b/c/3", "ab/4", "5"):
            store.put(path, path.encode())
        assert paths(store) == ["5", "a/1", "a/b/2", "a/b/c/3", "ab/4"]
        assert paths(store, "a") == paths(store, "a/") == ["a/1", "a/b/2", "a/b/c/3"]
        assert paths(store, "a/b") == ["a/b/2", "a/b/c/3"]
        found = next(info for info in store.list("a") if info.path == "a/b/2")
        assert found.size == 5
        assert before < found.modified_ns < time.time_ns() + 5 * 10**9
        assert store.stat("a/b/2") == ObjectInfo("a/b/2", 5, found.modified_ns)

    def test_missing_folder_lists_nothing(self, store):
        assert paths(store, "nothing") == []
        store.put("x", b"")
        assert paths(store, "x") == []

    def test_list_shows_latest_changes(self, store):
        assert paths(store, "v") == []
        store.put("v/1", b"")
        assert paths(store, "v") == ["v/1"]
        store.put_if_absent("v/2", b"")
        assert paths(store, "v") == ["v/1", "v/2"]
        store.delete("v/1")
        assert paths(store, "v") == ["v/2"]

    def test_ordered_stores_list_in_order(self, store):
        for path in ("b/1", "b-/1", "b", "a/2", "a/10", "é"):
            if path != "b":
                store.put(path, b"")
        found = [info.path for info in store.list("")]
        if store.lists_in_order:
            assert found == sorted(found, key=str.encode)

    def test_special_characters_in_names_round_trip(self, store):
        names = [
            "a%2Fb.json",
            "a b",
            "q?x=1",
            "h#1",
            "st*r",
            "[x]",
            "é",
            "+plus",
            "a&b",
            "{c}",
            "a;b",
        ]
        for name in names:
            store.put(f"s/{name}", name.encode())
        assert paths(store, "s") == sorted(f"s/{name}" for name in names)
        for name in names:
            assert bytes(store.get(f"s/{name}")) == name.encode()
        store.delete("s/st*r")
        store.delete_many(["s/[x]", "s/q?x=1"])
        assert len(paths(store, "s")) == len(names) - 3

    def test_delete_of_missing_object_succeeds(self, store):
        store.put("a", b"")
        store.delete("a")
        store.delete("a")
        store.delete("never/was")
        assert paths(store) == []

    def test_delete_many_removes_all(self, store):
        names = [f"d/{i}" for i in range(30)]
        for name in names:
            store.put(name, b"")
        store.delete_many(iter([*names[:-1], "d/never"]))
        assert paths(store) == names[-1:]
        store.delete_many([])

    def test_repr_shows_uri(self, store):
        assert store.uri in repr(store)
        assert not store.uri.endswith("/")
