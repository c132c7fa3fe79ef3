"""Check that the JVM plugin is active in a session, and that its jar matches this package."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Final

from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.version import __version__

JAR_NAME: Final = "pyspark-lance-plugin.jar"
TESTED_RELEASES: Final = ("4.0", "4.1", "4.2", "4.3")
"""Releases of Spark in which the jar is active; ``Plugin.java`` has the same list."""
VARIABLE: Final = "PYSPARK_LANCE_PLUGIN"
"""The environment variable that disables the plugin, and the advice to install it: ``off``."""
_NOTICE = ".pyspark-lance-notice"
"""A file in the application's temporary folder: the advice was already printed."""
_MANIFEST_BYTES = 1000


def advise_on_plugin() -> None:
    """Print once per application how to install the plugin, in a worker that plans for Spark.

    Spark starts such a worker for each step of a query, so a file records the printed advice.
    """
    from pyspark.core.files import SparkFiles

    folder = SparkFiles._root_directory if SparkFiles._is_running_on_worker else None
    if folder is None or os.environ.get(VARIABLE, "").lower() == "off":
        return
    with contextlib.suppress(OSError):
        os.close(os.open(os.path.join(folder, _NOTICE), os.O_CREAT | os.O_EXCL))
        # Spark may have redirected sys.stderr to its log.
        os.write(2, f"{_advice()} ({VARIABLE}=off hides this line)\n".encode())


def _advice() -> str:
    import pyspark

    release = ".".join(pyspark.__version__.split(".")[:2])
    if release not in TESTED_RELEASES:
        return (
            "pyspark-lance: the JVM plugin is off, as it was not tested with Spark "
            f"{pyspark.__version__}; Python alone reads and writes Lance tables"
        )
    home = os.environ.get("SPARK_HOME", "")
    if home and Path(home, "jars", JAR_NAME).exists():
        return (
            "pyspark-lance: the JVM plugin was installed after this application started; "
            "start it again for fast scans and SQL in full"
        )
    command = "python -m pyspark_lance.plugin install"
    command += f" --pyspark {shlex.quote(home)}" if home else ""
    return (
        "pyspark-lance: the JVM plugin is not among the jars of this Spark, so Python alone reads "
        f"and writes Lance tables; for fast scans and SQL in full run {command}, "
        "or call pyspark_lance.enable(spark) in each application"
    )


@functools.lru_cache
def check_plugin(identity: str) -> None:
    """Check that the jar that sent a request belongs to this version of the package.

    Args:
        identity: Version, digest of the sources and path, as the jar sends them; may be empty.

    Raises:
        UnsupportedFeatureError: The jar belongs to another version.
    """
    version, _, rest = identity.partition(" ")
    digest, _, index = rest.partition(" ")
    if not identity or (version == __version__ and own_digest() in (digest, "")):
        return
    hint = f"upgrade the Python package: {sys.executable} -m pip install pyspark-lance=={version}"
    if not _is_newer(version, __version__):
        hint = (
            "pip install --force-reinstall --no-deps the package, or, where the jar is in another "
            "folder than this PySpark's, python -m pyspark_lance.plugin install --pyspark "
            "FOLDER; then start Spark again"
        )
    raise UnsupportedFeatureError(
        f"the jar of the JVM plugin is of version {version} ({digest[:7]}), and the Python package "
        f"of version {__version__} ({own_digest()[:7]})",
        index,
        hint,
    )


def own_digest() -> str:
    """Return the digest of the sources of this package's jar; empty if there is no jar file."""
    with contextlib.suppress(OSError), jar_of_package().open("rb") as jar:
        return digest_in(jar.read(_MANIFEST_BYTES))
    return ""


def digest_in(head: bytes) -> str:
    """Return the digest that the manifest of a jar names; it comes first and is not compressed."""
    found = re.search(rb"^Sources-Digest: (\w+)", head, re.MULTILINE)
    return found[1].decode() if found else ""


def jar_of_package() -> Path:
    """Return the path of the jar in a package that is installed as files."""
    return Path(__file__).parents[2] / "jars" / JAR_NAME


def _is_newer(version: str, other: str) -> bool:
    return _numbers(version) > _numbers(other)


def _numbers(version: str) -> list[int]:
    return [int(one) for one in re.findall(r"\d+", version)]
