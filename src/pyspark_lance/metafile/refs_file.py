"""Tags and branches: small JSON files below the root of the main branch.

Source: table format, sections 12.1, 12.2.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from pyspark_lance.errors import CorruptFileError, VersionNotFoundError
from pyspark_lance.metafile.paths import (
    BRANCHES,
    TAGS,
    branch_path,
    parse_reference_name,
    tag_path,
)
from pyspark_lance.store.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for a version; cleanup keeps the version.

    Attributes:
        name: Unique among the tags of the table.
        version: Version number.
        branch: Branch the version belongs to; None for main.
        created_at: RFC 3339 text, as stored; None if it is not recorded.
        updated_at: RFC 3339 text, as stored; None if it is not recorded.
        metadata: Free key/value pairs.
    """

    name: str
    version: int
    branch: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of versions of its own, with its own root ``tree/{name}``.

    Attributes:
        name: Parts joined by slashes.
        parent_branch: Branch it was forked from; None for main.
        parent_version: Version it was forked from.
        created_at: Seconds since 1970 UTC; None if it is not recorded.
        version_mapping: Path from main: (version forked from, id of the fork).
        metadata: Free key/value pairs.
    """

    name: str
    parent_branch: str | None
    parent_version: int
    created_at: int | None = None
    version_mapping: tuple[tuple[int, str], ...] = ()
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def read_tag(store: ObjectStore, name: str) -> Tag:
    """The tag called ``name``.

    Args:
        store: Root of the main branch.
        name: Name of the tag.

    Raises:
        VersionNotFoundError: There is no such tag.
        CorruptFileError: Its file contradicts the format.
    """
    try:
        return _read_tag(store, name, tag_path(name))
    except FileNotFoundError as error:
        raise _no_such("tag", name, _names(store, TAGS), store) from error


def list_tags(store: ObjectStore) -> list[Tag]:
    """All tags by name.

    Raises:
        CorruptFileError: A tag's file contradicts the format.
    """
    return [_read_tag(store, name, path) for name, path in sorted(_names(store, TAGS).items())]


def read_branch(store: ObjectStore, name: str) -> Branch:
    """The branch called ``name``.

    Args:
        store: Root of the main branch.
        name: Name of the branch.

    Raises:
        VersionNotFoundError: There is no such branch.
        CorruptFileError: Its file contradicts the format.
    """
    try:
        return _read_branch(store, name, branch_path(name))
    except FileNotFoundError as error:
        raise _no_such("branch", name, _names(store, BRANCHES), store) from error


def list_branches(store: ObjectStore) -> list[Branch]:
    """All branches but main, by name.

    Raises:
        CorruptFileError: A branch's file contradicts the format.
    """
    there = sorted(_names(store, BRANCHES).items())
    return [_read_branch(store, name, path) for name, path in there]


def _read_tag(store: ObjectStore, name: str, path: str) -> Tag:
    content = _Json.read(store, path)
    return Tag(
        name=name,
        version=content.version("version"),
        branch=content.optional("branch", str),
        created_at=content.optional("createdAt", str),
        updated_at=content.optional("updatedAt", str),
        metadata=content.optional("metadata", dict) or {},
    )


def _read_branch(store: ObjectStore, name: str, path: str) -> Branch:
    content = _Json.read(store, path)
    identifier = content.optional("identifier", dict) or {}
    mapping = identifier.get("version_mapping", [])
    if not isinstance(mapping, list) or not all(_is_fork(pair) for pair in mapping):
        raise CorruptFileError("version_mapping is not a list of version and id", content.where)
    return Branch(
        name=name,
        parent_branch=content.optional("parentBranch", str),
        parent_version=content.version("parentVersion"),
        created_at=content.optional("createAt", int),
        version_mapping=tuple((version, fork_id) for version, fork_id in mapping),
        metadata=content.optional("metadata", dict) or {},
    )


def _is_fork(pair: object) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and _is_version(pair[0])
        and isinstance(pair[1], str)
    )


@dataclass(frozen=True, slots=True)
class _Json:
    """A JSON object with checked access."""

    values: Mapping[str, Any]
    where: str

    @classmethod
    def read(cls, store: ObjectStore, path: str) -> _Json:
        where = f"{store.uri}/{path}"
        try:
            values = json.loads(bytes(store.get(path)).decode())
        # RecursionError: brackets nested by the thousand.
        except (ValueError, RecursionError) as error:
            raise CorruptFileError(f"not a JSON file: {error}", where) from error
        if not isinstance(values, dict):
            raise CorruptFileError("the JSON file does not hold an object", where)
        return cls(values, where)

    def version(self, key: str) -> int:
        """A version number, which must be there."""
        value = self.values.get(key)
        if not _is_version(value):
            raise CorruptFileError(f"{key!r} is {value!r}, not a version number", self.where)
        return value

    def optional(self, key: str, kind: type) -> Any:
        """A value of ``kind``; None if it is absent or null."""
        value = self.values.get(key)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise CorruptFileError(f"{key!r} is {value!r}, not of type {kind.__name__}", self.where)
        return value


def _is_version(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**64


def _names(store: ObjectStore, folder: str) -> dict[str, str]:
    """Name -> path of everything in a folder of references."""
    prefix = f"{folder}/"
    found = {}
    for info in store.list(folder):
        name = parse_reference_name(info.path.removeprefix(prefix))
        if name is not None:
            found[name] = info.path
    return found


def _no_such(
    kind: str, name: str, there: Mapping[str, str], store: ObjectStore
) -> VersionNotFoundError:
    near = difflib.get_close_matches(name, there, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(there)) or '-'}"
    return VersionNotFoundError(f"there is no {kind} {name!r}", where=store.uri, hint=hint)
