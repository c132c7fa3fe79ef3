"""Lance tables in PySpark.

Spark imports every installed package whose name starts with ``pyspark_`` to look for data
sources, so this module is cheap and cannot fail: it imports the data source, which imports
nothing but pyspark, and everything else when it is used.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pyspark_lance.spark.data_source import LanceDataSource as DefaultSource

if TYPE_CHECKING:
    from pyspark_lance.spark.api.lance_table import LanceTable
    from pyspark_lance.spark.companion import companion_jar

__version__ = "0.1.0"

__all__ = ["DefaultSource", "LanceTable", "companion_jar", "errors"]


def __getattr__(name: str) -> Any:
    if name == "LanceTable":
        from pyspark_lance.spark.api.lance_table import LanceTable

        return LanceTable
    if name == "companion_jar":
        from pyspark_lance.spark.companion import companion_jar

        return companion_jar
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyspark_lance.spark.api.foreign_names import unknown_in_package

    raise unknown_in_package(name, sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
