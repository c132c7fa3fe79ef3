"""Tests that need a feature of Spark which its older releases lack."""

from __future__ import annotations

import re

import pyspark
import pytest

RELEASE = tuple(int(one) for one in re.findall(r"\d+", pyspark.__version__)[:2])

# The first release with a feature, by the words that the reason of a skipped test ends with.
_SINCE = {
    "constraints of tables": (4, 1),
    "SHOW PROCEDURES": (4, 1),
    "column defaults of V2 tables in writes by name": (4, 1),
    "MERGE WITH SCHEMA EVOLUTION": (4, 1),
    "SQL scripts": (4, 1),
    "quotes doubled in strings": (4, 1),
    "Unix sockets of Python workers": (4, 1),
    "tracebacks of workers that cannot flush": (4, 1),
    "filter pushdown of Python sources": (4, 1),
    "limits of bytes for batches": (4, 1),
    "parameters that the parser replaces": (4, 1),
    "classes that the plugin compiles against": (4, 3),
    "CREATE TABLE LIKE of V2 tables": (4, 3),
    "schema evolution of other writes than MERGE": (4, 2),
    "paths in IDENTIFIER": (4, 2),
    "CHANGES of tables": (4, 2),
    "auto CDC of pipelines": (4, 2),
    "Ctrl-C while the driver waits for the JVM": (4, 2),
    "strings in dollars": (4, 2),
    "limits of micro-batches": (4, 2),
}


def has(feature: str) -> bool:
    """Return whether the Spark of these tests has a feature."""
    return _SINCE[feature] <= RELEASE


def needs(feature: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test where Spark lacks a feature."""
    since = ".".join(map(str, _SINCE[feature]))
    return pytest.mark.skipif(not has(feature), reason=f"Spark before {since} has no {feature}")
