"""README and documents say what is there."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark_lance.spark.options.option_table import OPTIONS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def test_readme_is_short():
    assert len(README.splitlines()) <= 90
    assert max(map(len, README.splitlines())) <= 140


def test_architecture_map_names_existing_paths():
    text = (ROOT / "docs" / "how-it-works" / "architecture.md").read_text()
    paths = re.findall(r"`((?:src|protos|tests)[^`]*)`", text.split("## Find it in ten seconds")[1])
    assert len(paths) > 15
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_option_names_are_unique():
    assert len({option.name for option in OPTIONS}) == len(OPTIONS)


def test_support_table_matches_writable_versions():
    from pyspark_lance.datafile.version_support import WRITABLE_VERSIONS

    table = (ROOT / "docs" / "support.md").read_text()
    rows = re.findall(r"\| data files ([\d.]+) \| ([^|]*) \| ([^|]*) \|", table)
    assert rows
    for version, _, write in rows:
        assert write.startswith("yes") == (version in ("0.1", *WRITABLE_VERSIONS)), version


def test_readme_test_command_equals_ci():
    command = 'pip install -e ".[test,dev]" && poe all'
    assert command in README
    assert command in (ROOT / ".ci" / "run").read_text().replace(" --quiet", "")
