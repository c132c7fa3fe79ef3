"""Tags of a table: names for versions, which a cleanup keeps.

Source: docs/format/table-format.md, section 12.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark_lance.errors import InvalidInputError, VersionNotFoundError
from pyspark_lance.metafile.cleanup_marks import check_not_removed
from pyspark_lance.metafile.refs_file import Tag, delete_tag, list_tags, read_tag, write_tag
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table, main_branch_of
from pyspark_lance.table.version.time_travel import LATEST, VersionSpec


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
