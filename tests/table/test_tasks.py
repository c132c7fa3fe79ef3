"""Tasks in this process."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_lance.table.tasks import run_local


@dataclass(frozen=True)
class Appends:
    """A task that notes that it ran."""

    number: int
    done: list

    def run(self):
        self.done.append(self.number)
        return self.number


def test_local_tasks_run_in_order_on_demand():
    done = []
    results = run_local([Appends(number, done) for number in range(3)])
    assert (next(results), done) == (0, [0])
    assert (list(results), done) == ([1, 2], [0, 1, 2])
