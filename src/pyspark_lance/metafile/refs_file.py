"""Tags and branches: small JSON files below the root of the main branch.

Source: docs/format/table-format.md, sections 12.1, 12.2.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeGuard, TypeVar

from pyspark_lance.errors import CorruptFileError, InvalidInputError, VersionNotFoundError
from pyspark_lance.metafile.paths import (
    BRANCHES,
    TAGS,
    branch_path,
    is_branch_name,
    parse_reference_name,
    tag_path,
)
from pyspark_lance.result_names import also_snake_case
from pyspark_lance.store.object_store import ObjectStore

_R = TypeVar("_R")


@also_snake_case
@dataclass(frozen=True, slots=True)
class Tag:
    """A named reference to a version, which cleanup keeps.

    Attributes:
        name: Unique among the tags of the table.
        version: Version number.
        branch: Branch the version belongs to; None for main.
        createdAt: When it was created, UTC; None if it is not recorded.
        updatedAt: When it was last set, UTC; None if it is not recorded.
        metadata: Free key/value pairs.
    """

    name: str
    version: int
    branch: str | None = None
    createdAt: datetime | None = None  # noqa: N815
    updatedAt: datetime | None = None  # noqa: N815
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Both times as stored, with nanoseconds.
    _stored: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def in_place_of(self, before: Tag) -> Tag:
        """Return this tag with the creation time and further metadata of the tag it replaces."""
        created = before._stored.get("createdAt") or before._stored.get("updatedAt")
        return dataclasses.replace(
            self,
            createdAt=before.createdAt or before.updatedAt,
            metadata={**before.metadata, **self.metadata},
            _stored={} if created is None else {"createdAt": created},
        )

    def times(self) -> dict[str, str | None]:
        """Return the texts of both times, RFC 3339."""
        return {
            name: self._stored.get(name, _time_text(moment))
            for name, moment in (("createdAt", self.createdAt), ("updatedAt", self.updatedAt))
        }


@also_snake_case
@dataclass(frozen=True, slots=True)
class Branch:
    """A separate line of versions, with its own root ``tree/{name}``.

    Attributes:
        name: Parts joined by slashes.
        parentBranch: Branch it was forked from; None for main.
        parentVersion: Version it was forked from.
        createdAt: When it was created, UTC, in whole seconds; None if it is not recorded.
        versionMapping: Path from main: (version forked from, id of the fork).
        metadata: Free key/value pairs.
    """

    name: str
    parentBranch: str | None  # noqa: N815
    parentVersion: int  # noqa: N815
    createdAt: datetime | None = None  # noqa: N815
    versionMapping: tuple[tuple[int, str], ...] = ()  # noqa: N815
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def read_tag(store: ObjectStore, name: str) -> Tag:
    """Read the tag ``name``."""
    return _TAGS.read(store, name)


def list_tags(store: ObjectStore) -> list[Tag]:
    """Return all tags by name."""
    return _TAGS.all(store)


def read_branch(store: ObjectStore, name: str) -> Branch:
    """Read the branch ``name``."""
    return _BRANCHES.read(store, name)


def list_branches(store: ObjectStore) -> list[Branch]:
    """Return all branches but main, by name."""
    return _BRANCHES.all(store)


def write_tag(store: ObjectStore, tag: Tag, *, manifest_size: int, replace: bool) -> bool:
    """Write the file of a tag and return True; without ``replace`` return False if the tag exists.

    ``manifest_size``: bytes of the manifest of the version, a field of the file. ``replace``:
    replace an existing tag of this name.
    """
    _check_name(tag.name, "tag", _TAG_NAME)
    content = {
        "branch": tag.branch,
        "version": tag.version,
        **tag.times(),
        "manifestSize": manifest_size,
        "metadata": dict(tag.metadata),
    }
    data = json.dumps(content, indent=2).encode()
    if not replace:
        return store.put_if_absent(tag_path(tag.name), data)
    store.put(tag_path(tag.name), data)
    return True


def delete_tag(store: ObjectStore, name: str) -> None:
    """Remove the tag ``name``."""
    _TAGS.delete(store, name)


def write_branch(store: ObjectStore, branch: Branch, *, manifest_size: int) -> bool:
    """Write the description of a new branch; return False if the branch exists.

    ``manifest_size``: bytes of its first manifest.
    """
    check_branch_name(branch.name)
    content = {
        "parentBranch": branch.parentBranch,
        "identifier": {"version_mapping": [list(fork) for fork in branch.versionMapping]},
        "parentVersion": branch.parentVersion,
        "createAt": None if branch.createdAt is None else int(branch.createdAt.timestamp()),
        "manifestSize": manifest_size,
        "metadata": dict(branch.metadata),
    }
    return store.put_if_absent(branch_path(branch.name), json.dumps(content, indent=2).encode())


def delete_branch(store: ObjectStore, name: str) -> None:
    """Remove the description of the branch ``name``; its files stay."""
    _BRANCHES.delete(store, name)


# ASCII only: Lance writes other letters differently from how it reads them.
_TAG_NAME = re.compile(r"[A-Za-z0-9._-]+")
_BRANCH_NAME = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")


def check_branch_name(name: str) -> None:
    """Reject names that Lance does not allow for branches."""
    _check_name(name, "branch", _BRANCH_NAME)
    if name == "main" or not is_branch_name(name):
        raise InvalidInputError(f"a branch cannot be called {name!r}")


def _check_name(name: str, word: str, pattern: re.Pattern[str]) -> None:
    dots = name.startswith(".") or name.endswith(".") or ".." in name
    if pattern.fullmatch(name) is None or dots or name.endswith(".lock"):
        raise InvalidInputError(
            f"a {word} cannot be called {name!r}",
            hint="letters, digits, '.', '_' and '-', not with a dot at an end, not ending in .lock",
        )


@dataclass(frozen=True, slots=True)
class _References(Generic[_R]):
    """One folder of references.

    ``parse``: builds a reference from its name and the content of its file.
    """

    word: str
    folder: str
    path_of: Callable[[str], str]
    parse: Callable[[str, _Json], _R]

    def read(self, store: ObjectStore, name: str) -> _R:
        try:
            return self.parse(name, _Json.read(store, self.path_of(name)))
        except (FileNotFoundError, UnicodeEncodeError) as error:  # such a name cannot be a path
            raise _no_such(self.word, name, self._paths(store), store) from error

    def all(self, store: ObjectStore) -> list[_R]:
        found = []
        for name, path in sorted(self._paths(store).items()):
            with contextlib.suppress(FileNotFoundError):  # removed since the listing
                found.append(self.parse(name, _Json.read(store, path)))
        return found

    def delete(self, store: ObjectStore, name: str) -> None:
        paths = self._paths(store)
        if name not in paths:
            raise _no_such(self.word, name, paths, store)
        store.delete(paths[name])

    def _paths(self, store: ObjectStore) -> dict[str, str]:
        """Return name -> path of everything in the folder."""
        prefix = f"{self.folder}/"
        paths = {}
        for info in store.list(self.folder):
            name = parse_reference_name(info.path.removeprefix(prefix))
            if name is not None:
                paths[name] = info.path
        return paths


def _parse_tag(name: str, content: _Json) -> Tag:
    return Tag(
        name=name,
        version=content.version("version"),
        branch=content.branch("branch"),
        createdAt=content.time("createdAt", str),
        updatedAt=content.time("updatedAt", str),
        metadata=content.optional("metadata", dict) or {},
        _stored={
            key: text
            for key in ("createdAt", "updatedAt")
            if (text := content.optional(key, str)) is not None
        },
    )


def _parse_branch(name: str, content: _Json) -> Branch:
    if not is_branch_name(name):
        raise CorruptFileError(f"{name!r} is not the name of a branch", content.where)
    identifier = content.optional("identifier", dict) or {}
    mapping = identifier.get("version_mapping", [])
    if not isinstance(mapping, list) or not all(_is_fork(pair) for pair in mapping):
        raise CorruptFileError("version_mapping is not a list of version and id", content.where)
    return Branch(
        name=name,
        parentBranch=content.branch("parentBranch"),
        parentVersion=content.version("parentVersion"),
        createdAt=content.time("createAt", int),
        versionMapping=tuple((version, fork_id) for version, fork_id in mapping),
        metadata=content.optional("metadata", dict) or {},
    )


def _time_text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


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
        # RecursionError: thousands of nested brackets.
        except (ValueError, RecursionError) as error:
            raise CorruptFileError(f"not a JSON file: {error}", where) from error
        if not isinstance(values, dict):
            raise CorruptFileError("the JSON file does not hold an object", where)
        return cls(values, where)

    def version(self, key: str) -> int:
        """Return a required version number."""
        value = self.values.get(key)
        if not _is_version(value):
            raise CorruptFileError(f"{key!r} is {value!r}, not a version number", self.where)
        return value

    def branch(self, key: str) -> str | None:
        """Return the name of a branch, which is a folder; None for main."""
        name: str | None = self.optional(key, str)
        if name is not None and not is_branch_name(name):
            raise CorruptFileError(f"{key!r} is {name!r}, not the name of a branch", self.where)
        return name

    def optional(self, key: str, kind: type) -> Any:
        """Return a value of ``kind``; None if it is absent or null."""
        value = self.values.get(key)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise CorruptFileError(f"{key!r} is {value!r}, not of type {kind.__name__}", self.where)
        return value

    def time(self, key: str, kind: type) -> datetime | None:
        """Return a time from RFC 3339 text or seconds since 1970; None for anything else."""
        value = self.optional(key, kind)
        if value is None:
            return None
        # A reference with an invalid time still refers to its version.
        with contextlib.suppress(ValueError, OverflowError, OSError):
            if isinstance(value, int):
                return datetime.fromtimestamp(value, UTC)
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        return None


def _is_version(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**64


def _no_such(
    kind: str, name: str, there: Mapping[str, str], store: ObjectStore
) -> VersionNotFoundError:
    near = difflib.get_close_matches(name, there, n=1)
    if near:
        hint = f"did you mean {near[0]!r}?"
    else:
        names = ", ".join(sorted(there))
        hint = f"there are: {names}" if names else f"the table has no {kind}"
    return VersionNotFoundError(f"there is no {kind} {name!r}", where=store.uri, hint=hint)


_TAGS = _References("tag", TAGS, tag_path, _parse_tag)
_BRANCHES = _References("branch", BRANCHES, branch_path, _parse_branch)
