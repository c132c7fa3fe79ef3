"""What Spark's web page calls the jobs of ``LanceTable``: by the method that a user called.

Otherwise it would name lines of this package.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from pyspark_lance.spark.stopped_sessions import is_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DESCRIPTION: Final = "spark.job.description"


@contextmanager
def describing_jobs(spark: SparkSession, method: str, uri: str) -> Iterator[None]:
    """Describes the jobs that begin here in this thread, unless somebody has done so already.

    Of a Connect session, the server describes them.
    """
    # A context that is stopped has no properties; who runs no jobs does without it.
    if not hasattr(spark, "_jsparkSession") or is_stopped(spark):
        yield
        return
    context = spark.sparkContext
    if context.getLocalProperty(_DESCRIPTION) is not None:
        yield
        return
    context.setLocalProperty(_DESCRIPTION, f"LanceTable.{method} of {uri}")
    try:
        yield
    finally:
        # What was done may be committed; its session may have been stopped meanwhile.
        with suppress(Exception):
            context.setLocalProperty(_DESCRIPTION, None)  # type: ignore[arg-type]
