"""Run stages of DML statements one after another in this process, as ``StageRunner`` says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_lance.table.dml.change_stages import PAYLOAD
from pyspark_lance.table.dml.key_filter import KeyFilter
from pyspark_lance.table.dml.plain_merge import FILTER, KIND, SOURCE
from pyspark_lance.table.dml.run_changes import Stage

Tasks = list[list[pa.RecordBatch]]
"""Rows: one list of batches for each task."""


class LocalRunner:
    """Runs stages sequentially in this process; rows are one list of batches per task."""

    def __init__(self, buckets: int = 1) -> None:
        self._buckets = buckets

    def run(
        self,
        rows: Tasks,
        stage: Stage,
        schema: pa.Schema,
        *,
        numbered: bool = False,
        packed: bool = True,
    ) -> Tasks:
        numbers = ({"task": task} if numbered else {} for task in range(len(rows)))
        return [list(stage(iter(one), **number)) for one, number in zip(rows, numbers, strict=True)]

    def run_over(self, tasks: Sequence[Any], stage: Stage, schema: pa.Schema) -> Tasks:
        return [list(stage([task])) for task in tasks]

    def repartition(
        self, rows: Tasks, column: str, *, order: str | None = None, tasks: int | None = None
    ) -> Tasks:
        count = tasks or self._buckets
        batches = [batch for one in rows for batch in one]
        if not batches:
            return [[] for _ in range(count)]
        table = pa.Table.from_batches(batches)
        arranged = table.take(np.argsort(table[order or column].to_numpy(), kind="stable"))
        task_of = arranged[column].to_numpy() % count
        return [arranged.filter(pa.array(task_of == task)).to_batches() for task in range(count)]

    def rebalance(self, rows: Tasks, column: str) -> Tasks:
        return self.repartition(rows, column)

    def union(self, rows: Tasks, others: Tasks) -> Tasks:
        return [*rows, *others]

    def source_and_keys(self, staged: Tasks) -> tuple[Tasks, KeyFilter | None]:
        rows = [[batch for batch in one if batch[KIND][0].as_py() == SOURCE] for one in staged]
        known = (data for kind, data in self.collect(staged, KIND, PAYLOAD) if kind == FILTER)
        return rows, reduce(KeyFilter.union, map(KeyFilter.of_bytes, known), KeyFilter.of([]))

    def collect(self, rows: Tasks, *columns: str) -> Iterable[tuple[Any, ...]]:
        for batch in (batch for one in rows for batch in one):
            yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)

    def num_buckets(self) -> int:
        """Number of buckets of the constructor."""
        return self._buckets
