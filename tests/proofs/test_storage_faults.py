"""A small run of the proof: nothing is lost and nothing doubled in a store that fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from proofs.storage_faults import commit_through_faults
from s3_server import s3_server  # noqa: F401

pytestmark = pytest.mark.s3


def test_failing_requests_lose_and_repeat_nothing(s3_server):  # noqa: F811
    with ThreadPoolExecutor(3) as executor:
        outcome = commit_through_faults(
            s3_server, executor, writers=3, commits=9, rate=0.1, seed=4, time_out="1s"
        )
    assert outcome.is_right, outcome
    assert outcome.commits == 9
    assert outcome.troubles
