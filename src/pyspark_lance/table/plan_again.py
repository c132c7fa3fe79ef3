"""Work that others invalidated is planned again, on the newest version, a bounded number of times.

A conflict is never settled by pretending that old work was done on a newer version.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from pyspark_lance.commit.commit_loop import Environment
from pyspark_lance.errors import RetryableCommitError

logger = logging.getLogger(__name__)

_R = TypeVar("_R")
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 3.0


def plan_again_on_conflict(
    attempt: Callable[[], _R],
    *,
    retries: int,
    timeout_s: float,
    environment: Environment | None = None,
) -> _R:
    """Runs ``attempt``, which plans, works and commits, until no conflict is left.

    Args:
        attempt: Opens the newest version itself, each time.
        retries: Attempts after the first.
        timeout_s: No attempt is started later than this after the first conflict.  The time that
            the work takes before it meets one does not count: a long job may run twice.
        environment: Clock, sleep and chance.

    Raises:
        RetryableCommitError: There was a conflict each time.
    """
    environment = environment or Environment()
    first_conflict: float | None = None
    number = 0
    while True:
        try:
            return attempt()
        except RetryableCommitError as error:
            now = environment.monotonic()
            first_conflict = now if first_conflict is None else first_conflict
            wait = environment.chance.uniform(
                0, min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(number, 16))
            )
            number += 1
            elapsed = now - first_conflict
            if number > retries or elapsed + wait > timeout_s:
                raise RetryableCommitError(
                    f"other commits were in the way {number} times in {elapsed:.1f} s; "
                    f"the last time: {error.what}",
                    error.where,
                    "run it again, or allow more with commitRetries and commitTimeout",
                ) from error
            logger.info("planning again after a conflict: %s", error.what)
            environment.sleep(wait)
