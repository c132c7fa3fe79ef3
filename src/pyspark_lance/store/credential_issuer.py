"""Credentials from a catalog, which expire.

An opened table carries a reference to the catalog that can renew them, the storage option
``issuer``. Executors renew credentials themselves.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark_lance.errors import InvalidInputError, StorageError
from pyspark_lance.store.registered_catalog import RegisteredCatalog
from pyspark_lance.store.rest_client import RestCatalog
from pyspark_lance.store.storage_options import ALLOWED, EXPIRES, ISSUER, PREFIX, named_options

_EARLY_MS: Final = 60_000
"""Credentials are renewed this long before they expire, so that a request can complete."""
_MAX_RENEWED: Final = 256
# A catalog must neither allow roots outside of a table nor name another catalog.
_OF_USERS: Final = (ALLOWED, f"{PREFIX}{ALLOWED}", ISSUER, f"{PREFIX}{ISSUER}")


@dataclass(frozen=True, slots=True)
class Issuer:
    """The catalog that returns the location and the credentials of a table."""

    catalog: RestCatalog | RegisteredCatalog
    name: tuple[str, ...]

    def ask(self) -> tuple[str, dict[str, str]]:
        """Return location and storage options of the table, including the issuer."""
        return self.read(self.catalog.describe_table(self.name))

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


# By issuer, in order of the last request.
_renewed: OrderedDict[str, Mapping[str, str]] = OrderedDict()
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
        catalog = value["catalog"]
        kind = RegisteredCatalog if "implementation" in catalog else RestCatalog
        return Issuer(kind(**catalog), tuple(value["name"]))
    except (ValueError, TypeError, KeyError):
        raise InvalidInputError(f"the storage option {ISSUER} is invalid") from None
