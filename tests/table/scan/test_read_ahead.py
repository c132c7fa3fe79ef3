"""Batches come in the order of their sources, regardless of which have started."""

from __future__ import annotations

import threading
import time

import pytest

from pyspark_lance.table.scan import scan_task as module
from pyspark_lance.table.scan.scan_task import Source, read_ahead


def source(number, batches=3, num_bytes=1):
    return Source(num_bytes, lambda: iter([(number, batch) for batch in range(batches)]))


def test_batches_keep_source_order():
    found = list(read_ahead(source(number, number % 4) for number in range(100)))
    assert found == [(number, batch) for number in range(100) for batch in range(number % 4)]


def test_small_sources_start_concurrently():
    barrier = threading.Barrier(module._MAX_SOURCES, timeout=60)

    def batches():
        barrier.wait()  # breaks unless all are waiting
        yield 1

    assert sum(read_ahead([Source(1, batches)] * module._MAX_SOURCES)) == module._MAX_SOURCES


@pytest.mark.parametrize(
    ("num_bytes", "most"), [(128 << 20, 2), (40 << 20, 3), (17 << 20, 8), (0, 16)]
)
def test_read_ahead_starts_few_or_small_sources(num_bytes, most):
    begun, done = [], []

    def batches(number):
        begun.append(number)
        yield number
        done.append(number)

    sources = [Source(num_bytes, lambda n=number: batches(n)) for number in range(40)]
    assert max(len(begun) - len(done) for _ in read_ahead(sources)) <= most
    assert len(done) == 40


def test_errors_are_raised_in_source_order():
    def failing():
        yield "before"
        raise ValueError("torn")

    found = []
    with pytest.raises(ValueError, match="torn"):
        found.extend(read_ahead([source(0), Source(1, failing), source(2)]))
    assert found == [(0, 0), (0, 1), (0, 2), "before"]


def test_closed_read_ahead_leaves_no_thread():
    batches = read_ahead(source(number) for number in range(1000))
    assert next(batches) == (0, 0)
    batches.close()
    until = time.monotonic() + 10
    while [t for t in threading.enumerate() if t.name.startswith("lance-ahead")]:
        assert time.monotonic() < until
        time.sleep(0.01)
