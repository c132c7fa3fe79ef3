"""The conformance tables of the table format, appendix A, and versions in its notation."""

from __future__ import annotations

import re

from commit_replay import decoded

from pyspark_lance.commit.manifest_builder import TableState

TABLE_A = """
A1 | 1 | flags 2 | max 1 | next 5
f0 3 del 0 ids [0,1,2] created [1,1,1] updated [1,1,1]
f1 2 del 0 ids [3,4] created [1,1] updated [1,1]
A2 | 2 | flags 2 | max 2 | next 7
f0 3 del 0 ids [0,1,2] created [1,1,1] updated [1,1,1]
f1 2 del 0 ids [3,4] created [1,1] updated [1,1]
f2 2 del 0 ids [5,6] created [2,2] updated [2,2]
A3 | 3 | flags 3 | max 3 | next 7
f0 3 del 1 ids [0,1,2] created [1,1,1] updated [1,1,1]
f1 2 del 0 ids [3,4] created [1,1] updated [1,1]
f2 2 del 0 ids [5,6] created [2,2] updated [2,2]
f3 1 del 0 ids [2] created [1] updated [3]
A4 | 4 | flags 3 | max 3 | next 7
f0 3 del 1 ids [0,1,2] created [1,1,1] updated [1,1,1]
f1 2 del 1 ids [3,4] created [1,1] updated [1,1]
f2 2 del 0 ids [5,6] created [2,2] updated [2,2]
f3 1 del 0 ids [2] created [1] updated [3]
A5 | 5 | flags 3 | max 4 | next 9
f0 3 del 2 ids [0,1,2] created [1,1,1] updated [1,1,1]
f1 2 del 1 ids [3,4] created [1,1] updated [1,1]
f2 2 del 1 ids [5,6] created [2,2] updated [2,2]
f3 1 del 0 ids [2] created [1] updated [3]
f4 4 del 0 ids [1,6,7,8] created [1,2,5,5] updated [5,5,5,5]
A6 | 6 | flags 3 | max 5 | next 9
f0 3 del 2 ids [0,1,2] created [1,1,1] updated [1,1,1]
f2 2 del 1 ids [5,6] created [2,2] updated [2,2]
f4 4 del 1 ids [1,6,7,8] created [1,2,5,5] updated [5,5,5,5]
f5 3 del 0 ids [3,2,7] created [1,1,5] updated [6,6,6]
A8 | 8 | flags 2 | max 7 | next 9
f6 4 del 0 ids [0,5,1,6] created [1,2,1,2] updated [1,2,5,5]
f7 4 del 0 ids [8,3,2,7] created [5,1,1,5] updated [5,6,6,6]
A9 | 9 | flags 3 | max 7 | next 9
f6 4 del 1 ids [0,5,1,6] created [1,2,1,2] updated [1,2,5,5]
f7 4 del 1 ids [8,3,2,7] created [5,1,1,5] updated [5,6,6,6]
A11 | 11 | flags 2 | max 8 | next 9
f8 6 del 0 ids [5,1,6,3,2,7] created [2,1,2,1,1,5] updated [2,5,5,6,6,6]
A12 | 12 | flags 2 | max 9 | next 11
f9 2 del 0 ids [9,10] created [12,12] updated [12,12]
A13 | 13 | flags 2 | max 10 | next 12
f9 2 del 0 ids [9,10] created [12,12] updated [12,12]
f10 1 del 0 ids [11] created [13] updated [13]
A14 | 14 | flags 2 | max 10 | next 12
f8 6 del 0 ids [5,1,6,3,2,7] created [2,1,2,1,1,5] updated [2,5,5,6,6,6]
A15 | 15 | flags 2 | max 11 | next 13
f8 6 del 0 ids [5,1,6,3,2,7] created [2,1,2,1,1,5] updated [2,5,5,6,6,6]
f11 1 del 0 ids [12] created [15] updated [15]
"""

TABLE_B = """
B1 | 1 | flags 2 | max 1 | next 4
f0 2 del 0 ids [0,1] created [1,1] updated [1,1] files [([0,1,2],[0,1,2])]
f1 2 del 0 ids [2,3] created [1,1] updated [1,1] files [([0,1,2],[0,1,2])]
B2 | 2 | flags 3 | max 2 | next 4
f0 2 del 1 ids [0,1] created [1,1] updated [1,1] files [([0,1,2],[0,1,2])]
f1 2 del 1 ids [2,3] created [1,1] updated [1,1] files [([0,1,2],[0,1,2])]
f2 2 del 0 ids [1,2] created [1,1] updated [2,2] files [([0,1,2],[0,1,2])]
B3 | 3 | flags 3 | max 3 | next 5
f1 2 del 1 ids [2,3] created [1,1] updated [1,1] files [([0,1,2],[0,1,2])]
f2 2 del 0 ids [1,2] created [1,1] updated [2,2] files [([0,1,2],[0,1,2])]
f3 2 del 0 ids [0,4] created [1,3] updated [3,3] files [([0,1,2],[0,1,2])]
B4 | 4 | flags 3 | max 3 | next 5
f1 2 del 1 ids [2,3] created [1,1] updated [1,4] files [([0,-2,2],[0,1,2]),([1],[0])]
f2 2 del 0 ids [1,2] created [1,1] updated [2,2] files [([0,1,2],[0,1,2])]
f3 2 del 0 ids [0,4] created [1,3] updated [3,3] files [([0,1,2],[0,1,2])]
B5 | 5 | flags 3 | max 3 | next 5
f1 2 del 1 ids [2,3] created [1,1] updated [5,5] files [([0,-2,2],[0,1,2]),([1],[0]),([3],[0])]
f2 2 del 0 ids [1,2] created [1,1] updated [5,5] files [([0,1,2],[0,1,2]),([3],[0])]
f3 2 del 0 ids [0,4] created [1,3] updated [5,5] files [([0,1,2],[0,1,2]),([3],[0])]
B6 | 6 | flags 3 | max 3 | next 5
f1 2 del 1 ids [2,3] created [1,1] updated [5,5] files [([0,-2,2],[0,1,2]),([1],[0]),([3],[0])]
f2 2 del 0 ids [1,2] created [1,1] updated [5,5] files [([0,1,2],[0,1,2]),([3],[0])]
f3 2 del 0 ids [0,4] created [1,3] updated [5,5] files [([0,1,2],[0,1,2]),([3],[0])]
B7 | 7 | flags 3 | max 3 | next 5
f1 2 del 1 ids [2,3] created [1,1] updated [5,5] files [([0,-2,2],[0,1,2]),([1],[0]),([3],[0])]
f2 2 del 0 ids [1,2] created [1,1] updated [5,5] files [([0,1,2],[0,1,2]),([3],[0])]
f3 2 del 0 ids [0,4] created [1,3] updated [5,5] files [([0,1,2],[0,1,2]),([3],[0])]
B8 | 8 | flags 3 | max 3 | next 5
f1 2 del 1 ids [2,3] created [1,1] updated [8,8] files [([0,-2,2],[0,1,2]),([1],[0]),([5],[0])]
f2 2 del 0 ids [1,2] created [1,1] updated [8,8] files [([0,1,2],[0,1,2]),([5],[0])]
f3 2 del 0 ids [0,4] created [1,3] updated [8,8] files [([0,1,2],[0,1,2]),([5],[0])]
B9 | 9 | flags 3 | max 3 | next 5
f1 2 del 1 ids [2,3] created [1,1] updated [8,8] files [([0,-2,2],[0,1,2]),([1],[0]),([5],[0])]
f2 2 del 0 ids [1,2] created [1,1] updated [8,8] files [([0,1,2],[0,1,2]),([5],[0])]
f3 2 del 0 ids [0,4] created [1,3] updated [8,8] files [([0,1,2],[0,1,2]),([5],[0])]
B10 | 10 | flags 3 | max 3 | next 5
f1 2 del 1 ids [2,3] created [1,1] updated [8,8] files [([0,-2,2],[0,1,2]),([1],[0]),([5],[0])]
f2 2 del 0 ids [1,2] created [1,1] updated [8,8] files [([0,1,2],[0,1,2]),([5],[0])]
f3 2 del 1 ids [0,4] created [1,3] updated [8,8] files [([0,1,2],[0,1,2]),([5],[0])]
B11 | 11 | flags 2 | max 3 | next 5
"""


def parsed(table: str) -> dict[int, tuple[str, list[str]]]:
    """Version to (heading without the version, fragment lines)."""
    expected: dict[int, tuple[str, list[str]]] = {}
    version = 0
    for line in table.strip().splitlines():
        if line.startswith("f"):
            expected[version][1].append(line)
        else:
            _, number, flags, highest, unused = line.split(" | ")
            version = int(number)
            expected[version] = (f"{flags} | {highest} | {unused}", [])
    return expected


def as_lines(state: TableState, *, with_files: bool) -> tuple[str, list[str]]:
    """A version in the notation of the document."""
    manifest = state.manifest
    lines = []
    for fragment in manifest.fragments:
        parts = decoded(fragment)
        text = (
            f"f{fragment.id} {fragment.physical_rows} del {fragment.num_deleted_rows} "
            f"ids {parts['row_ids']} created {parts['created_at']} "
            f"updated {parts['last_updated_at']}"
        )
        if with_files:
            files = [(list(file.fields), list(file.column_indices)) for file in fragment.files]
            text += f" files {files}"
        lines.append(re.sub(", ", ",", text))
    flags = f"flags {manifest.reader_flags}"
    assert manifest.reader_flags == manifest.writer_flags
    heading = f"{flags} | max {manifest.max_fragment_id} | next {manifest.next_row_id}"
    return heading, lines


def in_any_order(line: str) -> str:
    """Merge and update write matched rows in the order the join gives, which is not normative."""
    match = re.search(r"ids \[(.*?)\] created \[(.*?)\] updated \[(.*?)\]", line)
    rows = sorted(zip(*(group.split(",") for group in match.groups()), strict=True))
    return line.replace(match.group(0), str(rows))
