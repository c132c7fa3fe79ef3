"""Writing in Python threads: Spark looks for the Python source in the JVM thread's session.

Each Python thread has a JVM thread of its own, and only the first one's has an active session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def use_session(spark: SparkSession) -> None:
    """Makes ``df.write.format("lance")`` work in the calling thread; ``LanceTable`` needs no call.

    A Connect session, which has no JVM thread, needs it in no thread, nor does one that found the
    plugin in ``spark.jars``.  ``plugin.enable(spark)`` in the thread does as much, and more.
    """
    if hasattr(spark, "_jsparkSession"):
        jvm_sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
        jvm_sessions.setActiveSession(spark._jsparkSession)
