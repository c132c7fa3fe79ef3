"""Single data files, against pylance on the same data in the same process, one thread each.

    python benchmarks/data_files.py read [--rows 4000000] [--cases int64_small,...] [--defaults]
    python benchmarks/data_files.py write [--rows 4000000] [--versions 2.1,2.2] [--only int64]
    python benchmarks/data_files.py take [--rows 10000000] [--take 1000] [--cases int64]
    python benchmarks/data_files.py profile string_high [--version 2.1] [--write]

``read``: the page cache is warm, batches are dropped as they come, MB/s counts decoded Arrow bytes.
pylance has the batch size it is fastest with. Opening counts: pylance begins to fetch before the
first batch is asked for. ``--defaults`` gives pylance its default batch size and all its threads.

``write``: both write the same batches to a local folder. Size below 1: our file is smaller.

The ratios of both are pylance's time over ours: by the clock, and by the processor time of all
threads (pylance hands over batches in other threads than the one that decodes).

``take``: random rows in ascending order, different in each run; files are written by pylance, with
the compression that a case is named after, and are warm and open. The ratio is our time over
pylance's.

``profile``: own time of the functions that take most in the fastest of several runs of a case of
``read``, calls of numpy and Arrow included in the one that makes them unless they have a line of
their own; profiling itself slows down short calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from harness import fastest_of_each, limit_pylance_to_one_thread, print_table, run, scratch

if __name__ == "__main__" and "--defaults" not in sys.argv:
    limit_pylance_to_one_thread()

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.file import LanceFileReader, LanceFileWriter

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.datafile.writer import DataFileWriter
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.store.local_store import LocalStore

BATCH_ROWS = 1 << 16
WRITE_ROWS = 1 << 20
PYLANCE_BATCH_ROWS = (8_192, 65_536, 1 << 20)
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "lorem", "ipsum"]


class Maker:
    """Makes the column of a case: ``rows`` values of 8 bytes, or about as many bytes.

    Every public method is a case of ``read``.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._rng = np.random.default_rng(1)
        self._nulls = self._rng.random(rows) < 0.1

    def int64_small(self) -> pa.Array:
        return pa.array(self._rng.integers(0, 100_000, self._rows))

    def int64_small_null(self) -> pa.Array:
        return pa.array(self._rng.integers(0, 100_000, self._rows), mask=self._nulls)

    def int64_seq(self) -> pa.Array:
        return pa.array(np.arange(self._rows))

    def int64_runs(self) -> pa.Array:
        values = self._rng.integers(0, 1 << 40, self._rows // 20 + 1)
        return pa.array(np.repeat(values, 20)[: self._rows])

    def int32_small(self) -> pa.Array:
        return pa.array(self._rng.integers(0, 10_000, 2 * self._rows), pa.int32())

    def timestamp(self) -> pa.Array:
        return pa.array(
            self._rng.integers(16 * 10**14, 17 * 10**14, self._rows), pa.timestamp("us")
        )

    def float64(self) -> pa.Array:
        return pa.array(self._rng.standard_normal(self._rows))

    def float64_null(self) -> pa.Array:
        return pa.array(self._rng.standard_normal(self._rows), mask=self._nulls)

    def float64_unit(self) -> pa.Array:
        return pa.array(self._rng.random(self._rows))

    def bool_null(self) -> pa.Array:
        return pa.array(self._rng.random(8 * self._rows) < 0.5, mask=np.repeat(self._nulls, 8))

    def string_low(self) -> pa.Array:
        return self._few_words().take(self._few_indices())

    def dictionary(self) -> pa.Array:
        return pa.DictionaryArray.from_arrays(self._few_indices(), self._few_words())

    def string_high(self) -> pa.Array:
        return self._users(None)

    def string_high_null(self) -> pa.Array:
        return self._users(self._nulls[: self._rows // 2])

    def string_text(self) -> pa.Array:
        texts = [
            " ".join(self._rng.choice(WORDS, int(self._rng.integers(2, 8)))) + f" {number}"
            for number in range(50_000)
        ]
        return pa.array(texts).take(pa.array(self._rng.integers(0, 50_000, self._rows // 5)))

    def vector_768(self) -> pa.Array:
        values = self._rng.standard_normal(self._rows // 50 * 768).astype("f4")
        return pa.FixedSizeListArray.from_arrays(pa.array(values), 768)

    def list(self) -> pa.Array:
        return self._lists(1)

    def list_empty(self) -> pa.Array:
        return self._lists(0)

    def struct_null(self) -> pa.Array:
        parts = [self.int64_small()[: self._rows // 2], self.float64()[: self._rows // 2]]
        mask = pa.array(self._nulls[: self._rows // 2])
        return pa.StructArray.from_arrays(parts, ["a", "b"], mask=mask)

    def _few_words(self) -> pa.Array:
        return pa.array([f"category-{number}" for number in range(100)])

    def _few_indices(self) -> pa.Array:
        return pa.array(self._rng.integers(0, 100, self._rows // 2), pa.int32())

    def _users(self, missing: np.ndarray | None) -> pa.Array:
        numbers = pa.array(self._rng.integers(0, 1 << 40, self._rows // 2), mask=missing)
        return pc.binary_join_element_wise("user", numbers.cast(pa.string()), "-")

    def _lists(self, shortest: int) -> pa.Array:
        lengths = self._rng.integers(shortest, 6, self._rows // 5)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype("i4")
        items = pa.array(self._rng.integers(0, 10_000, offsets[-1]), pa.int32())
        return pa.ListArray.from_arrays(pa.array(offsets), items)


class TakeMaker(Maker):
    """Makes columns of ``rows`` rows. ``TAKEN`` names the cases of ``take``."""

    def int64(self) -> pa.Array:
        return pa.array(self._rng.integers(-(1 << 62), 1 << 62, self._rows))

    def string(self) -> pa.Array:
        return self._users(None)

    def string_null(self) -> pa.Array:
        return self._users(self._nulls)

    def string_low(self) -> pa.Array:
        words = pa.array([f"category-{number}" for number in range(100)])
        return words.take(pa.array(self._rng.integers(0, 100, self._rows), pa.int32()))

    def string_300(self) -> pa.Array:
        numbers = pa.array(np.arange(self._rows // 50)).cast(pa.string())
        return pc.binary_join_element_wise(numbers, "some words of text " * 15, "-")

    def string_zstd(self) -> pa.Array:
        return self._users(None)

    def string_lz4(self) -> pa.Array:
        return self._users(None)

    def string_300_zstd(self) -> pa.Array:
        return self.string_300()

    def int64_small_zstd(self) -> pa.Array:
        return self.int64_small()

    def vector(self) -> pa.Array:
        values = self._rng.standard_normal(self._rows // 100 * 768).astype("f4")
        return pa.FixedSizeListArray.from_arrays(pa.array(values), 768)

    def struct(self) -> pa.Array:
        return pa.StructArray.from_arrays([self.int64_small(), self.float64()], ["a", "b"])

    def _users(self, missing: np.ndarray | None) -> pa.Array:
        numbers = pa.array(self._rng.integers(0, 1 << 40, self._rows), mask=missing)
        return pc.binary_join_element_wise("user", numbers.cast(pa.string()), "-")

    def _lists(self, shortest: int) -> pa.Array:
        lengths = self._rng.integers(shortest, 6, self._rows // 4)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype("i4")
        items = pa.array(self._rng.integers(0, 10_000, offsets[-1]), pa.int32())
        return pa.ListArray.from_arrays(pa.array(offsets), items)


READ = tuple(name for name in vars(Maker) if not name.startswith("_"))
TAKEN = (
    "int64", "int64_small", "int64_small_null", "float64", "float64_null", "string", "string_null",
    "string_low", "string_300", "string_zstd", "string_lz4", "string_300_zstd", "int64_small_zstd",
    "vector", "list", "list_empty", "struct",
)  # fmt: skip


def columns(rows: int):
    """Yield name and array of each case of ``write``."""
    random = np.random.default_rng(7)
    few = max(1, rows // 100)
    masked = random.random(rows) < 0.1
    words = np.array([f"word-{number}" for number in range(1000)])
    names = pa.array(np.char.add("user-", random.integers(0, 1 << 40, rows // 4).astype(str)))
    offsets = np.concatenate(([0], np.cumsum(random.integers(0, 6, rows // 4)))).astype(np.int32)
    floats = random.standard_normal(rows)
    yield "int64 small", pa.array(random.integers(0, 1000, rows))
    yield "int64 sequence", pa.array(np.arange(rows))
    yield "int64 random", pa.array(random.integers(-(1 << 62), 1 << 62, rows))
    yield "int64 small with nulls", pa.array(random.integers(0, 1000, rows), mask=masked)
    yield "int64 negative", pa.array(random.integers(-100, 100, rows))
    yield "int64 runs", pa.array(np.repeat(random.integers(0, 1000, rows // 20 + 1), 20)[:rows])
    yield "int32 small", pa.array(random.integers(0, 1000, rows).astype(np.int32))
    yield "int16 random", pa.array(random.integers(-30000, 30000, rows).astype(np.int16))
    yield "timestamp", pa.array(1_600_000_000_000_000 + np.arange(rows) * 1000, pa.timestamp("us"))
    yield "float64", pa.array(floats)
    yield "float64 with nulls", pa.array(floats, mask=masked)
    yield "float64 few values", pa.array(random.integers(0, 1000, rows).astype(np.float64))
    yield "float32 uniform", pa.array(random.random(rows).astype(np.float32))
    yield "bool", pa.array(random.random(rows) < 0.5)
    vectors = pa.array(random.standard_normal(few * 768).astype(np.float32))
    yield "vectors 768 x float32", pa.FixedSizeListArray.from_arrays(vectors, 768)
    yield "vectors 8 x float32", pa.FixedSizeListArray.from_arrays(vectors, 8)
    yield "strings of 1000 words", pa.array(words[random.integers(0, 1000, rows)])
    yield (
        "dictionary of 1000 words",
        pa.DictionaryArray.from_arrays(
            pa.array(random.integers(0, 1000, rows).astype(np.int32)), pa.array(words)
        ),
    )
    yield "strings distinct", names
    yield "strings of 400 bytes", pa.array([f"{number:0400}" for number in range(few)])
    yield "text of 400 bytes", _texts(random, few, 60)
    yield "text of 40 bytes", _texts(random, rows // 20, 6)
    yield "hexadecimals of 400 bytes", pa.array([random.bytes(200).hex() for _ in range(few)])
    items = pa.array(random.integers(0, 1000, int(offsets[-1])).astype(np.int32))
    yield "list<int32>", pa.ListArray.from_arrays(pa.array(offsets), items)


def _texts(random: np.random.Generator, count: int, length: int) -> pa.Array:
    """Texts of ``length`` made-up words; frequent letters are frequent."""
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    weights = 1 / np.arange(1, len(letters) + 1)
    drawn = random.choice(letters, (5000, 10), p=weights / weights.sum())
    sizes = random.integers(2, 11, len(drawn))
    words = ["".join(word[:size]) for word, size in zip(drawn, sizes, strict=True)]
    return pa.array([" ".join(text) for text in random.choice(words, (count, length))])


def write_by_pylance(
    path: Path, column: pa.Array, version: str, rows: int = WRITE_ROWS, name: str = ""
) -> int:
    """Write a file of one column, with the compression that its name asks for."""
    compression = name.split("_")[-1]
    asked = {"lance-encoding:compression": compression} if compression in ("zstd", "lz4") else None
    schema = pa.schema([pa.field("c", column.type, metadata=asked)])
    with LanceFileWriter(str(path), schema, version=version) as writer:
        for start in range(0, len(column), rows):
            writer.write_batch(pa.record_batch([column.slice(start, rows)], schema=schema))
    return path.stat().st_size


def write_ours(path: Path, column: pa.Array, version: str) -> int:
    table = pa.table({"c": column})
    schema = LanceSchema.from_arrow(table.schema)
    writer = DataFileWriter(LocalStore(str(path.parent)), path.name, schema, version=version)
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        writer.write(batch)
    return writer.finish().size_bytes


def read_ours(path: Path) -> int:
    """Return the bytes of all batches."""
    reader = DataFileReader.open(LocalStore(str(path.parent)), path.name)
    batches = reader.read_batches(reader.schema.fields, reader.embedded_columns())
    return sum(batch.nbytes for batch in batches)


def read_by_pylance(path: Path, batch_rows: int) -> int:
    batches = LanceFileReader(str(path)).read_all(batch_size=batch_rows).to_batches()
    return sum(batch.nbytes for batch in batches)


def files(
    folder: Path, maker: Maker, rows: int, cases: tuple, versions: tuple, kept: bool
) -> Iterator[tuple[str, str, Path]]:
    """Yield case, version and file, which is removed afterwards unless all are kept."""
    for name in cases:
        column: pa.Array | None = None
        for version in versions:
            path = folder / f"{name}_{rows}_{version}.lance"
            if not path.exists():
                column = getattr(maker, name)() if column is None else column
                try:
                    write_by_pylance(path, column, version, name=name)
                except ValueError:  # structs with nulls do not fit into 2.0
                    path.unlink(missing_ok=True)
                    continue
            yield name, version, path
            if not kept:
                path.unlink()


def read(
    *,
    rows: int = 4_000_000,
    runs: int = 9,
    cases: tuple = READ,
    versions: tuple = ("2.0", "2.1", "2.2"),
    folder: str = "",
    defaults: bool = False,
) -> None:
    """Read single data files."""
    if not defaults:
        pa.set_cpu_count(1)  # as Spark's tasks have it
    sizes, found = (1_024,) if defaults else PYLANCE_BATCH_ROWS, []
    with scratch(folder or None) as place:
        for name, version, path in files(
            Path(place), Maker(rows), rows, cases, versions, bool(folder)
        ):
            works = [partial(read_ours, path)]
            works += [partial(read_by_pylance, path, size) for size in sizes]
            ours, *others = fastest_of_each(works, runs, warm=0)
            size, (clock, processor) = works[0](), map(min, zip(*others, strict=True))
            rates = (round(size / seconds / 1e6) for seconds in (ours.clock, clock))
            found.append((name, version, *rates, clock / ours.clock, processor / ours.processor))
    print_table("Reading", "case | version | ours MB/s | pylance | ratio | by CPU", found)


def write(
    *, rows: int = 4_000_000, versions: tuple = ("2.1", "2.2"), only: str = "", repeats: int = 5
) -> None:
    """Write single data files."""
    found = []
    with scratch() as folder:
        for name, column in columns(rows):
            for version in versions if only in name else ():
                files = [Path(folder, f"{by}.lance") for by in ("ours", "pylance")]
                works = [
                    partial(write_ours, files[0], column, version),
                    partial(write_by_pylance, files[1], column, version, BATCH_ROWS),
                ]
                ours, other = fastest_of_each(works, repeats, warm=0)
                rates = (round(column.nbytes / one.clock / 1e6) for one in (ours, other))
                size = files[0].stat().st_size / files[1].stat().st_size
                speeds = (other.clock / ours.clock, other.processor / ours.processor)
                found.append((name, version, *rates, *speeds, size))
    print_table("Writing", "column | version | ours MB/s | pylance | speed | by CPU | size", found)


def take(
    *,
    rows: int = 10_000_000,
    take: tuple = (1_000, 10_000),
    runs: int = 7,
    cases: tuple = TAKEN,
    versions: tuple = ("2.0", "2.1", "2.2"),
    folder: str = "",
) -> None:
    """Take random rows of single data files."""
    found = []
    with scratch(folder or None) as place:
        for name, version, path in files(
            Path(place), TakeMaker(rows), rows, cases, versions, bool(folder)
        ):
            reader = DataFileReader.open(LocalStore(place), path.name)
            fields, own, other = reader.schema.fields, reader.embedded_columns(), None
            other, rng = LanceFileReader(str(path)), np.random.default_rng(2)
            for count in take:
                size = min(count, reader.num_rows)
                wanted = [
                    np.sort(rng.choice(reader.num_rows, size, replace=False))
                    for _ in range(runs + 1)
                ]
                listed = iter([one.tolist() for one in wanted])
                arrays = iter(wanted)
                ours, theirs = fastest_of_each(
                    [
                        lambda: reader.take(fields, own, next(arrays)),  # noqa: B023
                        lambda: other.take_rows(next(listed)).to_table(),  # noqa: B023
                    ],
                    runs,
                )
                times = (f"{1e3 * one.clock:.1f}" for one in (ours, theirs))
                line = (name, version, reader.num_rows, count, *times, ours.clock / theirs.clock)
                found.append(line)
    header = "column | version | rows | taken | ours ms | pylance ms | ratio"
    print_table("Random rows of one file", header, found)


def profile(
    case: str = "string_high",
    *,
    version: str = "2.1",
    write: bool = False,
    rows: int = 4_000_000,
    repeats: int = 15,
) -> None:
    """Show where the time of reading or writing a data file goes."""
    import cProfile
    import pstats

    best, fastest = {}, float("inf")
    with scratch() as folder:
        path, column = Path(folder, "file.lance"), getattr(Maker(rows), case)()
        write_by_pylance(path, column, version)
        work: Callable[[], object] = partial(read_ours, path)
        if write:
            work = partial(write_ours, path.with_name("ours.lance"), column, version)
        work()
        for _ in range(repeats):
            profiler = cProfile.Profile()
            profiler.runcall(work)
            found = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
            total = sum(own for _, _, own, _, _ in found.values())
            if total < fastest:
                best, fastest = found, total
    lines = [
        (f"{Path(file).stem}.{name}" if line else name, own / fastest, calls)
        for (file, line, name), (_, calls, own, _, _) in best.items()
    ]
    lines = sorted(lines, key=lambda line: -line[1])[:8]
    rows_shown = [(name, f"{share:.0%}", calls) for name, share, calls in lines]
    title = f"{'Writing' if write else 'Reading'} {case}, {version}"
    print_table(title, "own time in |  | calls", rows_shown)


if __name__ == "__main__":
    run(read, write, take, profile)
