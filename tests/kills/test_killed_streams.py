"""A few kills of ``killed_streams.py``, minutes long; the command does as many as one wants."""

from __future__ import annotations

import pytest
from kills.killed_streams import run

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.slow]


def test_killed_streams_lose_and_repeat_nothing(tmp_path):
    outcome = run(str(tmp_path), 1, 12, ["offsets", "versions"])
    assert not outcome.wrong, outcome.report()
    assert outcome.kills.total() == 2


def test_killed_sinks_lose_and_repeat_nothing(tmp_path):
    outcome = run(str(tmp_path), 2, 12, ["versions", "offsets"], sinks=True)
    assert not outcome.wrong, outcome.report()
    assert outcome.kills.total() == 2
