"""Row changes, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.table.cdf.changed_rows import ChangeType, Commit
from pyspark_lance.table.cdf.common_rows import RetainedRows
from pyspark_lance.table.cdf.version_changes import FragmentRows, VersionChanges
from pyspark_lance.table.version.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Step:
    """Changes from one version to the next existing one."""

    commit: Commit
    changes: VersionChanges

    def kept_long(self) -> Step:
        """The same without bytes of manifests."""
        before, after = (
            snapshot and replace(snapshot, file=snapshot.file.drop_buffers())
            for snapshot in (self.changes.before, self.changes.after)
        )
        assert after is not None
        return Step(self.commit, replace(self.changes, before=before, after=after))


@dataclass(frozen=True, slots=True)
class InsertOrDelete:
    """Rows that were inserted or deleted.

    ``change_type``: ``INSERT`` or ``DELETE``.
    """

    change_type: ChangeType
    commit: Commit
    snapshot: Snapshot
    rows: FragmentRows

    def __post_init__(self) -> None:
        """Reject a plain value."""
        check_enum(self.change_type, ChangeType)


@dataclass(frozen=True, slots=True)
class PossibleUpdate:
    """Rows that may hold other values.

    ``commit``: the step that did it, the last of them.
    """

    commit: Commit
    before: Snapshot
    after: Snapshot
    rows: tuple[RetainedRows, ...]


Change = InsertOrDelete | PossibleUpdate


def changes_of_step(step: Step) -> Iterator[Change]:
    """The changes of a step in the order in which they happened; deleted rows come first."""
    changes = step.changes
    if changes.before is not None:
        for rows in changes.deleted:
            yield InsertOrDelete(ChangeType.DELETE, step.commit, changes.before, rows)
        if changes.kept:
            yield PossibleUpdate(step.commit, changes.before, changes.after, changes.kept)
    for rows in changes.inserted:
        yield InsertOrDelete(ChangeType.INSERT, step.commit, changes.after, rows)
