# ruff: noqa: T201 - a command
"""Files of old releases of pylance read by us, and ours by them: ``python .../run_matrix.py``.

Each release gets an environment of its own below ``--environments``.  Cases are columns of every
type, some or all of their values null, of few and many rows; each is written in every version that
both sides know, and read as a whole, in a range and by single rows.  The result is ``RESULT.md``.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import lance
import numpy as np
import pyarrow as pa
from column_cases import column_cases, with_nulls
from lance.file import LanceFileWriter
from legacy_tables import as_legacy_reads, legacy_columns
from pylance_files import assert_same_array
from table_access import read_ours, write_table

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.datafile.writer import DataFileWriter
from pyspark_lance.errors import LanceError
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.table.version.snapshot import VersionSpec

HERE = Path(__file__).resolve().parent
# Release -> the versions it writes and reads.  What 1.0.4 calls 2.2 is a draft of it.
RELEASES = {
    "0.22.0": (["0.1", "2.0"], ["0.1", "2.0"]),
    "0.38.1": (["0.1", "2.0", "2.1"], ["0.1", "2.0", "2.1"]),
    "1.0.4": (["0.1", "2.0", "2.1", "2.2"], ["0.1", "2.0", "2.1"]),
    "4.0.2": (["0.1", "2.0", "2.1", "2.2"], ["0.1", "2.0", "2.1", "2.2"]),
    "9.0.1": (["0.1", "2.0", "2.1", "2.2"], ["0.1", "2.0", "2.1", "2.2"]),
}
SIZES = (6, 4000)
NULLS = (0.0, 0.1, 1.0)
# Columns that ask for an encoding, and what they ask for.
REQUESTED = (
    "int64_small", "int64_few", "int64_runs", "float64", "bool", "decimal128_few", "string_many",
    "string_few", "string_300", "binary", "vector_4", "vector_768", "dictionary_string",
)  # fmt: skip
REQUESTS = {
    "none": {"compression": "none"},
    "lz4": {"compression": "lz4"},
    "zstd": {"compression": "zstd"},
    "fsst": {"compression": "fsst"},
    "split": {"bss": "on"},
    "split_zstd": {"bss": "on", "compression": "zstd"},
    "fullzip": {"structural-encoding": "fullzip"},
    "fullzip_zstd": {"structural-encoding": "fullzip", "compression": "zstd"},
    "miniblock": {"structural-encoding": "miniblock"},
    "items_zstd": {"dict-divisor": "1", "dict-values-compression": "zstd"},
    "items_lz4": {"dict-divisor": "1", "dict-values-compression": "lz4"},
    "minichunk": {"minichunk-size": "1024"},
}
_SECONDS_OF_A_CASE = 60


@dataclass
class Cell:
    """What came of one release, version and direction."""

    release: str
    version: str
    direction: str
    right: int = 0
    alike: list[str] = field(default_factory=list)
    refused: int = 0
    wrong: dict[str, str] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)
    newest: set[str] = field(default_factory=set)

    def row(self) -> str:
        return (
            f"| {self.release} | {self.version} | {self.direction} | {self.right} | "
            f"{len(self.alike)} | {len(self.wrong)} | {self.refused} |"
        )


def make_cases(folder: Path, *, legacy: bool) -> list[str]:
    """Write each case as an Arrow file; their names."""
    folder.mkdir()
    names = []
    for size in SIZES:
        columns = legacy_columns(size) if legacy else column_cases(size)
        for column_name, whole in columns.items():
            for share in (0.0,) if legacy else NULLS:
                column = nulled(whole, share)
                if column is None or len(column) == 0:
                    continue
                name = f"{column_name}-{round(share * 100)}-{size}"
                save(folder / name, pa.table({"c": column}))
                names.append(name)
    return names


def make_requests(folder: Path) -> list[str]:
    """Write columns whose metadata ask for an encoding, and blobs; their names."""
    folder.mkdir()
    names = []
    columns = column_cases(SIZES[-1])
    for column_name in REQUESTED:
        for share in NULLS[:2]:
            column = nulled(columns[column_name], share)
            for request_name, request in REQUESTS.items():
                metadata = {f"lance-encoding:{key}": value for key, value in request.items()}
                field_ = pa.field("c", column.type, metadata=metadata)
                name = f"{column_name}+{request_name}-{round(share * 100)}-{len(column)}"
                save(folder / name, pa.table([column], schema=pa.schema([field_])))
                names.append(name)
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    values = [b"", b"abc", bytes(70_000)] * 20
    for column_name, kind, rows in (
        ("blob", blob.type, values),
        ("struct_blob", pa.struct([blob]), [{"b": value} for value in values]),
        ("list_blob", pa.list_(blob), [values[n : n + n % 3] for n in range(30)]),
    ):
        table = pa.table([pa.array(rows, kind)], schema=pa.schema([blob.with_type(kind)]))
        if column_name != "blob":
            table = table.replace_schema_metadata().cast(pa.schema([pa.field("b", kind)]))
        names.append(f"{column_name}-0-{len(rows)}")
        save(folder / names[-1], table)
    return names


def save(path: Path, table: pa.Table) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def nulled(column: pa.Array, share: float) -> pa.Array | None:
    """The column with nulls; None if that is another case already."""
    if share == 0:
        return column
    if pa.types.is_null(column.type) or column.null_count == len(column):
        return None
    if share == 1.0:
        return pa.nulls(len(column), column.type)
    return with_nulls(column, share)


def load(path: Path) -> pa.Table:
    with pa.ipc.open_file(path) as file:
        return file.read_all()


def one_array(table: pa.Table) -> pa.Array:
    """The only column of a table."""
    column = table.column(0).combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def write_ours(cases: Path, files: Path, names: Sequence[str], version: str) -> list[str]:
    """Write the cases that the version can hold; their names."""
    written = []
    for name in names:
        table = load(cases / name)
        try:
            if version == "0.1":
                write_table(str(files / name), table, file_version="0.1")
            else:
                schema = LanceSchema.from_arrow(table.schema)
                writer = DataFileWriter(LocalStore(str(files)), name, schema, version=version)
                for batch in table.to_batches():
                    writer.write(batch)
                writer.finish()
        except LanceError:
            continue
        written.append(name)
    return written


def problem_of_reading(path: Path, expected: pa.Array, version: str) -> str:
    """'' if every way of reading gives the array."""
    try:
        if version == "0.1":
            found = read_ours(str(path), system_columns=()).column(0)
            left = as_legacy_reads(plain_list(found))
            return "" if str(left) == str(as_legacy_reads(plain_list(expected))) else "other values"
        reader = DataFileReader.open(LocalStore(str(path.parent)), path.name)
        fields, columns = reader.schema.fields, reader.embedded_columns()
        batches = reader.read_batches(fields, columns, batch_rows=1000)
        parts = [batch.column(0) for batch in batches]
        position = 0
        for part in parts:
            assert_same_array(part, expected[position : position + len(part)])
            position += len(part)
        assert position == len(expected) == reader.num_rows
        rng = np.random.default_rng(len(expected))
        start, end = sorted(rng.integers(0, len(expected) + 1, 2).tolist())
        part = reader.read(fields, columns, start, end).column(0)
        assert_same_array(part, expected[start:end])
        rows = rng.integers(0, len(expected), 20)
        taken = reader.take(fields, columns, rows).column(0)
        assert_same_array(taken, expected.take(pa.array(rows)))
    except AssertionError:
        return "other values"
    except Exception as error:  # noqa: BLE001 - a table of results is wanted
        return f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    return ""


def plain_list(column: pa.Array | pa.ChunkedArray) -> list[object]:
    return column.to_pylist()


def run_worker(
    python: Path, action: str, version: str, cases: Path, files: Path, names: Sequence[str]
) -> Iterator[dict[str, str]]:
    """One result per case; a case that ends the process is a crash, and the next ones go on."""
    left = list(names)
    while left:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as listing:
            listing.write("\n".join(left))
            listing.flush()
            command = [python, HERE / "release_worker.py", action, version]
            command += [cases, files, listing.name]
            try:
                output = subprocess.run(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    check=False,
                    timeout=_SECONDS_OF_A_CASE + len(left),
                ).stdout
            except subprocess.TimeoutExpired as error:
                output = (error.stdout or b"").decode()
        results = [json.loads(line) for line in output.splitlines() if line.endswith("}")]
        yield from results
        left = left[len(results) :]
        if left:
            yield {"case": left.pop(0), "problem": "the process of the release ended"}


def environment(folder: Path, release: str) -> Path:
    """The Python of an environment with the release, made if it is not there."""
    python = folder / release / "bin" / "python"
    if not python.exists():
        venv.create(folder / release, with_pip=True)
        # A name, or a release of pylance.
        newest = {"newest": "pylance", "lancedb": "lancedb"}
        wanted = newest.get(release, f"pylance=={release}")
        install = [python, "-m", "pip", "install", "-q", wanted]
        subprocess.run(install, check=True)
    return python


def they_write(python: Path, cell: Cell, cases: Path, files: Path, names: Sequence[str]) -> None:
    """The release writes and we read."""
    for result in run_worker(python, "write", cell.version, cases, files, names):
        name = result["case"]
        if not result.get("written"):
            cell.refused += 1
            continue
        expected = one_array(load(cases / name))
        if result["problem"]:
            cell.own[name] = result["problem"]
        problem = problem_of_reading(files / name, expected, cell.version)
        found = files / f"{name}.found"
        if (
            problem
            and found.exists()
            and not problem_of_reading(files / name, one_array(load(found)), cell.version)
        ):
            cell.alike.append(name)
        elif problem:
            cell.wrong[name] = problem
        else:
            cell.right += 1


def we_write(python: Path, cell: Cell, cases: Path, files: Path, names: Sequence[str]) -> None:
    """We write and the release reads."""
    written = write_ours(cases, files, names, cell.version)
    cell.refused = len(names) - len(written)
    for result in run_worker(python, "read", cell.version, cases, files, written):
        if result["problem"]:
            cell.wrong[result["case"]] = result["problem"]
        else:
            cell.right += 1


def note_newest(python: Path, cell: Cell, cases: Path, files: Path, names: Sequence[str]) -> None:
    """Whether the release cannot read files of the newest pylance either."""
    written = []
    for name in names:
        table = load(cases / name)
        try:
            with LanceFileWriter(str(files / name), table.schema, version=cell.version) as writer:
                for batch in table.to_batches():
                    writer.write_batch(batch)
        except BaseException:  # noqa: BLE001 - a panic of pylance is one
            continue
        written.append(name)
    results = run_worker(python, "read", cell.version, cases, files, written)
    cell.newest = {result["case"] for result in results if result["problem"]}


def run_release(release: str, python: Path, scratch: Path, cells: list[Cell]) -> None:
    """All versions and both directions."""
    writes, reads = RELEASES[release]
    for versions, direction, run in (
        (writes, "theirs, read by us", they_write),
        (reads, "ours, read by them", we_write),
    ):
        for version in versions:
            kinds = ("legacy",) if version == "0.1" else ("columns", "requests")
            for kind in kinds:
                cases = scratch / kind
                names = sorted(path.name for path in cases.iterdir())
                asked = ", on request" if kind == "requests" else ""
                cell = Cell(release, version, direction + asked)
                with tempfile.TemporaryDirectory(dir=scratch) as files:
                    run(python, cell, cases, Path(files), names)
                    if cell.wrong and run is we_write and version != "0.1":
                        newest = Path(files) / "newest"
                        newest.mkdir()
                        note_newest(python, cell, cases, newest, list(cell.wrong))
                cells.append(cell)
                print(cell.row(), flush=True)


def report(cells: Sequence[Cell]) -> str:
    """The table and, below it, every case that is not right."""
    lines = [
        "# Releases of pylance and this package",
        "",
        "Made by `python tests/interop_releases/run_matrix.py`.",
        "",
        "- A case is a column of one type with no, some or only nulls, of about "
        + " or ".join(f"{size:,}" for size in SIZES)
        + " rows.",
        "- It is right if a scan, a range and single rows all give what was written.",
        "- Lost by the writer: the release itself reads other values, and we read the same.",
        "  In 2.0 these are null structs, which that version cannot hold.",
        "- Below, the number of cases follows the column's name.",
        "- Not written: the writer refuses the type, or what is asked for, in that version.",
        "- On request: columns whose metadata ask for an encoding, after the plus; and blobs.",
        "- 0.22.0 reads no zstd or lz4 of later releases. Where 2.0 shall compress numbers,",
        "  those releases leave them as they are, and this package compresses them.",
        "- The newest pylance is "
        + lance.__version__
        + "; its files were tried where ours cannot be read.",
        "- The 2.2 of 1.0.4 is a draft; that release does not read the final 2.2.",
        "- 0.22.0 does not know 2.1, and 0.38.1 does not know 2.2.",
        "",
        "| release | version | files | right | lost by the writer | wrong | not written |",
        "|---|---|---|---:|---:|---:|---:|",
        *(cell.row() for cell in cells),
    ]
    lines += ["", "## Wrong", ""]
    if not any(cell.wrong for cell in cells):
        lines.append("Nothing.")
    from_pylance: dict[tuple[str, str], dict[str, str]] = {}
    for cell in cells:
        if cell.direction.startswith("theirs"):
            from_pylance.setdefault((cell.release, cell.version), {}).update(cell.own)
    for cell in cells:
        own = from_pylance.get((cell.release, cell.version), {})
        for problem, names in grouped(cell.wrong):
            for also, alike in by_whose(names, own.keys(), cell.newest):
                where = f"{cell.release}, {cell.version}, {cell.direction}"
                lines.append(f"- {where}: {quoted(alike)}: {problem}{also}")
    lines += ["", "## What releases do with their own files", ""]
    for (release, version), own in from_pylance.items():
        for problem, names in grouped(own):
            lines.append(f"- {release}, {version}: {quoted(names)}: {problem}")
    return "\n".join([*lines, *report_of_tables()]) + "\n"


def report_of_tables() -> list[str]:
    """How the newest pylance and this package read the tables kept in ``tests/golden``."""
    lines = ["", "## Tables of old releases", ""]
    lines += ["Versions of the tables that `tests/golden/make.py` has old releases write: read"]
    lines += ["alike, refused by the newest pylance and by us, and anything else.", ""]
    lines += ["| table | alike | both refuse | other |", "|---|---|---|---|"]
    golden = HERE.parent / "golden"
    for path in sorted(golden.glob("pylance-*/*")):
        counts = [0, 0, 0]
        for entry in lance.dataset(str(path)).versions():
            version = entry["version"]
            from_pylance = rows_or_nothing(lance.dataset(str(path), version=version).to_table)
            at = VersionSpec(version=version)
            ours = rows_or_nothing(lambda p=path, at=at: read_ours(str(p), at, system_columns=()))
            alike = repr(from_pylance) == repr(ours)
            counts[(1 if from_pylance is None else 0) if alike else 2] += 1
        lines.append(f"| {path.relative_to(golden)} | {' | '.join(map(str, counts))} |")
    return lines


def rows_or_nothing(read: Callable[[], pa.Table]) -> list[object] | None:
    """What was read; None if it is refused."""
    try:
        return read().to_pylist()
    except Exception:  # noqa: BLE001 - a table of results is wanted
        return None


def grouped(problems: dict[str, str]) -> list[tuple[str, list[str]]]:
    """Each problem with its cases."""
    groups: dict[str, list[str]] = {}
    for name, problem in problems.items():
        groups.setdefault(one_line(problem), []).append(name)
    return list(groups.items())


def by_whose(
    names: Sequence[str], own: Collection[str], newest: Collection[str]
) -> list[tuple[str, list[str]]]:
    """The cases, by whose files have the same problem."""
    groups: dict[str, list[str]] = {}
    for name in names:
        also = " (as on its own files)" if name in own else ""
        also += " (as on files of the newest pylance)" if name in newest else ""
        groups.setdefault(also, []).append(name)
    return list(groups.items())


def quoted(names: Sequence[str]) -> str:
    """The cases; columns only, if all shares of nulls and all sizes are affected."""
    columns = list(dict.fromkeys(name.split("-")[0] for name in names))
    cases = [f"`{column}` ({sum(n.split('-')[0] == column for n in names)})" for column in columns]
    return ", ".join(cases)


def one_line(text: str) -> str:
    """The message inside of wrappers, without places of the machine that ran it."""
    text = re.sub(r"JoinError::Panic\(Id\(\d+\), ", "", text)
    text = text.replace("called `Result::unwrap()` on an `Err` value: ", "")
    words = [word for word in text.split() if "/" not in word]
    return " ".join(words)[:90]


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(tempfile.gettempdir()) / "pylance_releases"
    parser.add_argument("--environments", type=Path, default=default)
    parser.add_argument("--releases", nargs="*", default=list(RELEASES))
    parser.add_argument("--output", type=Path, default=HERE / "RESULT.md")
    arguments = parser.parse_args()
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for kind in ("legacy", "columns"):
            print(len(make_cases(scratch / kind, legacy=kind == "legacy")), kind, "cases")
        print(len(make_requests(scratch / "requests")), "cases of requests")
        for release in arguments.releases:
            python = environment(arguments.environments, release)
            run_release(release, python, scratch, cells)
            arguments.output.write_text(report(cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
