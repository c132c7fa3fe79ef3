"""The shipped settings are ones that Spark knows, and the README of the folder names each."""

from __future__ import annotations

from pathlib import Path

import pytest
from script_process import run_script

FOLDER = Path(__file__).resolve().parents[2] / "spark_conf"
FILES = sorted(FOLDER.glob("*.conf"))


def settings(path: Path) -> dict[str, str]:
    lines = [line.strip() for line in path.read_text().splitlines()]
    return dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_setting_has_a_reason_and_a_row_in_the_readme(path):
    readme = (FOLDER / "README.md").read_text()
    text = path.read_text().splitlines()
    for key in settings(path):
        assert f"`{key}`" in readme
        line = next(i for i, row in enumerate(text) if row.startswith(key))
        assert text[line - 1].startswith("#"), f"{key} has no reason"


@pytest.mark.spark
def test_a_session_starts_and_reads_with_the_recommended_settings(tmp_path):
    lines = [f'.config("{k}", "{v.strip()}")' for p in FILES for k, v in settings(p).items()]
    script = (
        "import sys\nfrom pyspark.sql import SparkSession\n"
        "spark = (SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')"
        + "".join(lines)
        + ".getOrCreate())\n"
        "path = sys.argv[1]\n"
        "spark.range(5).write.format('lance').mode('append').save(path)\n"
        "print(spark.read.format('lance').load(path).count())\n"
        "print([spark.conf.get(k) for k in " + repr([k for p in FILES for k in settings(p)]) + "])"
    )
    printed = run_script(script, tmp_path / "t")
    assert printed.splitlines()[0] == "5"
