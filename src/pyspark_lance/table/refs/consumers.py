"""Consumers: who follows a table, and how far each has read it; a cleanup keeps what comes after.

A consumer is a tag on the last version that it has read.  So moving it makes no version and is in
nobody's way, every consumer has a file of its own, and Lance's own cleanup keeps at least the
version that the next changes are computed from.

The tag also has the stamp of the version: tags may outlive the table if only its versions and data
are deleted.  A consumer of the table before has read nothing of the one that took its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark_lance.errors import InvalidInputError, TableReplacedError, VersionNotFoundError
from pyspark_lance.metafile.refs_file import Tag, delete_tag, list_tags
from pyspark_lance.result_names import also_snake_case
from pyspark_lance.table.refs.tags import set_tag
from pyspark_lance.table.version.snapshot import Snapshot, open_pinned
from pyspark_lance.table.version.table import Table, main_line
from pyspark_lance.table.version.table_identity import PinnedVersion, TableIdentity
from pyspark_lance.table.version.time_travel import VersionSpec

_PREFIX = "pyspark_lance.consumer."
# Of the metadata of the tag.
_STAMP = "pyspark_lance.stamp"


@also_snake_case
@dataclass(frozen=True, slots=True)
class Consumer:
    """Somebody who follows a table.

    Attributes:
        name: Unique in the table and all its branches.
        version: All up to this version is read; 0 for nothing, also if the table was replaced.
        lag: How many versions there are after it.
        updatedAt: When it moved last, UTC; None if that is not recorded.
    """

    name: str
    version: int
    lag: int
    updatedAt: datetime | None = None  # noqa: N815


def register_consumer(
    table: Table, name: str, version: int | None = None, *, identity: TableIdentity | None = None
) -> Consumer:
    """Keeps what comes after a version for a consumer, who may be there already and moves then.

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
    for _ in range(2):  # another process may register the same name for the first time
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
    raise InvalidInputError(f"the consumer {name!r} is registered by others", where=newest.uri)


def unregister_consumer(table: Table, name: str) -> None:
    """Forgets a consumer; a cleanup may remove what it has not read."""
    newest = Snapshot.open(table)
    tag_name = _PREFIX + name
    if not any(tag.name == tag_name for tag in _tags(newest)):
        raise VersionNotFoundError(f"there is no consumer {name!r}", where=newest.uri)
    delete_tag(main_line(newest.table, newest.manifest.branch).store(), tag_name)


def consumers_of(table: Table) -> tuple[Consumer, ...]:
    """Those who follow the table or branch, by name."""
    newest = Snapshot.open(table)
    tags = [_tag_in(newest, tag) if is_consumer(tag.name) else tag for tag in _tags(newest)]
    return consumers_among(tags, newest.manifest.branch, newest.version)


def _tag_in(newest: Snapshot, tag: Tag) -> Tag:
    """The tag of a consumer; at version 0 if it is left of a table that was replaced."""
    stamp = tag.metadata.get(_STAMP)
    if tag.branch != newest.manifest.branch or not isinstance(stamp, str):
        return tag
    try:
        open_pinned(newest.table, PinnedVersion(newest.uri, tag.version, stamp))
    except TableReplacedError:
        return replace(tag, version=0)
    except VersionNotFoundError:
        pass  # nothing is known of it
    return tag


def is_consumer(tag_name: str) -> bool:
    """Whether a tag of this name is a consumer."""
    return tag_name.startswith(_PREFIX)


def consumers_among(tags: Iterable[Tag], branch: str | None, newest: int) -> tuple[Consumer, ...]:
    """The consumers of a branch among tags.

    ``branch``: name of the branch; None for main.
    """
    return tuple(
        _consumer(tag, newest) for tag in tags if tag.branch == branch and is_consumer(tag.name)
    )


def _consumer(tag: Tag, newest: int) -> Consumer:
    lag = max(0, newest - tag.version)
    return Consumer(tag.name.removeprefix(_PREFIX), tag.version, lag, tag.updatedAt)


def _tags(snapshot: Snapshot) -> list[Tag]:
    return list_tags(main_line(snapshot.table, snapshot.manifest.branch).store())
