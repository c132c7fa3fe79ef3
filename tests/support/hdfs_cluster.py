"""An HDFS cluster on loopback: a name node and two data nodes in one JVM, from Maven's jars."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parent / "hdfs"
# Two hundred megabytes, kept between runs.
_JARS = Path.home() / ".cache" / "pyspark-lance" / "hdfs-3.4.2"


@dataclass
class HdfsCluster:
    """Where the cluster is.

    Attributes:
        uri: ``hdfs://127.0.0.1:port``.
    """

    uri: str
    process: subprocess.Popen

    def stop_data_node(self):
        """Let one of the two data nodes end."""
        self.process.stdin.write("d")
        self.process.stdin.flush()
        assert _line(self.process, "stopped")


def _line(process, word):
    """The next line that begins with a word."""
    for line in process.stdout:
        if line.startswith(word):
            return line.split()
    raise AssertionError("the cluster has ended")


def find_jars() -> Path:
    """The folder of the jars, fetched on first use; without Maven the test is skipped."""
    if not (_JARS / "complete").exists():
        maven = shutil.which("mvn")
        if maven is None:
            pytest.skip("there is no Maven, which has the jars of HDFS")
        command = [maven, "-q", "-B", "-f", _FOLDER / "pom.xml", "dependency:copy-dependencies"]
        fetched = subprocess.run(
            [*map(str, command), f"-DoutputDirectory={_JARS}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if fetched.returncode:
            pytest.skip(f"Maven has no jars of HDFS: {fetched.stdout[-300:]}")
        (_JARS / "complete").touch()
    return _JARS


@pytest.fixture(scope="module")
def hdfs_cluster():
    """A cluster of this module's own."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("there is no Java")
    with tempfile.TemporaryDirectory(prefix="hdfs-") as folder:
        command = [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{find_jars()}/*"]
        process = subprocess.Popen(
            [*command, str(_FOLDER / "MiniCluster.java"), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=folder,
        )
        try:
            yield HdfsCluster(_line(process, "ready")[1], process)
        finally:
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
