"""Handlers of the requests of the plugin's catalog.

A request for a table has its name, ``_lance.name``, and the settings of the catalog,
``_lance.catalog``. The catalog resolves them to the path of the table and its storage options.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark_lance.errors import (
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pyspark_lance.namespace.namespace import Name, Namespace, shown
from pyspark_lance.namespace.open_namespace import ROOT_NAME, open_namespace, real_namespace
from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.options.parse_options import sent_hadoop, storage_options_of
from pyspark_lance.spark.sql.metadata_tables import split_metadata_name
from pyspark_lance.table.version.table import Table

Response = dict[str, Any]


def _namespace(options: Mapping[str, str]) -> Namespace:
    return open_namespace(json.loads(options[keys.CATALOG]), sent_hadoop(options))


def _name(names: Namespace, text: str) -> Name:
    """Parse the name of a table."""
    *parent, table = json.loads(text)
    return (*real_namespace(names, tuple(parent)), table)


def _parent(names: Namespace, options: Mapping[str, str]) -> Name:
    return real_namespace(names, tuple(json.loads(options[keys.NAMESPACE])))


def locate_table(options: Mapping[str, str], *, hint: bool) -> dict[str, str]:
    """Return the options with the path of the table instead of its name.

    ``hint``: whether the error suggests a similar name, for which it lists the catalog's tables.
    """
    names = _namespace(options)
    *parent, last = _name(names, options[keys.NAME])
    own, shown_as = split_metadata_name(last)
    table = names.locate((*parent, own))
    if table is None:
        raise TableNotFoundError(
            f"there is no table {shown((*parent, own)) if own else repr(own)} in the catalog",
            hint=_suggest_name(own, names.tables(tuple(parent))) if hint else "",
        )
    rest = {name: text for name, text in options.items() if name not in (keys.NAME, keys.CATALOG)}
    return {**rest, **_options_of(table, shown_as)}


def _suggest_name(name: str, tables: Sequence[str]) -> str:
    matches = difflib.get_close_matches(name, tables, n=1)
    if matches:
        return f"did you mean {matches[0]}?"
    return f"a table that is named by its path has a slash in its name: `./{name}`"


def _options_of(table: Table, suffix: str = "") -> dict[str, str]:
    # Without Hadoop's settings, which every call brings along.
    opening = opening_options(storage_options_of(table))
    return {"path": table.root + suffix, **opening}


_OPENING = re.compile(r"(?i)path$|storage\.")


def opening_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return those of the options that open the table."""
    return {name: text for name, text in options.items() if _OPENING.match(name)}


def _place(options: Mapping[str, str]) -> Response:
    names = _namespace(options)
    return {
        "options": _options_of(
            names.place(_name(names, options[keys.NAME]), options.get(keys.LOCATION))
        )
    }


def _register(options: Mapping[str, str]) -> Response:
    names = _namespace(options)
    names.register(_name(names, options[keys.NAME]), Table(options[keys.LOCATION]))
    return {}


def _tables(options: Mapping[str, str]) -> Response:
    names = _namespace(options)
    parent = _parent(names, options)
    return {"tables": names.tables(parent), "namespace": parent or (ROOT_NAME,)}


def _drop(options: Mapping[str, str]) -> Response:
    names = _namespace(options)
    return {"dropped": names.drop_table(_name(names, options[keys.NAME]))}


def _rename(options: Mapping[str, str]) -> Response:
    names = _namespace(options)
    names.rename_table(_name(names, options[keys.NAME]), _name(names, options[keys.NEW_NAME]))
    return {}


def _namespaces(options: Mapping[str, str]) -> Response:
    names, parent = _namespace(options), json.loads(options[keys.NAMESPACE])
    listed = names.namespaces(_parent(names, options))
    # Spark lists tables by namespace, so the root needs a name of its own.
    return {"namespaces": listed if parent else sorted({*listed, ROOT_NAME})}


def _describe(options: Mapping[str, str]) -> Response:
    names = _namespace(options)
    properties = names.properties(_parent(names, options))
    if properties is None:
        raise NamespaceNotFoundError(f"there is no namespace {options[keys.NAMESPACE]}")
    return {"properties": dict(properties)}


def _create(options: Mapping[str, str]) -> Response:
    names = _namespace(options)
    properties = json.loads(options[keys.PROPERTIES])
    _check_no_location(properties)
    return {"done": names.create_namespace(_parent(names, options), properties)}


def _check_no_location(properties: Mapping[str, str | None]) -> None:
    if "location" in properties:
        raise UnsupportedFeatureError(
            "namespaces of this catalog have no LOCATION of their own", hint="leave out LOCATION"
        )


def _alter(options: Mapping[str, str]) -> Response:
    names = _namespace(options)
    properties = json.loads(options[keys.PROPERTIES])
    _check_no_location(properties)
    names.change_properties(_parent(names, options), properties)
    return {}


def _drop_namespace(options: Mapping[str, str]) -> Response:
    names = _namespace(options)
    cascade = options[keys.CASCADE] == "true"
    try:
        return {"done": names.drop_namespace(_parent(names, options), cascade=cascade)}
    except NamespaceNotEmptyError:
        return {"not_empty": True}


def _or_no_namespace(handler: Callable[[Mapping[str, str]], Response]) -> Callable[..., Response]:
    """Wrap a handler so that it reports a missing namespace, for which Spark has its own error."""

    def handle(options: Mapping[str, str]) -> Response:
        try:
            return handler(options)
        except NamespaceNotFoundError:
            return {"no_namespace": True}

    return handle


HANDLERS: dict[str, Callable[..., Response]] = {
    name: _or_no_namespace(handler)
    for name, handler in {
        "place": _place,
        "register": _register,
        "tables": _tables,
        "drop": _drop,
        "rename": _rename,
        "namespaces": _namespaces,
        "namespace": _describe,
        "alter_namespace": _alter,
        "drop_namespace": _drop_namespace,
    }.items()
} | {"create_namespace": _create}
