"""Retries: limits on the attempts of one operation.

An operation is retried for many reasons: another writer committed the version first, a conflict
requires new planning, the store failed at the put.  All of them share one count, so that
``commitRetries`` limits them together.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark_lance.commit.commit_handler import CommitHandler, ConditionalPutCommitHandler
from pyspark_lance.errors import InvalidInputError

DEFAULT_RETRIES = 10
DEFAULT_TIMEOUT_S = 30.0

LOCK_TIMEOUT_S = 5.0
"""Maximum wait for the advisory lock without progress of other writers, in seconds."""

# Random waits are slots of an attempt's duration: more slots after each conflict, so that fewer
# writers share one, then fewer, so that writers that have waited long go first.
_SLOTS = (4, 16, 64, 32, 16, 8, 4, 2, 1)
_MAX_WAIT_S = 3.0
_SLOT_S = 0.0125


@dataclass(frozen=True, slots=True)
class Environment:
    """Clock, sleep, random numbers and commit handler of a commit."""

    handler: CommitHandler = field(default_factory=ConditionalPutCommitHandler)
    now_ns: Callable[[], int] = time.time_ns
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    # Not the random module's generator: forked workers would all draw the same numbers.
    rng: random.Random = field(default_factory=random.SystemRandom)


class Retries:
    """Remaining attempts of one operation.

    ``count``: attempts after the first; ``timeout_s``: no attempt starts later than this after the
    first conflict of the operation or, within one commit, after that commit began.
    """

    def __init__(
        self,
        count: int = DEFAULT_RETRIES,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        environment: Environment | None = None,
    ) -> None:
        self.environment = environment or Environment()
        self.attempts = 1
        self._most = max(count, 0) + 1
        self._timeout_s = timeout_s
        self._first_s: float | None = None
        self._is_granted = False

    @classmethod
    def from_text(cls, text: str, count: int, timeout_s: float) -> Retries:
        """Continue the retries of another process of this machine.

        ``text``: result of ``to_text``; empty for a new operation. ``count``: attempts after the
        first; ``timeout_s``: as for the class.
        """
        left = cls(count, timeout_s)
        if not text:
            return left
        try:
            attempts, first_ns = (int(part) for part in text.split("/"))
        except ValueError as error:
            raise InvalidInputError(f"{text!r} is not a record of retries") from error
        since_s = max(0, left.environment.now_ns() - first_ns) / 1e9
        left.attempts = attempts
        left._first_s = left.environment.monotonic() - since_s
        return left

    def to_text(self) -> str:
        """Return the number of attempts and the time of the first conflict."""
        return f"{self.attempts}/{self.environment.now_ns() - int(self.elapsed_s * 1e9)}"

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the first conflict."""
        return 0.0 if self._first_s is None else self.environment.monotonic() - self._first_s

    @property
    def left_s(self) -> float:
        """Return the seconds until no further attempt starts."""
        return max(0.0, self._timeout_s - self.elapsed_s)

    def again(self, *, slot_s: float = _SLOT_S, since_s: float | None = None) -> bool:
        """Wait, and return whether to try again.

        ``since_s``: start of the timeout; None for the first call of this method.
        """
        now = self.environment.monotonic()
        self._first_s = now if self._first_s is None else self._first_s
        if self.attempts >= self._most:
            return False
        slots = _SLOTS[min(self.attempts, len(_SLOTS)) - 1]
        wait = min(self.environment.rng.uniform(0, slots * slot_s), _MAX_WAIT_S)
        if now + wait - (self._first_s if since_s is None else since_s) > self._timeout_s:
            return False
        self.environment.sleep(wait)
        self.attempts += 1
        self._is_granted = True
        return True

    def plan_again(self) -> bool:
        """Wait as ``again`` does, after a conflict.

        A commit that loses a race and then conflicts with the winner on its next attempt has met
        one writer, not two.
        """
        granted = self._is_granted or self.again()
        self._is_granted = False
        return granted and self.elapsed_s <= self._timeout_s
