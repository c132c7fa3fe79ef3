"""Where the time of reading or writing a data file goes.

    python benchmarks/data_file_profile.py string_high [--version 2.1] [--write] [--rows 4000000]

Cases are those of ``data_file_read.py``; the file to be read is written by pylance. Own time of the
functions that take most in the fastest of several runs, calls of numpy and Arrow included in the
one that makes them unless they have a line of their own; profiling itself slows down short calls.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from data_file_read import Maker, write_file
from data_file_write import write_ours
from timing import print_table

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.store.local_store import LocalStore

REPEATS = 15
LINES = 8


def profile(run: Callable[[], object]) -> list[tuple[str, float, int]]:
    """Function, share of all time, and calls, of the fastest run; the greatest share first."""
    run()
    best, fastest = {}, float("inf")
    for _ in range(REPEATS):
        profiler = cProfile.Profile()
        profiler.enable()
        run()
        profiler.disable()
        found = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
        total = sum(own for _, _, own, _, _ in found.values())
        if total < fastest:
            best, fastest = found, total
    lines = [
        (f"{Path(file).stem}.{name}" if line else name, own / fastest, calls)
        for (file, line, name), (_, calls, own, _, _) in best.items()
    ]
    return sorted(lines, key=lambda line: -line[1])[:LINES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case")
    parser.add_argument("--version", default="2.1")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rows", type=int, default=4_000_000)
    arguments = parser.parse_args()
    column: pa.Array = getattr(Maker(arguments.rows), arguments.case)()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "data").mkdir()
        write_file(folder / "file.lance", column, arguments.version)

        def read() -> int:
            reader = DataFileReader.open(LocalStore(scratch), "file.lance")
            batches = reader.read_batches(reader.schema.fields, reader.embedded_columns())
            return sum(batch.num_rows for batch in batches)

        def write() -> int:
            return write_ours(scratch, pa.table({"c": column}), arguments.version)

        lines = profile(write if arguments.write else read)
    rows = [(name, f"{share:.0%}", f"{calls:,}") for name, share, calls in lines]
    done = "Writing" if arguments.write else "Reading"
    print_table(f"{done} {arguments.case}, {arguments.version}", ("own time in", "", "calls"), rows)


if __name__ == "__main__":
    main()
