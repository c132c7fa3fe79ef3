"""Timing and printing shared by the benchmarks."""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

# Where tables are noted besides, one a line.
_NOTES = "PYSPARK_LANCE_FIGURES"


def best(function: Callable[[], object], repeats: int = 5) -> float:
    """Seconds of the fastest of ``repeats`` runs, after one that warms up."""
    function()
    times = []
    for _ in range(repeats):
        gc.collect()
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def best_of_each(functions: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Seconds of the fastest run of each function.

    They take turns, so that whatever else the machine does meets them all; the first quarter of
    the turns only warms up, which a JVM needs.
    """
    times: list[list[float]] = [[] for _ in functions]
    for turn in range(repeats + repeats // 3):
        for function, found in zip(functions, times, strict=True):
            gc.collect()
            start = time.perf_counter()
            function()
            if turn >= repeats // 3:
                found.append(time.perf_counter() - start)
    return [min(found) for found in times]


class _Used(NamedTuple):
    """Ticks of the processor that one process has used."""

    parent: int
    own: int
    waited: int  # by its children that ended and that it waited for


def _tree(root: int) -> dict[int, _Used]:
    """A process and all that it started, by pid."""
    children: dict[int, list[int]] = {}
    used: dict[int, _Used] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # it has ended
            continue
        fields = [int(field) for field in text.rpartition(")")[2].split()[1:15]]
        pid = int(stat.parent.name)
        used[pid] = _Used(fields[0], sum(fields[10:12]), sum(fields[12:14]))
        children.setdefault(fields[0], []).append(pid)
    found, pids = {}, [root]
    while pids:
        pid = pids.pop()
        if pid in used:
            found[pid] = used[pid]
        pids += children.get(pid, [])
    return found


# What earlier calls saw, by root, and what ended since then without a parent that waits.
_seen: dict[int, dict[int, _Used]] = {}
_ended: dict[int, int] = {}


def processor_seconds(root: int) -> float:
    """What a process and all that it started have used so far.

    PySpark's daemon does not wait for its workers, so the system forgets what those used that
    ended; what the last call saw of them is kept.
    """
    before, now = _seen.get(root, {}), _tree(root)
    for pid, used in before.items():
        if pid in now:
            continue
        parent = used.parent
        known = parent in before and parent in now
        taken_over = now[parent].waited - before[parent].waited if known else 0
        if taken_over < used.own + used.waited:
            _ended[root] = _ended.get(root, 0) + used.own + used.waited
    _seen[root] = now
    total = sum(used.own + used.waited for used in now.values()) + _ended.get(root, 0)
    return total / os.sysconf("SC_CLK_TCK")


def print_table(title: str, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Prints a Markdown table, and notes it for ``run.py --chart``."""
    if _NOTES in os.environ:
        with open(os.environ[_NOTES], "a") as notes:
            notes.write(json.dumps({"title": title, "header": header, "rows": rows}) + "\n")
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)) + " |"

    print(f"\n### {title}\n")
    print(line(header))
    print("|" + "|".join("-" * (w + 2) for w in widths) + "|")
    for row in rows:
        print(line(row), flush=True)
