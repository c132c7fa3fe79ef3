"""Early end of Spark tasks that need no more rows.

When a limit or a join needs no more rows, the JVM plugin creates a file named after the task in
Spark's local folder.  A worker that then ends its task regularly is reused; Spark would kill one
that still sends rows.
"""

from __future__ import annotations

import os

from pyspark import TaskContext

from pyspark_lance.table.scan.scan_task import HasEnough, never

# The Java class CancelOnLimit makes it.
_SIGN = "lance-enough-"


def has_enough() -> HasEnough:
    """Return a function that checks the current task; a call takes microseconds."""
    task, folders = TaskContext.get(), os.environ.get("SPARK_LOCAL_DIRS")
    if task is None or not folders:
        return never
    sign = os.path.join(folders.split(",")[0], f"{_SIGN}{task.taskAttemptId()}")
    return lambda: os.path.exists(sign)
