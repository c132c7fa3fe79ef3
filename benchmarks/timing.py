"""Timing and printing shared by the benchmarks."""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

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


def processor_seconds(root: int) -> float:
    """What a process and all that it started have used so far."""
    parents: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # it has ended
            continue
        fields = text.rpartition(")")[2].split()
        pid = int(stat.parent.name)
        parents.setdefault(int(fields[1]), []).append(pid)
        used[pid] = sum(map(int, fields[11:15]))  # its own, and that of children that ended
    total, pids = 0, [root]
    while pids:
        pid = pids.pop()
        total += used.get(pid, 0)
        pids += parents.get(pid, [])
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
