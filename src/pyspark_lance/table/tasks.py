"""Tasks: what the driver plans, and executors run.

A task is a small immutable value that contains everything an executor needs; it can be pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

Result = TypeVar("Result", covariant=True)


class Task(Protocol[Result]):
    """Work that any process can do, with a small result or an iterator of record batches."""

    def run(self) -> Result:
        """Do the work; commit nothing."""


RunTasks: TypeAlias = Callable[[Sequence[Task[Any]]], Iterable[Any]]
"""Runs tasks anywhere, and returns their results in the order of the tasks."""


def run_local(tasks: Iterable[Task[Result]]) -> Iterator[Result]:
    """Run tasks in this process, one after the other."""
    return (task.run() for task in tasks)
