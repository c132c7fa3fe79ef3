"""Whether a task of Spark has had enough of the rows that it reads.

The JVM plugin says so when a limit or a join is content before the last row, by a file that
bears the task's number, in Spark's own folder for local files.  A worker that then comes to its end
by itself is used again, while one that still has rows to give is killed.
"""

from __future__ import annotations

import os

from pyspark import TaskContext

from pyspark_lance.table.scan.scan_task import HasEnough, never

# The Java class CancelOnLimit makes it.
_SIGN = "lance-enough-"


def has_enough() -> HasEnough:
    """Tells of the task that runs in this process, whenever it is asked; costs microseconds."""
    task, folders = TaskContext.get(), os.environ.get("SPARK_LOCAL_DIRS")
    if task is None or not folders:
        return never
    sign = os.path.join(folders.split(",")[0], f"{_SIGN}{task.taskAttemptId()}")
    return lambda: os.path.exists(sign)
