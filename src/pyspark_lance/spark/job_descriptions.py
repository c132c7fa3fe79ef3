"""Describe the jobs of ``LanceTable`` in Spark's web UI by the method that the user called.

Otherwise it would show call sites in this package.
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
    """Describe the jobs that this thread starts, unless the user set a description.

    The jobs of a Connect session are described by the server.
    """
    # A stopped context has no properties; methods that run no jobs do not need them.
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
        # The session may have been stopped since; the work may be committed nevertheless.
        with suppress(Exception):
            context.setLocalProperty(_DESCRIPTION, None)  # type: ignore[arg-type]
