"""The plugin's sources: their packages, their size, and what they share with Python."""

import re
from collections import Counter
from pathlib import Path

from pyspark_lance.spark import redaction
from pyspark_lance.spark.options import internal_keys

ROOT = Path(__file__).parents[2]
# From the bottom: each may use those before it. On top are the classes that users configure, and
# the name that lance-spark has for one of them.
LAYERS = ("compat", "python", "read", "write", "catalog", "rules", "pysparklance", "spark")
JAVA = sorted((ROOT / "src" / "plugin" / "org").rglob("*.java"))


def test_plugin_and_python_share_hidden_options():
    found = {key for path in JAVA for key in re.findall(r'"(_lance\.\w+)"', path.read_text())}
    assert found == internal_keys.ALL


def test_hidden_options_are_named_in_one_module():
    package = ROOT / "src" / "pyspark_lance"
    naming = [path.name for path in package.rglob("*.py") if '"_lance.' in path.read_text()]
    assert naming == ["internal_keys.py"]


def test_java_packages_point_downwards():
    arrows = Counter(
        (path.parent.name, used or "pysparklance")
        for path in JAVA
        for used in re.findall(
            r"^import (?:static )?org\.pysparklance\.(?:([a-z]+)\.)?\w+", path.read_text(), re.M
        )
    )
    assert {package for arrow in arrows for package in arrow} == set(LAYERS)
    upwards = {arrow for arrow in arrows if LAYERS.index(arrow[0]) <= LAYERS.index(arrow[1])}
    assert not upwards


def test_only_listed_java_classes_open_files():
    """And what reads the manifest of its own jar."""
    opening = {
        path.stem
        for path in JAVA
        if re.search(r"^import java\.(io\.File|nio\.(file|channels))", path.read_text(), re.M)
    }
    assert opening == {"BatchReader", "CancelOnLimit", "Plugin", "ServiceProcess"}


def test_java_files_are_short():
    """Java plans and Python works: a file that grows beyond this has begun to do more than plan."""
    long = {}
    for path in JAVA:
        lines = [line.strip() for line in path.read_text().splitlines()]
        code = [one for one in lines if one and not one.startswith(("import ", "/*", "*", "//"))]
        if len(code) > 300:
            long[path.name] = len(code)
    assert not long


def test_plugin_and_python_redact_same_options():
    (java,) = (path.read_text() for path in JAVA if path.name == "StorageRedaction.java")

    def constant(name):
        (text,) = re.findall(rf"String {name} = ((?:.|\n)*?);\n", java)
        parts = re.findall(r'"((?:[^"\\]|\\.)*)"', text)
        return "".join(parts).encode().decode("unicode_escape")

    assert constant("OPTIONS") == redaction.OPTIONS
    assert constant("STRINGS") == redaction.STRINGS
