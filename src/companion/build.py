"""Builds the JVM companion: python src/companion/build.py [--target FILE] [--compare PYSPARK ...].

Needs a JDK of at least 17 and an installed pyspark, whose jars are what the sources compile
against; nothing is downloaded. The jar is the same, byte for byte, wherever it is built with the
same JDK.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

SOURCES = Path(__file__).parent / "org"
# What later releases of Spark have and the oldest one lacks, in outline: to compile against.
STUBS = Path(__file__).parent / "stubs"
JAR_NAME = "pyspark-lance-companion.jar"
TARGET = SOURCES.parents[1] / "pyspark_lance" / "jars" / JAR_NAME
_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_EPOCH = (1980, 1, 1, 0, 0, 0)


class CannotBuildError(Exception):
    """There is no JDK or no pyspark here, or the sources do not compile."""


def find_javac() -> str:
    """The compiler of JAVA_HOME, or the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    for candidate in (f"{home}/bin/javac" if home else None, "javac"):
        found = candidate and shutil.which(candidate)
        if found:
            return found
    raise CannotBuildError("there is no javac; install a JDK of at least 17")


def find_spark_jars() -> Path:
    """The folder of Spark's jars: of the importable pyspark, of SPARK_HOME, or of this Python.

    An isolated build cannot import the pyspark of the environment that it builds for.
    """
    spec = importlib.util.find_spec("pyspark")
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    if "SPARK_HOME" in os.environ:
        folders.append(Path(os.environ["SPARK_HOME"]))
    folders.append(Path(sysconfig.get_paths()["purelib"]) / "pyspark")
    for folder in folders:
        if any((folder / "jars").glob("spark-sql_*.jar")):
            return folder / "jars"
    raise CannotBuildError("there is no pyspark to compile against; pip install pyspark")


def build(target: Path = TARGET, spark_jars: Path | None = None) -> Path:
    """Compiles the sources and writes the jar to ``target``.

    Raises:
        CannotBuildError: Something that the build needs is missing, or it failed.
    """
    javac, jars = find_javac(), spark_jars or find_spark_jars()
    sources = sorted(map(str, SOURCES.rglob("*.java")))
    with tempfile.TemporaryDirectory() as scratch:
        command = [javac, "--release", "17", "-nowarn", "-proc:none", "-g:source,lines"]
        command += ["-cp", f"{jars}/*", "-d", scratch]
        if not has_changelog(jars):
            command += ["-sourcepath", str(STUBS), "-Xprefer:source", "-implicit:none"]
        command += sources
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CannotBuildError(f"javac failed:\n{done.stderr}")
        target.parent.mkdir(parents=True, exist_ok=True)
        # A running session may have the old jar open, so it is replaced and never changed.
        unfinished = target.with_suffix(f".{os.getpid()}.tmp")
        _write_jar(Path(scratch), unfinished)
        unfinished.replace(target)
    return target


def has_changelog(jars: Path) -> bool:
    """Whether this Spark has ``SELECT … CHANGES``; its releases before 4.2 have not."""
    wanted = "org/apache/spark/sql/connector/catalog/Changelog.class"
    for jar in jars.glob("spark-catalyst_*.jar"):
        with zipfile.ZipFile(jar) as archive:
            return wanted in archive.namelist()
    return False


def _write_jar(classes: Path, jar: Path) -> None:
    entries = {str(one.relative_to(classes)): one.read_bytes() for one in classes.rglob("*.class")}
    entries[_SERVICE] = b"org.pysparklance.LanceSource\n"
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        manifest = b"Manifest-Version: 1.0\nAutomatic-Module-Name: org.pysparklance\n\n"
        for name, content in [("META-INF/MANIFEST.MF", manifest), *sorted(entries.items())]:
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)


def is_up_to_date(target: Path = TARGET) -> bool:
    """Whether ``target`` is there and newer than all sources."""
    if not target.exists():
        return False
    built = target.stat().st_mtime
    return all(one.stat().st_mtime <= built for one in SOURCES.rglob("*.java"))


def digests(pysparks: list[Path]) -> dict[str, str]:
    """The SHA-256 of the jar as built against each of some pyspark folders."""
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for folder in pysparks:
            jar = build(Path(scratch) / JAR_NAME, folder / "jars")
            found[str(folder)] = hashlib.sha256(jar.read_bytes()).hexdigest()
    return found


def main() -> int:
    """Builds the jar, or compares what several versions of pyspark make of it."""
    parser = argparse.ArgumentParser(description="Build the JVM companion.")
    parser.add_argument("--target", type=Path, default=TARGET, help="where the jar goes")
    parser.add_argument(
        "--compare", type=Path, nargs="+", metavar="PYSPARK",
        help="pyspark folders; fails unless the jar is the same for all of them",
    )  # fmt: skip
    arguments = parser.parse_args()
    try:
        if arguments.compare:
            found = digests(arguments.compare)
            for folder, digest in found.items():
                sys.stdout.write(f"{digest}  {folder}\n")
            return 0 if len(set(found.values())) == 1 else 1
        sys.stdout.write(f"{build(arguments.target)}\n")
    except CannotBuildError as error:
        sys.stderr.write(f"the JVM companion was not built: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
