"""HDFS clusters on loopback: name nodes and data nodes in one JVM, from Maven's jars."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

NAME_SERVICE = "both"
_FOLDER = Path(__file__).parent / "hdfs"
# Two hundred megabytes, kept between runs.
_CACHE = Path.home() / ".cache" / "pyspark-lance"
_JARS, _KERBEROS_JARS = _CACHE / "hdfs-3.4.2", _CACHE / "kerberos-3.4.2"


@dataclass
class HdfsCluster:
    """Where the cluster is.

    Attributes:
        addresses: Host and port of each name node.
    """

    addresses: list[str]
    process: subprocess.Popen

    @property
    def uri(self):
        """``hdfs://127.0.0.1:port``, or the name service of two name nodes."""
        return f"hdfs://{self.addresses[0] if len(self.addresses) == 1 else NAME_SERVICE}"

    def settings(self):
        """Of Hadoop, by which clients find the name nodes of the name service."""
        names = [f"nn{number}" for number in range(len(self.addresses))]
        addresses = {
            f"dfs.namenode.rpc-address.{NAME_SERVICE}.{name}": address
            for name, address in zip(names, self.addresses, strict=True)
        }
        return {
            "dfs.nameservices": NAME_SERVICE,
            f"dfs.ha.namenodes.{NAME_SERVICE}": ",".join(names),
            **addresses,
        }

    def order(self, text):
        """Have the cluster carry out an order of MiniCluster.java."""
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()
        _line(self.process, "done")


def _line(process, word):
    """The next line that begins with a word."""
    for line in process.stdout:
        if line.startswith(word):
            return line.split()
    raise AssertionError("the cluster has ended")


def find_jars(jars: Path = _JARS, project: str = "pom.xml") -> Path:
    """The folder of the jars, fetched on first use; without Maven the test is skipped."""
    if not (jars / "complete").exists():
        maven = shutil.which("mvn")
        if maven is None:
            pytest.skip("there is no Maven, which has the jars of HDFS")
        command = [maven, "-q", "-B", "-f", _FOLDER / project, "dependency:copy-dependencies"]
        fetched = subprocess.run(
            [*map(str, command), f"-DoutputDirectory={jars}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if fetched.returncode:
            pytest.skip(f"Maven has no jars of HDFS: {fetched.stdout[-300:]}")
        (jars / "complete").touch()
    return jars


@contextlib.contextmanager
def run_cluster(name_nodes: int, data_nodes: int) -> Iterator[HdfsCluster]:
    """Run a cluster; of two name nodes the first is active."""
    jars = f"{find_jars()}/*"
    with _running(jars, "MiniCluster.java", str(name_nodes), str(data_nodes)) as (process, _):
        yield HdfsCluster(_line(process, "ready")[1:], process)


@dataclass
class KerberosCluster:
    """A cluster that accepts clients with Kerberos only.

    Attributes:
        uri: ``hdfs://localhost:port``.
        krb5_conf: For ``KRB5_CONFIG``.
        keytab: The key of ``principal``.
        tokens: For ``HADOOP_TOKEN_FILE_LOCATION``.
    """

    uri: str
    krb5_conf: str
    keytab: str
    tokens: str
    principal: str = "alice@EXAMPLE.COM"


@contextlib.contextmanager
def run_kerberos_cluster(protection: str) -> Iterator[KerberosCluster]:
    """Run one; ``protection``: of data on its way, such as ``privacy``."""
    jars = f"{find_jars()}/*:{find_jars(_KERBEROS_JARS, 'kerberos-pom.xml')}/*"
    with _running(jars, "KerberosCluster.java", protection) as (process, folder):
        _, address, conf = _line(process, "ready")
        yield KerberosCluster(
            f"hdfs://{address}", conf, f"{folder}/user.keytab", f"{folder}/tokens"
        )


@contextlib.contextmanager
def _running(jars, program, *arguments):
    """Run a program of a JVM in a folder of its own."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("there is no Java")
    with tempfile.TemporaryDirectory(prefix="hdfs-") as folder:
        command = [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", jars]
        process = subprocess.Popen(
            [*command, str(_FOLDER / program), folder, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=folder,
        )
        try:
            yield process, folder
        finally:
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture(scope="module")
def hdfs_cluster():
    """A cluster of this module's own: a name node and two data nodes."""
    with run_cluster(1, 2) as cluster:
        yield cluster
