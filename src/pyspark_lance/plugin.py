"""The JVM plugin, a jar with which Spark plans scans and writes of Lance tables.

The wheel installs the jar into the pyspark of the same environment, for all sessions. For another
Spark, ``python -m pyspark_lance.plugin install`` copies it. ``enable(spark)`` loads it into a
running session, ``spark.jars`` into a new one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.spark.compiled_archives import compile_archives, strip_archives
from pyspark_lance.spark.redaction import hide_storage_options
from pyspark_lance.spark.source.plugin_state import JAR_NAME, TESTED_RELEASES, jar_of_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTING = "spark.sql.lance.plugin"
_SOURCE = "org.pysparklance.LanceSource"
# Paths as tables, and Spark's own catalog with Lance tables in it.
_CATALOGS = {
    "spark.sql.catalog.lance": "org.pysparklance.LanceCatalog",
    "spark.sql.catalog.spark_catalog": "org.pysparklance.LanceSessionCatalog",
}


def plugin_jar() -> str:
    """Return the path of this package's jar, for ``spark.jars``.

    Raises:
        UnsupportedFeatureError: The package is not installed as files (imported from a zip).

    Examples:
        >>> plugin_jar().endswith("pyspark-lance-plugin.jar")
        True
    """
    jar = jar_of_package()
    if not jar.exists():
        raise UnsupportedFeatureError(
            f"there is no file {jar}; all else works without the JVM plugin",
            hint="pip install pyspark-lance on the driver: a package in a zip has no files",
        )
    return str(jar)


def enable(spark: SparkSession) -> None:
    """Enable the plugin in a running session, classic or Connect; redact storage options.

    If the jar is not in Spark's ``jars`` folder, this applies in a classic session to the calling
    Python thread and to sessions created from it: call it in each thread, or set ``spark.jars``.

    Raises:
        UnsupportedFeatureError: There is no jar in this installation, or it was not tested with
            this Spark.
        InvalidInputError: Another jar provides the format ``lance``.
    """
    jar = plugin_jar()
    if ".".join(spark.version.split(".")[:2]) not in TESTED_RELEASES:
        raise UnsupportedFeatureError(
            f"the JVM plugin was not tested with Spark {spark.version}",
            hint="DataFrames, LanceTable and streams work without it; it is active in "
            f"Spark {', '.join(TESTED_RELEASES)}",
        )
    spark.conf.set(_SETTING, "on")
    if hasattr(spark, "_jsparkSession"):
        if registered_class(spark) != _SOURCE:
            spark.sql(f"ADD JAR '{jar}'").collect()
        answering = registered_class(spark)
        if answering != _SOURCE:
            raise InvalidInputError(
                f"the format 'lance' belongs to {answering}, which is not part of pyspark-lance",
                hint="remove the other Lance jar from the class path (spark.jars, "
                "spark.jars.packages or the jars folder of Spark)",
            )
    else:
        spark.addArtifacts(jar)
    for key, catalog in _CATALOGS.items():
        if spark.conf.get(key, None) in (None, "builtin"):
            spark.conf.set(key, catalog)
    _load_catalogs(spark)
    hide_storage_options(spark)


def _load_catalogs(spark: SparkSession) -> None:
    """Make Spark load the catalogs in this thread, which can load classes of the jar.

    Spark loads catalogs on first use and keeps them, but other threads cannot load classes of a jar
    that was added to a running session, so that there all statements would fail.
    """
    if not hasattr(spark, "_jsparkSession"):
        return  # the session of a Connect server has its jars in all threads
    manager = spark._jsparkSession.sessionState().catalogManager()
    for key, catalog in _CATALOGS.items():
        if spark.conf.get(key) == catalog:
            manager.catalog(key.rpartition(".")[2])


def registered_class(spark: SparkSession) -> str:
    """Return the Java class of ``format("lance")`` in a classic session.

    ``org.pysparklance.LanceSource`` is the plugin; a name with ``Python`` is this package without
    the plugin; any other class belongs to another jar.
    """
    lookup = spark._jvm.org.apache.spark.sql.execution.datasources.DataSource  # type: ignore[union-attr]
    try:
        java_class = lookup.lookupDataSource("lance", spark._jsparkSession.sessionState().conf())
    except Exception as error:  # noqa: BLE001  (py4j raises what Java threw)
        return f"none or more than one class ({str(error).strip().splitlines()[-1]})"
    return str(java_class.getName())


def install(pyspark: Path | None = None) -> Path:
    """Copy the jar to Spark's ``jars`` folder, so that every session loads it.

    The wheel does that for the pyspark of the same environment. This also adds compiled modules to
    PySpark's archives, which every Python process of Spark would otherwise compile when it starts.
    Call it while no session runs.

    Args:
        pyspark: Folder of the installation; None for the pyspark of this Python.
    """
    target = _jars_of(pyspark) / JAR_NAME
    copy_jar(target)
    compile_archives(target.parent.parent)
    return target


def copy_jar(target: Path) -> None:
    """Replace ``target`` with a copy of the package's jar.

    The copy is a new file that is renamed to ``target``: package managers link one file into many
    installations, and a running Spark may have the old one open.
    """
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(handle)
    try:
        shutil.copyfile(plugin_jar(), name)
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def uninstall(pyspark: Path | None = None) -> bool:
    """Remove the jar and the compiled modules; return whether there was something to remove."""
    target = _jars_of(pyspark) / JAR_NAME
    was_there = target.exists()
    target.unlink(missing_ok=True)
    return strip_archives(target.parent.parent) or was_there


def _jars_of(pyspark: Path | None) -> Path:
    if pyspark is None:
        spec = find_spec("pyspark")
        assert spec is not None and spec.origin is not None
        pyspark = Path(spec.origin).parent
    jars = pyspark / "jars"
    # The wheel creates the folder if it is missing.
    if not any(jars.glob("spark-*.jar")):
        raise InvalidInputError(
            f"{pyspark} has no folder jars with the jars of Spark",
            hint="a pyspark-client installation has none; install on the Connect server",
        )
    return jars


def main(arguments: list[str] | None = None) -> int:
    """Run the command line: install, uninstall or path."""
    parser = argparse.ArgumentParser(
        prog="python -m pyspark_lance.plugin", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("command", choices=("install", "uninstall", "path"))
    parser.add_argument("--pyspark", type=Path, help="another installation's pyspark folder")
    chosen = parser.parse_args(arguments)
    if chosen.command == "install":
        line = f"installed {install(chosen.pyspark)}"
    elif chosen.command == "uninstall":
        line = "uninstalled" if uninstall(chosen.pyspark) else "it was not installed"
    else:
        line = plugin_jar()
    sys.stdout.write(line + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
