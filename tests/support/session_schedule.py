"""Which process of a test run gets which tests: each JVM is of one kind, and there are two of them.

The first process has the sessions of one kind, the second those of the other, and the rest begin
with what needs none.  Tests with a session wait for Spark a fifth of the time, so three processes
keep two cores busy.
"""

from __future__ import annotations

import re

from session_kinds import KINDS
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_KIND = re.compile(rf"^tests/spark/.*::\w+\[(?:.*-)?({'|'.join(KINDS)})[]-]")
# With more tests than these to come, xdist gives a process no further ones.
_FEW = 2


class SessionScheduling(LoadFileScheduling):
    """Whole files, as xdist deals them out, but the parts of each kind of session by themselves."""

    def __init__(self, config, log=None) -> None:
        super().__init__(config, log)
        self._kinds: dict[WorkerController, str] = {}

    def _split_scope(self, nodeid: str) -> str:
        """The file, and the kind of session among the parameters of a test."""
        kind = _KIND.match(nodeid)
        return f"{super()._split_scope(nodeid)}::{kind[1] if kind else ''}"

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give what suits a process best; what no other process can run, to any."""
        scope = self._next(node) or next(iter(self.workqueue))
        if kind := _kind(scope):
            self._kinds.setdefault(node, kind)
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        is_idle = self._pending_of(self.assigned_work[node]) <= _FEW
        others = [one for one in self.nodes if one is not node and not one.shutting_down]
        if is_idle and others and self.workqueue and self._next(node) is None:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _next(self, node: WorkerController) -> str | None:
        """The next part for a process: of the kind of its JVM, or without one, or of a new kind."""
        waiting: dict[str, str] = {}
        for scope in self.workqueue:
            waiting.setdefault(_kind(scope), scope)
        own = self._kinds.get(node)
        taken = {self._kinds.get(one) for one in self.nodes}
        new = sorted((kind for kind in KINDS if kind in waiting), key=lambda kind: kind in taken)
        if own:
            wanted = [own, ""]
        elif new and new[0] not in taken:
            wanted = [new[0]]
        else:
            wanted = ["", *new]
        return next((waiting[kind] for kind in wanted if kind in waiting), None)


def _kind(scope: str) -> str:
    return scope.rpartition("::")[2]
