"""What each kind of Spark's Python processes imports: python benchmarks/imports.py.

Milliseconds of processor time, the least of some runs: of PySpark's modules, from the archive
without compiled modules and with them (``plugin install``), of this package's work with its
imports, and of a worker from its fork to the end of its first work, by PySpark's daemon and by
ours.
``--modules KIND`` lists what one kind imports.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
from harness import print_table, run, scratch
from kinds_of_work import PROCESSES
from kinds_of_work import run as run_work

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
    runs = [run_work(kind, folder, daemon) for _ in range(repeats)]
    return min(one["spark"] + one["own"] for one in runs)


def archives_of(folder: Path) -> list[Path]:
    """Copies of PySpark's archives."""
    library = folder / "python" / "lib"
    library.mkdir(parents=True)
    for archive in (Path(pyspark.__file__).parent / "python" / "lib").glob("py*.zip"):
        (library / archive.name).write_bytes(archive.read_bytes())
    return sorted(library.iterdir())


def main(*, repeats: int = 5, modules: str = "") -> None:
    with scratch() as name:
        folder = Path(name)
        run_work("prepare", folder)
        if modules:
            print("\n".join(run_work(modules, folder)["modules"]))
            return
        rows = []
        for kind in PROCESSES:
            runs = [run_work(kind, folder) for _ in range(repeats)]
            loaded = [module.split(".")[0] for module in runs[0]["modules"]]
            seconds = min(one["own"] for one in runs)
            counts = map(loaded.count, COUNTED)
            rows.append((kind, f"{1000 * seconds:.0f}", len(loaded), *counts))
        print_table(
            "A process of Spark: imports and work", ("work", "ms", "modules", *COUNTED), rows
        )
        rows = []
        for kind in [kind for kind, module in PROCESSES.items() if module == "pyspark.worker"]:
            spent = [of_worker(kind, folder, one, repeats) for one in DAEMONS]
            rows.append((kind, *(f"{1000 * seconds:.0f}" for seconds in spent)))
        print_table("A worker from its fork on, ms, by the daemon", ("work", *DAEMONS), rows)
        archives = {"sources": archives_of(folder), "compiled": compile_archives(folder)}
        rows = [(name, f"{1000 * of_daemon(of, repeats):.0f}") for name, of in archives.items()]
        print_table("PySpark's modules, from archives with", "modules | ms", rows)


if __name__ == "__main__":
    run(main)
