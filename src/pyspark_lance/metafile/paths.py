"""Names of folders and files below a table root, the naming schemes of manifests, and versions.

The versions of a table follow from the names in ``_versions/``, newest first. Only a listing shows
which versions exist: tagged versions are kept when later ones are cleaned up, so a version may
exist while the next one does not and newer ones do. This module keeps the listing cheap.

Source: docs/format/table-format.md, sections 1.1 to 1.3.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import compress
from typing import Final, Protocol
from urllib.parse import quote, unquote
from uuid import UUID

from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.format.deletion_vector import DeletionFile
from pyspark_lance.format.manifest import DETACHED_BIT
from pyspark_lance.store.object_store import ObjectStore

VERSIONS: Final = "_versions"
TRANSACTIONS: Final = "_transactions"
DATA: Final = "data"
DELETIONS: Final = "_deletions"
INDICES: Final = "_indices"
BLOBS: Final = "_blobs"
"""Objects with large blobs, which rows share when they move."""
TREE: Final = "tree"
"""The branches, each a folder with the structure of a table."""
REFERENCES: Final = "_refs"
TAGS: Final = f"{REFERENCES}/tags"
BRANCHES: Final = f"{REFERENCES}/branches"
CLEANUPS: Final = f"{REFERENCES}/cleanups"
"""Marks of running cleanups."""

VERSION_HINT: Final = f"{VERSIONS}/latest_version_hint.json"
"""Never authoritative."""

_MANIFEST_SUFFIX: Final = ".manifest"
# Follows the digits in the sort order of names: the newest version stays first in a listing.
_ASIDE_PREFIX: Final = "removed_"
_ASIDE_SUFFIX: Final = ".part"
_MARK: Final = "versions_"
_JSON_SUFFIX: Final = ".json"
_V2_DIGITS: Final = 20
_MAX_U64: Final = 2**64 - 1
_SIGNS_OF_URIS: Final = "\0%:?#\\"


class NamingScheme(enum.Enum):
    """Format of the version in the name of a manifest; one per table."""

    V1 = "version in decimal"
    V2 = "2**64 - 1 - version, 20 digits: newest first in lexical order"


@dataclass(frozen=True, slots=True)
class ManifestName:
    """Parsed name of a manifest."""

    version: int  # Version number; bit 63 marks a detached one.
    scheme: NamingScheme  # Naming scheme; detached versions exist in V2 tables only.

    @property
    def is_detached(self) -> bool:
        """Return whether the version is outside the history."""
        return bool(self.version & DETACHED_BIT)


def manifest_name(version: int, scheme: NamingScheme) -> str:
    """Return the file name of the manifest of ``version``."""
    if version & DETACHED_BIT:
        return f"d{version}{_MANIFEST_SUFFIX}"
    if scheme is NamingScheme.V1:
        return f"{version}{_MANIFEST_SUFFIX}"
    return f"{_MAX_U64 - version:0{_V2_DIGITS}d}{_MANIFEST_SUFFIX}"


def parse_manifest_name(name: str) -> ManifestName | None:
    """Parse a file name in ``_versions/``; None if it is not the name of a manifest.

    Staging files and the hint do not end in ``.manifest``.
    """
    if not name.endswith(_MANIFEST_SUFFIX):
        return None
    stem = name.removesuffix(_MANIFEST_SUFFIX)
    is_detached = stem.startswith("d")
    digits = stem[1:] if is_detached else stem
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _V2_DIGITS:
        return None
    number = int(digits)
    if is_detached:
        parsed = ManifestName(number, NamingScheme.V2)
        return parsed if parsed.is_detached and number <= _MAX_U64 else None
    if len(digits) == _V2_DIGITS:
        parsed = ManifestName(_MAX_U64 - number, NamingScheme.V2)
    elif digits.startswith("0"):  # another spelling
        return None
    else:
        parsed = ManifestName(number, NamingScheme.V1)
    return parsed if parsed.version > 0 and not parsed.is_detached else None


def staged_manifest_path(path: str, uuid: str) -> str:
    """Return the path of a manifest that the external manifest store has not accepted yet."""
    return f"{path}-{uuid}"


def final_manifest_path(path: str) -> str:
    """Return the final path of a manifest, given its final or staged path."""
    stem, staged, _ = path.partition(f"{_MANIFEST_SUFFIX}-")
    return f"{stem}{_MANIFEST_SUFFIX}" if staged else path


def is_staged_manifest(name: str) -> bool:
    """Return whether the file is a staged manifest."""
    final = final_manifest_path(name)
    return final != name and parse_manifest_name(final) is not None


def pending_removal_path(path: str) -> str:
    """Return the path of a manifest while a cleanup removes its version."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{_ASIDE_PREFIX}{name}{_ASIDE_SUFFIX}"


def name_before_removal(name: str) -> str | None:
    """Return the name that a manifest had before it was set aside; None for other files."""
    if not (name.startswith(_ASIDE_PREFIX) and name.endswith(_ASIDE_SUFFIX)):
        return None
    return name.removeprefix(_ASIDE_PREFIX).removesuffix(_ASIDE_SUFFIX)


def mark_path(first: int, last: int, name: str) -> str:
    """Return the path of a cleanup mark without content, whose name contains the versions.

    Readers ignore it, and cleanups remove it when it is old, like other manifests pending removal.
    """
    return f"{VERSIONS}/{_ASIDE_PREFIX}{_MARK}{first}_{last}_{name}{_ASIDE_SUFFIX}"


def versions_in_mark(path: str) -> range | None:
    """Return the versions in the path of such a mark; None for other files."""
    name = name_before_removal(path.removeprefix(f"{VERSIONS}/")) or ""
    first, _, rest = name.removeprefix(_MARK).partition("_")
    last = rest.partition("_")[0]
    if not (name.startswith(_MARK) and first.isdecimal() and last.isdecimal()):
        return None
    return range(int(first), int(last) + 1)


def manifest_path(version: int, scheme: NamingScheme) -> str:
    """Return the path of the manifest of ``version``."""
    return f"{VERSIONS}/{manifest_name(version, scheme)}"


def transaction_path(read_version: int, uuid: str) -> str:
    """Return the path of a transaction file."""
    return f"{TRANSACTIONS}/{read_version}-{uuid}.txn"


def data_path(name: str) -> str:
    """Return the path of a data file, given its path in the manifest."""
    return f"{DATA}/{name}"


def deletion_path(fragment_id: int, file: DeletionFile) -> str:
    """Return the path of the deletion file of a fragment."""
    return f"{DELETIONS}/{fragment_id}-{file.read_version}-{file.id}.{file.suffix}"


def index_path(uuid: UUID, name: str) -> str:
    """Return the path of a file of an index."""
    return f"{INDICES}/{uuid}/{name}"


def tag_path(name: str) -> str:
    """Return the path of a tag, below the root of the main branch."""
    return f"{TAGS}/{quote(name, safe='')}{_JSON_SUFFIX}"


def branch_path(name: str) -> str:
    """Return the path of a branch's description; a slash in the name is written as %2F."""
    return f"{BRANCHES}/{quote(name, safe='')}{_JSON_SUFFIX}"


def parse_reference_name(file_name: str) -> str | None:
    """Return the tag or branch that a file describes; None if it describes neither."""
    if not file_name.endswith(_JSON_SUFFIX) or "/" in file_name:
        return None
    return unquote(file_name.removesuffix(_JSON_SUFFIX)) or None


def is_branch_name(name: str) -> bool:
    """Return whether the branch name maps to a folder below ``tree/`` in every kind of URI.

    The name becomes part of the URI of the branch, so it must have no special meaning there:
    ``%2e%2e`` is ``..`` in ``file://``, and ``::`` starts another URI.
    """
    if any(sign in name for sign in _SIGNS_OF_URIS):
        return False
    return all(part not in ("", ".", "..") for part in name.split("/"))


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
    return _in_history(_sort_lazily(names))


def _sort_lazily(names: list[str]) -> Iterator[str]:
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
    """Reject a table during a migration to the other naming scheme."""
    if len({manifest.scheme for manifest in manifests}) > 1:
        raise UnsupportedFeatureError(
            "the table has manifests of both naming schemes",
            where=f"{store.uri}/{VERSIONS}",
            hint="a migration was interrupted: finish it with Lance's migrate_manifest_paths_v2",
        )
