"""The companion's sources: what they share with Python."""

import re
from pathlib import Path

from pyspark_lance.spark.options import internal_keys

ROOT = Path(__file__).parents[2]
JAVA = sorted((ROOT / "src" / "companion" / "org").rglob("*.java"))


def test_the_companion_and_python_know_the_same_hidden_options():
    found = {key for path in JAVA for key in re.findall(r'"(_lance\.\w+)"', path.read_text())}
    assert found == internal_keys.ALL


def test_hidden_options_are_named_in_one_place_of_the_package():
    package = ROOT / "src" / "pyspark_lance"
    naming = [path.name for path in package.rglob("*.py") if '"_lance.' in path.read_text()]
    assert naming == ["internal_keys.py"]
