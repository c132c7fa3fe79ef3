"""Three writers at once: one is stopped at some call, the next runs and may be stopped too.

Calls may also fail, carried out or not.  A history is made of its seed alone.
"""

from __future__ import annotations

import itertools
import random
import shutil
from dataclasses import dataclass

from directed_store import Director, directed, fail, in_charge, lost, pause, pause_after
from interleaved_operations import FIRST, SECOND
from interleaving import (
    Failure,
    Outcome,
    Setup,
    attempt,
    calls_alone,
    check_table,
    compare,
    in_order,
    new_copy,
    state,
    sweep,
    was_gone,
)

from pyspark_lance.errors import CommitConflictError, StorageError

SCENES = {
    "before": pause,
    "after": pause_after,
    "instead of": fail,
    "after, unanswered,": lambda others: pause_after(others, answer=lost),
}
NEW_TABLES = ("recreate", "recreate_like", "their_new_table")
FAULTS = ("instead of", "after, unanswered,")


@dataclass(frozen=True)
class Writer:
    """One of three.

    Attributes:
        name: Its operation.
        who: Its number.
        scene: What happens at ``call``; None if it is not stopped.
        call: Number of a call.
        sweeps: It removes all older versions when it is done.
    """

    name: str
    who: int
    scene: str | None
    call: int
    sweeps: bool

    def __str__(self) -> str:
        stopped = f" [others {self.scene} call {self.call}]" if self.scene else ""
        return self.name + stopped + (" and a sweep" if self.sweeps else "")


@dataclass(frozen=True)
class History:
    """What happens, all of it."""

    seed: int
    setup: Setup
    writers: tuple[Writer, ...]

    def __str__(self) -> str:
        return f"seed {self.seed}: {'; '.join(map(str, self.writers))} ({self.setup})"

    @property
    def store_may_fail(self) -> bool:
        """True if this may be reported: calls fail, or folders or versions are removed."""
        return any(
            writer.scene in FAULTS or writer.sweeps or writer.name in NEW_TABLES
            for writer in self.writers
        )


def history_of(seed: int) -> History:
    """The history of a seed."""
    rng = random.Random(seed)
    setup = Setup(rng.random() < 0.7, rng.random() < 0.3, rng.random() < 0.2)
    writers = []
    for who in range(3):
        name = rng.choice(sorted(SECOND if who else FIRST))
        calls = calls_alone(setup, name) if name in FIRST else ()
        stopped = who == 0 or (who == 1 and rng.random() < 0.6)
        scene = rng.choices(list(SCENES), [5, 2, 1, 1])[0] if calls and stopped else None
        call = rng.randrange(len(calls)) if scene else 0
        if scene in FAULTS and calls[call][0].startswith(("output.", "open_output")):
            scene = "before"  # half a file is no longer stopped than a whole one
        writers.append(Writer(name, who, scene, call, who > 0 and rng.random() < 0.2))
    return History(seed, setup, tuple(writers))


def run_history(seed: int) -> str:
    """Run it; return how it ended.

    Raises:
        AssertionError: It ended in no order.
    """
    history = history_of(seed)
    path = new_copy(history.setup)
    reports: dict[tuple[str, int], object] = {}
    begun: set[int] = set()

    def go_on(who: int) -> None:
        """The writers from this one on, unless they have begun."""
        if who >= len(history.writers) or who in begun:
            return
        begun.add(who)
        writer = history.writers[who]
        director = None
        if writer.scene:
            director = Director({writer.call: SCENES[writer.scene](lambda: go_on(who + 1))})
        with in_charge(director):
            reports[writer.name, who] = attempt(writer.name, path, who)
        if writer.sweeps:
            with in_charge(None):
                sweep(path)
        go_on(who + 1)

    with directed():
        go_on(0)
    ended = check_conflict(history, state(path, reports))
    check_table(path, history.setup)
    shutil.rmtree(path, ignore_errors=True)
    return ended


def check_conflict(history: History, found: Outcome) -> str:
    """The order that explains the end; a writer that met a conflict has done nothing."""
    must, may = [], []
    for writer, report in found.reports.items():
        kind = report.kind if isinstance(report, Failure) else type(None)
        if issubclass(kind, StorageError) and history.store_may_fail:
            may.append(writer)
        elif not (issubclass(kind, CommitConflictError) or was_gone(report)):
            must.append(writer)
    different = []
    for count in range(len(may), -1, -1):
        for some in itertools.combinations(may, count):
            for order in itertools.permutations([*must, *some]):
                expected = in_order(history.setup, order)
                silent = set(found.reports) - set(must)
                difference = compare(expected, found, without=silent)
                if difference is None:
                    return f"{len(order)} of {len(found.reports)}"
                different.append(f"  {', '.join(name for name, _ in order)}: {difference}")
    raise AssertionError(f"{history}: no order\n{found.reports}\n" + "\n".join(different))
