"""Every test runs in some process, and no process has two kinds of sessions."""

from __future__ import annotations

import random
import re
from types import SimpleNamespace

import pytest
from session_kinds import KINDS
from session_schedule import SessionScheduling

TESTS = [
    *(f"tests/spark/test_{file}.py::test_a[{kind}]" for file in "abcd" for kind in KINDS),
    *(f"tests/spark/test_{file}.py::test_b[plain-1]" for file in "ae"),
    *(f"tests/spark/plugin/test_{file}.py::test_{n}[x-plugin]" for file in "xy" for n in "ab"),
    *(f"tests/docs/test_d.py::test_{n}" for n in ("a", "b[plain]", "c[plugin]")),
    *(f"tests/table/test_{file}.py::test_{n}[{n}plain]" for file in "pqrst" for n in range(4)),
]


class Process:
    """What xdist knows of a process, and the tests that it was given."""

    def __init__(self):
        self.gateway = SimpleNamespace(id=str(id(self)))
        self.shutting_down = False
        self.waiting, self.done = [], []

    def send_runtest_some(self, places):
        self.waiting += places

    def shutdown(self):
        self.shutting_down = True


def scheduling(pytestconfig, count):
    config = SimpleNamespace(
        option=SimpleNamespace(loadscopereorder=False),
        getvalue=lambda name: [f"{count}*popen"],
        getoption=pytestconfig.getoption,
        hook=pytestconfig.hook,
    )
    schedule = SessionScheduling(config)
    schedule.numnodes = count
    return schedule


def kinds(process):
    with_session = [test for test in process.done if "tests/spark" in test]
    shown = {part for test in with_session for part in re.split(r"[][-]", test)}
    return shown & set(KINDS)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_schedule_gives_each_process_one_session_kind(pytestconfig, count, seed):
    rng = random.Random(seed)
    schedule = scheduling(pytestconfig, count)
    processes = [Process() for _ in range(count)]
    for process in processes:
        schedule.add_node(process)
        schedule.add_node_collection(process, TESTS)
    schedule.schedule()
    while running := [one for one in processes if one.waiting]:
        process = rng.choice(running)
        place = process.waiting.pop(0)
        process.done.append(TESTS[place])
        schedule.mark_test_complete(process, place)
    assert schedule.tests_finished
    assert sorted(test for one in processes for test in one.done) == sorted(TESTS)
    with_documents = [one for one in processes if any("docs" in test for test in one.done)]
    assert len(with_documents) == 1
    if count > 1:
        assert all(len(kinds(one)) <= 1 for one in processes)
        assert [kinds(one) for one in processes[:2]] == [{kind} for kind in KINDS]
