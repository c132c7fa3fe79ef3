"""Refresh cached relations of a table in Spark after a commit of ``LanceTable``.

Spark refreshes its cache after its own statements. Commits of ``LanceTable`` happen in Python, so
this module notifies the JVM plugin. Without the plugin, nothing is refreshed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.sessions import is_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_lance.table.version.table import Table

logger = logging.getLogger(__name__)


def refresh_cached(spark: SparkSession, table: Table) -> None:
    """Refresh the cache through the plugin, which gets the path with an empty read.

    Errors are only logged, as the change is already committed.
    """
    try:
        _refresh(spark, table)
    except PySparkException:
        pass  # without the plugin, the option is unknown
    except Exception as error:  # noqa: BLE001 - the JVM or its session may be gone
        if not is_stopped(spark):
            logger.warning("cached relations of %s were not refreshed: %s", table.uri, error)


def _refresh(spark: SparkSession, table: Table) -> None:
    is_classic = hasattr(spark, "_jsparkSession")
    if is_classic and spark._jsparkSession.sharedState().cacheManager().isEmpty():
        return
    read = spark.read.format("lance").option(keys.REFRESH, "true")
    if table.branch is not None:
        read = read.option("branch", table.branch)
    # On Connect, this only requests the columns from the server.
    _ = read.load(table.root).schema
