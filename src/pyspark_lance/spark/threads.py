"""Set the active session in Python threads, so that Spark finds the Python data source.

Each Python thread has its own JVM thread, and only the first one has an active session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def use_session(spark: SparkSession) -> None:
    """Make ``df.write.format("lance")`` work in the calling thread; ``LanceTable`` needs no call.

    Connect sessions, which have no JVM thread, and sessions with the plugin in ``spark.jars`` do
    not need it.  ``plugin.enable(spark)`` in the thread includes it.
    """
    if hasattr(spark, "_jsparkSession"):
        jvm_sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
        jvm_sessions.setActiveSession(spark._jsparkSession)
