"""Our daemon does as PySpark's does, and forks workers that have their imports once it is asked."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark
import pytest
from spark_releases import needs

OURS, SPARKS = "pyspark_lance.spark.daemon", "pyspark.daemon"
SECRET = b"secret"

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="looks into /proc")


class Daemon:
    """What the JVM does to a daemon."""

    def __init__(self, process, *, has_path):
        self.process = process
        (self.address,) = struct.unpack("!i", process.stdout.read(4))
        if has_path:
            self.address = process.stdout.read(self.address)

    def fork(self):
        """Another worker: the connection to it, and its number."""
        if isinstance(self.address, bytes):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self.address)
        else:
            connection = socket.create_connection(("127.0.0.1", self.address))
        (worker,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
        if isinstance(self.address, bytes):
            return connection, worker
        connection.sendall(struct.pack("!i", len(SECRET)) + SECRET)
        assert connection.recv(6, socket.MSG_WAITALL) == b"\0\0\0\2ok"
        return connection, worker

    def kill(self, worker):
        self.process.stdin.write(struct.pack("!i", worker))
        self.process.stdin.flush()


@contextmanager
def running(module, **settings):
    command = [sys.executable, "-m", module, "pyspark.worker"]
    environment = {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": SECRET.decode(), **settings}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment | {"SPARK_REUSE_WORKER": "1"},
    ) as process:  # fmt: skip
        try:
            yield Daemon(process, has_path="PYTHON_UNIX_DOMAIN_ENABLED" in settings)
        finally:
            process.kill()


def libraries(number):
    """Which of these libraries a process has."""
    maps = Path(f"/proc/{number}/maps").read_text()
    return {name for name in ("libarrow", "_multiarray_umath", "pyroaring") if name in maps}


def threads(number):
    return len(os.listdir(f"/proc/{number}/task"))


def test_workers_inherit_imports_after_daemon_request():
    with running(SPARKS, OMP_NUM_THREADS="1") as daemon:
        daemon.fork()
        own = libraries(daemon.process.pid)  # numpy before Spark 4.2, nothing since
    with running(OURS, OMP_NUM_THREADS="1") as daemon:
        waits, cold = daemon.fork()
        assert libraries(daemon.process.pid) == libraries(cold) == own
        assert "libarrow" not in own
        os.kill(daemon.process.pid, signal.SIGUSR1)
        also_waits, warm = daemon.fork()
        assert libraries(warm) == {"libarrow", "_multiarray_umath", "pyroaring"}
        assert libraries(cold) == own
        # Workers end when their connections do.
        waits.close()
        also_waits.close()
        # What a thread holds when another one forks stays locked in the new process.
        assert threads(daemon.process.pid) == 1
        os.kill(daemon.process.pid, signal.SIGUSR1)
        daemon.fork()


@pytest.mark.parametrize("module", [SPARKS, OURS])
@pytest.mark.parametrize("is_used", [False, True])
def test_workers_and_daemon_end_with_jvm(module, is_used):
    if is_used and module == SPARKS:
        pytest.skip("that signal ends it")
    with running(module) as daemon:
        if is_used:
            os.kill(daemon.process.pid, signal.SIGUSR1)
        (unwanted, number), (kept, _) = daemon.fork(), daemon.fork()
        daemon.kill(number)
        assert unwanted.recv(1) == b""
        daemon.fork()  # goes on
        daemon.process.stdin.close()
        assert daemon.process.wait() == 1  # as that of PySpark
        assert kept.recv(1) == b""
        assert daemon.process.stderr.read() == b""


@pytest.mark.parametrize("module", [SPARKS, OURS])
def test_terminated_daemon_ends_workers(module):
    with running(module) as daemon:
        connection, _ = daemon.fork()
        daemon.process.terminate()
        assert daemon.process.wait() == 1
        assert connection.recv(1) == b""


@needs("Unix sockets of Python workers")
@pytest.mark.parametrize(("module", "printed"), [(SPARKS, 1), (OURS, 0)])
def test_unneeded_worker_prints_nothing(module, printed):
    """Spark closes the sockets of workers that had no task for a minute."""
    with (
        TemporaryDirectory() as folder,
        running(
            module,
            PYTHON_UNIX_DOMAIN_ENABLED="true",
            PYTHON_WORKER_FACTORY_SOCK_DIR=folder,
            PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE="1",  # Spark sets it
        ) as daemon,
    ):
        connection, number = daemon.fork()
        ends = os.pidfd_open(number)
        connection.close()
        select.select([ends], [], [])
        os.close(ends)
        daemon.process.stdin.close()
        assert daemon.process.stderr.read().count(b"BrokenPipeError: ") == printed


FORKS = """
import os, signal, sys
import pyspark_lance.spark.daemon as daemon

def child(work):
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, repr(work()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        return pipe.read()

def drawn():
    return numpy.random.random()

def seen():
    import pyarrow as pa, pyarrow.compute as pc
    numbers = pa.array(range(200_000))
    matrix = numpy.ones((300, 300))
    signals = signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    kept = pa.table({"n": numbers}).filter(pc.field("n") >= 0)["n"]
    return signals, pc.sum(kept).as_py(), float((matrix @ matrix).sum())

daemon.prepare()
signal.raise_signal(signal.SIGUSR1)
print(daemon.is_warm, "JE_ARROW_MALLOC_CONF" in os.environ)
archives = [type(one).__name__ for one in sys.path_importer_cache.values()].count("zipimporter")
print(".zip/pyspark/worker" in sys.modules["pyspark.worker"].__file__, archives)
import numpy, numpy.random
numpy.random.seed(7)
print(len({child(drawn) for _ in range(3)}))
print(child(lambda: child(drawn) == child(drawn)))
print(child(seen))
"""


def test_workers_have_different_random_numbers_and_normal_threads():
    # As Spark starts it. Importers of archives would read these again at the first request.
    archives = sorted((Path(pyspark.__file__).parent / "python" / "lib").glob("py*.zip"))
    paths = os.pathsep.join(map(str, archives))
    environment = {**os.environ, "OMP_NUM_THREADS": "4", "PYTHONPATH": paths}
    shown = subprocess.run(
        [sys.executable, "-c", FORKS], env=environment, check=True, capture_output=True, text=True
    )
    assert shown.stdout.splitlines() == [
        "True False",
        "True 0",
        "3",
        "True",  # as always where a worker forks
        "(True, 19999900000, 27000000.0)",
    ]
    assert shown.stderr == ""
