"""The jars of the PySpark that tests run: with the plugin's among them, and without it."""

from __future__ import annotations

import functools
import importlib.util
import tempfile
from pathlib import Path

from pyspark_lance.plugin import copy_jar
from pyspark_lance.spark.source.plugin_state import JAR_NAME, jar_of_package


def refresh_jar() -> None:
    """Make the plugin's jar among PySpark's that of these sources, replacing any other."""
    installed = _pyspark() / "jars" / JAR_NAME
    if not installed.exists() or installed.read_bytes() != jar_of_package().read_bytes():
        copy_jar(installed)


@functools.cache
def home_without_jar() -> str:
    """Return a ``SPARK_HOME`` as of a Spark elsewhere: it has all of PySpark but the plugin."""
    home = Path(_kept_folder().name)
    (home / "jars").mkdir()
    for one in _pyspark().iterdir():
        if one.name != "jars":
            (home / one.name).symlink_to(one)
    for one in (_pyspark() / "jars").iterdir():
        if one.name != JAR_NAME:
            (home / "jars" / one.name).symlink_to(one)
    return str(home)


@functools.cache
def _kept_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that goes with this process."""
    return tempfile.TemporaryDirectory(prefix="spark-without-jar-")


def _pyspark() -> Path:
    found = importlib.util.find_spec("pyspark")
    assert found and found.origin
    return Path(found.origin).parent
