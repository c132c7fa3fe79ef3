"""Thread pools of generators that the garbage collector closes."""

import subprocess
import sys

import pytest

# Before Python 3.13 threading holds this lock for a moment whenever a thread starts or ends, and
# the collector may run then.  Joining a thread takes the same lock.
COLLECT = """
import contextlib, gc, threading
from pyspark_lance.generator_pool import GeneratorPool
from pyspark_lance.store.memory_store import MemoryStore
from pyspark_lance.table.cleanup.cleanup import _remove_batches
from pyspark_lance.table.scan.scan_task import Source, read_ahead

class Cycle:
    pass

def results():
    with GeneratorPool(2) as pool:
        yield from pool.map(str, range(100))

gc.disable()
cycle = Cycle()
cycle.itself, cycle.generator = cycle, {generator}
next(cycle.generator)
del cycle
with getattr(threading, "_shutdown_locks_lock", contextlib.nullcontext()):
    assert gc.collect() > 0
"""
GENERATORS = {
    "results of a pool": "results()",
    "batches of a scan": "read_ahead([Source(1, lambda: iter('ab'))] * 3)",
    "removed files": "_remove_batches(MemoryStore(), [f'data/{n}' for n in range(5_000)], 2)",
}


@pytest.mark.parametrize("generator", GENERATORS.values(), ids=GENERATORS)
def test_collected_generators_join_no_threads(generator):
    code = COLLECT.replace("{generator}", generator)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
