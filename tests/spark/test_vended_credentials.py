"""Streams over a table whose catalog vends credentials that end; no JVM."""

from __future__ import annotations

import json
import pickle
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType
from s3_server import s3_server, s3_table_root  # noqa: F401
from spark_releases import needs

from pyspark_lance.spark.data_source import LanceDataSource
from pyspark_lance.store.credential_issuer import Issuer
from pyspark_lance.store.rest_client import RestCatalog
from pyspark_lance.table.version.table import Table

pytestmark = [pytest.mark.s3, needs("limits of micro-batches")]

SCHEMA = StructType([StructField("id", LongType())])


class _Catalog(BaseHTTPRequestHandler):
    """Vends the key of the moment, which is about to end, so that each use asks again."""

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.dumps({"location": self.server.location, "storage_options": self.server.given})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def catalog(s3_server, s3_table_root):  # noqa: F811
    with ThreadingHTTPServer(("127.0.0.1", 0), _Catalog) as server:
        server.location = s3_table_root
        server.given = {**s3_server.options, "expires_at_millis": "1000"}
        server.given["aws_access_key_id"] = "vended-1"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
    s3_server.ended_keys.clear()


def sent(value):
    return pickle.loads(pickle.dumps(value))


def write(source, batch, first, *, before_commit=lambda: None):
    """A batch of a stream, as Spark runs it."""
    options = {**source, "streamingQueryId": "q"}
    writer = LanceDataSource(options).streamWriter(SCHEMA, overwrite=False)
    rows = pa.RecordBatch.from_pydict({"id": [first, first + 1]})
    message = sent(sent(writer).write(iter([rows])))
    before_commit()
    writer.commit([message], batch)


def test_streams_renew_vended_credentials(catalog, s3_server):  # noqa: F811
    uri = f"http://127.0.0.1:{catalog.server_port}"
    root, storage = Issuer(RestCatalog(uri, {}), ("t",)).ask()
    source = {"path": root, **storage}

    def replace_key():
        catalog.given["aws_access_key_id"] = "vended-2"
        s3_server.ended_keys.add("vended-1")

    write(source, 0, 0)
    reader = LanceDataSource(source).streamReader(SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert rows_of(reader, start, end) == [0, 1]
    write(source, 1, 10, before_commit=replace_key)
    newest = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert rows_of(reader, end, newest) == [10, 11]
    reader.commit(newest)
    assert rows_of(reader, start, newest) == [0, 1, 10, 11]
    s3_server.access_keys.clear()
    assert Table(root, storage).store().exists("_versions/none") is False
    assert set(s3_server.access_keys) == {"vended-2"}


def rows_of(reader, start, end):
    found = []
    for partition in reader.partitions(start, end):
        for batch in sent(reader).read(sent(partition)):
            found += batch.column(0).to_pylist()
    return sorted(found)
