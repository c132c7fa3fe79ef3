"""Findings of a verification, each with a remedy."""

from __future__ import annotations

import enum
from dataclasses import dataclass

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
        remedy: What to do about it.
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
