"""What crosses between the driver and executors, pickled: partitions and commit messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition, WriterCommitMessage

from pyspark_lance.format.fragment import Fragment

# A writer's messages need nothing of scans, and a scan's nothing of the change feed.
if TYPE_CHECKING:
    from pyspark_lance.table.cdf.change_feed_task import ChangeFeedTask
    from pyspark_lance.table.cdf.envelope import Envelope
    from pyspark_lance.table.scan.scan_task import ScanTask


def application_of_task() -> str | None:
    """The id of the Spark application whose task runs here; None outside of tasks."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty("spark.app.id")


class ScanPartition(InputPartition):
    """One Spark partition of a scan."""

    def __init__(self, task: ScanTask) -> None:
        self.task = task

    def __repr__(self) -> str:
        ids = [scan_split.fragment.id for scan_split in self.task.slices]
        return f"ScanPartition(fragments={ids})"


class ChangePartition(InputPartition):
    """One Spark partition of a change feed."""

    def __init__(self, task: ChangeFeedTask, envelope: Envelope | None = None) -> None:
        self.task = task
        self.envelope = envelope

    def changes(self) -> Iterator[pa.RecordBatch]:
        """Runs the task."""
        from pyspark_lance.table.cdf.change_feed_task import run_changes
        from pyspark_lance.table.cdf.envelope import enveloped

        changes = run_changes(self.task)
        return changes if self.envelope is None else enveloped(changes, self.envelope)

    def __repr__(self) -> str:
        return f"ChangePartition(changes={len(self.task.changes)})"


@dataclass
class FragmentsWritten(WriterCommitMessage):
    """The fragments that one task wrote; their ids come with the commit.

    The task also tells which Spark application it is of, which a writer does not learn otherwise.
    """

    fragments: tuple[Fragment, ...]
    application: str | None = None
