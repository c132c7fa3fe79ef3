"""Work on the driver that is given up when Spark no longer waits for its result."""

from __future__ import annotations

import contextvars
import threading


class CancelledRequestError(Exception):
    """Nothing waits for the result any longer."""


CANCELLED: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar(
    "cancelled", default=None
)


def check_cancelled() -> None:
    """Raise ``CancelledRequestError`` if the request that this thread serves was cancelled."""
    cancelled = CANCELLED.get()
    if cancelled is not None and cancelled.is_set():
        raise CancelledRequestError
