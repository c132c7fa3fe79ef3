"""Headless Chromium for tests of the site: opens pages, and evaluates JavaScript in them.

Speaks the DevTools protocol over two pipes, messages of JSON that end with a zero byte, so it
needs no package and no port.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Descriptors 3 and 4 are where Chromium reads commands and writes answers and events.
_START = 'exec "$0" "$@" 3<&{commands} 4>&{answers}'


def chromium() -> str | None:
    """The browser of this machine, if it has one."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """One tab of a browser that is running."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = os.fdopen(answers, "rb")
        self._number = 0
        self._session: str | None = None
        self._left = b""
        self._requests: list[str] = []
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Send one command, and return its result.

        Raises:
            AssertionError: The browser could not do it, or has ended.
        """
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next_message()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def open(self, url: str, width: int, height: int = 1000, *, dark: bool = False) -> list[str]:
        """Open a page, and return what was asked for until it was there, with all pictures."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        self._requests, self._loaded = [], False
        self.call("Page.navigate", url=url)
        while not self._loaded:
            self._next_message()
        return self._requests

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def _next_message(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            read = self._answers.read1()
            assert read, "the browser has ended"
            self._left += read
        first, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        if message.get("method") == "Network.requestWillBeSent":
            self._requests.append(message["params"]["request"]["url"])
        elif message.get("method") == "Page.loadEventFired":
            self._loaded = True
        return message


@contextmanager
def browser(program: str, profile: Path) -> Iterator[Browser]:
    """A browser with a new profile, which ends with the block."""
    for_browser, commands = os.pipe()
    answers, from_browser = os.pipe()
    command = _START.format(commands=for_browser, answers=from_browser)
    options = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--disable-background-networking", "--no-first-run", f"--user-data-dir={profile}",
        "--remote-debugging-pipe",
    ]  # fmt: skip
    process = subprocess.Popen(
        ["bash", "-c", command, program, *options],
        pass_fds=(for_browser, from_browser),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(for_browser)
    os.close(from_browser)
    try:
        yield Browser(commands, answers)
    finally:
        process.terminate()
        process.wait()
        os.close(commands)
