"""What benchmarks say a tree of processes has used."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).parents[2] / "benchmarks" / "harness.py"
# A parent whose child uses 0.3 s of the processor, and ends on request.
PARENT = """
import os, signal, sys, time
if sys.argv[1] == "forgets":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
ends, requests = os.pipe()
worked, says = os.pipe()
child = os.fork()
if not child:
    while time.process_time() < 0.3:
        pass
    os.write(says, b".")
    os.read(ends, 1)
    os._exit(0)
os.read(worked, 1)
print("worked", flush=True)
sys.stdin.readline()
os.write(requests, b".")
try:
    os.waitpid(child, 0)
except ChildProcessError:
    pass
print("ended", flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
@pytest.mark.parametrize("parent", ["forgets", "waits"])
def test_cpu_time_counts_ended_workers_once(parent):
    spec = importlib.util.spec_from_file_location("harness", HARNESS)
    harness = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(harness)
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, parent],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == "worked\n"
        before = harness.processor_seconds(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ended\n"
        after = harness.processor_seconds(process.pid)
        process.stdin.close()
    # Neither lost nor counted again.
    assert 0.25 < before <= after < before + 0.25
