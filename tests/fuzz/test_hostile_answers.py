"""A REST catalog that answers to do harm: damaged, huge, endless, and by leading elsewhere."""

from __future__ import annotations

import gzip
import json
import random
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from fuzz.mutations import mutate_bytes, mutate_text

from pyspark_lance.errors import LanceError, StorageError
from pyspark_lance.namespace.open_namespace import open_namespace
from pyspark_lance.store import rest_client
from pyspark_lance.store.credential_issuer import Issuer
from pyspark_lance.store.rest_client import RestCatalog

HEADERS = {"Authorization": "Bearer s3cr", "x-api-key": "s3cr"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append(dict(self.headers))
        status, headers, body = self.server.answer(len(self.server.seen))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *_):
        pass


@contextmanager
def answering(answer):
    """A server that answers its n-th request by ``answer(n)``: status, headers, body."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.seen, server.answer, server.daemon_threads = [], answer, True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def json_answer(value, status=200):
    return status, {"Content-Type": "application/json"}, json.dumps(value).encode()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_catalog_redirect_receives_no_headers(status):
    with (
        answering(lambda _: json_answer({"location": "/data/t"})) as (other, elsewhere),
        answering(lambda _: (status, {"Location": f"{elsewhere}/v1/x"}, b"")) as (server, uri),
    ):
        with pytest.raises(StorageError, match="the server redirects") as error:
            Issuer(RestCatalog(uri, HEADERS), ("t",)).ask()
        names = open_namespace({"uri": uri, "headers.x-api-key": "s3cr"})
        with pytest.raises(StorageError, match="the server redirects"):
            names.tables(())
    assert server.seen and not other.seen
    assert "s3cr" not in str(error.value)


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("is_packed", [False, True])
def test_huge_response_is_read_up_to_limit(monkeypatch, status, is_packed):
    monkeypatch.setattr(rest_client, "_MAX_RESPONSE_BYTES", 1 << 20)
    body = b'{"error": "' + b"x" * (8 << 20) + b'"}'
    headers = {"Content-Type": "application/json"}
    if is_packed:  # some kilobytes
        body, headers["Content-Encoding"] = gzip.compress(body), "gzip"
    with (
        answering(lambda _: (status, headers, body)) as (_, uri),
        pytest.raises(StorageError, match="has more than 1048576 bytes"),
    ):
        Issuer(RestCatalog(uri), ("t",)).ask()


def test_compressed_response_is_read():
    body = gzip.compress(json.dumps({"location": "/data/t"}).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    with answering(lambda _: (200, headers, body)) as (_, uri):
        assert Issuer(RestCatalog(uri), ("t",)).ask() == ("/data/t", {})


@pytest.mark.parametrize("token", ["again", None])
def test_endless_listing_is_refused(monkeypatch, token):
    from pyspark_lance.namespace import namespace

    monkeypatch.setattr(namespace, "_MAX_NAMES", 100)

    def page(number):
        return json_answer({"tables": [f"t{number}"] * 9, "page_token": token or f"p{number}"})

    with answering(page) as (_, uri), pytest.raises(StorageError, match="does not end"):
        open_namespace({"uri": uri}).tables(())


def test_catalog_response_cannot_set_trusted_options():
    options = {
        "allowed_base_paths": "/", "storage.allowed_base_paths": "/", "key": "k",
        "issuer": json.dumps({"catalog": {"uri": "http://127.0.0.1:1"}, "name": ["t"]}),
    }  # fmt: skip
    answer = {"location": "/data/t", "storage_options": options}
    with answering(lambda _: json_answer(answer)) as (_, uri):
        table = open_namespace({"uri": uri}).locate(("t",))
    assert table.storage == {"storage.key": "k"}


ERRORS = [
    [], "text", 7, None, {"code": []}, {"code": True}, {"code": 1e999}, {"code": {"a": 1}},
    {"error": {"a": [1]}, "code": 4}, {"error": "x" * 100_000},
]  # fmt: skip


@pytest.mark.parametrize("body", ERRORS, ids=range(len(ERRORS)))
def test_error_responses_of_any_form_are_typed_errors(body):
    with answering(lambda _: json_answer(body, 500)) as (_, uri):
        with pytest.raises(LanceError) as error:
            Issuer(RestCatalog(uri), ("t",)).ask()
        assert len(str(error.value)) < 3000


ANSWERS = [
    json.dumps(one)
    for one in (
        {"location": "/data/t", "storage_options": {"expires_at_millis": "1", "key": "k"}},
        {"tables": ["a", "b"], "page_token": None},
        {"namespaces": ["a"], "page_token": "x"},
        {"properties": {"a": "b"}},
        {"error": "no table", "code": 4, "detail": "", "instance": ""},
        {"location": None, "version": 10**30, "schema": {"fields": [{"name": "a", "type": {}}]}},
        {"location": ["/a"], "storage_options": {"a": {"b": 1}}},
    )
]


def test_damaged_responses_are_read_or_raise_typed_errors():
    rng = random.Random(5)

    def answer(number):
        chosen = rng.choice(ANSWERS)
        damaged = mutate_text(chosen, ANSWERS, rng) if number % 2 else chosen
        body = damaged.encode("utf-8", "surrogatepass")
        if number % 3 == 0:
            body = mutate_bytes(body, rng)
        kind = rng.choice(["application/json", "text/plain", "application/json; charset=utf-7"])
        return rng.choice([200, 200, 200, 404, 500]), {"Content-Type": kind}, body

    calls = (
        lambda names: names.locate(("t",)),
        lambda names: names.tables(()),
        lambda names: names.namespaces(("a",)),
        lambda names: names.properties(("a",)),
        lambda names: names.declare(("t",)),
        lambda names: names.drop_table(("t",)),
    )
    refused = 0
    with answering(answer) as (_, uri):
        names = open_namespace({"uri": uri, "headers.Authorization": "Bearer s3cr"})
        for number in range(240):
            try:
                calls[number % len(calls)](names)
            except LanceError as error:
                refused += 1
                assert "s3cr" not in str(error)
    assert 0 < refused < 240
