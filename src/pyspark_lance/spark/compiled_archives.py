"""Add compiled modules to PySpark's archives, so that its Python processes start sooner.

Spark's Python processes import PySpark from ``python/lib/pyspark.zip``, which only contains
sources. Python does not cache compiled modules of an archive, so each process compiles PySpark
again, which takes most of its start-up time. Python uses compiled modules beside the sources in an
archive if they are of its own version, and otherwise the sources.
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
    """Add compiled modules of this Python's version to the archives of an installation.

    Returns the archives that were changed; an installation may have none.
    """
    archives = _archives(pyspark)
    for archive in archives:
        remove_compiled([archive])  # of another version of Python
        with _replace_archive(archive) as changed:
            _add_compiled(changed, shown=archive)
    return archives


def strip_archives(pyspark: Path) -> bool:
    """Undo ``compile_archives``; return whether there was something to remove."""
    return remove_compiled(_archives(pyspark))


def remove_compiled(archives: list[Path]) -> bool:
    """Remove compiled modules from archives; return whether there were any."""
    found = False
    for archive in archives:
        with zipfile.ZipFile(archive) as present:
            names = set(present.namelist())
            compiled = {name for name in names if name.endswith(".pyc") and name[:-1] in names}
            if compiled:
                found = True
                with _replace_archive(archive, empty=True) as changed:
                    _copy(present, changed, names - compiled)
    return found


def _archives(pyspark: Path) -> list[Path]:
    return sorted((pyspark / "python" / "lib").glob("py*.zip"))


@contextmanager
def _replace_archive(archive: Path, *, empty: bool = False) -> Iterator[Path]:
    """Yield a new file that replaces the archive at the end.

    The archive is not changed in place, since package managers link one file into many
    installations, and running processes have cached its offsets.
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
    """Add compiled modules to an archive; ``shown`` is the path of the sources in tracebacks."""
    with (
        zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as target,
        tempfile.TemporaryDirectory() as folder,
    ):
        for name in [one for one in target.namelist() if one.endswith(".py")]:
            if _NOT_IN_WORKERS in name:
                continue
            compiled = _compile(target.read(name), f"{shown}/{name}", Path(folder))
            if compiled is not None:
                target.writestr(zipfile.ZipInfo(f"{name}c"), compiled, zipfile.ZIP_DEFLATED)


def _compile(text: bytes, shown: str, folder: Path) -> bytes | None:
    """Compile a module; None for one that this version of Python cannot compile."""
    source = folder / "source.py"
    source.write_bytes(text)
    written = py_compile.compile(
        str(source),
        str(folder / "compiled.pyc"),
        dfile=shown,
        # Not by timestamp: an archive stores times in an unknown zone, and sources never change.
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        quiet=2,
    )
    return None if written is None else Path(written).read_bytes()
