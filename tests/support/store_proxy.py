"""A proxy in front of an object store's server: counts requests, delays them, and lets some fail.

    with running_proxy(server.endpoint) as proxy:
        proxy.delay_s = 0.05
        proxy.faults = lambda request: Trouble.CUT_AFTER if request.method == "PUT" else None

It is HTTP/1.1 without TLS, as test servers speak it, in a thread of this process.
"""

import asyncio
import contextlib
import enum
import threading
import time
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from yarl import URL

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}
_CONFLICT = b"<Error><Code>ConditionalRequestConflict</Code><Message>Again.</Message></Error>"
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


class Trouble(enum.Enum):
    """What happens to a request."""

    SLOW_DOWN = "503 SlowDown; the server never sees it"
    UNAVAILABLE = "503 without a body; the server never sees it"
    ERROR_AFTER = "the server carries it out, the client gets 500"
    CUT_BEFORE = "the connection is cut; the server never sees it"
    CUT_AFTER = "the server carries it out; the connection is cut before the answer"
    TORN = "the connection is cut in the middle of the answer's body"
    STALLED = "the server carries it out; no answer ever comes"
    CONFLICT = "the server carries it out, the client gets 409: only for conditional puts"


ANY_TROUBLE = tuple(trouble for trouble in Trouble if trouble is not Trouble.CONFLICT)
"""What any request may meet."""


@dataclass
class SeenRequest:
    """A request, and when it was under way.

    Attributes:
        method: ``GET``, ``PUT``, ...
        path: Path and query, with escapes.
        byte_range: The header ``Range``; '' without one.
        start: When it arrived, seconds of a monotonic clock.
        end: When its answer was complete; None before.
        trouble: What happened to it, if anything.
    """

    method: str
    path: str
    byte_range: str
    start: float
    end: float | None = None
    trouble: Trouble | None = None


@dataclass
class StoreProxy:
    """A running proxy.

    Attributes:
        endpoint: Its address.
        requests: Every request so far; clear it to count.
        delay_s: How long each request is held before the server gets it.
        faults: What shall happen to a request; called once for each, in the order of arrival.
        keeps_objects: Whether objects that were read are answered from memory, until they are
            written: a server in Python is slow to cut ranges out of large ones.
        objects: Those.
    """

    endpoint: str
    requests: list = field(default_factory=list)
    delay_s: float = 0.0
    faults: object = lambda request: None
    keeps_objects: bool = False
    objects: dict = field(default_factory=dict)

    def sequential_rounds(self):
        """The most requests that were made one after another, each when the one before was done."""
        rounds, last_end = 0, float("-inf")
        for request in sorted(self.requests, key=lambda r: r.end or float("inf")):
            if request.start >= last_end:
                rounds, last_end = rounds + 1, request.end or float("inf")
        return rounds


@contextlib.contextmanager
def running_proxy(upstream):
    """A proxy for the server at ``upstream`` (``http://host:port``), until the block ends."""
    proxy = StoreProxy("")
    loop = asyncio.new_event_loop()
    started, stop = threading.Event(), asyncio.Event()
    thread = threading.Thread(
        target=loop.run_until_complete, args=(_serve(proxy, upstream, started, stop),), daemon=True
    )
    thread.start()
    started.wait()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


async def _serve(proxy, upstream, started, stop):
    # Not more than a small server takes in at a time; other requests wait here.
    connector = aiohttp.TCPConnector(limit=32)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        connector=connector, auto_decompress=False, timeout=timeout
    ) as session:
        server = web.Server(lambda request: _handle(proxy, upstream, session, request))
        runner = web.ServerRunner(server)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024, shutdown_timeout=0.1)
        await site.start()
        host, port = runner.addresses[0]
        proxy.endpoint = f"http://{host}:{port}"
        started.set()
        await stop.wait()
        await runner.cleanup()


async def _handle(proxy, upstream, session, request):
    seen = SeenRequest(
        request.method, request.raw_path, request.headers.get("Range", ""), time.monotonic()
    )
    proxy.requests.append(seen)
    seen.trouble = proxy.faults(seen)
    try:
        if request.headers.get("Expect", "").lower() == "100-continue":
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await request.content.read()
        if proxy.delay_s:
            await asyncio.sleep(proxy.delay_s)
        if proxy.keeps_objects:
            return await _kept_or_answer(proxy, upstream, session, request, body)
        return await _answer(upstream, session, request, body, seen.trouble)
    except (aiohttp.ClientError, ConnectionError):  # the client or the server is gone
        return web.Response(status=503)
    finally:
        seen.end = time.monotonic()


async def _kept_or_answer(proxy, upstream, session, request, body):
    path, wanted = request.raw_path, request.headers.get("Range", "")
    if request.method != "GET":
        proxy.objects.pop(path, None)
    if request.method != "GET" or "?" in path or not wanted:
        return await _answer(upstream, session, request, body, None)
    if path not in proxy.objects:
        headers = [(k, v) for k, v in request.headers.items() if k.lower() != "range"]
        async with session.get(URL(upstream + path, encoded=True), headers=headers) as answer:
            if answer.status != 200:
                return await _answer(upstream, session, request, body, None)
            proxy.objects.setdefault(path, await answer.read())
    content = proxy.objects[path]
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    start = int(first) if first else max(0, len(content) - int(last))
    end = min(int(last) + 1, len(content)) if first and last else len(content)
    response = web.StreamResponse(status=206)
    response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
    response.headers["Content-Length"] = str(end - start)
    await response.prepare(request)
    await response.write(memoryview(content)[start:end])
    await response.write_eof()
    return response


async def _answer(upstream, session, request, body, trouble):
    if trouble is Trouble.SLOW_DOWN:
        return web.Response(status=503, body=_SLOW_DOWN, content_type="application/xml")
    if trouble is Trouble.UNAVAILABLE:
        return web.Response(status=503)
    if trouble is Trouble.CUT_BEFORE:
        return _cut(request)
    headers = [(k, v) for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP]
    url = URL(upstream + request.raw_path, encoded=True)
    async with session.request(
        request.method, url, headers=headers, data=body, allow_redirects=False
    ) as answer:
        content = await answer.read()
        headers = [(k, v) for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP]
        length = len(content) if request.method != "HEAD" else answer.headers.get("Content-Length")
    if trouble is Trouble.ERROR_AFTER:
        return web.Response(status=500)
    if trouble is Trouble.CONFLICT:
        return web.Response(status=409, body=_CONFLICT, content_type="application/xml")
    if trouble is Trouble.CUT_AFTER:
        return _cut(request)
    if trouble is Trouble.STALLED:
        while request.transport is not None:
            await asyncio.sleep(0.05)
        return web.Response(status=500)
    response = web.StreamResponse(status=answer.status, headers=headers)
    if length is not None and answer.status not in (204, 304):
        response.headers["Content-Length"] = str(length)
    await response.prepare(request)
    half = len(content) // 2 if trouble is Trouble.TORN else len(content)
    if request.method != "HEAD" and content:
        await response.write(content[:half])
    if half < len(content):
        return _cut(request)
    await response.write_eof()
    return response


def _cut(request):
    """End the connection at once."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)
