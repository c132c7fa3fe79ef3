"""What each kind of Spark's Python processes imports: python benchmarks/imports.py.

Milliseconds of processor time, the least of some runs: of PySpark's own modules, from the archive
without compiled modules and with them (``plugin install``), of our work with its imports, and of
a worker from its fork to the end of its first work, by PySpark's daemon and by ours.
``--modules KIND`` lists what one kind imports.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from timing import print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from kinds_of_work import PROCESSES, run

from pyspark_lance.spark.compiled_archives import compile_archives

COUNTED = ("pyspark_lance", "numpy", "pyarrow", "google", "pandas")
DAEMONS = ("pyspark.daemon", "pyspark_lance.spark.daemon")
DAEMON = "import time, pyspark.daemon; print(time.process_time())"


def of_daemon(archives: list[Path], repeats: int) -> float:
    """Seconds until a daemon that imports from these archives could fork."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, archives))}
    command = [sys.executable, "-c", DAEMON]
    return min(
        float(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
        for _ in range(repeats)
    )


def of_worker(kind: str, folder: Path, daemon: str, repeats: int) -> float:
    """Seconds of a worker that a daemon has forked."""
    runs = [run(kind, folder, daemon) for _ in range(repeats)]
    return min(one["spark"] + one["own"] for one in runs)


def archives_of(folder: Path) -> list[Path]:
    """Copies of PySpark's archives."""
    library = folder / "python" / "lib"
    library.mkdir(parents=True)
    for archive in (Path(pyspark.__file__).parent / "python" / "lib").glob("py*.zip"):
        (library / archive.name).write_bytes(archive.read_bytes())
    return sorted(library.iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--modules", choices=sorted(PROCESSES))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run("prepare", folder)
        if given.modules:
            print("\n".join(run(given.modules, folder)["modules"]))
            return
        rows = []
        for kind in PROCESSES:
            runs = [run(kind, folder) for _ in range(given.repeats)]
            modules = [module.split(".")[0] for module in runs[0]["modules"]]
            seconds = min(one["own"] for one in runs)
            counts = (str(modules.count(package)) for package in COUNTED)
            rows.append((kind, f"{1000 * seconds:.0f}", str(len(modules)), *counts))
        header = ("work", "ms", "modules", *COUNTED)
        print_table("Our part of a process: imports and work", header, rows)
        rows = []
        for kind in [kind for kind, module in PROCESSES.items() if module == "pyspark.worker"]:
            spent = [of_worker(kind, folder, one, given.repeats) for one in DAEMONS]
            rows.append((kind, *(f"{1000 * seconds:.0f}" for seconds in spent)))
        print_table("A worker from its fork on, ms, by the daemon", ("work", *DAEMONS), rows)
        archives = archives_of(folder)
        plain = of_daemon(archives, given.repeats)
        compiled = of_daemon(compile_archives(folder), given.repeats)
        rows = [("sources", f"{1000 * plain:.0f}"), ("compiled", f"{1000 * compiled:.0f}")]
        print_table("PySpark's part, from archives with", ("modules", "ms"), rows)


if __name__ == "__main__":
    main()
