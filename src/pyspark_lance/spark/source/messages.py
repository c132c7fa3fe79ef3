"""Pickled messages between driver and executors: partitions and commit messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition, WriterCommitMessage

from pyspark_lance.format.fragment import Fragment

# The messages of a writer do not import scans, and those of a scan do not import the feed.
if TYPE_CHECKING:
    from pyspark_lance.table.cdf.change_feed_task import ChangeFeedTask
    from pyspark_lance.table.cdf.envelope import Envelope
    from pyspark_lance.table.scan.scan_task import ScanTask


def application_of_task() -> str | None:
    """Return the id of the Spark application of the current task; None outside of tasks."""
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
        """Run the task."""
        from pyspark_lance.table.cdf.envelope import wrap_batches

        changes = self.task.run()
        return changes if self.envelope is None else wrap_batches(changes, self.envelope)

    def __repr__(self) -> str:
        return f"ChangePartition(changes={len(self.task.changes)})"


@dataclass
class FragmentsWritten(WriterCommitMessage):
    """The fragments that one task wrote; the commit assigns their ids.

    The task adds the id of the Spark application, which the driver's writer does not have.
    """

    fragments: tuple[Fragment, ...]
    application: str | None = None
