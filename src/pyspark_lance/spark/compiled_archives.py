"""Compiled modules in PySpark's own archives, so that its Python processes start sooner.

Spark's Python processes import PySpark from ``python/lib/pyspark.zip`` of its installation, which
has sources only, and nothing that is imported from an archive is kept compiled: each process
compiles PySpark anew, which is most of what it takes to start one. Python takes compiled modules
that lie beside the sources in an archive, if they are of its own version, and else the sources.
"""

from __future__ import annotations

import os
import py_compile
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOT_IN_WORKERS = "/tests/"


def compile_archives(pyspark: Path) -> list[Path]:
    """Adds compiled modules of this Python's version to the archives of an installation.

    Returns the archives that have them now; none where the installation has no archives.
    """
    archives = _archives(pyspark)
    for archive in archives:
        remove_compiled([archive])  # of another version of Python
        with _replaced(archive) as changed:
            _add_compiled(changed, shown=archive)
    return archives


def strip_archives(pyspark: Path) -> bool:
    """Undoes ``compile_archives``; returns whether there was something to remove."""
    return remove_compiled(_archives(pyspark))


def remove_compiled(archives: list[Path]) -> bool:
    """Removes compiled modules that lie beside their sources; returns whether there were any."""
    found = False
    for archive in archives:
        with zipfile.ZipFile(archive) as present:
            names = set(present.namelist())
            compiled = {name for name in names if name.endswith(".pyc") and name[:-1] in names}
            if compiled:
                found = True
                with _replaced(archive, empty=True) as changed:
                    _copy(present, changed, names - compiled)
    return found


def _archives(pyspark: Path) -> list[Path]:
    return sorted((pyspark / "python" / "lib").glob("py*.zip"))


@contextmanager
def _replaced(archive: Path, *, empty: bool = False) -> Iterator[Path]:
    """A file beside the archive that takes its place at the end.

    A new file, since package managers link one file into many installations, and processes that
    run read the archive by the offsets that they found.
    """
    handle, name = tempfile.mkstemp(dir=archive.parent, prefix=f".{archive.name}.")
    os.close(handle)
    try:
        if not empty:
            shutil.copyfile(archive, name)
        yield Path(name)
        shutil.copymode(archive, name)
        os.replace(name, archive)
    except BaseException:
        os.unlink(name)
        raise


def _copy(present: zipfile.ZipFile, changed: Path, names: set[str]) -> None:
    with zipfile.ZipFile(changed, "w") as target:
        for info in present.infolist():
            if info.filename in names:
                target.writestr(info, present.read(info))


def _add_compiled(archive: Path, *, shown: Path) -> None:
    """Adds to a file; tracebacks show ``shown`` as where the sources are."""
    with (
        zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as target,
        tempfile.TemporaryDirectory() as folder,
    ):
        for name in [one for one in target.namelist() if one.endswith(".py")]:
            if _NOT_IN_WORKERS in name:
                continue
            compiled = _compiled(target.read(name), f"{shown}/{name}", Path(folder))
            if compiled is not None:
                target.writestr(zipfile.ZipInfo(f"{name}c"), compiled, zipfile.ZIP_DEFLATED)


def _compiled(text: bytes, shown: str, folder: Path) -> bytes | None:
    """The compiled module; None for one that is not of this version of Python."""
    source = folder / "source.py"
    source.write_bytes(text)
    written = py_compile.compile(
        str(source),
        str(folder / "compiled.pyc"),
        dfile=shown,
        # Sources in the archive have times of another zone, and nothing else changes them.
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        quiet=2,
    )
    return None if written is None else Path(written).read_bytes()
