"""The advisory lock of writers on one machine: it never blocks forever and leaves no files."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from pyspark_lance.cancellation import CANCELLED, CancelledRequestError
from pyspark_lance.store import advisory_lock as locks
from pyspark_lance.store.advisory_lock import advisory_lock
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.memory_store import MemoryStore

FOLDER = "_versions"
LONG_S = 120.0  # longer than any wait that succeeds


@pytest.fixture
def store(tmp_path):
    (tmp_path / FOLDER).mkdir()
    return LocalStore(str(tmp_path))


def open_locks(store):
    """Return what open descriptors of the store refer to; unrelated ones come and go."""
    targets = []
    for number in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            targets.append(os.readlink(f"/dev/fd/{number}"))
    return [target for target in targets if target.startswith(store.uri)]


def in_a_thread(function):
    """Return what the function returns in another thread."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def acquires_lock(store, patience_s=0.0):
    with advisory_lock(store, FOLDER, patience_s) as mine:
        return mine


def wait_for_places_left():
    """A writer that left the queue still stands in the kernel's, and has the lock for a moment."""
    for thread in threading.enumerate():
        if thread.name == "advisory-lock":
            thread.join()


def test_second_caller_waits_for_lock(store):
    order, waits = [], threading.Event()

    def second():
        with advisory_lock(store, FOLDER, LONG_S, meanwhile=waits.set) as mine:
            order.append(("second", mine))

    thread = threading.Thread(target=second)
    with advisory_lock(store, FOLDER, LONG_S) as mine:
        thread.start()
        assert waits.wait(LONG_S)
        order.append(("first", mine))
    thread.join()
    assert order == [("first", True), ("second", True)]


def test_meanwhile_is_not_called_without_waiting(store):
    done = []
    with advisory_lock(store, FOLDER, LONG_S, meanwhile=lambda: done.append(1)) as mine:
        assert mine
    assert done == []


def test_timed_out_caller_continues_and_skips_next_wait(store):
    with advisory_lock(store, FOLDER, LONG_S):
        assert in_a_thread(lambda: acquires_lock(store, 0.001)) is False
        assert in_a_thread(lambda: acquires_lock(store, LONG_S)) is False  # and that at once
    wait_for_places_left()
    assert acquires_lock(store)
    assert f"{store.uri}/{FOLDER}" not in locks._timed_out


def test_lock_is_reentrant_within_thread(store):
    with advisory_lock(store, FOLDER, LONG_S):
        with advisory_lock(store, FOLDER, LONG_S) as mine:
            assert mine
        assert in_a_thread(lambda: acquires_lock(store)) is False
    assert in_a_thread(lambda: acquires_lock(store)) is True


def test_lock_is_released_on_error(store):
    with pytest.raises(ValueError, match="work"), advisory_lock(store, FOLDER, LONG_S):
        raise ValueError("work failed")
    assert in_a_thread(lambda: acquires_lock(store)) is True


def test_folders_have_separate_locks(store, tmp_path):
    (tmp_path / "other").mkdir()
    with advisory_lock(store, FOLDER, LONG_S), advisory_lock(store, "other", 0.0) as mine:
        assert mine


def test_lock_is_released_when_process_dies(store):
    script = (
        "import sys\n"
        "from pyspark_lance.store.local_store import LocalStore\n"
        "from pyspark_lance.store.advisory_lock import advisory_lock\n"
        f"with advisory_lock(LocalStore(sys.argv[1]), {FOLDER!r}, 0.0) as mine:\n"
        "    print(mine, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, store.uri]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"True\n"
        assert acquires_lock(store) is False
        process.kill()
    assert acquires_lock(store) is True


def test_lock_leaves_no_files_or_descriptors(store, tmp_path):
    assert acquires_lock(store)
    with advisory_lock(store, FOLDER, LONG_S):
        in_a_thread(lambda: acquires_lock(store))
        assert len(open_locks(store)) == 1
    assert os.listdir(tmp_path / FOLDER) == []
    assert open_locks(store) == []


def test_callers_continue_where_locks_are_unavailable(tmp_path, monkeypatch):
    nothing = str(tmp_path / "nothing")
    assert acquires_lock(LocalStore(nothing), LONG_S) is False
    monkeypatch.setattr(tempfile, "tempdir", nothing)
    assert acquires_lock(MemoryStore(), LONG_S) is False


def test_caller_continues_if_mount_goes_stale_while_waiting(store, monkeypatch):
    def stale(_descriptor):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with advisory_lock(store, FOLDER, LONG_S), monkeypatch.context() as patched:
        patched.setattr(locks.os, "fstat", stale)
        assert in_a_thread(lambda: acquires_lock(store, 0.001)) is False
    wait_for_places_left()
    assert acquires_lock(store)


def test_lock_is_granted_in_arrival_order(store):
    order, threads = [], []

    def waits(number, is_waiting):
        with advisory_lock(store, FOLDER, LONG_S, meanwhile=is_waiting.set) as mine:
            order.append((number, mine))

    def in_queue():
        return sum(thread.name == "advisory-lock" for thread in threading.enumerate())

    with advisory_lock(store, FOLDER, LONG_S):
        for number in range(8):
            is_waiting = threading.Event()
            threads.append(threading.Thread(target=waits, args=(number, is_waiting)))
            threads[-1].start()
            assert is_waiting.wait(LONG_S)
            while in_queue() <= number:
                time.sleep(0.001)
            time.sleep(0.05)  # until its thread stands in the kernel's queue
    for thread in threads:
        thread.join()
    assert order == [(number, True) for number in range(8)]


def test_wait_continues_while_other_writers_progress(store, tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_POLL_S", 0.01)
    results = []

    def waits():
        with advisory_lock(store, FOLDER, 0.5) as mine:
            results.append(mine)

    with advisory_lock(store, FOLDER, LONG_S):
        thread = threading.Thread(target=waits)
        thread.start()
        for number in range(12):  # 1.2 s: more than twice the longest wait
            time.sleep(0.1)
            (tmp_path / FOLDER / str(number)).touch()
        assert results == []
    thread.join()
    assert results == [True]


def test_wait_ends_at_total_limit(store, tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_POLL_S", 0.01)
    monkeypatch.setattr(locks, "_MAX_WAIT_FACTOR", 1.5)
    is_over = threading.Event()

    def get_on():
        for number in itertools.count():
            (tmp_path / FOLDER / str(number)).touch()
            if is_over.wait(0.002):
                return

    others = threading.Thread(target=get_on)
    with advisory_lock(store, FOLDER, LONG_S):
        others.start()
        began = time.monotonic()
        assert in_a_thread(lambda: acquires_lock(store, 1.0)) is False
        assert time.monotonic() - began < 20
        assert in_a_thread(lambda: acquires_lock(store, LONG_S)) is False  # and that at once
        is_over.set()
        others.join()


def test_timed_out_caller_waits_again_after_progress(store, tmp_path):
    with advisory_lock(store, FOLDER, LONG_S):
        assert in_a_thread(lambda: acquires_lock(store, 0.001)) is False
        (tmp_path / FOLDER / "new").touch()
        waited, results = threading.Event(), []

        def waits():
            with advisory_lock(store, FOLDER, LONG_S, meanwhile=waited.set) as mine:
                results.append(mine)

        thread = threading.Thread(target=waits)
        thread.start()
        assert waited.wait(LONG_S)
        time.sleep(0.05)
        assert results == []
    thread.join()
    assert results == [True]


def test_abandoned_wait_leaves_no_lock_or_descriptor(store):
    with advisory_lock(store, FOLDER, LONG_S):
        assert in_a_thread(lambda: acquires_lock(store, 0.01)) is False
    while any(thread.name == "advisory-lock" for thread in threading.enumerate()):
        time.sleep(0.001)
    assert open_locks(store) == []
    assert acquires_lock(store)


def test_cancelled_request_stops_waiting(store):
    cancelled = threading.Event()

    def wait():
        CANCELLED.set(cancelled)
        with pytest.raises(CancelledRequestError):
            acquires_lock_after(cancelled.set)
        return "cancelled"

    def acquires_lock_after(meanwhile):
        with advisory_lock(store, FOLDER, 5.0, meanwhile=meanwhile):
            pass

    with advisory_lock(store, FOLDER, LONG_S):
        assert in_a_thread(wait) == "cancelled"
    wait_for_places_left()
    assert acquires_lock(store)


def test_polling_caller_needs_no_thread(store):
    """Without patience, it does not get in line."""
    held, may_end = threading.Event(), threading.Event()

    def first():
        with advisory_lock(store, FOLDER, LONG_S):
            held.set()
            assert may_end.wait(LONG_S)

    thread = threading.Thread(target=first)
    thread.start()
    assert held.wait(LONG_S)
    with advisory_lock(store, FOLDER, 0.0, meanwhile=may_end.set, poll_s=10.0) as mine:
        assert mine
    thread.join()


def test_caller_gets_in_line_after_polling(store):
    order, polled = [], threading.Event()

    def second():
        with advisory_lock(store, FOLDER, LONG_S, poll_s=0.001) as mine:
            order.append(mine)

    thread = threading.Thread(target=second)
    with advisory_lock(store, FOLDER, LONG_S):
        thread.start()
        while not any(one.name == "advisory-lock" for one in threading.enumerate()):
            polled.wait(0.001)
        order.append("first")
    thread.join()
    assert order == ["first", True]


def test_polling_caller_can_be_cancelled(store, monkeypatch):
    # A caller in the queue is cancelled, too.
    monkeypatch.setattr(locks, "_wait_in_queue", lambda *_: False)

    def second():
        token = CANCELLED.set(threading.Event())
        try:
            with (
                pytest.raises(CancelledRequestError),
                advisory_lock(store, FOLDER, LONG_S, meanwhile=CANCELLED.get().set, poll_s=1.0),
            ):
                pass
        finally:
            CANCELLED.reset(token)

    with advisory_lock(store, FOLDER, LONG_S):
        in_a_thread(second)
    assert open_locks(store) == []
