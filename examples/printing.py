"""Print headings, figures and rows of the examples."""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame

# Colours are for terminals alone.
IS_TERMINAL = sys.stdout.isatty() and "NO_COLOR" not in os.environ
BOLD, DIM, GREEN, PLAIN = (
    ("\033[1m", "\033[2m", "\033[32m", "\033[0m") if IS_TERMINAL else ("", "", "", "")
)


def step(title: str) -> None:
    """Print a heading."""
    print(f"\n{BOLD}{title}{PLAIN}")


def show(label: str, value: object) -> None:
    """Print one figure."""
    print(f"  {label:<58} {GREEN}{value}{PLAIN}")


def rows(frame: DataFrame, limit: int = 5) -> None:
    """Print a few rows, indented."""
    for row in frame.limit(limit).collect():
        cells = (f"{name}={_short(value)}" for name, value in row.asDict().items())
        print(f"  {DIM}{'  '.join(cells)}{PLAIN}")


def _short(value: object) -> object:
    if isinstance(value, list):
        return "[" + ", ".join(f"{one:.2f}" for one in value) + "]"
    return value
