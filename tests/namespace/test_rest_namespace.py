"""REST namespaces: this package as the client of a server of pylance's."""

from __future__ import annotations

import contextlib
import json
import pickle
import threading
import traceback
from http.server import BaseHTTPRequestHandler, HTTPServer

import lance.namespace as lance_namespace
import pytest
from table_access import append

from pyspark_lance.errors import (
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from pyspark_lance.namespace.open_namespace import open_namespace
from pyspark_lance.spark.sql import catalog_calls
from pyspark_lance.spark.sql.plugin_requests import DeclareRequest
from pyspark_lance.store import credential_issuer
from pyspark_lance.store.credential_issuer import Issuer, with_fresh_credentials
from pyspark_lance.store.rest_client import RestCatalog
from pyspark_lance.table.version.snapshot import open_existing

pytestmark = pytest.mark.interop


@pytest.fixture
def server(tmp_path):
    (tmp_path / "tables").mkdir()
    settings = {
        "root": str(tmp_path / "tables"),
        "storage.allow_http": "true",
        "vend_input_storage_options": "true",
        "vend_input_storage_options_refresh_interval_millis": "3600000",
    }
    with lance_namespace.RestAdapter("dir", settings, port=0) as adapter:
        yield f"http://127.0.0.1:{adapter.port}"


@pytest.fixture
def names(server):
    return open_namespace({"impl": "rest", "uri": server, "headers.Authorization": "Bearer s3cr"})


def test_rest_namespaces_are_created_described_and_dropped(names):
    assert names.properties(()) == {}
    assert names.create_namespace(("eu",), {"owner": "me"})
    assert not names.create_namespace(("eu",), {})
    assert names.create_namespace(("eu", "north"), {})
    assert names.properties(("eu",)) == {"owner": "me"}
    assert names.properties(("us",)) is None
    assert names.namespaces(()) == ["eu"] and names.namespaces(("eu",)) == ["north"]
    with pytest.raises(NamespaceNotFoundError, match="us"):
        names.create_namespace(("us", "west"), {})
    with pytest.raises(NamespaceNotEmptyError):
        names.drop_namespace(("eu",), cascade=False)
    assert names.drop_namespace(("eu", "north"), cascade=False)
    assert names.drop_namespace(("eu",), cascade=False)
    assert not names.drop_namespace(("eu",), cascade=False)
    with pytest.raises(UnsupportedFeatureError, match="properties"):
        names.change_properties(("eu",), {"a": "1"})


def test_missing_namespace_differs_from_empty_one(names):
    names.create_namespace(("eu",), {})
    assert names.tables(("eu",)) == []
    with pytest.raises(NamespaceNotFoundError, match="no namespace us"):
        names.tables(("us",))


def test_rest_tables_use_server_location(names):
    names.create_namespace(("eu",), {})
    assert names.locate(("eu", "orders")) is None
    table, is_new = names.declare(("eu", "orders"))
    assert is_new and not names.declare(("eu", "orders")).is_new
    append(table.root, 0, 5)
    names.register(("eu", "orders"), table)
    located = names.locate(("eu", "orders"))
    assert located.root == table.root == names.declare(("eu", "orders")).table.root
    assert open_existing(located).num_rows() == 5
    assert names.tables(("eu",)) == ["orders"]
    assert names.drop_table(("eu", "orders")) and not names.drop_table(("eu", "orders"))
    assert names.locate(("eu", "orders")) is None


def test_credentials_include_expiry_and_issuer(names):
    table = names.declare(("t",)).table
    named = {name.removeprefix("storage."): text for name, text in table.storage.items()}
    assert named["allow_http"] == "true" and int(named["expires_at_millis"]) > 0
    issuer = json.loads(named["issuer"])
    assert issuer["name"] == ["t"] and issuer["catalog"]["headers"] == {
        "Authorization": "Bearer s3cr"
    }
    assert "s3cr" not in repr(names) + repr(table)


def test_expired_credentials_are_renewed(names):
    """As an executor does, with nothing but the options."""
    table = pickle.loads(pickle.dumps(names.declare(("t",)).table))
    assert with_fresh_credentials(table.storage) == table.storage
    ended = {**table.storage, "storage.expires_at_millis": "1000"}
    renewed = with_fresh_credentials(ended)
    assert int(renewed["storage.expires_at_millis"]) > 10**12
    assert with_fresh_credentials(ended) == renewed  # from memory
    assert with_fresh_credentials({"storage.key": "k"}) == {"storage.key": "k"}


def test_renewed_credentials_cache_is_bounded(names, monkeypatch):
    monkeypatch.setattr(credential_issuer, "_MAX_RENEWED", 2)

    def renewed(number):
        table = names.declare((f"few{number}",)).table
        ended = {**table.storage, "storage.expires_at_millis": "1000"}
        return with_fresh_credentials(ended)

    first = renewed(0)
    for number in (1, 0, 2):
        renewed(number)
    issuers = [json.loads(issuer)["name"] for issuer in credential_issuer._renewed]
    assert issuers == [["few0"], ["few2"]]  # those that were asked for last
    assert renewed(0) == first and int(renewed(1)["storage.expires_at_millis"]) > 10**12


class _Answers(BaseHTTPRequestHandler):
    """Refuses, or answers with what is no JSON."""

    def do_POST(self):
        self.server.seen.append({"path": self.path.partition("?")[0], **self.headers})
        status, body = self.server.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def answering(answers):
    """A server that gives these answers, one after the other; ``seen``: paths and headers."""
    with HTTPServer(("127.0.0.1", 0), _Answers) as server:
        server.seen, server.answers = [], answers
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def uri_of(server):
    return f"http://127.0.0.1:{server.server_port}"


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, b'{"error": "who are you", "code": 14}', "401.*\n.*\n.*Authorization"),
        (503, b"busy", "503"),
        (200, b"no json", "the request to the catalog failed"),
        (200, b"{}", "returned no location"),
    ],
)
def test_error_responses_are_typed_and_hide_secrets(status, body, message):
    with answering([(status, body)] * 8) as server:
        catalog = RestCatalog(uri_of(server), {"Authorization": "Bearer s3cr"})
        with pytest.raises(StorageError, match=message) as caught:
            Issuer(catalog, ("eu", "t")).ask()
    assert server.seen[0]["Authorization"] == "Bearer s3cr"
    assert "s3cr" not in "".join(traceback.format_exception(caught.value))


def test_unreachable_server_raises_storage_error(server):
    with pytest.raises(StorageError, match=r"the request to the catalog failed[^$]*<name>\.uri"):
        open_namespace({"uri": "http://127.0.0.1:1"}).namespaces(())


MISSING = (404, b'{"error": "there is no t", "code": 4}')
TAKEN = (409, b'{"error": "there is a t", "code": 5}')
RACED = (409, b'{"error": "concurrently created", "code": 14}')
LOCATED = (200, b'{"location": "/data/t"}')


@pytest.mark.parametrize(
    ("answers", "operations", "is_new"),
    [
        ([MISSING, LOCATED], ["describe", "declare"], True),
        ([LOCATED], ["describe"], False),
        # Another client is faster, and its name must not be removed.
        ([MISSING, TAKEN, LOCATED], ["describe", "declare", "describe"], False),
        ([MISSING, RACED, LOCATED], ["describe", "declare", "describe"], False),
    ],
)
def test_create_table_asks_once_whether_name_exists(answers, operations, is_new):
    with answering(list(answers)) as server:
        catalog = {"impl": "rest", "uri": uri_of(server)}
        response = catalog_calls.declare(DeclareRequest(name=("t",), catalog=catalog))
    assert response.options["path"] == "/data/t" and response.is_new is is_new
    assert [seen["path"].rpartition("/")[2] for seen in server.seen] == operations
