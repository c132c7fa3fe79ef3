"""Plan the bins of a compaction: groups of fragments to rewrite together; no I/O.

A fragment with many deleted rows is rewritten alone, a small one together with adjacent fragments.
Fragments covered by different indices never share a bin, so that an index covers either all rows of
a new fragment or none.

Source: docs/format/table-format.md, section 10.5.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.cluster_by import ClusterBy
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.table.rows.write_fragments import DEFAULT_MAX_ITEMS_PER_FILE

CONFIG_PREFIX: Final = "lance.compaction."
CONFIGURABLE: Final[Mapping[str, type[int | float]]] = {
    "target_rows_per_fragment": int,
    "max_bytes_per_file": int,
    "materialize_deletions": bool,
    "materialize_deletions_threshold": float,
    "max_source_fragments": int,
    "max_source_rows": int,
    "defer_index_remap": bool,
    "sort_bytes": int,
}
"""Fields of ``CompactionOptions`` that a caller or the table configuration may set."""

Bin = tuple[Fragment, ...]
"""Fragments that are rewritten together, in their order."""


def _in_words(name: str) -> str:
    """Return an option name for messages, independent of camelCase or snake_case."""
    return f"the limit {name.replace('_', ' ')!r}"


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """Options of a compaction, named as in Lance's configuration keys."""

    # Smaller fragments are merged; new ones have at least this many rows, if possible, and less
    # than twice as many.
    target_rows_per_fragment: int = 1 << 20
    materialize_deletions: bool = True  # Whether deleted rows are a reason to rewrite a fragment.
    materialize_deletions_threshold: float = 0.1  # Minimum fraction of deleted rows.
    # A new file is closed once it exceeds this size; None for no limit.
    max_bytes_per_file: int | None = None
    # A new file is closed before a list column has more items than this, at any depth. The manifest
    # has no item counts, so bins are planned without this limit and split while being rewritten.
    max_items_per_file: int = DEFAULT_MAX_ITEMS_PER_FILE
    # Bins are taken in order until they have more live rows; None for all.
    max_source_rows: int | None = None
    # Bins are taken in order until they have more fragments; None for all.
    max_source_fragments: int | None = None
    # Columns to sort rows by, across the fragments of a bin; empty to keep the order.
    cluster_by: tuple[str, ...] = ()
    # Prefix of these columns whose values get separate files; None to keep the current ones, if the
    # table is clustered by the same columns.
    split_files_by: tuple[str, ...] | None = None
    order: str = "linear"  # Or a space-filling curve: ``zorder``, ``hilbert``.
    sort_bytes: int = 128 << 20  # Bytes of rows that a task sorts in memory.
    excluded_fragment_ids: frozenset[int] = frozenset()  # Fragments to skip.
    # Keep indices unchanged and record moved rows in a fragment reuse index; only for tables
    # without stable row ids.
    defer_index_remap: bool = False

    def __post_init__(self) -> None:
        """Reject limits that are not positive."""
        for name in (
            "target_rows_per_fragment",
            "max_bytes_per_file",
            "max_items_per_file",
            "max_source_rows",
            "max_source_fragments",
            "sort_bytes",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidInputError(f"{_in_words(name)} must be positive, not {value}")
        if not 0 <= self.materialize_deletions_threshold <= 1:
            raise InvalidInputError(
                f"{_in_words('materialize_deletions_threshold')} is a share of rows, from 0 to 1, "
                f"not {self.materialize_deletions_threshold}",
                hint="0.1 rewrites what has more than a tenth of its rows deleted, 1 nothing",
            )

    @classmethod
    def of(cls, config: Mapping[str, str], given: Mapping[str, Any]) -> CompactionOptions:
        """Resolve options from arguments, the table configuration and defaults.

        ``config``: of the table; keys ``lance.compaction.<name>`` and the clustering columns.
        ``given``: by name; None means unset.
        """
        configured: dict[str, Any] = {}
        for name, kind in CONFIGURABLE.items():
            text = config.get(CONFIG_PREFIX + name)
            if text is not None:
                try:
                    configured[name] = _parse_bool(text) if kind is bool else kind(text)
                except ValueError as error:
                    raise InvalidInputError(
                        f"the table is configured with {CONFIG_PREFIX}{name} = {text!r}"
                    ) from error
        known = {option.name for option in fields(cls)}
        asked = {name: value for name, value in given.items() if value is not None}
        unknown = asked.keys() - known
        if unknown:
            raise InvalidInputError(f"there is no compaction option {min(unknown)!r}")
        by = ClusterBy.of(config)
        if by is not None and "cluster_by" not in asked:
            # Splitting files requires a linear sort order.
            order = "linear" if asked.get("split_files_by") else by.order
            configured |= {"cluster_by": by.columns, "order": order}
        return replace(cls(), **{**configured, **asked})


def _parse_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def plan_bins(
    fragments: Iterable[Fragment], indices: Sequence[IndexMetadata], options: CompactionOptions
) -> tuple[Bin, ...]:
    """Return the bins, in the order of their fragments; none if there is nothing to compact."""
    coverage = IndexCoverage(indices)
    runs: list[tuple[list[Fragment], list[Candidate]]] = []
    previous: frozenset[int] | None = None
    for fragment in sorted(fragments, key=lambda fragment: fragment.id):
        kind = candidate(fragment, options)
        if kind is Candidate.NO:
            previous = None
            continue
        covering = coverage.of(fragment.id)
        if covering != previous:
            runs.append(([], []))
        previous = covering
        runs[-1][0].append(fragment)
        runs[-1][1].append(kind)
    bins: list[Bin] = []
    for run, kinds in runs:
        if kinds != [Candidate.WITH_NEIGHBOURS]:
            bins += _split(run, options.target_rows_per_fragment)
    return _limited(bins, options)


def rows_per_fragment(fragments: Bin, options: CompactionOptions) -> int:
    """Return the rows of each new fragment of a bin: evenly distributed, as in Lance."""
    rows = sum(fragment.num_rows for fragment in fragments)
    return -(-rows // max(1, rows // options.target_rows_per_fragment))


class Candidate(enum.Enum):
    """How a compaction treats a fragment."""

    NO = "stays as it is"
    ALONE = "is rewritten, whatever its neighbours are"
    WITH_NEIGHBOURS = "is rewritten if a neighbour is"


def candidate(fragment: Fragment, options: CompactionOptions) -> Candidate:
    """Return how a compaction treats a fragment."""
    if fragment.id in options.excluded_fragment_ids or not fragment.physical_rows:
        return Candidate.NO
    threshold = options.materialize_deletions_threshold
    if options.materialize_deletions and (
        fragment.num_deleted_rows / fragment.physical_rows > threshold
    ):
        return Candidate.ALONE
    if fragment.physical_rows < options.target_rows_per_fragment:
        return Candidate.WITH_NEIGHBOURS
    return Candidate.NO


class IndexCoverage:
    """Which index entries cover a fragment, by their position."""

    def __init__(self, indices: Sequence[IndexMetadata]) -> None:
        self._indices = [index for index in indices if index.fields]

    def of(self, fragment_id: int) -> frozenset[int]:
        """Return the entries that cover a fragment, or may."""
        return frozenset(
            position
            for position, index in enumerate(self._indices)
            # An entry without a bitmap may cover anything.
            if index.fragment_bitmap is None or fragment_id in index.fragment_bitmap
        )


def _split(run: Sequence[Fragment], target_rows: int) -> list[Bin]:
    """Split a run where both sides fill a fragment."""
    bins: list[Bin] = []
    left = sum(fragment.num_rows for fragment in run)
    group: list[Fragment] = []
    rows = 0
    for fragment in run:
        group.append(fragment)
        rows += fragment.num_rows
        left -= fragment.num_rows
        if rows >= target_rows and left >= target_rows:
            bins.append(tuple(group))
            group, rows = [], 0
    bins.append(tuple(group))
    return bins


def _limited(bins: Sequence[Bin], options: CompactionOptions) -> tuple[Bin, ...]:
    """Return the first bins within the limits, at least one, to ensure progress."""
    taken: list[Bin] = []
    rows = fragments = 0
    for group in bins:
        rows += sum(fragment.num_rows for fragment in group)
        fragments += len(group)
        too_many = (options.max_source_rows is not None and rows > options.max_source_rows) or (
            options.max_source_fragments is not None and fragments > options.max_source_fragments
        )
        if taken and too_many:
            break
        taken.append(group)
    return tuple(taken)
