"""Tags of a table, and consumers of its change feed; a cleanup keeps their versions.

Consumers of a change feed and their positions; a cleanup keeps all later versions. A consumer is a
tag on the last version that it has read. So moving it commits no version and conflicts with
nothing, every consumer has a separate file, and Lance's own cleanup keeps at least the version that
the next changes start from.

The tag also has the stamp of the version: tags may outlive the table if only its versions and data
are deleted. A consumer of the old table has read nothing of its replacement.

Source: docs/format/table-format.md, section 12.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark_lance.errors import InvalidInputError, TableReplacedError, VersionNotFoundError
from pyspark_lance.metafile.cleanup_marks import check_not_removed
from pyspark_lance.metafile.refs_file import Tag, delete_tag, list_tags, read_tag, write_tag
from pyspark_lance.result_names import also_snake_case
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.version.snapshot import LATEST, Snapshot, VersionSpec, open_pinned
from pyspark_lance.table.version.table import Table, main_branch_of
from pyspark_lance.table.version.table_identity import PinnedVersion, TableIdentity


def set_tag(
    table: Table,
    name: str,
    at: VersionSpec = LATEST,
    *,
    replaces: bool = False,
    metadata_of: Callable[[Snapshot], Mapping[str, Any]] = lambda _: {},
) -> Tag:
    """Create or move a tag.

    ``name``: letters, digits, ``.``, ``_``, ``-``. ``replaces``: move an existing tag; it must
    exist. ``metadata_of``: returns additional metadata for the version; may reject the version.
    """
    snapshot = Snapshot.open(table, at)
    added = metadata_of(snapshot)
    main, before = _main_store(snapshot), None
    now = datetime.now(UTC)
    tag = Tag(name, snapshot.version, snapshot.manifest.branch, now, now, dict(added))
    if replaces:
        before = read_tag(main, name)
        tag = tag.in_place_of(before)
    location = snapshot.file.location
    size = location.size if location.size is not None else snapshot.store.size(location.path)
    if not write_tag(main, tag, manifest_size=size, replace=replaces):
        raise InvalidInputError(
            f"there is a tag {name!r} already", where=main.uri, hint="replace it, or delete it"
        )
    try:
        check_not_removed(snapshot.store, snapshot.file.location)
    except VersionNotFoundError:
        _rollback(main, tag, before, size)
        raise
    return tag


def _rollback(main: ObjectStore, tag: Tag, before: Tag | None, manifest_size: int) -> None:
    if before is None:
        delete_tag(main, tag.name)
    else:
        write_tag(main, before, manifest_size=manifest_size, replace=True)


def remove_tag(table: Table, name: str) -> None:
    """Remove a tag; the version stays."""
    delete_tag(_main_store(Snapshot.open(table)), name)


def tags_of(table: Table) -> list[Tag]:
    """Return all tags of the table and its branches, by name."""
    return list_tags(_main_store(Snapshot.open(table)))


def _main_store(snapshot: Snapshot) -> ObjectStore:
    """Return the store at the root of the main branch, which has all tags."""
    return main_branch_of(snapshot.table, snapshot.manifest.branch).store()


_PREFIX = "pyspark_lance.consumer."
# Keys of the tag's metadata.
_STAMP = "pyspark_lance.stamp"


@also_snake_case
@dataclass(frozen=True, slots=True)
class Consumer:
    """A registered reader of the changes of a table.

    Attributes:
        name: Unique in the table and all its branches.
        version: The last version it has read; 0 for none, also if the table was replaced.
        lag: Number of later versions.
        updatedAt: Time of its last update, UTC; None if not recorded.
    """

    name: str
    version: int
    lag: int
    updatedAt: datetime | None = None  # noqa: N815


def register_consumer(
    table: Table, name: str, version: int | None = None, *, identity: TableIdentity | None = None
) -> Consumer:
    """Register a consumer at a version, or move an existing one.

    ``name``: letters, digits, ``.``, ``_``, ``-``. ``version``: the last version that it has read;
    None for the newest. ``identity``: of the table in which it has read that version.

    Raises TableReplacedError: ``identity`` is that of another table.
    """

    def stamp(snapshot: Snapshot) -> dict[str, str]:
        if identity is not None:
            identity.check(snapshot.manifest, snapshot.uri)
        return {_STAMP: snapshot.identity.stamp}

    newest = Snapshot.open(table)
    tag_name = _PREFIX + name
    for _ in range(2):  # another process may register the same name concurrently
        is_there = any(tag.name == tag_name for tag in _tags(newest))
        try:
            tag = set_tag(
                table, tag_name, VersionSpec(version=version), replaces=is_there, metadata_of=stamp
            )
        except TableReplacedError:
            raise
        except InvalidInputError:
            if not any(tag.name == tag_name for tag in _tags(newest)):
                raise
            continue
        return _consumer(tag, newest.version)
    raise InvalidInputError(
        f"the consumer {name!r} is being registered concurrently", where=newest.uri
    )


def unregister_consumer(table: Table, name: str) -> None:
    """Unregister a consumer; a cleanup may then remove unread versions."""
    newest = Snapshot.open(table)
    tag_name = _PREFIX + name
    if not any(tag.name == tag_name for tag in _tags(newest)):
        raise VersionNotFoundError(f"there is no consumer {name!r}", where=newest.uri)
    delete_tag(main_branch_of(newest.table, newest.manifest.branch).store(), tag_name)


def consumers_of(table: Table) -> tuple[Consumer, ...]:
    """Return the consumers of the table or branch, by name."""
    newest = Snapshot.open(table)
    tags = [_tag_in(newest, tag) if is_consumer(tag.name) else tag for tag in _tags(newest)]
    return consumers_among(tags, newest.manifest.branch, newest.version)


def _tag_in(newest: Snapshot, tag: Tag) -> Tag:
    """Return the tag of a consumer, at version 0 if it belongs to a replaced table."""
    stamp = tag.metadata.get(_STAMP)
    if tag.branch != newest.manifest.branch or not isinstance(stamp, str):
        return tag
    try:
        open_pinned(newest.table, PinnedVersion(newest.uri, tag.version, stamp))
    except TableReplacedError:
        return replace(tag, version=0)
    except VersionNotFoundError:
        pass  # unknown
    return tag


def is_consumer(tag_name: str) -> bool:
    """Return whether a tag of this name is a consumer."""
    return tag_name.startswith(_PREFIX)


def consumers_among(tags: Iterable[Tag], branch: str | None, newest: int) -> tuple[Consumer, ...]:
    """Return the consumers of a branch among tags.

    ``branch``: name of the branch; None for main.
    """
    return tuple(
        _consumer(tag, newest) for tag in tags if tag.branch == branch and is_consumer(tag.name)
    )


def _consumer(tag: Tag, newest: int) -> Consumer:
    lag = max(0, newest - tag.version)
    return Consumer(tag.name.removeprefix(_PREFIX), tag.version, lag, tag.updatedAt)


def _tags(snapshot: Snapshot) -> list[Tag]:
    return list_tags(main_branch_of(snapshot.table, snapshot.manifest.branch).store())
