"""Catalogs for tests: Hive's metastore, and a server that responds as Unity and Polaris do.

Import the fixtures into a test module::

    from catalog_servers import hive_metastore, unity_and_polaris  # noqa: F401
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

_HIVE_SETTINGS = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
    "datanucleus.schema.autoCreateAll": "true",
    "datanucleus.connectionPoolingType": "HikariCP",
    "hive.metastore.schema.verification": "false",
    "hive.async.log.enabled": "false",
}
_OPENED = ("java.lang", "java.net", "java.util")
_MAX_START_S = 120


@pytest.fixture(scope="module")
def hive_metastore():
    """``thrift://`` URI of a Hive metastore, by the jars of the installed PySpark."""
    folder = Path(tempfile.mkdtemp(prefix="metastore-"))
    properties = "".join(
        f"<property><name>{name}</name><value>{text}</value></property>"
        for name, text in {**_HIVE_SETTINGS, "hive.metastore.warehouse.dir": folder}.items()
    )
    (folder / "hive-site.xml").write_text(f"<configuration>{properties}</configuration>")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    jars = Path(importlib.util.find_spec("pyspark").origin).parent / "jars"
    command = [
        "java", *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
        "-XX:TieredStopAtLevel=1", "-cp", f"{folder}:{jars}/*",
        "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port),
    ]  # fmt: skip
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        _wait_for(port, process, folder / "log")
        yield f"thrift://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(port, process, log):
    end = time.monotonic() + _MAX_START_S
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(f"the metastore did not start: {log.read_text()[-2000:]}")


class _Catalogs(http.server.BaseHTTPRequestHandler):
    """Keeps schemas and tables as Unity's and Polaris' REST interfaces describe them."""

    def __init__(self, routes, *given):
        self.routes = routes
        super().__init__(*given)

    def log_message(self, *given):
        """Print nothing."""

    def do_GET(self):
        self._respond("GET")

    def do_POST(self):
        self._respond("POST")

    def do_DELETE(self):
        self._respond("DELETE")

    def _respond(self, method):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"null")
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        status, response = 401, {"error": f"not {self.headers.get('Authorization')}"}
        if self.headers.get("Authorization") == "Bearer s3cr3t-token":
            status, response = 404, {"error": f"{method} {self.path}"}
            for wanted, pattern, handle in self.routes:
                match = re.fullmatch(pattern, url.path)
                if wanted == method and match:
                    status, response = handle(*match.groups(), query, body)
                    break
        text = json.dumps(response).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def _put(known, key, value):
    if key in known:
        return 409, {"error": "exists"}
    known[key] = value
    return 200, value


def _get(known, *key):
    name = ".".join(key)
    return (200, known[name]) if name in known else (404, {"error": f"no {name}"})


def _delete_parent(known, key, *contents):
    is_empty = not any(name.startswith(f"{key}.") for inside in contents for name in inside)
    return _delete(known, key) if is_empty else (409, {"error": f"{key} is not empty"})


def _delete(known, *key):
    name = ".".join(key)
    return (200, {}) if known.pop(name, None) is not None else (404, {"error": f"no {name}"})


class _Unity:
    """Its interface; each method gets the parts of the path, the query and the body."""

    def __init__(self):
        self.schemas, self.tables = {}, {}

    def list_catalogs(self, query, body):
        return 200, {"catalogs": [{"name": "main_catalog"}]}

    def list_schemas(self, query, body):
        listed = [x for x in self.schemas.values() if x["catalog_name"] == query["catalog_name"]]
        return 200, {"schemas": listed}

    def create_schema(self, query, body):
        return _put(self.schemas, f"{body['catalog_name']}.{body['name']}", body)

    def get_schema(self, name, query, body):
        return _get(self.schemas, name)

    def delete_schema(self, name, query, body):
        return _delete_parent(self.schemas, name, self.tables)

    def list_tables(self, query, body):
        schema = f"{query['catalog_name']}.{query['schema_name']}"
        if schema not in self.schemas:
            return _get(self.schemas, schema)
        listed = [x for key, x in self.tables.items() if key.rpartition(".")[0] == schema]
        return 200, {"tables": listed}

    def create_table(self, query, body):
        schema = f"{body['catalog_name']}.{body['schema_name']}"
        if schema not in self.schemas:
            return _get(self.schemas, schema)
        return _put(self.tables, f"{schema}.{body['name']}", body)

    def get_table(self, name, query, body):
        return _get(self.tables, name)

    def delete_table(self, name, query, body):
        return _delete(self.tables, name)

    def routes(self):
        api, one = "/api/2.1/unity-catalog", "([^/]+)"
        return [
            ("GET", f"{api}/catalogs", self.list_catalogs),
            ("GET", f"{api}/schemas", self.list_schemas),
            ("POST", f"{api}/schemas", self.create_schema),
            ("GET", f"{api}/schemas/{one}", self.get_schema),
            ("DELETE", f"{api}/schemas/{one}", self.delete_schema),
            ("GET", f"{api}/tables", self.list_tables),
            ("POST", f"{api}/tables", self.create_table),
            ("GET", f"{api}/tables/{one}", self.get_table),
            ("DELETE", f"{api}/tables/{one}", self.delete_table),
        ]


class _Polaris:
    """Its interface; each method gets the parts of the path, the query and the body."""

    def __init__(self):
        self.namespaces, self.tables, self.iceberg_tables = {}, {}, {}

    def list_namespaces(self, *parent_query_body):
        """Polaris' path of the parent, or Iceberg's in the query."""
        *path, query, _ = parent_query_body
        parent = ".".join([*path, *([query["parent"]] if "parent" in query else [])])
        inside = [key for key in self.namespaces if key.rpartition(".")[0] == parent]
        return 200, {"namespaces": [key.split(".")[1:] for key in inside]}

    def create_namespace(self, catalog, query, body):
        return _put(self.namespaces, ".".join([catalog, *body["namespace"]]), body)

    def get_namespace(self, catalog, name, query, body):
        return _get(self.namespaces, catalog, name)

    def delete_namespace(self, catalog, name, query, body):
        inside = (self.namespaces, self.tables, self.iceberg_tables)
        return _delete_parent(self.namespaces, f"{catalog}.{name}", *inside)

    def list_tables(self, catalog, parent, query, body):
        if f"{catalog}.{parent}" not in self.namespaces:
            return _get(self.namespaces, catalog, parent)
        inside = [key for key in self.tables if key.rpartition(".")[0] == f"{catalog}.{parent}"]
        return 200, {"identifiers": [{"name": key.rpartition(".")[2]} for key in inside]}

    def create_table(self, catalog, parent, query, body):
        return self._create(self.tables, "table", f"{catalog}.{parent}", body)

    def get_table(self, catalog, parent, name, query, body):
        status, table = _get(self.tables, catalog, parent, name)
        return status, {"table": table}

    def delete_table(self, catalog, parent, name, query, body):
        return _delete(self.tables, catalog, parent, name)

    def _create(self, tables, kind, parent, body):
        if parent not in self.namespaces:
            return _get(self.namespaces, parent)
        status, table = _put(tables, f"{parent}.{body['name']}", body)
        return status, {kind: table}

    def list_iceberg_tables(self, catalog, parent, query, body):
        """In pages of two."""
        inside = (key.rpartition(".") for key in self.iceberg_tables)
        names = [name for place, _, name in inside if place == f"{catalog}.{parent}"]
        first = int(query.get("pageToken", 0))
        page = {"identifiers": [{"name": name} for name in names[first : first + 2]]}
        return 200, {**page, "next-page-token": first + 2} if names[first + 2 :] else page

    def create_iceberg_table(self, catalog, parent, query, body):
        return self._create(self.iceberg_tables, "metadata", f"{catalog}.{parent}", body)

    def get_iceberg_table(self, catalog, parent, name, query, body):
        status, table = _get(self.iceberg_tables, catalog, parent, name)
        return status, {"metadata": table}

    def delete_iceberg_table(self, catalog, parent, name, query, body):
        return _delete(self.iceberg_tables, catalog, parent, name)

    def routes(self):
        one = "([^/]+)"
        spaces = f"/api/catalog/v1/{one}/namespaces"
        tables = f"/api/catalog/polaris/v1/{one}/namespaces/{one}/generic-tables"
        iceberg_tables = f"{spaces}/{one}/tables"
        return [
            ("GET", spaces, self.list_namespaces),
            ("POST", spaces, self.create_namespace),
            ("GET", f"{spaces}/{one}/namespaces", self.list_namespaces),
            ("GET", f"{spaces}/{one}", self.get_namespace),
            ("DELETE", f"{spaces}/{one}", self.delete_namespace),
            ("GET", tables, self.list_tables),
            ("POST", tables, self.create_table),
            ("GET", f"{tables}/{one}", self.get_table),
            ("DELETE", f"{tables}/{one}", self.delete_table),
            ("GET", iceberg_tables, self.list_iceberg_tables),
            ("POST", iceberg_tables, self.create_iceberg_table),
            ("GET", f"{iceberg_tables}/{one}", self.get_iceberg_table),
            ("DELETE", f"{iceberg_tables}/{one}", self.delete_iceberg_table),
        ]


@pytest.fixture(scope="module")
def unity_and_polaris():
    """``http://`` address of a server that has both interfaces, for the token ``s3cr3t-token``."""
    routes = [*_Unity().routes(), *_Polaris().routes()]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Catalogs, routes))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
