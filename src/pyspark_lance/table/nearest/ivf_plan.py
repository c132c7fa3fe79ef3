"""Select the usable segments of a vector index; other rows are compared exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, TypeVar

from pyspark_lance.errors import LanceError
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.index_metadata import IndexMetadata, reuse_index_of
from pyspark_lance.format.wire import parse_message
from pyspark_lance.proto import table_pb2
from pyspark_lance.table.nearest.ivf_file import (
    NEWEST_VERSION,
    VECTOR_DETAILS,
    IvfSegment,
    open_ivf,
)
from pyspark_lance.table.nearest.vectors import Metric, width_of
from pyspark_lance.table.version.snapshot import Snapshot


class _HasEntry(Protocol):
    @property
    def entry(self) -> IndexMetadata: ...


AnySegment = TypeVar("AnySegment", bound=_HasEntry)
"""A segment of an index of any kind."""


def metric_and_segments(
    snapshot: Snapshot, column: Field, metric: str | None, *, use_index: bool = True
) -> tuple[Metric, tuple[IvfSegment, ...]]:
    """Return the metric of a search, and the segments that it uses.

    ``metric``: None for that of the index, or ``l2`` without one.
    """
    kind = None if metric is None else Metric.parse(metric)
    segments = usable_segments(snapshot, column, kind) if use_index else ()
    return kind or (segments[0].metric if segments else Metric.L2), segments


def usable_segments(
    snapshot: Snapshot, column: Field, metric: Metric | None
) -> tuple[IvfSegment, ...]:
    """Return the segments of the first vector index of a column for a metric.

    ``metric``: None for that of the first index.
    """
    key = "vector index", column.id
    if key not in snapshot.memo:
        snapshot.memo[key] = _segments(snapshot, column)
    known: tuple[IvfSegment, ...] = snapshot.memo[key]  # type: ignore[assignment]
    for first in known:
        if metric in (None, first.metric):
            name = first.entry.name
            return tuple(
                one for one in known if one.entry.name == name and one.metric is first.metric
            )
    return ()


def fragments_by_segment(
    snapshot: Snapshot, segments: tuple[AnySegment, ...]
) -> list[tuple[AnySegment, tuple[Fragment, ...]]]:
    """The fragments of each segment, with the lookup of their rows; each fragment once."""
    left = {
        fragment.id: replace(fragment, created_at=None, last_updated_at=None)
        for fragment in snapshot.manifest.fragments
    }
    found = []
    for segment in segments:
        covered = segment.entry.fragment_bitmap or ()
        own = tuple(left.pop(number) for number in covered if number in left)
        if own:
            found.append((segment, own))
    return found


def unused_reason(snapshot: Snapshot, number: str) -> str:
    """Return why searches do not use a segment of a vector index; '' if they do.

    ``number``: its uuid.
    """
    (entry,) = (one for one in snapshot.indices if str(one.uuid) == number)
    columns = [field for field in snapshot.schema.fields if entry.fields == (field.id,)]
    live = frozenset(snapshot.manifest.fragments.ids.tolist())
    if reuse_index_of(snapshot.indices) is not None:
        return "a compaction with deferIndexRemap moved its rows"
    if live.isdisjoint(entry.fragment_bitmap or ()):
        return "it covers nothing"
    if not columns or not _is_known(entry, columns[0]):
        return "its version is not known, or it is not over one vector column alone"
    try:
        open_ivf(snapshot.files, entry, width_of(columns[0]))
    except LanceError as error:
        return error.what
    except FileNotFoundError:
        return "its files are missing"
    return ""


def _segments(snapshot: Snapshot, column: Field) -> tuple[IvfSegment, ...]:
    if reuse_index_of(snapshot.indices) is not None:
        return ()  # the row addresses are from before a compaction
    live = frozenset(snapshot.manifest.fragments.ids.tolist())
    found = []
    for entry in snapshot.indices:
        # As in Lance, a segment without fragments does not determine the metric.
        if live.isdisjoint(entry.fragment_bitmap or ()) or not _is_known(entry, column):
            continue
        try:
            found.append(open_ivf(snapshot.files, entry, width_of(column)))
        except (LanceError, FileNotFoundError):
            continue  # its fragments are searched exactly
    return tuple(found)


def _is_known(entry: IndexMetadata, column: Field) -> bool:
    _, slash, name = entry.details_type.rpartition("/")
    return (
        bool(slash)
        and name == VECTOR_DETAILS
        and entry.fields == (column.id,)
        and entry.index_version <= NEWEST_VERSION
        and not parse_message(table_pb2.IndexMetadata, entry.raw).covering_fields
    )
