"""The README of the folder names each of the shipped settings.

A session starts, writes and reads with them in ``test_secrets_and_threads.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "spark_conf"
FILES = sorted(FOLDER.glob("*.conf"))


def settings(path: Path) -> dict[str, str]:
    lines = [line.strip() for line in path.read_text().splitlines()]
    return dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_settings_have_reason_and_readme_row(path):
    readme = (FOLDER / "README.md").read_text()
    text = path.read_text().splitlines()
    for key in settings(path):
        assert f"`{key}`" in readme
        line = next(i for i, row in enumerate(text) if row.startswith(key))
        assert text[line - 1].startswith("#"), f"{key} has no reason"
