"""The command line: ``pyspark-lance``, and ``python -m pyspark_lance``."""

from __future__ import annotations

import sys

from pyspark_lance.command_line.main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
