"""Lance tables in PySpark.

Spark imports every installed package whose name starts with ``pyspark_`` to look for data
sources, so importing this module must be cheap and must not fail: it imports the data source,
which only imports pyspark. Everything else is imported on first use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark_lance.version import __version__ as __version__

try:
    from pyspark_lance.spark.data_source import LanceDataSource as DefaultSource
except ModuleNotFoundError as error:
    if error.name not in ("pyspark", "pyspark.sql"):
        raise
    # Without pyspark, the folder with the plugin's jar still looks like a namespace package.
    raise ModuleNotFoundError(
        "pyspark is not installed, and pyspark-lance needs it: pip install 'pyspark>=4.0'",
        name=error.name,
    ) from None

if TYPE_CHECKING:
    from pyspark_lance.metafile.refs_file import Branch, Tag
    from pyspark_lance.plugin import enable, plugin_jar
    from pyspark_lance.spark.api.dml import LanceMergeBuilder, LanceOptimizeBuilder
    from pyspark_lance.spark.api.lance_table import LanceTable
    from pyspark_lance.spark.api.table_creation import LanceTableBuilder
    from pyspark_lance.spark.options.hadoop_settings import hadoop_options
    from pyspark_lance.table.cdf.change_feed import ChangeCounts
    from pyspark_lance.table.cleanup.cleanup import CleanupResult, OrphanFile
    from pyspark_lance.table.columns.change_columns import ColumnResult
    from pyspark_lance.table.compaction.compact import CompactionResult
    from pyspark_lance.table.compaction.stable_row_ids import CopyResult
    from pyspark_lance.table.dml.row_change import ChangeResult
    from pyspark_lance.table.index_build.column_indices import IndexResult
    from pyspark_lance.table.index_build.vector_build import VectorIndexResult
    from pyspark_lance.table.index_build.zone_maps import ZoneMapResult
    from pyspark_lance.table.refs import Consumer
    from pyspark_lance.table.unit_of_work import MetadataResult
    from pyspark_lance.table.verify.find_value import FileWithValue, FindValueResult
    from pyspark_lance.table.verify.verify_manifest import Finding, VerifyResult

# The modules that define the public names, which are imported on first use.
_DEFINED_IN = {
    "Branch": "metafile.refs_file",
    "ChangeCounts": "table.cdf.change_feed",
    "ChangeResult": "table.dml.row_change",
    "CleanupResult": "table.cleanup.cleanup",
    "ColumnResult": "table.columns.change_columns",
    "CompactionResult": "table.compaction.compact",
    "Consumer": "table.refs",
    "CopyResult": "table.compaction.stable_row_ids",
    "FileWithValue": "table.verify.find_value",
    "FindValueResult": "table.verify.find_value",
    "Finding": "table.verify.verify_manifest",
    "IndexResult": "table.index_build.column_indices",
    "LanceMergeBuilder": "spark.api.dml",
    "LanceOptimizeBuilder": "spark.api.dml",
    "LanceTable": "spark.api.lance_table",
    "LanceTableBuilder": "spark.api.table_creation",
    "MetadataResult": "table.unit_of_work",
    "OrphanFile": "table.cleanup.cleanup",
    "Tag": "metafile.refs_file",
    "VectorIndexResult": "table.index_build.vector_build",
    "VerifyResult": "table.verify.verify_manifest",
    "ZoneMapResult": "table.index_build.zone_maps",
    "enable": "plugin",
    "hadoop_options": "spark.options.hadoop_settings",
    "plugin_jar": "plugin",
}

__all__ = ["DefaultSource", "errors", *_DEFINED_IN]


def __getattr__(name: str) -> Any:
    if name in _DEFINED_IN:
        return getattr(import_module(f"{__name__}.{_DEFINED_IN[name]}"), name)
    if name == "plugin":
        return import_module(f"{__name__}.plugin")
    if name == "companion_jar":  # its former name
        return __getattr__("plugin").plugin_jar
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyspark_lance.spark.api.unsupported_attributes import unknown_in_package

    raise unknown_in_package(name, sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
