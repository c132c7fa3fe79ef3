"""A server with the requests of the Hugging Face Hub that reading a dataset needs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REPOSITORY = "user/numbers"
_LAST_COMMIT = {"id": "1" * 40, "title": "Add rows", "date": "2026-01-02T03:04:05.000Z"}


class _Hub(ThreadingHTTPServer):
    folder: Path
    token: str
    requests: list[str]


class _Handler(BaseHTTPRequestHandler):
    server: _Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self.server.requests.append(path)
        if self._is_refused():
            return
        api = f"/api/datasets/{REPOSITORY}"
        if path == f"{api}/revision/main" or path == api:
            self._send_json({"id": REPOSITORY, "sha": "1" * 40, "siblings": []})
        elif match := re.fullmatch(f"{api}/tree/main(?:/(.*))?", path):
            recursive = "recursive=true" in query.lower()
            self._send_tree(urllib.parse.unquote(match[1] or ""), recursive=recursive)
        elif match := re.fullmatch(f"/datasets/{REPOSITORY}/resolve/main/(.*)", path):
            self._send_file(self.server.folder / urllib.parse.unquote(match[1]))
        else:
            self._send_missing("RepoNotFound")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.server.requests.append(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self._is_refused():
            return
        if self.path == f"/api/datasets/{REPOSITORY}/paths-info/main":
            paths = urllib.parse.parse_qs(body)["paths"]
            files = [self.server.folder / path for path in paths]
            self._send_json([self._info(file) for file in files if file.exists()])
        else:
            self._send_missing("RepoNotFound")

    def _is_refused(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {self.server.token}":
            return False
        self._send(401, b"{}", {"X-Error-Code": "GatedRepo"})
        return True

    def _send_tree(self, path: str, *, recursive: bool) -> None:
        folder = self.server.folder / path
        if not folder.is_dir():
            self._send_missing("EntryNotFound")
            return
        found = sorted(folder.rglob("*") if recursive else folder.glob("*"))
        self._send_json([self._info(file) for file in found])

    def _info(self, file: Path) -> dict[str, object]:
        name = file.relative_to(self.server.folder).as_posix()
        oid = hashlib.sha1(file.read_bytes() if file.is_file() else name.encode()).hexdigest()
        kind = "file" if file.is_file() else "directory"
        size = file.stat().st_size if file.is_file() else 0
        return {"type": kind, "path": name, "size": size, "oid": oid, "lastCommit": _LAST_COMMIT}

    def _send_file(self, file: Path) -> None:
        if not file.is_file():
            self._send_missing("EntryNotFound")
            return
        content = file.read_bytes()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted is None:
            self._send(200, content, {})
        elif int(wanted[1]) >= len(content):
            self._send(416, b"", {"Content-Range": f"bytes */{len(content)}"})
        else:
            part = content[int(wanted[1]) : int(wanted[2]) + 1]
            stated = f"bytes {wanted[1]}-{int(wanted[1]) + len(part) - 1}/{len(content)}"
            self._send(206, part, {"Content-Range": stated})

    def _send_json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send_missing(self, code: str) -> None:
        self._send(404, b"{}", {"X-Error-Code": code})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextlib.contextmanager
def hub_server(folder: Path, token: str) -> Iterator[_Hub]:
    """Serve the files of a folder as the dataset ``REPOSITORY``, to requests with the token."""
    hub = _Hub(("127.0.0.1", 0), _Handler)
    hub.folder, hub.token, hub.requests = folder, token, []
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
