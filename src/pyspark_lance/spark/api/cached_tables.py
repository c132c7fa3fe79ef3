"""Makes Spark read anew what it has cached of a table that this process changed.

Spark does so by itself after its own statements. Commits of ``LanceTable`` happen in Python, so
they tell the JVM companion, which knows what is cached; without it, nobody does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.errors import PySparkException

from pyspark_lance.spark.options import internal_keys as keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_lance.table.version.table import Table

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
    """Has the companion look through the cache; a read that reads nothing brings it the path.

    A change that is done never fails for it.
    """
    is_classic = hasattr(spark, "_jsparkSession")
    if is_classic and spark._jsparkSession.sharedState().cacheManager().isEmpty():
        return
    read = spark.read.format("lance").option(keys.REFRESH, "true")
    if table.branch is not None:
        read = read.option("branch", table.branch)
    with contextlib.suppress(PySparkException):
        # Connect asks the server for nothing but the columns.
        _ = read.load(table.root).schema
