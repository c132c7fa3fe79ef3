"""Processor time of checking whether strings are UTF-8: python benchmarks/text_check.py.

Scans check if they are asked to (option `checkText`), writes always. One column of strings, the
page cache warm; scans with and without the check take turns.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa
from harness import fastest, fastest_of_each, print_table, run, scan, scratch, write

from pyspark_lance.codec.text_check import holds_invalid_text

CASES = {
    "ASCII, 13 bytes": lambda row: f"value-{row}",
    "umlauts, 13 bytes": lambda row: f"wört-{row}",
    "one of 20 words": lambda row: f"word{row % 20}",
    "ASCII, 220 bytes": lambda row: f"{row * 2654435761 % 1000003} abcdefgh" * 14,
    "Cyrillic, 220 bytes": lambda row: f"привет {row * 2654435761 % 1000003}" * 11,
}


def check(table: pa.Table) -> None:
    for batch in table.to_batches():
        holds_invalid_text(batch.column(0))


def write_alone(table: pa.Table, version: str) -> None:
    with scratch() as folder:
        write(f"{folder}/t", table, file_version=version)


def main(*, rows: int = 1_000_000) -> None:
    scans, writes = [], []
    for version in ("2.0", "2.1", "2.2"):
        for name, text in CASES.items():
            count = rows // 5 if "220" in name else rows
            table = pa.table({"s": [text(row) for row in range(count)]})
            whole = 1e3 * fastest(partial(write_alone, table, version)).processor
            alone = 1e3 * fastest(partial(check, table)).processor
            writes.append((version, name, f"{whole:.1f}", f"{alone:.1f}", f"{alone / whole:.1%}"))
            with scratch() as folder:
                write(f"{folder}/t", table, file_version=version)
                asked = [partial(scan, f"{folder}/t", checks_text=it) for it in (False, True)]
                plain, checked = (1e3 * one.processor for one in fastest_of_each(asked, 7))
            scans.append((version, name, f"{plain:.1f}", f"{checked:.1f}", checked / plain))
    strings = f"{rows:,} strings ({rows // 5:,} long ones)"
    header = "version | strings | ms | ms with checkText | ratio"
    print_table(f"Scans of {strings}", header, scans)
    header = "version | strings | ms | ms of the check | share"
    print_table(f"Writes of {strings}", header, writes)


if __name__ == "__main__":
    run(main)
