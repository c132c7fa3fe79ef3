"""Kill a writer before and after its calls of the store, each time on a copy of one table.

To be run in a process of its own, which forks.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable

from directed_store import Director, directed, in_charge

from pyspark_lance.table.version.table import Table

WRITES = ("open_output", "output.close", "put", "put_if_absent")


def kill_at_calls(
    root: str, work: Callable[[Table], object], *, every_call: bool = False
) -> list[tuple[str, str, str]]:
    """Runs ``work`` on copies of ``root/before``; ``every_call``: not at those alone that write.

    Returns:
        Of each killed run the name of its copy, the call, and the folder that was called upon.
    """

    def run(name: str, scenes: dict[int, Callable]) -> list[tuple[str, str]]:
        shutil.copytree(f"{root}/before", f"{root}/{name}")
        director = Director(scenes)
        with directed(), in_charge(director):
            work(Table(f"{root}/{name}"))
        return director.calls

    died = []
    for number, (call, path) in enumerate(run("whole", {})):
        if not every_call and call not in WRITES:
            continue
        for when, scene in (("before", _before), ("after", _after)):
            name = f"{number}-{when}"
            child = os.fork()
            if not child:
                run(name, {number: scene})
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, name
            died.append((name, call, path.partition("/")[0]))
    return died


def _before(director: Director, call: Callable[[], object]) -> None:
    _die()


def _after(director: Director, call: Callable[[], object]) -> None:
    try:
        call()
    finally:
        _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
