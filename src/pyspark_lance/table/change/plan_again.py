"""Work that others invalidated is planned again, on the newest version, a bounded number of times.

So is work of which others removed a file, as a cleanup does with versions that are not the newest.

A conflict is never settled by pretending that old work was done on a newer version.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from pyspark_lance.commit.retries import Environment, Retries
from pyspark_lance.errors import MissingFileError, RetryableCommitError

logger = logging.getLogger(__name__)

_R = TypeVar("_R")


def plan_again_on_conflict(
    attempt: Callable[[Retries], _R],
    *,
    retries: int,
    timeout_s: float,
    environment: Environment | None = None,
) -> _R:
    """Runs ``attempt``, which plans, works and commits, until no conflict is left.

    Args:
        attempt: Opens the newest version itself, each time, and gives the retries that are left
            to the commit.
        retries: Attempts after the first, those inside a commit among them.
        timeout_s: No attempt is started later than this after the first conflict.  The time that
            the work takes before it meets one does not count: a long job may run twice.
        environment: Clock, sleep and chance.

    Raises:
        RetryableCommitError: There was a conflict each time.
        MissingFileError: A file is gone, and the newest version needs it as well.
    """
    left = Retries(retries, timeout_s, environment)
    missing = ""
    while True:
        try:
            return attempt(left)
        except RetryableCommitError as error:
            spend_attempt(left, error)
        except MissingFileError as error:
            # Others may have made newer versions and cleaned up; the newest one has all its files.
            if error.where == missing or not left.plan_again():
                raise
            missing = error.where
            logger.info("planning again, as a file is gone: %s", error.where)


def spend_attempt(left: Retries, conflict: RetryableCommitError) -> None:
    """Waits for the next attempt of work that met a conflict.

    Raises:
        RetryableCommitError: There is none left.
    """
    if not left.plan_again():
        raise RetryableCommitError(
            f"other commits were in the way {left.attempts} times in "
            f"{left.elapsed_s:.1f} s; the last time: {conflict.what}",
            conflict.where,
            "run it again, or allow more with commitRetries and commitTimeout",
        ) from conflict
    logger.info("planning again after a conflict: %s", conflict.what)
