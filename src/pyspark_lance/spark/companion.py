"""Former name of ``pyspark_lance.plugin``, kept for scripts that use it."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    known = "plugin_jar" if name == "companion_jar" else name
    return getattr(import_module("pyspark_lance.plugin"), known)


if __name__ == "__main__":
    sys.exit(__getattr__("main")())
