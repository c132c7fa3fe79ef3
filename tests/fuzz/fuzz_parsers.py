# ruff: noqa: T201 - a command
"""Feed damaged inputs to every parser: ``python tests/fuzz/fuzz_parsers.py --inputs 1000000``.

Every input must be read or refused by an error of this package: no other exception, no crash, no
hang, no allocation beyond a limit.  Inputs run in a child process, which is restarted after an
input that ended it.  An input is known by the seed and its number: ``--only NUMBER`` runs one.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import pyarrow as pa
from fuzz.targets import Target, make_targets

from pyspark_lance.errors import LanceError

SECONDS = 5
"""An input that takes longer hangs."""
MEMORY = 1 << 30
"""What reading one input may allocate."""
_STUCK_SECONDS = 30  # in code that does not return to Python


class TookTooLong(BaseException):
    """Not an Exception, so that no parser swallows it."""


@dataclass
class Tally:
    """What came of the inputs."""

    inputs: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[int]] = field(default_factory=dict)

    def fail(self, what: str, number: int) -> None:
        self.failures[what] += 1
        examples = self.examples.setdefault(what, [])
        if len(examples) < 5:
            examples.append(number)

    def add(self, other: Tally) -> None:
        self.inputs += other.inputs
        self.refused += other.refused
        self.failures += other.failures
        for what, numbers in other.examples.items():
            self.examples[what] = [*self.examples.get(what, []), *numbers][:5]


def run_one(targets: Sequence[Target], seed: int, number: int, tally: Tally) -> None:
    """Damages and reads input ``number``; raises nothing but what ends the process."""
    rng = random.Random(f"{seed}/{number}")
    (target,) = rng.choices(targets, [target.weight for target in targets])
    given = target.damage(rng)
    tally.inputs[target.name] += 1
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        target.read(given, rng)
    except LanceError as error:
        tally.refused[target.name] += 1
        shortage = _shortage(error)
        if shortage is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            tally.fail(f"{target.name}: {_place(shortage)}", number)
    except (Exception, TookTooLong) as error:  # noqa: BLE001 - that is what is looked for
        signal.setitimer(signal.ITIMER_REAL, 0)
        tally.fail(f"{target.name}: {_place(error)}", number)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _shortage(error: BaseException | None) -> BaseException | None:
    """The lack of memory behind an error: what was asked for was not compared with the bytes."""
    while error is not None and not isinstance(error, MemoryError):
        error = error.__cause__ or error.__context__
    return error


def _place(error: BaseException) -> str:
    """The error's type and the innermost line of this package."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "pyspark_lance" in frame.filename] or frames
    name = Path(ours[-1].filename).name
    return f"{type(error).__name__} in {name}:{ours[-1].lineno} {str(error)[:100]!r}"


def _too_long(_: int, __: object) -> None:
    raise TookTooLong(f"more than {SECONDS} s")


def prepare_process() -> None:
    """Limits the memory of this process, and makes slow inputs raise."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _too_long)
    pa.set_memory_pool(pa.system_memory_pool())
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run_share(targets: Sequence[Target], seed: int, numbers: range, current, pipe) -> None:
    """The child: runs ``numbers`` and sends a tally now and then."""
    prepare_process()
    tally, sent = Tally(), time.monotonic()
    for number in numbers:
        current.value = number
        run_one(targets, seed, number, tally)
        if time.monotonic() - sent > 1:
            pipe.send((tally, number))
            tally, sent = Tally(), time.monotonic()
    pipe.send((tally, numbers[-1] if len(numbers) else -1))
    pipe.close()
    # Destructors of libraries are not what is tested.
    os._exit(0)


def run_all(
    targets: Sequence[Target], seed: int, numbers: range, until: float = float("inf")
) -> Tally:
    """Run the inputs in child processes, one at a time, until ``until`` on the monotonic clock."""
    context = multiprocessing.get_context("fork")
    total, start, shown = Tally(), numbers.start, time.monotonic()
    while start < numbers.stop and time.monotonic() < until:
        current = context.Value(ctypes.c_longlong, start, lock=False)
        receiver, sender = context.Pipe(duplex=False)
        share = range(start, numbers.stop)
        child = context.Process(target=run_share, args=(targets, seed, share, current, sender))
        child.start()
        sender.close()
        last, since, stopped = -1, time.monotonic(), ""
        with contextlib.suppress(EOFError):
            while True:
                if receiver.poll(1):
                    tally, done = receiver.recv()
                    total.add(tally)
                    start = done + 1
                if current.value != last:
                    last, since = current.value, time.monotonic()
                elif time.monotonic() - since > _STUCK_SECONDS:
                    stopped = "hang outside of Python"
                    break
                if time.monotonic() > until:
                    stopped = "time is up"
                    break
                if time.monotonic() - shown > 30:
                    shown = time.monotonic()
                    print(f"{start} inputs, {sum(total.failures.values())} failures", flush=True)
        if stopped:
            child.kill()
        child.join()
        if stopped == "time is up":
            break
        if stopped or child.exitcode:
            # Tallies since the last message are lost; these inputs count as not run.
            total.fail(stopped or f"crash, exit code {child.exitcode}", current.value)
            start = current.value + 1
    return total


def report(tally: Tally, seconds: float) -> str:
    """A table of the parsers and a list of failures."""
    lines = ["| parser | inputs | refused | read |", "|---|---:|---:|---:|"]
    for name, count in tally.inputs.most_common():
        refused = tally.refused[name]
        lines.append(f"| {name} | {count:,} | {refused:,} | {count - refused:,} |")
    total = sum(tally.inputs.values())
    lines.append(f"| all | {total:,} | {sum(tally.refused.values()):,} | |")
    lines.append("")
    lines.append(f"{sum(tally.failures.values())} failures, {seconds:.0f} s")
    for what, count in tally.failures.most_common():
        lines.append(f"- {count} x {what}; inputs {tally.examples[what]}")
    return "\n".join(lines)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="run one input, with its traceback")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        targets = make_targets(Path(folder))
    if arguments.only is not None:
        rng = random.Random(f"{arguments.seed}/{arguments.only}")
        (target,) = rng.choices(targets, [target.weight for target in targets])
        given = target.damage(rng)
        print(target.name, repr(given)[:300])
        prepare_process()
        target.read(given, rng)
        return 0
    started = time.monotonic()
    numbers = range(arguments.first, arguments.first + arguments.inputs)
    tally = run_all(targets, arguments.seed, numbers, started + arguments.seconds)
    print(report(tally, time.monotonic() - started))
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
