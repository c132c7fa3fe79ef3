"""Makes Spark read anew what it has cached of a table that this process changed.

Spark does so by itself after its own statements. Commits of ``LanceTable`` happen in Python, so
they tell the JVM plugin, which knows what is cached; without it, nobody does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.errors import PySparkException

from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.stopped_sessions import is_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_lance.table.version.table import Table

logger = logging.getLogger(__name__)

_Method = TypeVar("_Method", bound=Callable[..., Any])


def refreshes_cached(method: _Method) -> _Method:
    """Decorates a method of ``LanceTable`` that changes what queries of the table show."""

    @wraps(method)
    def call(self: Any, *args: Any, **given: Any) -> Any:
        done = method(self, *args, **given)
        refresh_cached(self._spark, self._table)
        return done

    return call  # type: ignore[return-value]


def refresh_cached(spark: SparkSession, table: Table) -> None:
    """Has the plugin look through the cache; a read that reads nothing brings it the path.

    A change that is committed never fails because of it.
    """
    try:
        _refresh(spark, table)
    except PySparkException:
        pass  # without the plugin, no source takes the option
    except Exception as error:  # noqa: BLE001 - the JVM or its session may be gone
        if not is_stopped(spark):
            logger.warning("what is cached of %s is as it was: %s", table.uri, error)


def _refresh(spark: SparkSession, table: Table) -> None:
    is_classic = hasattr(spark, "_jsparkSession")
    if is_classic and spark._jsparkSession.sharedState().cacheManager().isEmpty():
        return
    read = spark.read.format("lance").option(keys.REFRESH, "true")
    if table.branch is not None:
        read = read.option("branch", table.branch)
    # Connect asks the server for nothing but the columns.
    _ = read.load(table.root).schema
