"""The Spark connector: the data source, LanceTable, and what the JVM plugin asks.

May import: everything.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """``pyspark_lance.plugin`` needs no import of its own; loaded when it is used."""
    if name == "plugin":
        return import_module(f"{__name__}.plugin")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
