"""HdfsStore: HDFS by hdfs-native, which needs no JVM and reads Hadoop's own configuration files.

An object is written to a file beside its place and renamed. The name node renames in one step and,
where it is not to overwrite, refuses if there is a file of the name: so of two writers of a
manifest one wins, and no reader sees a file that is not whole.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from pyspark_lance.errors import (
    InvalidInputError,
    LanceError,
    StorageError,
    UnsupportedFeatureError,
)
from pyspark_lance.store.object_store import (
    Buffer,
    ByteRange,
    Content,
    ObjectInfo,
    ObjectStore,
    OutputFile,
    as_byte_view,
    check_path,
    cut_ranges,
    folder_prefix,
    merge_ranges,
    missing,
    staging_path,
    too_short,
)
from pyspark_lance.store.storage_options import PREFIX, StorageOptions, parse_storage_options

_MERGE_GAP_BYTES: Final = 256 << 10
_MERGE_MAX_BYTES: Final = 8 << 20
_BUFFER_BYTES: Final = 4 << 20
_CONNECTIONS: Final = 16
_LISTINGS: Final = 5
# Seconds between requests that a name node refuses for now, as Hadoop's own client waits.
_PAUSES_S: Final = (0.5, 1, 2, 4, 8, 15, 15, 15, 15, 15)
# The same for blocks that no data node has read, or has reported to a new name node yet.
_READ_PAUSES_S: Final = (1, 3, 6)
_RECOVERIES: Final = 60
_LATER: Final = "org.apache.hadoop.ipc.RetriableException"
_UNREAD: Final = "All DataNodes failed"
# Hadoop's default is none, which a cluster with Kerberos refuses only after many requests.
_AUTHENTICATION: Final = "hadoop.security.authentication"
# Delegation tokens, which Spark has for containers of YARN.
_TOKEN_FILE: Final = "HADOOP_TOKEN_FILE_LOCATION"
_CREDENTIAL_WORDS: Final = ("GSSAPI", "SASL")
_ADDRESS_HINT: Final = (
    "check the address of the name node; of a name service, dfs.nameservices, dfs.ha.namenodes.… "
    "and dfs.namenode.rpc-address.… of the session or in HADOOP_CONF_DIR; of a mount table, "
    "fs.viewfs.mounttable.… and its linkFallback; and, "
)
_CREDENTIALS_HINT: Final = (
    "where the cluster has Kerberos, set hadoop.security.authentication and, if it has one, "
    "dfs.data.transfer.protection as it has them, and get a ticket (kinit, KRB5CCNAME), or set "
    "storage.kerberos_principal and storage.kerberos_keytab, a file on this machine"
)
_LOST: Final = "RPC listener disconnected"
# Arguments of the client; all other options are settings of Hadoop.
_ARGUMENTS: Final = ("config_dir", "kerberos_principal", "kerberos_keytab", "kerberos_cache")

_T = TypeVar("_T")

# The process that first made a client: its threads are missing in processes forked from it.
_first_user: int | None = None


def open_hdfs_store(scheme: str, uri: str, options: Mapping[str, str]) -> HdfsStore:
    """The store at ``hdfs://host:port/path``, ``hdfs://nameservice/path`` or ``hdfs:///path``."""
    authority, _, path = uri.partition("://")[2].partition("/")
    if "://" not in uri:
        raise InvalidInputError(
            f"the URI {uri!r} names no host", hint=f"write it as {scheme}://host:port/path"
        )
    texts = {_plain(name): text for name, text in options.items()}
    arguments: dict[str, str] = {name: texts.pop(name) for name in _ARGUMENTS if name in texts}
    parsed = parse_storage_options(scheme, options)
    config = {name: text for name, text in texts.items() if "." in name}
    if arguments.keys() - {"config_dir"}:
        config.setdefault(_AUTHENTICATION, "kerberos")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InvalidInputError(f"the URI {uri!r} has .. in it", hint="write the path without it")
    return HdfsStore(
        f"{scheme}://{authority}", "/".join(["", *parts]), {**arguments, "config": config}, parsed
    )


def _plain(name: str) -> str:
    """An option without its prefix; settings of Hadoop differ by case."""
    is_prefixed = name.lower().startswith(PREFIX)
    return name[len(PREFIX) :] if is_prefixed else name


class HdfsStore(ObjectStore):
    """Files of HDFS below one folder.

    ``server``: scheme and authority of the URI. ``root``: path of the folder, '' for that of all.
    ``arguments``: of the client. ``options``: what must not appear in messages.
    """

    def __init__(
        self, server: str, root: str, arguments: Mapping[str, Any], options: StorageOptions
    ) -> None:
        self.uri = f"{server}{root}"
        self.server = server
        self.lists_in_order = True
        self.lists_names_only = False
        self.unproven_server = ""
        self.cache_key = None
        self._root = root
        self._arguments = arguments
        self._options = options
        self._connection: tuple[int, Any] | None = None
        self._lock = threading.Lock()
        _ = self._client  # a missing package or a wrong setting shows now

    def __repr__(self) -> str:
        return f"HdfsStore({self.uri!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def get(self, path: str) -> Buffer:
        """The whole object."""
        return self._run("read", path, partial(self._read_whole, self._full(path)))

    def get_tail(self, path: str, length: int) -> tuple[Buffer, int]:
        """The last bytes and the object's size."""
        full = self._full(path)

        def tail() -> tuple[Buffer, int]:
            reader = self._open_file(full)
            size = reader.file_length()
            return self._bytes(reader, max(size - max(length, 0), 0), size), size

        return self._run("read", path, tail)

    def get_range(self, path: str, start: int, end: int) -> Buffer:
        """Read exactly the bytes from ``start`` to ``end``."""
        return self.get_ranges(path, [ByteRange(start, end)])[0]

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Buffer]:
        """The bytes of each range; adjacent ones are read together, others concurrently."""
        for start, end in ranges:
            if not 0 <= start <= end:
                raise too_short(self.uri, path, start, end)
        wanted = [piece for piece in ranges if piece.num_bytes]
        requests = merge_ranges(wanted, max_gap=_MERGE_GAP_BYTES, max_bytes=_MERGE_MAX_BYTES)
        found = self._run("read", path, partial(self._fetch, path, requests)) if requests else []
        pieces = iter(cut_ranges(wanted, requests, found))
        return [next(pieces) if piece.num_bytes else memoryview(b"") for piece in ranges]

    def stat(self, path: str) -> ObjectInfo:
        """Size and time of change."""
        full = self._full(path)
        status = self._run("stat", path, lambda: self._info(full))
        if status.isdir:
            raise missing(self.uri, path)
        return ObjectInfo(path, status.length, status.modification_time * 1_000_000)

    def put(self, path: str, data: Buffer) -> None:
        """Create or replace the object."""
        full = self._full(path)
        self._run("write", path, lambda: self._put(full, as_byte_view(data)), reads=False)

    def copy(self, source: str, target: str) -> None:
        """Copy through this process, as HDFS has no server-side copy."""
        full, copied = self._full(source), self._full(target)

        def copy() -> None:
            reader = self._open_file(full)
            size = reader.file_length()
            output = _HdfsOutput(self, copied)
            try:
                for piece in reader.read_range_stream(0, size) if size else ():
                    output.write(piece)
                output.close()
            except BaseException:
                output.abort()
                raise

        self._run("copy", source, copy)

    def put_if_absent(self, path: str, data: Content) -> bool:
        """Create the object by renaming a file to its name, unless it exists."""
        full = self._full(path)
        return self._run(
            "create", path, lambda: self._create(full, as_byte_view(data)), reads=False
        )

    def open_output(self, path: str) -> OutputFile:
        """Start an object; a large one is a temporary file that ``close`` renames."""
        full = self._full(path)
        return _HdfsOutput(self, full, partial(self._run, "write", path, reads=False))

    def list_names(self, folder: str) -> list[str]:
        """The names of the files right in the folder."""
        start = len(folder_prefix(folder))
        return [info.path[start:] for info in self._list(folder, recursive=False)]

    def list(self, prefix: str, *, first: int | None = None) -> Iterator[ObjectInfo]:
        """List all files in the folder and below."""
        yield from self._list(prefix, recursive=True)

    def delete(self, path: str) -> None:
        """Remove the object."""
        full = self._full(path)
        with contextlib.suppress(FileNotFoundError):
            self._run("delete", path, lambda: self._ask("delete", full, False))

    def delete_many(self, paths: Iterable[str]) -> None:
        """Remove the objects concurrently."""
        with ThreadPoolExecutor(_CONNECTIONS) as threads:
            for _ in threads.map(self.delete, paths):
                pass

    # ---- the client

    @property
    def _client(self) -> Any:
        """The client of this process: a forked one has none of its parent's threads."""
        with self._lock:
            if self._connection is None or self._connection[0] != os.getpid():
                self._connection = (os.getpid(), self._connect())
            return self._connection[1]

    def _connect(self) -> Any:
        global _first_user
        scheme = self.server.partition(":")[0]
        if _first_user not in (None, os.getpid()):
            raise UnsupportedFeatureError(
                f"{scheme}:// tables cannot be opened in a process that was forked after one was",
                hint="start processes by spawn or forkserver, not by fork",
            )
        _first_user = os.getpid()
        try:
            from hdfs_native import Client  # noqa: PLC0415 - an extra
        except ImportError:
            raise UnsupportedFeatureError(
                f"a package is missing for {scheme}:// tables",
                hint="pip install 'pyspark-lance[hdfs]', on the driver and the executors",
            ) from None
        url = _token_address(self.server) if os.environ.get(_TOKEN_FILE) else self.server
        return self._run("open", "", lambda: Client(url, **self._arguments), reads=False)

    def _full(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"

    def _ask(self, request: str, *arguments: object) -> Any:
        """Send a request to the name node; again while it starts or another one takes over."""
        return _repeat(lambda: getattr(self._client, request)(*arguments))

    def _info(self, full: str) -> Any:
        return self._ask("get_file_info", full)

    def _open_file(self, full: str) -> Any:
        if self._info(full).isdir:
            raise FileNotFoundError(full)
        return self._ask("read", full).inner

    @staticmethod
    def _bytes(reader: Any, start: int, end: int) -> bytes:
        content: bytes = reader.read_range(start, end - start) if end > start else b""
        return content

    def _read_whole(self, full: str) -> bytes:
        reader = self._open_file(full)
        return self._bytes(reader, 0, reader.file_length())

    def _fetch(self, path: str, requests: Sequence[ByteRange]) -> Sequence[bytes]:
        reader = self._open_file(self._full(path))
        size = reader.file_length()
        if requests[-1].end > size:
            raise too_short(self.uri, path, requests[0].start, requests[-1].end, size)

        def read(request: ByteRange) -> bytes:
            return self._bytes(reader, request.start, request.end)

        if len(requests) == 1:
            return [read(requests[0])]
        with ThreadPoolExecutor(min(_CONNECTIONS, len(requests))) as threads:
            return list(threads.map(read, requests))

    # ---- writing

    def _write_beside(self, full: str, content: memoryview) -> str:
        """Write a temporary file; a repeated one has another name."""

        def write() -> str:
            other = staging_path(full)
            try:
                with self._client.create(other) as file:
                    if len(content):
                        file.write(content)
            except BaseException:
                self._drop(other)
                raise
            return other

        return _repeat(write)

    def _put(self, full: str, content: memoryview) -> None:
        self._replace(self._write_beside(full, content), full, len(content))

    def _replace(self, other: str, full: str, size: int) -> None:
        """Rename a temporary file of ``size`` bytes."""
        try:
            self._ask("rename", other, full, True)
        except Exception:
            # The client repeats a request whose response was lost, and then finds no file.
            if self._is_there(other) or self._info(full).length != size:
                self._drop(other)
                raise

    def _close(self, file: Any, other: str, size: int) -> None:
        """Close a temporary file, in which ``size`` bytes were written.

        The data nodes have the bytes already, if the name node does not close it.
        """
        try:
            file.close()
        except Exception as error:
            if not _may_repeat(error):
                raise
            _repeat(lambda: self._recover(other))
            if self._info(other).length != size:
                raise

    def _recover(self, other: str) -> None:
        """Have the name node close a file."""
        for _ in range(_RECOVERIES):
            if self._client.recover_lease(other):
                return
            time.sleep(1)
        raise TimeoutError(f"{other} was not closed")

    def _create(self, full: str, content: memoryview) -> bool:
        """Return whether this call created the file."""
        other = self._write_beside(full, content)
        try:
            self._ask("rename", other, full, False)
        except Exception:
            # The client repeats a request whose response was lost, and then meets our own file: if
            # the other name is gone, it was us.
            if not self._is_there(other):
                return self._read_whole(full) == content
            is_taken = self._is_there(full)
            self._drop(other)
            if is_taken:
                return False
            raise
        return True

    def _is_there(self, full: str) -> bool:
        try:
            self._info(full)
        except FileNotFoundError:
            return False
        return True

    def _drop(self, full: str) -> None:
        """Remove a file that was not completed; one that stays is an orphan that cleanup finds."""
        with contextlib.suppress(Exception):
            self._ask("delete", full, False)

    # ---- listing

    def _list(self, prefix: str, *, recursive: bool) -> Sequence[ObjectInfo]:
        base = f"{self._root}/"
        folder = base + folder_prefix(prefix)

        def list_files() -> Sequence[Any]:
            return list(self._client.list_status(folder.rstrip("/") or "/", recursive))

        def look() -> Sequence[ObjectInfo]:
            for attempt in range(1, _LISTINGS + 1):
                try:
                    found = _repeat(list_files)
                    break
                except FileNotFoundError:
                    # Of a folder below that was removed meanwhile, or there is nothing at all.
                    if attempt == _LISTINGS or not self._is_there(folder.rstrip("/") or "/"):
                        return []
            return [
                ObjectInfo(
                    one.path.removeprefix(base), one.length, one.modification_time * 1_000_000
                )
                for one in found
                if not one.isdir and one.path.startswith(folder)
            ]

        infos = self._run("list", prefix, look)
        return sorted(infos, key=lambda info: info.path.encode())

    # ---- errors

    def _run(self, verb: str, path: str, action: Callable[[], _T], *, reads: bool = True) -> _T:
        """Run the action; with ``reads``, a missing object is a FileNotFoundError."""
        # Raised after the handler, or it would carry the unscrubbed one as context.
        try:
            return _repeat(action, _READ_PAUSES_S, _is_unread) if reads else action()
        except LanceError:
            raise
        except Exception as error:  # noqa: BLE001 - the client raises errors of many kinds
            cause = error
        is_absent = isinstance(cause, FileNotFoundError) or "not a directory" in str(cause)
        if is_absent and reads:
            raise missing(self.uri, path) from None
        text = self._options.scrub(f"{type(cause).__name__}: {cause}")
        raise StorageError(
            f"cannot {verb}: {' '.join(text.split())[:500]}",
            where=f"{self.uri}/{path}".rstrip("/"),
            hint=_hint(verb, text),
        ) from self._options.safe_cause(cause)


def _hint(verb: str, error: str) -> str:
    if any(word in error for word in _CREDENTIAL_WORDS):
        return _CREDENTIALS_HINT
    return _ADDRESS_HINT + _CREDENTIALS_HINT if verb in ("open", "list") else ""


def _token_address(server: str) -> str:
    """Return the URI of a name node by its IP address, for which delegation tokens are.

    The client compares the text of the address. Name services have tokens of their own name.
    """
    scheme, _, authority = server.partition("://")
    host, _, port = authority.rpartition(":")
    try:
        return f"{scheme}://{socket.gethostbyname(host)}:{port}" if host else server
    except OSError:
        return server  # the client reports that


class _HdfsOutput:
    """An object that is written in pieces: in memory, and from a size on to a temporary file."""

    def __init__(
        self,
        store: HdfsStore,
        full: str,
        run: Callable[[Callable[[], None]], None] = lambda action: action(),
    ) -> None:
        self._store = store
        self._full = full
        self._run = run
        self._other = ""
        self._file: Any = None
        self._pending = bytearray()
        self._written = 0
        self._is_open = True

    def write(self, data: object) -> int:
        """Append the bytes."""
        if not self._is_open:
            raise ValueError("write to a closed output file")
        view = as_byte_view(data)
        self._run(lambda: self._append(view))
        self._written += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Bytes written so far."""
        return self._written

    def close(self) -> None:
        """Complete the object; remove the temporary file if that fails."""
        if not self._is_open:
            return
        try:
            self._run(self._complete)
            self._is_open = False
        finally:
            self.abort()

    def abort(self) -> None:
        """Remove the temporary file."""
        is_open, self._is_open = self._is_open, False
        if is_open and self._file is not None:
            with contextlib.suppress(Exception):
                self._file.close()
            self._store._drop(self._other)
        self._pending = bytearray()

    def _append(self, view: memoryview) -> None:
        if len(self._pending) + view.nbytes > _BUFFER_BYTES:
            self._flush()
        if view.nbytes > _BUFFER_BYTES:
            self._file.write(view)
        else:
            self._pending += view

    def _flush(self) -> None:
        if self._file is None:
            self._other = staging_path(self._full)
            self._file = self._store._ask("create", self._other)
        if self._pending:
            self._file.write(self._pending)
            self._pending = bytearray()

    def _complete(self) -> None:
        if self._file is None:
            self._store._put(self._full, memoryview(self._pending))
            return
        self._flush()
        self._store._close(self._file, self._other, self._written)
        self._store._replace(self._other, self._full, self._written)


def _may_repeat(error: Exception) -> bool:
    """Return whether a name node did nothing and asks to be asked later, or ended without response.

    It refuses while it starts, or is in the safe mode of its start after it took over. The client
    itself repeats requests that it could not send.
    """
    is_lost = isinstance(error, ConnectionError) or _LOST in str(error)
    return is_lost or _LATER in str(error)


def _is_unread(error: Exception) -> bool:
    return _UNREAD in str(error)


def _repeat(
    action: Callable[[], _T],
    pauses_s: Sequence[float] = _PAUSES_S,
    may_repeat: Callable[[Exception], bool] = _may_repeat,
) -> _T:
    """Repeat a request that failed since a name node starts or ended, after pauses that grow."""
    for pause in pauses_s:
        try:
            return action()
        except Exception as error:
            if not may_repeat(error):
                raise
        time.sleep(pause * random.uniform(0.5, 1))
    return action()
