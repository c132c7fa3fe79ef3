"""Cancellation of work on the driver once Spark no longer waits for its result."""

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
        raise CancelledRequestError
