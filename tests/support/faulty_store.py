"""FaultyStore: a real store whose answers get lost, whose puts fail, whose reads are torn.

Faults are planned per call and used up in order::

    store = FaultyStore(MemoryStore())
    # The object is there, but the caller gets an error.
    store.plan("put_if_absent", Fault.LOST_ANSWER)
    # The second put fails.
    store.plan("put", Fault.PASS, Fault.FAIL)
    # Half of the bytes, only below _versions.
    store.plan("get_range", Fault.TORN, path="_versions")
    # Another writer gets in between.
    store.before("put_if_absent", lambda path: ...)
"""

import contextlib
import enum
import threading
from collections import defaultdict, deque
from typing import ClassVar

from pyspark_lance.errors import StorageError
from pyspark_lance.store.object_store import names_directly_in


class Fault(enum.Enum):
    """What happens to one call."""

    PASS = "nothing: the call works"
    FAIL = "it fails and nothing happened"
    LOST_ANSWER = "it happened, but the caller gets an error"
    REPEATED = (
        "it happened twice, as when a client repeats a request; the second answer is returned"
    )
    TORN = "a read returns only the first half"
    MISSING = "a read does not find the object, as in a store that is slow to show it"


class FaultyStore:
    """Wraps any store; without planned faults it is the store.

    Attributes:
        calls: Name and path of every call so far, in order.
    """

    def __init__(self, inner):
        self.inner = inner
        self.uri = inner.uri
        self.lists_in_order = inner.lists_in_order
        self.lists_names_only = inner.lists_names_only
        self.unproven_server = inner.unproven_server
        self.server = inner.server
        self.cache_key = inner.cache_key
        self.calls = []
        self._plans = defaultdict(deque)
        self._before = defaultdict(list)
        self._lock = threading.Lock()

    def __repr__(self):
        return f"FaultyStore({self.inner!r})"

    def check_writable(self):
        self.inner.check_writable()

    def plan(self, call, *faults, path=""):
        """Queues faults for calls of this name whose path contains ``path``."""
        self._plans[call].extend((path, fault) for fault in faults)

    def before(self, call, action, *, times=1):
        """Runs ``action(path)`` before the next ``times`` calls of this name."""
        self._before[call].extend([action] * times)

    @property
    def pending(self):
        """How many planned faults have not happened."""
        return sum(len(plan) for plan in self._plans.values())

    def count(self, call, path=""):
        """How many calls of this name there were with ``path`` in their path."""
        return sum(1 for name, where in self.calls if name == call and path in where)

    def _next_fault(self, call, path):
        with self._lock:
            self.calls.append((call, path))
            actions = [self._before[call].pop(0)] if self._before[call] else []
            plan = self._plans[call]
            fault = Fault.PASS
            if plan and plan[0][0] in path:
                fault = plan.popleft()[1]
        for action in actions:
            action(path)
        return fault

    def _run(self, call, path, action):
        fault = self._next_fault(call, path)
        if fault is Fault.FAIL:
            raise StorageError(f"{call} was made to fail", where=f"{self.uri}/{path}")
        if fault is Fault.MISSING:
            raise FileNotFoundError(2, "made to be missing", f"{self.uri}/{path}")
        if fault is Fault.REPEATED:
            with contextlib.suppress(FileNotFoundError):
                action()
        answer = action()
        if fault is Fault.LOST_ANSWER:
            raise StorageError(f"the answer to {call} was lost", where=f"{self.uri}/{path}")
        if fault is Fault.TORN:
            return _half(answer)
        return answer

    def get(self, path):
        return self._run("get", path, lambda: self.inner.get(path))

    def get_tail(self, path, length):
        return self._run("get_tail", path, lambda: self.inner.get_tail(path, length))

    def get_range(self, path, start, end):
        return self._run("get_range", path, lambda: self.inner.get_range(path, start, end))

    def get_ranges(self, path, ranges):
        return self._run("get_ranges", path, lambda: self.inner.get_ranges(path, ranges))

    def stat(self, path):
        return self._run("stat", path, lambda: self.inner.stat(path))

    def size(self, path):
        return self._run("size", path, lambda: self.inner.size(path))

    def exists(self, path):
        try:
            return self._run("exists", path, lambda: self.inner.exists(path))
        except FileNotFoundError:
            return False

    def put(self, path, data):
        return self._run("put", path, lambda: self.inner.put(path, data))

    def copy(self, source, target):
        return self._run("copy", source, lambda: self.inner.copy(source, target))

    def put_if_absent(self, path, data):
        return self._run("put_if_absent", path, lambda: self.inner.put_if_absent(path, data))

    def open_output(self, path):
        output = self._run("open_output", path, lambda: self.inner.open_output(path))
        return _FaultyOutput(self, path, output)

    def list(self, prefix, *, first=None):
        fault = self._next_fault("list", prefix)
        if fault is Fault.FAIL:
            raise StorageError("list was made to fail", where=f"{self.uri}/{prefix}")
        if fault is Fault.MISSING:
            return iter(())
        return self.inner.list(prefix, first=first)

    def list_names(self, folder):
        fault = self._next_fault("list", folder)
        if fault is Fault.FAIL:
            raise StorageError("list was made to fail", where=f"{self.uri}/{folder}")
        return [] if fault is Fault.MISSING else self.inner.list_names(folder)

    def delete(self, path):
        return self._run("delete", path, lambda: self.inner.delete(path))

    def delete_many(self, paths):
        for path in paths:
            self.delete(path)


class LateStore(FaultyStore):
    """A store whose listings lag behind: they show what was there when they were held.

    All else is up to date.  Stores of the same root lag together, whichever caller opened them.
    """

    _held: ClassVar[dict[str, list]] = {}

    def __init__(self, inner):
        super().__init__(inner)
        self.lists_names_only = False  # what it shows it has kept

    def hold_listings(self):
        """From now on listings stay as they are."""
        self._held[self.uri] = list(self.inner.list(""))

    @classmethod
    def release_listings(cls):
        """Listings show what there is."""
        cls._held.clear()

    def list(self, prefix, *, first=None):
        shown = self._held.get(self.uri)
        if shown is None:
            return super().list(prefix, first=first)
        self.calls.append(("list", prefix))
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        return iter([info for info in shown if info.path.startswith(folder)])

    def list_names(self, folder):
        return names_directly_in(folder, self.list(folder))


class _FaultyOutput:
    """Writes and closes can fail: plan them as ``output.write`` and ``output.close``."""

    def __init__(self, store, path, inner):
        self._store, self._path, self._inner = store, path, inner

    def write(self, data):
        return self._store._run("output.write", self._path, lambda: self._inner.write(data))

    def tell(self):
        return self._inner.tell()

    def close(self):
        return self._store._run("output.close", self._path, self._inner.close)

    def abort(self):
        self._store.calls.append(("output.abort", self._path))
        self._inner.abort()


def _half(answer):
    if isinstance(answer, tuple):
        content, size = answer
        return memoryview(content)[: len(content) // 2], size
    if isinstance(answer, list):
        return [memoryview(piece)[: len(piece) // 2] for piece in answer]
    return memoryview(answer)[: len(answer) // 2]
