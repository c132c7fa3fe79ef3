"""What the benchmarks share: arguments, folders, processes, time, memory, tables, Spark sessions.

A benchmark is its workload and a function that prints the rows of a table; ``run`` gives the
function its arguments. Only the standard library is imported here, since sessions of other
interpreters and processes whose imports are measured import this module, too.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

# Tables are appended to this file too, one on each line.
_NOTES = "PYSPARK_LANCE_FIGURES"
SUPPORT = str(Path(__file__).resolve().parents[1] / "tests" / "support")
# The last one is for a module that has the name of a benchmark.
sys.path += [SUPPORT, os.path.dirname(SUPPORT)]


# Arguments and tables ------------------------------------------------------------------------


def run(*functions: Callable[..., object], session: Callable[..., Any] | None = None) -> None:
    """Call a function with the arguments of the command line, which its signature describes.

    Positional parameters are arguments, keyword-only ones are options: a tuple is given as values
    between commas, a bool as a flag. Of several functions the
    first argument may name one; the first function is the default.

    Args:
        functions: What to run; the docstring of the module is the help.
        session: Makes the session of a process that ``Served`` has started.
    """
    import argparse
    import inspect

    if session is not None and sys.argv[1:2] == ["--serve"]:
        _serve(session(*json.loads(sys.argv[2])))
        return
    text = sys.modules[functions[0].__module__].__doc__ or ""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parsers = {functions[0]: parser}
    if len(functions) > 1:
        made = parser.add_subparsers(required=True, metavar="WHAT")
        names = {one: one.__name__.replace("_", "-") for one in functions}
        parsers = {one: made.add_parser(name, help=one.__doc__) for one, name in names.items()}
    for function, own in parsers.items():
        own.set_defaults(function=function)
        for name, parameter in inspect.signature(function).parameters.items():
            default, option = parameter.default, "--" + name.replace("_", "-")
            if parameter.kind is parameter.VAR_POSITIONAL:
                own.add_argument(name, nargs="*")
            elif parameter.kind is not parameter.KEYWORD_ONLY:
                own.add_argument(name, nargs="?", default=default, type=type(default))
            elif isinstance(default, bool):
                own.add_argument(option, action="store_true")
            else:
                own.add_argument(option, default=default, type=_type(default), help=f"{default}")
    arguments = sys.argv[1:]
    if len(functions) > 1 and not {*arguments[:1]} & {*made.choices, "-h", "--help"}:
        arguments = [next(iter(made.choices)), *arguments]
    given = vars(parser.parse_args(arguments))
    function = given.pop("function")
    parameters = inspect.signature(function).parameters.values()
    some = [given.pop(p.name) for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            some += given.pop(parameter.name)
    sys.exit(function(*some, **given))


def _type(default: object) -> Callable[[str], object]:
    if isinstance(default, tuple):
        one = type(default[0]) if default else str
        return lambda text: tuple(map(one, filter(None, text.split(","))))
    return str if default is None else type(default)


def print_table(title: str, header: str | Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a Markdown table, and note it for ``run.py --chart``.

    A header may be one text with `` | `` between its names. Integers get commas, floats two
    decimals.
    """
    header = header.split(" | ") if isinstance(header, str) else list(header)
    cells = [list(map(_cell, row)) for row in rows]
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    title = f"{title}, load {os.getloadavg()[0]:.1f} (python benchmarks/{command})"
    if _NOTES in os.environ:
        with open(os.environ[_NOTES], "a") as notes:
            notes.write(json.dumps({"title": title, "header": header, "rows": cells}) + "\n")
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]

    def line(row: Sequence[str]) -> str:
        return "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"

    print(f"\n### {title}\n\n{line(header)}")
    print("|" + "|".join("-" * (w + 2) for w in widths) + "|")
    print(*map(line, cells), sep="\n", flush=True)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


@contextmanager
def scratch(kept: str | None = None) -> Iterator[str]:
    """Yield a temporary folder, or the given one, which is not removed."""
    folder = kept or tempfile.mkdtemp(prefix="pyspark-lance-bench-")
    os.makedirs(folder, exist_ok=True)
    try:
        yield folder
    finally:
        if kept is None:
            shutil.rmtree(folder, ignore_errors=True)


def size_of(path: str) -> int:
    """Return the bytes of all files in a folder."""
    return sum(one.stat().st_size for one in Path(path).rglob("*") if one.is_file())


# Time ----------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """Seconds by the clock, and of the processor (of all threads of the process)."""

    clock: float
    processor: float


def timed(work: Callable[..., Any], *given: object) -> tuple[Cost, Any]:
    """Return what a call takes and what it returns."""
    gc.collect()
    clock, processor = time.perf_counter(), time.process_time()
    result = work(*given)
    return Cost(time.perf_counter() - clock, time.process_time() - processor), result


def fastest(work: Callable[[], object], repeats: int = 5, warm: int = 1) -> Cost:
    """Return the least clock and processor time of some calls."""
    return fastest_of_each([work], repeats, warm)[0]


def fastest_of_each(
    works: Sequence[Callable[[], object]], repeats: int, warm: int = 1
) -> list[Cost]:
    """Return the least times of each; calls take turns, so other load affects all of them."""
    found: list[list[Cost]] = [[] for _ in works]
    for turn in range(warm + repeats):
        for work, costs in zip(works, found, strict=True):
            cost, _ = timed(work)
            if turn >= warm:
                costs.append(cost)
    return [Cost(*map(min, zip(*costs, strict=True))) for costs in found]


# Processes and memory ------------------------------------------------------------------------


def in_child(work: Callable[..., Any], *given: object, start: str = "spawn") -> Any:
    """Return what a call returns in a new process.

    Args:
        work: A function of a module; any with ``start="fork"``.
        given: Its arguments.
        start: The start method of ``multiprocessing``.
    """
    from multiprocessing import get_context

    if start == "fork":
        _import_package()
    receiver, sender = get_context(start).Pipe(duplex=False)
    child = get_context(start).Process(target=_send, args=(sender, work, given))
    child.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        sys.exit(f"{work} failed")
    finally:
        child.join()


def _import_package() -> None:
    """Keep the imports of ``scan`` and ``write`` out of what is measured."""
    import pyspark_lance.table.scan.plan_scan
    import pyspark_lance.table.write.write_table  # noqa: F401


def _send(pipe: Any, work: Callable[..., Any], given: Sequence[object]) -> None:
    _import_package()
    pipe.send(work(*given))


def memory_mb(name: str, pid: int | str = "self") -> float:
    """Return a figure of ``/proc/PID/status`` such as ``VmHWM``; 0 if the process is ending."""
    found = Path(f"/proc/{pid}/status").read_text().partition(f"{name}:")[2].split()
    return int(found[0]) / 1024 if found else 0.0


def reset_peak() -> float:
    """Begin a new ``VmHWM`` of this process; return the resident memory now, in MB."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory_mb("VmRSS")


def cost_with_memory(work: Callable[..., Any], *given: object) -> tuple[Cost, float, Any]:
    """Return cost, growth of memory in MB at the highest point, and result."""
    before = reset_peak()
    cost, result = timed(work, *given)
    return cost, memory_mb("VmHWM") - before, result


class _Used(NamedTuple):
    """Ticks of the processor that one process has used."""

    parent: int
    own: int
    waited: int  # By its children that ended and that it waited for.


def _tree(root: int) -> dict[int, _Used]:
    """Return a process and all that it started, by pid."""
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


def descendants(root: int) -> list[int]:
    """Return the pids of all processes that a process started."""
    return [pid for pid in _tree(root) if pid != root]


# What earlier calls saw, by root, and what ended since then without a parent that waits.
_seen: dict[int, dict[int, _Used]] = {}
_ended: dict[int, int] = {}


def processor_seconds(root: int) -> float:
    """Return what a process and all that it started have used so far.

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


# Tables --------------------------------------------------------------------------------------


def write(path: str, rows: Any, options: Mapping[str, str] | None = None, **settings: Any) -> None:
    """Append a table, or batches of one, by this package; create the table if there is none."""
    from pyspark_lance.table.version.snapshot import open_existing
    from pyspark_lance.table.version.table import Table
    from pyspark_lance.table.write.write_plan import WriteSettings, plan_write
    from pyspark_lance.table.write.write_table import commit_write, write_rows

    table = Table(path, options or {})
    batches = rows.to_batches() if hasattr(rows, "to_batches") else rows
    plan = plan_write(table, rows.schema, WriteSettings(**settings), existing=open_existing(table))
    commit_write(plan, write_rows(plan, batches))


def plan(path: str, condition: str | None = None, **request: Any) -> list[Any]:
    """Return the tasks of a scan of the newest version by this package."""
    from pyspark_lance.predicate.parse import parse_predicate
    from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema
    from pyspark_lance.table.version.snapshot import Snapshot
    from pyspark_lance.table.version.table import Table

    snapshot = Snapshot.open(Table(path))
    if condition is not None:
        request["predicate"] = parse_predicate(condition, predicate_schema(snapshot.schema))
    return list(plan_scan(snapshot, ScanRequest(**request)))


def scan(path: str, condition: str | None = None, **request: Any) -> int:
    """Return how many rows a scan by this package yields."""
    return sum(one.num_rows for task in plan(path, condition, **request) for one in task.run())


def rows_read(path: str, condition: str) -> int:
    """Return how many rows a scan by this package looks at."""
    slices = (part for task in plan(path, condition) for part in task.slices)
    return round(sum(part.read_share * part.fragment.physical_rows for part in slices))


def scan_by_pylance(path: str, condition: str | None = None) -> int:
    """Return how many rows a scan by pylance yields."""
    import lance

    return lance.dataset(path).to_table(filter=condition).num_rows


def write_by_pylance(path: str, rows: Any, **options: Any) -> None:
    """Write rows by pylance, as most tables are."""
    import lance

    common = {"enable_stable_row_ids": True, "data_storage_version": "2.1"}
    lance.write_dataset(rows, path, **{**common, **options})


def save_parquet(rows: Any, folder: str, files: int = 4) -> None:
    """Write a table as some files of Parquet."""
    import pyarrow.parquet as pq

    os.makedirs(folder)
    part = -(-rows.num_rows // files)
    for number in range(files):
        pq.write_table(rows.slice(number * part, part), f"{folder}/{number}.parquet")


def limit_pylance_to_one_thread() -> None:
    """Have pylance decode in one thread; call it before pylance is imported."""
    os.environ["LANCE_CPU_THREADS"] = os.environ["LANCE_IO_THREADS"] = "1"


# Spark ---------------------------------------------------------------------------------------

COMMON = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "4g",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.python.unix.domain.socket.enabled": "true",
}


def start_session(settings: Mapping[str, str] | None = None, folder: str = "") -> Any:
    """Start a quiet session on two cores; ``{folder}`` in a setting is where its tables are."""
    from pyspark.sql import SparkSession

    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    for key, value in {**COMMON, **(settings or {})}.items():
        builder = builder.config(key, value.format(folder=folder))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def jvm_of(spark: Any) -> int:
    """Return the pid of the JVM."""
    return spark._jvm.java.lang.ProcessHandle.current().pid()


def noop(frame: Any) -> None:
    """Read all rows of a frame."""
    frame.write.format("noop").mode("overwrite").save()


def setting_of_jar(jar: str) -> str:
    """Return the setting of Spark that takes a class path, a file, or coordinates."""
    if jar.endswith("*"):
        return "spark.driver.extraClassPath"
    return "spark.jars" if os.path.exists(jar) else "spark.jars.packages"


def timed_in_jvm(jvm: int, work: Callable[[], object]) -> tuple[float, float, Any] | None:
    """Return seconds by the clock, of the JVM's processes, and the result.

    None if the work raises NotImplementedError: the format cannot do it.
    """
    used, start = processor_seconds(jvm), time.perf_counter()
    try:
        result = work()
    except NotImplementedError:
        return None
    taken = time.perf_counter() - start
    return taken, processor_seconds(jvm) - used, result


def _serve(session: Any) -> None:
    """Answer what comes in, a JSON list of arguments a line, until there is no more."""
    print("ready", flush=True)
    for line in sys.stdin:
        # Dates and decimals in rows become texts.
        print(json.dumps(session.turn(*json.loads(line)), default=str), flush=True)
    session.spark.stop()


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


class Served:
    """A process of the script that runs, with a session that answers ``ask`` by its ``turn``.

    Args:
        given: The arguments of the session.
        python: Another interpreter, with another Spark.
    """

    def __init__(self, *given: object, python: str = sys.executable) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 as long as the process
        self._process = subprocess.Popen(
            [python, sys.argv[0], "--serve", json.dumps(given)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip
        self._answer("ready")

    def ask(self, *what: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return json.loads(self._answer())

    def _answer(self, expected: str = "") -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # Spark prints what it downloads, and the JVM warns after a time in brackets.
            is_answer = not expected and line[:1] in "[n" and _is_json(line)
            if line.strip() == expected or is_answer:
                return line
        self._errors.seek(0)
        why = "".join(self._errors.readlines()[-30:])
        sys.exit(f"a session ended: {self._process.args}\n{why}")

    def close(self) -> None:
        self._process.communicate()


Turns = dict[str, dict[str, list[list[float]]]]
"""By work and session: clock and processor seconds of each turn; none of what it cannot do."""


def take_turns(
    sessions: Mapping[str, Served], works: Sequence[str], repeats: int, warm: int
) -> Turns:
    """Have each session do each work again and again, one session after the other."""
    found: Turns = {work: {name: [] for name in sessions} for work in works}
    for turn in range(warm + repeats):
        for work in works:
            for name, session in sessions.items():
                taken = session.ask(turn, work)
                if turn >= warm and taken:
                    found[work][name].append(taken[:2])
    return found


def rows_of_turns(found: Turns) -> Iterator[list[str]]:
    """Yield a row for each work: medians by the clock with their spread, then of the processor."""
    for work, by_name in found.items():
        row = [work]
        for column in (0, 1):
            for taken in by_name.values():
                values = [one[column] for one in taken]
                spread = f" ({min(values):.2f}-{max(values):.2f})" if values and not column else ""
                row.append(f"{statistics.median(values):.2f}{spread}" if values else "–")
        yield row
