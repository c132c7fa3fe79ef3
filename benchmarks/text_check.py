"""What is paid for looking whether strings are UTF-8, in processor time.

Scans look if they are asked to (option `checkText`), writes always.

    python benchmarks/text_check.py [--rows 1000000]

One column of strings, the page cache warm; scans with and without the check take turns.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable

import pyarrow as pa
from timing import print_table

from pyspark_lance.codec.text_check import holds_invalid_text
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import (
    WriteSettings,
    commit_write,
    plan_write,
    write_rows,
)

CASES = {
    "ASCII, 13 bytes": lambda row: f"value-{row}",
    "umlauts, 13 bytes": lambda row: f"wört-{row}",
    "one of 20 words": lambda row: f"word{row % 20}",
    "ASCII, 220 bytes": lambda row: f"{row * 2654435761 % 1000003} abcdefgh" * 14,
    "Cyrillic, 220 bytes": lambda row: f"привет {row * 2654435761 % 1000003}" * 11,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    num_rows = parser.parse_args().rows
    rows, written = [], []
    for version in ("2.0", "2.1", "2.2"):
        for name, text in CASES.items():
            count = num_rows // 5 if "220" in name else num_rows
            table = pa.table({"s": [text(row) for row in range(count)]})
            whole, check = seconds_of_write(table, version)
            written.append(
                (version, name, f"{whole * 1e3:.1f}", f"{check * 1e3:.1f}", f"{check / whole:.1%}")
            )
            with tempfile.TemporaryDirectory() as folder:
                write(folder + "/t", table, version)
                plain, checked = seconds(Snapshot.open(Table(folder + "/t")))
            rows.append(
                (version, name, f"{plain * 1e3:.1f}", f"{checked * 1e3:.1f}",
                 f"{checked / plain:.2f}")
            )  # fmt: skip
    header = ("version", "strings", "ms", "ms with checkText", "ratio")
    print_table(f"Scans of {num_rows} strings ({num_rows // 5} long ones)", header, rows)
    header = ("version", "strings", "ms", "ms of the check", "share")
    print_table(f"Writes of {num_rows} strings ({num_rows // 5} long ones)", header, written)


def write(path: str, table: pa.Table, version: str) -> None:
    plan = plan_write(Table(path), table.schema, WriteSettings(file_version=version), existing=None)
    commit_write(plan, write_rows(plan, table.to_batches()))


def seconds_of_write(table: pa.Table, version: str) -> tuple[float, float]:
    """Processor time of the fastest write, which checks, and of the check alone."""
    whole, check = [], []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            start = time.process_time()
            write(folder + "/t", table, version)
            whole.append(time.process_time() - start)
        start = time.process_time()
        for batch in table.to_batches():
            holds_invalid_text(batch.column(0))
        check.append(time.process_time() - start)
    return min(whole), min(check)


def seconds(snapshot: Snapshot) -> tuple[float, float]:
    """Processor time of the fastest scan without the check, and with it."""

    def scan(checks_text: bool) -> Callable[[], None]:
        def scan_all() -> None:
            for task in plan_scan(snapshot, ScanRequest(checks_text=checks_text)):
                for _ in task.run():
                    pass

        return scan_all

    found: list[list[float]] = [[], []]
    for _ in range(7):
        for times, function in zip(found, (scan(False), scan(True)), strict=True):
            start = time.process_time()
            function()
            times.append(time.process_time() - start)
    return min(found[0]), min(found[1])


if __name__ == "__main__":
    main()
