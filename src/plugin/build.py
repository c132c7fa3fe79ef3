"""Build the JVM plugin: python src/plugin/build.py [--check] [--compare PYSPARK ...].

The jar is kept beside the sources, so that installing needs no JDK; after a change of Java, build
and keep it again. Building needs a JDK of at least 17 and an installed pyspark, whose jars are what
the sources compile against; nothing is downloaded. The jar is the same, byte for byte, wherever it
is built with a JDK of the same release, and it says of which sources it was made.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

SOURCES = Path(__file__).parent / "org"
JAR_NAME = "pyspark-lance-plugin.jar"
TARGET = SOURCES.parents[1] / "pyspark_lance" / "jars" / JAR_NAME
# Of the jar that is kept: another JDK may compile the same sources to other bytes.
JDK = 17
_MANIFEST = "META-INF/MANIFEST.MF"
# Classes that Spark finds by itself, by what it looks for.
_SERVICES = {
    "org.apache.spark.sql.sources.DataSourceRegister": "org.pysparklance.LanceSource",
    "org.apache.spark.sql.SparkSessionExtensionsProvider": "org.pysparklance.LanceExtensions",
}
_EPOCH = (1980, 1, 1, 0, 0, 0)
# Warnings that fail the build. Those left out depend on the release of Spark (deprecated methods,
# casts that some of its signatures need) or are about classes that nothing serializes.
_LINT = "-Xlint:all,-path,-classfile,-processing,-cast,-deprecation,-serial,-try"
# The compiler is done before code that is optimized for it would pay.
_QUICK_JAVAC = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")
_IMPORT = re.compile(r"^import (?:static )?[\w.]+\.(\w+);$", re.MULTILINE)


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
    """The folder of Spark's jars: of the importable pyspark, or of SPARK_HOME."""
    spec = importlib.util.find_spec("pyspark")
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    if "SPARK_HOME" in os.environ:
        folders.append(Path(os.environ["SPARK_HOME"]))
    for folder in folders:
        if any((folder / "jars").glob("spark-sql_*.jar")):
            return folder / "jars"
    raise CannotBuildError("there is no pyspark to compile against; pip install pyspark")


def build(target: Path = TARGET, spark_jars: Path | None = None) -> Path:
    """Compile the sources and write the jar to ``target``.

    Raises:
        CannotBuildError: Something that the build needs is missing, or it failed.
    """
    javac, jars = find_javac(), spark_jars or find_spark_jars()
    if not can_compile(jars):
        raise CannotBuildError("this Spark lacks classes; build with pyspark 4.3")
    sources = sorted(map(str, SOURCES.rglob("*.java")))
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            javac,
            *_QUICK_JAVAC,
            "--release",
            "17",
            _LINT,
            "-Werror",
            "-proc:none",
            "-g:source,lines",
        ]
        command += ["-cp", f"{jars}/*", "-d", scratch]
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


def renew_installed() -> None:
    """Have the installation beside this Python use the jar; it got a copy of an older one."""
    installed = find_spark_jars() / JAR_NAME
    if installed.exists():
        # A new file: package managers link one file into many installations.
        unfinished = installed.with_suffix(f".{os.getpid()}.tmp")
        shutil.copyfile(TARGET, unfinished)
        unfinished.replace(installed)


def unused_imports() -> dict[str, list[str]]:
    """The names that a source imports and does not use, by the name of the source.

    javac has no warning for them.
    """
    found = {}
    for one in sorted(SOURCES.rglob("*.java")):
        text = one.read_text(encoding="utf-8")
        used = set(re.findall(r"\w+", _IMPORT.sub("", text)))
        unused = [name for name in _IMPORT.findall(text) if name not in used]
        if unused:
            found[one.relative_to(SOURCES).as_posix()] = unused
    return found


def can_compile(jars: Path) -> bool:
    """Return whether the sources compile against this Spark: they name classes of 4.3."""
    wanted = "org/apache/spark/sql/catalyst/parser/SqlStatementSplitResult.class"
    for jar in jars.glob("spark-catalyst_*.jar"):
        with zipfile.ZipFile(jar) as archive:
            return wanted in archive.namelist()
    return False


class _Call:
    """Unpickles as the result of a function."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        return self._function, ()


def early_pickles() -> dict[str, bytes]:
    """What early workers run, and the partition that they read, by names in the jar."""
    sys.path.insert(0, str(TARGET.parents[2]))
    try:
        from pyspark_lance.spark.source.early_worker import reads, writes  # noqa: PLC0415
    finally:
        del sys.path[0]
    # A protocol that every Python of workers reads.
    values = {"reads": _Call(reads), "writes": _Call(writes), "none": None}
    return {
        f"org/pysparklance/python/{name}.pickle": pickle.dumps(value, protocol=2)
        for name, value in values.items()
    }


def _write_jar(classes: Path, jar: Path) -> None:
    entries = {str(one.relative_to(classes)): one.read_bytes() for one in classes.rglob("*.class")}
    entries |= early_pickles()
    entries |= {f"META-INF/services/{of}": f"{one}\n".encode() for of, one in _SERVICES.items()}
    # Not compressed: what zlib makes of the same bytes differs from one of its kinds to the next.
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_STORED) as archive:
        manifest = (
            "Manifest-Version: 1.0\nAutomatic-Module-Name: org.pysparklance\n"
            f"Implementation-Version: {package_version()}\n"
            f"Sources-Digest: {sources_digest()}\n\n"
        )
        for name, content in [(_MANIFEST, manifest.encode()), *sorted(entries.items())]:
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)


def package_version() -> str:
    """The version of the Python package, which is that of the jar."""
    text = (TARGET.parents[1] / "version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    assert found is not None
    return found[1]


def sources_digest() -> str:
    """A digest of the version and the Java sources, with their names and whatever ends lines."""
    digest = hashlib.sha256(package_version().encode())
    for one in sorted(SOURCES.rglob("*.java")):
        text = one.read_text(encoding="utf-8")
        digest.update(f"{one.relative_to(SOURCES).as_posix()}\n{text}\n".encode())
    return digest.hexdigest()[:40]  # a line of a manifest has at most 72 characters


def is_up_to_date(target: Path = TARGET) -> bool:
    """Whether ``target`` is there and was made of these sources."""
    if not target.exists():
        return False
    with zipfile.ZipFile(target) as jar:
        lines = jar.read(_MANIFEST).decode().splitlines()
    return f"Sources-Digest: {sources_digest()}" in lines


def check(target: Path = TARGET) -> bool:
    """Whether ``target`` is what these sources give; where there is the JDK for it, to the byte."""
    if not is_up_to_date(target):
        return False
    try:
        jars = find_spark_jars() if jdk_release() == JDK else None
    except CannotBuildError:
        jars = None
    if jars is None or not can_compile(jars):
        return True
    with tempfile.TemporaryDirectory() as scratch:
        return build(Path(scratch) / JAR_NAME, jars).read_bytes() == target.read_bytes()


def jdk_release() -> int:
    """The release of the JDK that ``build`` would use."""
    done = subprocess.run([find_javac(), "-version"], capture_output=True, text=True, check=True)
    return int((done.stdout + done.stderr).split()[1].split(".")[0])


def digests(pysparks: list[Path]) -> dict[str, str]:
    """The SHA-256 of the jar as built against each of some pyspark folders."""
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for folder in pysparks:
            jar = build(Path(scratch) / JAR_NAME, folder / "jars")
            found[str(folder)] = hashlib.sha256(jar.read_bytes()).hexdigest()
    return found


def main(given: list[str] | None = None) -> int:
    """Build the jar, or compare what several versions of pyspark make of it."""
    parser = argparse.ArgumentParser(description="Build the JVM plugin.")
    parser.add_argument("--target", type=Path, default=TARGET, help="where the jar goes")
    parser.add_argument(
        "--compare", type=Path, nargs="+", metavar="PYSPARK",
        help="pyspark folders; fails unless the jar is the same for all of them",
    )  # fmt: skip
    parser.add_argument(
        "--check", action="store_true", help="build nothing; fail if the kept jar is an old one"
    )
    arguments = parser.parse_args(given)
    try:
        if arguments.check:
            unused = unused_imports()
            if unused:
                raise CannotBuildError(f"imports that nothing uses: {unused}")
            if not check(arguments.target):
                raise CannotBuildError(f"{arguments.target} is not of these sources: poe plugin")
            return 0
        if arguments.compare:
            found = digests(arguments.compare)
            for folder, digest in found.items():
                sys.stdout.write(f"{digest}  {folder}\n")
            return 0 if len(set(found.values())) == 1 else 1
        sys.stdout.write(f"{build(arguments.target)}\n")
        if arguments.target == TARGET:
            renew_installed()
    except CannotBuildError as error:
        sys.stderr.write(f"the JVM plugin: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
