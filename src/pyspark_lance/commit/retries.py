"""Retries: how often, and for how long, one piece of work is tried again.

Work is tried again for many reasons: another writer took the version, a conflict makes it plan
anew, the store failed at the put.  All of them draw on one count, so that ``commitRetries`` means
the same however deep in the work the reason is.
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

TURN_S = 5.0
"""Writers on one machine take turns, as long as none has to wait longer than this."""

# Waiting is spread over so many slots, each as long as an attempt: first ever more, so that few
# others share one, then ever fewer, so that those go first who have waited for long.
_SLOTS = (4, 16, 64, 32, 16, 8, 4, 2, 1)
_MAX_WAIT_S = 3.0
_SLOT_S = 0.0125


@dataclass(frozen=True, slots=True)
class Environment:
    """Clock, sleep and chance of a commit, and the way to put a manifest."""

    handler: CommitHandler = field(default_factory=ConditionalPutCommitHandler)
    now_ns: Callable[[], int] = time.time_ns
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    # Not the module's generator: forked workers would all draw the same numbers.
    rng: random.Random = field(default_factory=random.SystemRandom)


class Retries:
    """The attempts that one piece of work has left.

    ``count``: attempts after the first; ``timeout_s``: no attempt is started later than this after
    the work was first in the way of another, or, within one commit, after that commit began.
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
        """Goes on where the work stopped in another process of this machine, as ``text`` says.

        ``text``: what ``to_text`` gave; empty for work that begins. ``count``: attempts after the
        first; ``timeout_s``: as for the class.
        """
        left = cls(count, timeout_s)
        if not text:
            return left
        try:
            attempts, first_ns = (int(part) for part in text.split("/"))
        except ValueError as error:
            raise InvalidInputError(f"{text!r} does not say how often work was tried") from error
        since_s = max(0, left.environment.now_ns() - first_ns) / 1e9
        left.attempts = attempts
        left._first_s = left.environment.monotonic() - since_s
        return left

    def to_text(self) -> str:
        """The attempts, and the time of the first conflict."""
        return f"{self.attempts}/{self.environment.now_ns() - int(self.elapsed_s * 1e9)}"

    @property
    def elapsed_s(self) -> float:
        """Seconds since the work was first in the way of another."""
        return 0.0 if self._first_s is None else self.environment.monotonic() - self._first_s

    @property
    def left_s(self) -> float:
        """Seconds until nothing is tried again."""
        return max(0.0, self._timeout_s - self.elapsed_s)

    def again(self, *, slot_s: float = _SLOT_S, since_s: float | None = None) -> bool:
        """Waits, and says whether to try again.

        ``since_s``: when the time began; None is when this was first called.
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
        """As ``again``, after a conflict.

        A commit that lost a race, and then finds on its next attempt that it cannot follow the
        winner, has met one writer and not two.
        """
        granted = self._is_granted or self.again()
        self._is_granted = False
        return granted and self.elapsed_s <= self._timeout_s
