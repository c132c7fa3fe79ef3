"""Grouping pieces of work into tasks of about equal cost."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.table.scan.plan_scan import pack_by_cost

MIB = 1 << 20
PIECES = st.lists(st.tuples(st.integers(0, 12 * MIB), st.sampled_from([0, 0, 0, 1])), max_size=60)


def halves(piece, count):
    return [(*piece, part) for part in range(count)]


@given(PIECES, st.integers(1, 8))
def test_tasks_are_filled_in_order(pieces, parallelism):
    costs = np.array([cost for cost, _ in pieces], np.float64)
    kinds = np.array([kind for _, kind in pieces], np.int64)
    work = list(enumerate(pieces))
    tasks = pack_by_cost(costs, work, lambda piece, count: [piece], parallelism, kinds)
    assert [piece for task in tasks for piece in task] == work
    target = max(4 * MIB, min(128 * MIB, costs.sum() / parallelism))
    sums = [sum(cost for _, (cost, _) in task) for task in tasks]
    for number, task in enumerate(tasks):
        assert task
        assert len({kind for _, (_, kind) in task}) == 1
        assert len(task) == 1 or sums[number] <= 1.1 * target
        if number + 1 < len(tasks):
            _, (cost, kind) = tasks[number + 1][0]
            assert kind != task[0][1][1] or sums[number] + cost > 1.1 * target


def test_large_pieces_are_divided():
    tasks = pack_by_cost(np.array([2.0, 40.0]) * MIB, [(0,), (1,)], halves, 4)
    assert tasks == [[(0,)], *([(1, part)] for part in range(4))]
