"""Verify the invariants of a manifest without I/O; findings, each with a remedy.

Repeated field ids and missing row ids are already rejected when the manifest is read. Invariants
have the numbers of docs/format/table-format.md, section 14.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.errors import LanceError
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.feature_flags import (
    BASE_PATHS,
    DELETION_FILES,
    STABLE_ROW_IDS,
    TABLE_CONFIG,
)
from pyspark_lance.format.fragment import TOMBSTONE, Fragment
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.result_names import also_snake_case


class Severity(enum.Enum):
    """The severity of a finding."""

    ERROR = "error"
    """Rows are unreadable or wrong, now or after the next commit."""
    WARNING = "warning"
    """Rows are correct, but something is inconsistent."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of a table.

    Attributes:
        kind: A stable identifier, such as ``missing_data_file``.
        severity: Whether rows are affected.
        what: One line with the expected and the found values.
        where: Version, fragment, file.
        remedy: Advice for the user.
    """

    kind: str
    severity: Severity
    what: str
    where: str
    remedy: str


@also_snake_case
@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The result of a verification.

    Attributes:
        version: The verified version.
        findings: The problems; empty for a sound table.
        numFragments: Verified fragments.
        numFiles: Opened files.
        numRows: Live rows of the version, by its manifest.
        basePaths: Locations outside of the table with files of the version.
    """

    version: int
    findings: tuple[Finding, ...] = ()
    numFragments: int = 0  # noqa: N815
    numFiles: int = 0  # noqa: N815
    numRows: int = 0  # noqa: N815
    basePaths: tuple[str, ...] = ()  # noqa: N815

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that affect rows."""
        return tuple(problem for problem in self.findings if problem.severity is Severity.ERROR)

    @property
    def isSound(self) -> bool:  # noqa: N802
        """Whether there is no error."""
        return not self.errors


_RESTORE = "restore() an older version that is sound, or bring the file back from a backup"
_WRITER = "find out which software wrote this version; restore() the one before it"

REMEDIES = {
    "bad_manifest": "read an older version; bring the manifest back from a backup",
    "fragment_ids": _WRITER,
    "field_in_two_files": _WRITER,
    "file_columns": _WRITER,
    "dead_file": "compact() rewrites the fragment",
    "deleted_count": _WRITER,
    "missing_deletion_file": _RESTORE,
    "bad_deletion_file": _RESTORE,
    "bad_row_ids": _WRITER,
    "row_ids_not_used_up": _WRITER,
    "duplicate_row_ids": "delete one of the rows, or restore() the version before they met",
    "bad_versions": _WRITER,
    "impossible_versions": _WRITER,
    "flags": "any commit by current software updates the flags",
    "unknown_base": _WRITER,
    "index_fields": "drop the index, and build it again",
    "index_overlap": "drop the index, and build it again",
    "missing_index": "drop the index, and build it again",
    "bad_index_file": "drop the index, and build it again",
    "index_content": "drop the index, and build it again",
    "deletions_elsewhere": "delete the rows that should be gone again after a compaction: "
    "compact(materializeDeletionsThreshold=0.0) rewrites the others",
    "missing_data_file": _RESTORE,
    "file_size": _RESTORE,
    "missing_blobs": _RESTORE,
    "bad_data_file": _RESTORE,
    "file_rows": _RESTORE,
    "file_version": _WRITER,
    "unreadable_rows": _RESTORE,
    "missing_transaction": "writers that began before this version must begin again",
    "transaction_differs": _WRITER,
    "time_runs_back": "time travel by timestamps may find another version; use numbers",
    "dangling_tag": "deleteTag() it, or replaceTag() it to a version that is left",
    "bad_reference": "remove the file below _refs, and create the tag or branch again",
    "dangling_branch": "deleteBranch() it",
    "orphans": "removeLeftoverFiles() or cleanupOldVersions() removes them",
    "naming_schemes": "finish the migration with Lance's migrate_manifest_paths_v2",
}
"""Kind of a finding -> what to do about it."""

_WARNINGS = frozenset(
    {
        "dead_file",
        "missing_transaction",
        "time_runs_back",
        "orphans",
        "missing_index",
        "bad_index_file",
    }
)


def finding(kind: str, what: str, where: str) -> Finding:
    """Return a finding with the severity and the remedy of its kind."""
    severity = Severity.WARNING if kind in _WARNINGS else Severity.ERROR
    return Finding(kind, severity, what, where, REMEDIES[kind])


Found = Iterator[Finding]


def check_manifest(manifest: Manifest, indices: Sequence[IndexMetadata]) -> Found:
    """Verify everything except row lineage."""
    yield from _check_fragment_ids(manifest)
    for fragment in manifest.fragments:
        yield from _check_files(manifest, fragment)
        yield from _check_counts(manifest, fragment)
    yield from _check_flags(manifest)
    yield from _check_indices(manifest, indices)


def location_of(manifest: Manifest, fragment: Fragment | None = None) -> str:
    """Return the location of a finding."""
    version = f"version {manifest.version}"
    return version if fragment is None else f"{version}, fragment {fragment.id}"


def _check_fragment_ids(manifest: Manifest) -> Found:
    """I1."""
    ids = manifest.fragments.ids.tolist()
    if len(set(ids)) < len(ids):
        yield finding("fragment_ids", "two fragments have one id", location_of(manifest))
    elif ids != sorted(ids):
        yield finding("fragment_ids", "fragments are not in order", location_of(manifest))
    highest = manifest.max_fragment_id
    if ids and highest is not None and max(ids) > highest:
        what = f"fragment {max(ids)}, but the highest id ever used is said to be {highest}"
        yield finding("fragment_ids", what, location_of(manifest))


def _check_files(manifest: Manifest, fragment: Fragment) -> Found:
    """Check I3 and I9."""
    where = location_of(manifest, fragment)
    bases = {base.id for base in manifest.base_paths}
    live: set[int] = set()
    for file in fragment.files:
        alive = [field for field in file.fields if field != TOMBSTONE]
        twice = live & set(alive) or len(set(alive)) < len(alive)
        if twice:
            yield finding("field_in_two_files", f"{file.path} holds a field again", where)
        live.update(alive)
        if file.column_indices and len(file.column_indices) != len(file.fields):
            what = f"{len(file.fields)} fields in {len(file.column_indices)} columns of {file.path}"
            yield finding("file_columns", what, where)
        if not alive:
            yield finding("dead_file", f"no column of {file.path} is in use", where)
        if file.base_id is not None and file.base_id not in bases:
            what = f"{file.path} lies below base {file.base_id}, which does not exist"
            yield finding("unknown_base", what, where)
    deletions = fragment.deletion_file
    if deletions is not None and deletions.base_id is not None and deletions.base_id not in bases:
        what = f"deletions lie below base {deletions.base_id}, which does not exist"
        yield finding("unknown_base", what, where)


def _check_counts(manifest: Manifest, fragment: Fragment) -> Found:
    """I4."""
    deleted, rows = fragment.num_deleted_rows, fragment.physical_rows
    if rows and deleted >= rows:
        what = f"{deleted} of {rows} rows are deleted, so that the fragment should be gone"
        yield finding("deleted_count", what, location_of(manifest, fragment))


def _check_flags(manifest: Manifest) -> Found:
    """I8."""
    deletions = bool(manifest.fragments.columns.has_deletions.any())
    both = manifest.reader_flags & manifest.writer_flags
    either = manifest.reader_flags | manifest.writer_flags
    for flag, present, word, what in (
        (DELETION_FILES, deletions, manifest.reader_flags, "deleted rows"),
        (STABLE_ROW_IDS, manifest.uses_stable_row_ids, both, "stable row ids"),
        (TABLE_CONFIG, bool(manifest.config), manifest.writer_flags, "a configuration"),
        (BASE_PATHS, bool(manifest.base_paths), both, "base paths"),
    ):
        # An extra flag only excludes old software.
        if present and not word & flag:
            what = f"there are {what}, but feature flag {flag} is not set"
            yield finding("flags", what, location_of(manifest))
    if not either & STABLE_ROW_IDS and bool(manifest.fragments.columns.has_row_ids.any()):
        what = f"fragments have row ids, but feature flag {STABLE_ROW_IDS} is not set"
        yield finding("flags", what, location_of(manifest))


def _check_indices(manifest: Manifest, indices: Sequence[IndexMetadata]) -> Found:
    """I10."""
    present = {field.id for field in manifest.schema.walk()}
    covered: dict[str, BitMap] = {}
    for index in indices:
        if any(field >= 0 and field not in present for field in index.fields):
            what = f"the index {index.name!r} is over a column that does not exist"
            yield finding("index_fields", what, location_of(manifest))
        if index.fragment_bitmap is None or not index.fields:
            continue
        others = covered.setdefault(index.name, BitMap())
        if not others.isdisjoint(index.fragment_bitmap):
            what = f"two parts of the index {index.name!r} cover a fragment"
            yield finding("index_overlap", what, location_of(manifest))
        others |= index.fragment_bitmap


# Lineage -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LiveRowIds:
    """The stable row ids of the live rows of a fragment, as runs of consecutive ids."""

    fragment_id: int
    starts: NDArray[np.uint64]  # First id of each run.
    lasts: NDArray[np.uint64]  # Last id of each run.


def check_lineage(
    manifest: Manifest,
    fragment: Fragment,
    row_ids: RowIdSequence,
    created: RowDatasetVersionSequence | None,
    updated: RowDatasetVersionSequence | None,
) -> Found:
    """Check I5 and I7 of one fragment, given its sequences."""
    where, rows = location_of(manifest, fragment), fragment.physical_rows
    if len(row_ids) != rows:
        yield finding("bad_row_ids", f"{len(row_ids)} row ids for {rows} rows", where)
    bounds = row_ids.bounds()
    if bounds is not None and bounds[1] >= manifest.next_row_id:
        what = f"row id {bounds[1]} is in use, and the next one is said to be "
        yield finding("row_ids_not_used_up", f"{what}{manifest.next_row_id}", where)
    for name, versions in (("created-at", created), ("last-updated-at", updated)):
        if versions is None:
            continue
        if len(versions) != rows:
            what = f"{len(versions)} {name} versions for {rows} rows"
            yield finding("bad_versions", what, where)
        low, high = versions.min_version or 0, versions.max_version or 0
        if len(versions) and not 1 <= low <= high <= manifest.version:
            what = f"{name} versions from {low} to {high}"
            yield finding("impossible_versions", what, where)
    if created is not None and updated is not None and len(created) == len(updated) == rows:
        # Both are constant between these rows.
        lasts = np.union1d(created.ends, updated.ends) - 1
        early = np.flatnonzero(created.take(lasts) > updated.take(lasts))
        if len(early):
            row = int(lasts[early[0] - 1]) + 1 if early[0] else 0
            what = f"row {row} was updated before it was created"
            yield finding("impossible_versions", what, where)


def live_row_ids(
    fragment: Fragment, row_ids: RowIdSequence, deleted: DeletionVector | None
) -> LiveRowIds | None:
    """Return the ids of live rows; None if the sequence or the deletions do not fit."""
    if len(row_ids) != fragment.physical_rows:
        return None
    try:
        return LiveRowIds(fragment.id, *row_ids.live_runs(deleted))
    except LanceError:
        return None


def check_unique(manifest: Manifest, live: Sequence[LiveRowIds]) -> Found:
    """Check I5: no two live rows share an id."""
    if not live:
        return
    starts = np.concatenate([part.starts for part in live])
    lasts = np.concatenate([part.lasts for part in live])
    owners = np.repeat([part.fragment_id for part in live], [len(part.starts) for part in live])
    order = np.argsort(starts, kind="stable")
    starts, lasts, owners = starts[order], lasts[order], owners[order]
    reached = np.maximum.accumulate(lasts)[:-1]  # by the runs before each
    again = np.flatnonzero(starts[1:] <= reached)
    if len(again):
        number = int((np.minimum(lasts[1:], reached) - starts[1:])[again].sum()) + len(again)
        second = int(again[0]) + 1
        first = int(np.argmax(lasts[:second]))
        what = (
            f"{number} row ids belong to two rows; {int(starts[second])} to rows of the "
            f"fragments {int(owners[first])} and {int(owners[second])}"
        )
        yield finding("duplicate_row_ids", what, location_of(manifest))
