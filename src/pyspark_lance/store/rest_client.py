"""Client of a catalog with the REST protocol of Lance namespaces."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pyspark_lance.errors import (
    LanceError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)

_MAX_RESPONSE_BYTES: Final = 64 << 20  # after it is decompressed
_PIECE_BYTES: Final = 1 << 20
_MAX_ERROR_TEXT: Final = 1000
_ADDRESS_HINT: Final = "check spark.sql.catalog.<name>.uri, and whether the catalog's server runs"
_TIMEOUT_S: Final = (10.0, 60.0)  # to connect, to read
ERRORS: Final[Mapping[int, type[LanceError]]] = {
    0: UnsupportedFeatureError,
    1: NamespaceNotFoundError,
    2: TableAlreadyExistsError,
    3: NamespaceNotEmptyError,
    4: TableNotFoundError,
    5: TableAlreadyExistsError,
}
"""Errors by the codes of Lance namespaces."""


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

    def describe_table(self, name: tuple[str, ...]) -> Any:
        """Return the response with the location of a table and its storage options."""
        request = self.request("DescribeTableRequest", vend_credentials=True)
        return self.call("TableApi", "describe_table", self.id_of(name), request)

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
                "address"
                if redirected
                else _ADDRESS_HINT,
            ) from None
        except (HTTPError, OSError, ValueError) as error:
            raise StorageError(
                f"the request to the catalog failed ({operation}): {type(error).__name__}",
                self.uri,
                _ADDRESS_HINT,
            ) from None

    def _error(self, error: Any, operation: str) -> LanceError:
        answer: object = None
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            answer = json.loads(error.body)
        found = answer if isinstance(answer, dict) else {}
        text, code = str(found.get("error", ""))[:_MAX_ERROR_TEXT], found.get("code", -1)
        what = f"the catalog returned {error.status} for {operation}: {text}"
        is_known = isinstance(code, int) and not isinstance(code, bool)
        kind = ERRORS.get(int(code), StorageError) if is_known else StorageError
        if error.status in (401, 403):
            return StorageError(what, self.uri, "set headers.Authorization of the catalog")
        return kind(what, self.uri)


def _retries() -> Any:
    """Return urllib3's default retries without following redirections."""
    from urllib3 import Retry  # noqa: PLC0415  # comes with the client

    return Retry(3, redirect=0)


def _client() -> Any:
    try:
        import lance_namespace_urllib3_client  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise UnsupportedFeatureError(
            "REST catalogs need the package lance-namespace-urllib3-client",
            hint="pip install 'pyspark-lance[rest]', on executors too",
        ) from error
    return lance_namespace_urllib3_client
