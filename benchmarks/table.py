"""Tables without Spark, against pylance: python benchmarks/table.py.

Ratios are pylance's time divided by ours, on the same files; above 1 we are faster.  pylance is
told to decode in one thread (it still fetches in another), and given its best of several batch
sizes.
"""

from __future__ import annotations

import os

os.environ["LANCE_CPU_THREADS"] = "1"
os.environ["LANCE_IO_THREADS"] = "1"

import shutil
import tempfile
from collections.abc import Callable

import lance
import numpy as np
import pyarrow as pa
from timing import best, best_of_each, print_table

from pyspark_lance.format.column_names import SYSTEM_COLUMNS
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.rows.write_fragments import write_fragments
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema, project
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import WriteSettings, commit_write, plan_write

ROWS = 4_000_000
FRAGMENTS = 2
REPEATS = 9


def numbers(rows: int, seed: int = 1) -> pa.Table:
    """Ten numeric columns."""
    rng = np.random.default_rng(seed)
    columns = {f"f{i}": rng.standard_normal(rows) for i in range(5)}
    columns |= {f"i{i}": rng.integers(-(2**62), 2**62, rows) for i in range(5)}
    return pa.table(columns)


def datasets(folder: str) -> dict[str, str]:
    """Tables of several kinds, written by pylance as most tables are."""
    rng = np.random.default_rng(2)
    words = np.array([f"category {i}" for i in range(200)])
    made = {
        "ten numbers": numbers(ROWS // 2),
        "small ints": pa.table({f"i{i}": rng.integers(0, 1000, ROWS) for i in range(4)}),
        "dictionary strings": pa.table({"s": words[rng.integers(0, 200, ROWS)]}),
        "distinct strings": pa.table(
            {"s": [f"user-{i * 7919 % 1000003:06x}-{i % 97}" for i in range(4_000_000)]}
        ),
        "vectors": pa.table(
            {
                "v": pa.FixedSizeListArray.from_arrays(
                    pa.array(rng.standard_normal(100_000 * 768).astype(np.float32)), 768
                )
            }
        ),
    }
    paths = {}
    for name, table in made.items():
        paths[name] = f"{folder}/{name.replace(' ', '_')}"
        lance.write_dataset(
            table,
            paths[name],
            enable_stable_row_ids=True,
            data_storage_version="2.1",
            max_rows_per_file=-(-table.num_rows // FRAGMENTS),
        )
    return paths


def ours(path: str, **request: object) -> Callable[[], int]:
    """A scan by this package, in one thread."""
    columns, condition = request.pop("columns", None), request.pop("filter", None)

    def scan() -> int:
        snapshot = Snapshot.open(Table(path))
        asked = ScanRequest(
            schema=None if columns is None else project(snapshot.schema, columns),
            predicate=None
            if condition is None
            else parse_predicate(condition, predicate_schema(snapshot.schema)),
            **request,
        )
        return sum(b.num_rows for task in plan_scan(snapshot, asked) for b in task.run())

    return scan


def theirs(path: str, batch_size: int, **scan: object) -> Callable[[], int]:
    """The same scan by pylance."""

    def run_scan() -> int:
        scanner = lance.dataset(path).scanner(batch_size=batch_size, **scan)
        return sum(batch.num_rows for batch in scanner.to_batches())

    return run_scan


def compare(label: str, path: str, our: dict, their: dict) -> tuple[str, ...]:
    """One row of the table."""
    sizes = (8192, 65_536, 1_048_576)
    mine, *others = best_of_each(
        [ours(path, **our), *(theirs(path, size, **their) for size in sizes)], REPEATS
    )
    other, size = min(zip(others, sizes, strict=True))
    assert ours(path, **our)() == theirs(path, size, **their)()
    return label, f"{mine * 1e3:.1f}", f"{other * 1e3:.1f}", f"{other / mine:.2f}"


def change_query_table(folder: str) -> str:
    """1,000 fragments, of which three have changed since."""
    path = f"{folder}/many"
    rows = 1_000 * 1_000
    data = pa.table(
        {
            "id": np.arange(rows),
            **{f"x{i}": np.random.default_rng(i).random(rows) for i in range(5)},
        }
    )
    # Not by pylance: with one thread it waits for itself when it writes many files.
    for start, rows in ((0, len(data)), (0, 1000), (1000, 1000), (2000, 1000)):
        part = data.slice(start, rows)
        settings = WriteSettings(max_rows_per_file=1000)
        plan = plan_write(Table(path), part.schema, settings, existing=open_existing(Table(path)))
        commit_write(plan, write_fragments(plan.request, part.to_batches()))
    return path


def append_ours(folder: str, table: pa.Table) -> Callable[[], object]:
    """Writes a new table by this package."""

    def write() -> None:
        path = f"{folder}/append_ours"
        shutil.rmtree(path, ignore_errors=True)
        plan = plan_write(
            Table(path), table.schema, WriteSettings(), existing=open_existing(Table(path))
        )
        commit_write(plan, write_fragments(plan.request, table.to_batches(max_chunksize=65_536)))

    return write


def append_theirs(folder: str, table: pa.Table) -> Callable[[], object]:
    """Writes a new table by pylance."""

    def write() -> None:
        path = f"{folder}/append_theirs"
        shutil.rmtree(path, ignore_errors=True)
        lance.write_dataset(table, path, enable_stable_row_ids=True, data_storage_version="2.1")

    return write


def main() -> None:
    """Prints the table."""
    folder = tempfile.mkdtemp(prefix="pyspark-lance-bench-")
    try:
        paths = datasets(folder)
        rows = [compare(f"full scan, {name}", path, {}, {}) for name, path in paths.items()]
        ten = paths["ten numbers"]
        rows.append(compare("one of ten columns", ten, {"columns": ["f0"]}, {"columns": ["f0"]}))
        lineage = list(SYSTEM_COLUMNS)
        rows.append(
            compare(
                "lineage columns only",
                ten,
                {"columns": [], "system_columns": SYSTEM_COLUMNS},
                {"columns": lineage},
            )
        )
        names = [f"{k}{i}" for k in "fi" for i in range(5)]
        rows.append(
            compare(
                "ten numbers and lineage",
                ten,
                {"system_columns": SYSTEM_COLUMNS},
                {"columns": names + lineage},
            )
        )
        rows.append(
            compare(
                "point lookup by _rowid",
                ten,
                {"filter": "_rowid = 1234567"},
                {"filter": "_rowid = 1234567"},
            )
        )
        many = change_query_table(folder)
        condition = "_row_created_at_version > 1"
        rows.append(
            compare(
                "change query, 3 of 1003 fragments",
                many,
                {"filter": condition},
                {"filter": condition},
            )
        )
        rows.append(compare("full scan of the same table", many, {}, {}))
        for name, table in (
            ("ten numbers", numbers(1_000_000)),
            ("vectors", lance.dataset(paths["vectors"]).to_table()),
        ):
            mine = best(append_ours(folder, table), 3)
            other = best(append_theirs(folder, table), 3)
            rows.append(
                (
                    f"append, {name}",
                    f"{mine * 1e3:.1f}",
                    f"{other * 1e3:.1f}",
                    f"{other / mine:.2f}",
                )
            )
        plain, with_lineage = best_of_each(
            [ours(ten), ours(ten, system_columns=SYSTEM_COLUMNS)], 4 * REPEATS
        )
        print_table(
            "Tables without Spark, version 2.1, one decoding thread (python benchmarks/table.py)",
            ("what", "ours ms", "pylance ms", "pylance / ours"),
            rows,
        )
        print(
            f"\nFour lineage columns add {100 * (with_lineage / plain - 1):.0f} % to ten numbers."
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
