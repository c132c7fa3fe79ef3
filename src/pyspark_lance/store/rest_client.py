"""Client of a REST catalog for one table: its location and the credentials of its store.

Credentials from a catalog expire, so an opened table carries a reference to the catalog that can
renew them, the storage option ``issuer``.  Executors renew credentials themselves.
"""

from __future__ import annotations

import contextlib
import io
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

from pyspark_lance.errors import (
    InvalidInputError,
    LanceError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pyspark_lance.store.storage_options import ALLOWED, EXPIRES, ISSUER, PREFIX, named_options

_EARLY_MS: Final = 60_000
"""Credentials are renewed this long before they expire, so that a request can complete."""
_MAX_RESPONSE_BYTES: Final = 64 << 20  # after it is decompressed
_PIECE_BYTES: Final = 1 << 20
_MAX_ERROR_TEXT: Final = 1000
_TIMEOUT_S: Final = (10.0, 60.0)  # to connect, to read
_ERRORS: Final = {
    0: UnsupportedFeatureError,
    1: NamespaceNotFoundError,
    2: TableAlreadyExistsError,
    3: NamespaceNotEmptyError,
    4: TableNotFoundError,
    5: TableAlreadyExistsError,
}


@dataclass(frozen=True, slots=True)
class RestCatalog:
    """A server of the REST protocol of Lance namespaces."""

    uri: str  # Of the server, without ``/v1``.
    # Headers of every request; secret.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    delimiter: str = "$"

    def id_of(self, name: tuple[str, ...]) -> str:
        """Return a name as the protocol writes it in paths."""
        return self.delimiter.join(name) or self.delimiter

    def call(self, group: str, operation: str, *arguments: object, **named: object) -> Any:
        """Call an operation of the protocol.

        ``group``: ``NamespaceApi`` or ``TableApi``.
        """
        client = _client()
        server = client.Configuration(host=self.uri.rstrip("/"), retries=_retries())
        with self._typed_errors(client, operation), client.ApiClient(server) as connection:
            pool = connection.rest_client.pool_manager
            pool.request = partial(self._bounded_response, pool.request)
            for name, value in self.headers.items():
                connection.set_default_header(name, value)
            method = getattr(getattr(client, group)(connection), operation)
            return method(
                *arguments, delimiter=self.delimiter, _request_timeout=_TIMEOUT_S, **named
            )

    def request(self, model: str, **values: object) -> Any:
        """Return the body of a request."""
        return getattr(_client(), model)(**values)

    def _bounded_response(self, request: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Return the response to a request; raise if it is too large."""
        from urllib3 import HTTPResponse  # noqa: PLC0415  # comes with the client

        with request(*given, **named) as answer:
            content = bytearray()
            while piece := answer.read(_PIECE_BYTES, decode_content=True):
                content += piece
                if len(content) > _MAX_RESPONSE_BYTES:
                    raise StorageError(
                        f"a response of the catalog has more than {_MAX_RESPONSE_BYTES} bytes",
                        self.uri,
                    )
            return HTTPResponse(
                io.BytesIO(content),
                answer.headers,
                answer.status,
                reason=answer.reason,
                preload_content=False,
                decode_content=False,
            )

    @contextlib.contextmanager
    def _typed_errors(self, client: Any, operation: str) -> Iterator[None]:
        from urllib3.exceptions import HTTPError, MaxRetryError, ResponseError  # noqa: PLC0415  # comes with the client

        try:
            yield
        except client.ApiException as error:
            raise self._error(error, operation) from None  # the original shows the headers
        except MaxRetryError as error:
            redirected = isinstance(error.reason, ResponseError)
            raise StorageError(
                f"the request to the catalog failed ({operation}): "
                f"{'the server redirects' if redirected else type(error.reason).__name__}",
                self.uri,
                "requests contain credentials and follow no redirection: set uri to the catalog's "
                "address" * redirected,
            ) from None
        except (HTTPError, OSError, ValueError) as error:
            raise StorageError(
                f"the request to the catalog failed ({operation}): {type(error).__name__}", self.uri
            ) from None

    def _error(self, error: Any, operation: str) -> LanceError:
        answer: object = None
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            answer = json.loads(error.body)
        found = answer if isinstance(answer, dict) else {}
        text, code = str(found.get("error", ""))[:_MAX_ERROR_TEXT], found.get("code", -1)
        what = f"the catalog returned {error.status} for {operation}: {text}"
        is_known = isinstance(code, int) and not isinstance(code, bool)
        kind: type[LanceError] = _ERRORS.get(int(code), StorageError) if is_known else StorageError
        if error.status in (401, 403):
            return StorageError(what, self.uri, "set headers.Authorization of the catalog")
        return kind(what, self.uri)


@dataclass(frozen=True, slots=True)
class Issuer:
    """The catalog that returns the location and the credentials of a table."""

    catalog: RestCatalog
    name: tuple[str, ...]

    def ask(self) -> tuple[str, dict[str, str]]:
        """Return location and storage options of the table, including the issuer."""
        request = self.catalog.request("DescribeTableRequest", vend_credentials=True)
        reply = self.catalog.call(
            "TableApi", "describe_table", self.catalog.id_of(self.name), request
        )
        return self.read(reply)

    def read(self, reply: Any) -> tuple[str, dict[str, str]]:
        """Return location and storage options from a response."""
        if not reply.location:
            raise StorageError("the catalog returned no location of the table", self.catalog.uri)
        given = dict(reply.storage_options or {})
        for name in _OF_USERS:
            given.pop(name, None)
        if EXPIRES in given:
            given[ISSUER] = json.dumps(asdict(self))
        return reply.location, {f"{PREFIX}{name}": text for name, text in given.items()}


# A catalog must neither allow roots outside of a table nor name another catalog.
_OF_USERS: Final = (ALLOWED, f"{PREFIX}{ALLOWED}", ISSUER, f"{PREFIX}{ISSUER}")


def _retries() -> Any:
    """Return urllib3's default retries without following redirections."""
    from urllib3 import Retry  # noqa: PLC0415  # comes with the client

    return Retry(3, redirect=0)


# By issuer, in order of the last request.
_renewed: OrderedDict[str, Mapping[str, str]] = OrderedDict()
_MAX_RENEWED: Final = 256
_lock = threading.Lock()


def with_fresh_credentials(options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the storage options, with new credentials if theirs expire soon."""
    named = dict(named_options(options))
    issuer = named.get(ISSUER)
    if issuer is None or not _expires_soon(named):
        return options
    with _lock:
        renewed = _renewed.get(issuer)
        if renewed is None or _expires_soon(dict(named_options(renewed))):
            _, renewed = _issuer_of(issuer).ask()
            _renewed[issuer] = renewed
            while len(_renewed) > _MAX_RENEWED:
                _renewed.popitem(last=False)
        _renewed.move_to_end(issuer)
    return {**options, **renewed}


def _expires_soon(named: Mapping[str, str]) -> bool:
    try:
        return int(named.get(EXPIRES, "0")) - _EARLY_MS < time.time() * 1000
    except ValueError:
        raise InvalidInputError(f"the storage option {EXPIRES} is not a number") from None


def _issuer_of(text: str) -> Issuer:
    try:
        value = json.loads(text)
        return Issuer(RestCatalog(**value["catalog"]), tuple(value["name"]))
    except (ValueError, TypeError, KeyError):
        raise InvalidInputError(f"the storage option {ISSUER} is invalid") from None


def _client() -> Any:
    try:
        import lance_namespace_urllib3_client  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise UnsupportedFeatureError(
            "REST catalogs need the package lance-namespace-urllib3-client",
            hint="pip install 'pyspark-lance[rest]', on executors too",
        ) from error
    return lance_namespace_urllib3_client
