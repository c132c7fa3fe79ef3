"""Conditions on rows: public names of the tree, its evaluation and pruning.

Conditions are built by ``parse`` (SQL) or ``json`` (the JVM plugin).  Other modules: ``tree`` (the
nodes), ``builder`` (types and constant folding), ``evaluate`` (results per row), ``prune`` (results
per fragment or page).  No I/O.
"""

from __future__ import annotations

from pyspark_lance.predicate.evaluate import evaluate, matching
from pyspark_lance.predicate.prune import (
    Bounds,
    parts_that_can_match,
    parts_that_must_match,
    row_address_candidates,
    row_id_candidates,
)
from pyspark_lance.predicate.tree import Predicate, all_of, column_paths_of, columns_of, conjuncts

__all__ = [
    "Bounds",
    "Predicate",
    "all_of",
    "column_paths_of",
    "columns_of",
    "conjuncts",
    "evaluate",
    "matching",
    "parts_that_can_match",
    "parts_that_must_match",
    "row_address_candidates",
    "row_id_candidates",
]
