"""Cancellation of work on the driver whose statement was interrupted.

Scans are cancelled between batches. A commit is cancelled while it waits for other writers, and
before each attempt: once its manifest may be put, it is finished.
"""

from __future__ import annotations

import contextvars
import threading


class CancelledRequestError(Exception):
    """The request was cancelled."""


CANCELLED: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar(
    "cancelled", default=None
)


def check_cancelled() -> None:
    """Raise ``CancelledRequestError`` if the request that this thread serves was cancelled."""
    cancelled = CANCELLED.get()
    if cancelled is not None and cancelled.is_set():
        raise CancelledRequestError("the statement was interrupted")
