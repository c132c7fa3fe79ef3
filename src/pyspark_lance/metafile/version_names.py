"""Versions of a table from the names in ``_versions/``, newest first.

Only a listing shows which versions exist: tagged versions are kept when later ones are cleaned up,
so a version may exist while the next one does not and newer ones do.  This module makes the listing
cheap.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import compress
from typing import Final, Protocol

from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.metafile.paths import (
    VERSIONS,
    ManifestName,
    NamingScheme,
    manifest_name,
    parse_manifest_name,
)
from pyspark_lance.store.object_store import ObjectStore

_NAME_OF_V2: Final = manifest_name(1, NamingScheme.V2)
_SUFFIX: Final = _NAME_OF_V2.lstrip("0123456789")
# Usually one or two are needed.
_FIRST_NAMES: Final = 16


class _HasScheme(Protocol):
    @property
    def scheme(self) -> NamingScheme: ...


def names_in_history(store: ObjectStore, names: Iterable[str]) -> Iterator[ManifestName]:
    """Yield the parsed names of manifests, highest version first, without detached ones.

    If all names have scheme V2, as in nearly all tables, they sort by version, and only the names
    that the caller consumes are parsed: there may be tens of thousands.

    ``names``: the names in ``_versions/``.
    """
    names = list(names)
    # A loop per name in the interpreter would take as long as the listing.
    others = compress(names, map(len(_NAME_OF_V2).__ne__, map(len, names)))
    if any(name.endswith(_SUFFIX) and name[0] != "d" for name in others):
        parsed = list(_in_history(names))
        check_one_scheme(store, parsed)
        return iter(sorted(parsed, key=lambda name: name.version, reverse=True))
    return _in_history(_sorted_lazily(names))


def _sorted_lazily(names: list[str]) -> Iterator[str]:
    first = heapq.nsmallest(_FIRST_NAMES, names)
    yield from first
    if len(names) > len(first):
        yield from sorted(names)[len(first) :]


def _in_history(names: Iterable[str]) -> Iterator[ManifestName]:
    for name in names:
        parsed = parse_manifest_name(name)
        if parsed is not None and not parsed.is_detached:
            yield parsed


def check_one_scheme(store: ObjectStore, manifests: Iterable[_HasScheme]) -> None:
    """Refuse a table during a migration to the other naming scheme."""
    if len({manifest.scheme for manifest in manifests}) > 1:
        raise UnsupportedFeatureError(
            "the table has manifests of both naming schemes",
            where=f"{store.uri}/{VERSIONS}",
            hint="a migration was interrupted: finish it with Lance's migrate_manifest_paths_v2",
        )
