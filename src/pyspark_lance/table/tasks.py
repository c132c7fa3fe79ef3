"""Tasks: what the driver plans, and executors run.

A task is a small immutable value that contains everything an executor needs; it can be pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

Result = TypeVar("Result", covariant=True)


class Task(Protocol[Result]):
    """Work that any process can do, with a small result or an iterator of record batches."""

    def run(self) -> Result:
        """Do the work; commit nothing."""


class MaintenanceTask(Task[Result], Protocol[Result]):
    """A task of work that takes long enough for its stages to be shown."""

    title: ClassVar[str]
    """What the stage does, in a few words, the same for all its tasks."""


RunTasks: TypeAlias = Callable[[Sequence[MaintenanceTask[Any]]], Iterable[Any]]
"""Runs the tasks of a stage anywhere, and returns their results in the order of the tasks."""


def run_local(tasks: Iterable[Task[Result]]) -> Iterator[Result]:
    """Run tasks in this process, one after the other."""
    return (task.run() for task in tasks)
