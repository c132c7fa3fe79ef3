"""Which versions a change feed covers: from options to two version numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark_lance.errors import InvalidInputError, TableNotFoundError, VersionNotFoundError
from pyspark_lance.metafile.manifest_file import ManifestLocation, list_versions
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.time_travel import newest_at, version_at


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a window: a version or a time; neither means as far as there is.

    Attributes:
        version: Version number, inclusive.
        timestamp_ns: UTC nanoseconds since 1970, inclusive.
    """

    version: int | None = None
    timestamp_ns: int | None = None

    def __post_init__(self) -> None:
        """Refuses two answers to one question."""
        if self.version is not None and self.timestamp_ns is not None:
            raise InvalidInputError(
                "a version and a timestamp both bound the change feed on the same side",
                hint="give only one of them",
            )

    @property
    def is_open(self) -> bool:
        """Whether it bounds nothing."""
        return self.version is None and self.timestamp_ns is None


@dataclass(frozen=True, slots=True)
class ChangeWindow:
    """The versions whose changes are wanted, both inclusive.

    Attributes:
        start: 1 for the beginning, whether version 1 is still there or not.
        end: A version that is there.
    """

    start: int
    end: int

    @property
    def is_empty(self) -> bool:
        """Whether no version is in it."""
        return self.start > self.end


def resolve_window(
    uri: str, options: Mapping[str, str], starting: Bound, ending: Bound
) -> ChangeWindow:
    """The window between two bounds in the table or branch at ``uri``.

    Args:
        uri: Root of the table or branch.
        options: Storage options.
        starting: First version, or the first one committed at or after a time. Version 0 or 1 is
            the beginning; the one after the newest is an empty window.
        ending: Last version, or the last one committed at or before a time; open is the newest.

    Raises:
        InvalidInputError: No start, a version that is not there yet, or an end before the start.
        VersionNotFoundError: The changes need a version that was removed.
    """
    if starting.is_open:
        raise InvalidInputError(
            "a change feed needs a start",
            where=uri,
            hint="give startingVersion or startingTimestamp; startingVersion 0 is the beginning",
        )
    store = open_store(uri, options)
    locations = list_versions(store)
    if not locations:
        raise TableNotFoundError(
            "there is no Lance table here", where=store.uri, hint="check the path"
        )
    end = _end(store, locations, ending)
    start = _start(store, locations, starting)
    by_numbers = starting.version is not None and ending.version is not None
    # Whoever asks for what came after the newest version gets nothing, until something comes.
    too_late = ending.is_open and start > end + 1
    if (start > end and by_numbers) or too_late:
        raise InvalidInputError(
            f"the change feed would start at version {start}, after its end {end}", where=store.uri
        )
    _check_there(store, locations, start, end)
    return ChangeWindow(start, end)


def _end(store: ObjectStore, locations: Sequence[ManifestLocation], ending: Bound) -> int:
    newest = locations[-1].version
    if ending.timestamp_ns is not None:
        return version_at(store, ending.timestamp_ns, locations).version
    if ending.version is None:
        return newest
    if ending.version > newest:
        raise InvalidInputError(
            f"the change feed would end at version {ending.version}, but the newest is {newest}",
            where=store.uri,
        )
    return ending.version


def _start(store: ObjectStore, locations: Sequence[ManifestLocation], starting: Bound) -> int:
    if starting.version is not None:
        return max(1, starting.version)
    assert starting.timestamp_ns is not None
    before = newest_at(store, starting.timestamp_ns - 1, locations)
    found = 0 if before is None else before + 1
    if found == len(locations):
        raise InvalidInputError(
            "the change feed would start after the newest version was committed",
            where=store.uri,
            hint="give an earlier startingTimestamp",
        )
    return locations[found].version


def _check_there(
    store: ObjectStore, locations: Sequence[ManifestLocation], start: int, end: int
) -> None:
    """Refuses windows that need a version that was removed."""
    there = {location.version for location in locations}
    for needed in (start - 1, end):
        if needed > 0 and needed not in there:
            usable = min((v + 1 for v in there if v >= needed and v + 1 <= end), default=None)
            raise VersionNotFoundError(
                f"the changes of versions {start} to {end} need version {needed}, "
                "which is not there any more",
                where=store.uri,
                hint="startingVersion 0 gives what is left from the beginning"
                if usable is None
                else f"startingVersion can be {usable} or later, or 0 for what is left from the "
                "beginning",
            )
