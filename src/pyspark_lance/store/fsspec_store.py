"""FsspecStore: any fsspec file system (s3, gs, az, ...); the only file that imports fsspec."""

from __future__ import annotations

import contextlib
import importlib.metadata
import inspect
import os
import posixpath
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import fsspec
import fsspec.asyn
from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFile

from pyspark_lance.errors import (
    InvalidInputError,
    LanceError,
    StorageError,
    UnsupportedFeatureError,
)
from pyspark_lance.store import s3_requests
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
    names_directly_in,
    too_short,
)
from pyspark_lance.store.storage_options import SAME_PROTOCOL, StorageOptions, parse_storage_options


class MultipartOutput:
    """An upload in parts; at most one part and the last write are in memory."""

    def __init__(self, file: Any, run: Callable[[Callable[[], object]], object]) -> None:
        self._file: Any = file
        self._run = run
        self._written = 0

    def write(self, data: object) -> int:
        """Append the bytes; upload a part once it is large enough."""
        if self._file is None:
            raise ValueError("write to a closed output file")
        view = as_byte_view(data)
        self._run(lambda: self._file.write(view))
        self._written += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._written

    def close(self) -> None:
        """Upload the rest and complete the object; discard it on failure."""
        if self._file is None:
            return
        try:
            self._run(self._file.close)
            self._file = None
        finally:
            self.abort()

    def abort(self) -> None:
        """Discard the uploaded parts."""
        file, self._file = self._file, None
        if file is not None:
            # If the request fails, the store's lifecycle rules drop unfinished uploads.
            with contextlib.suppress(Exception):
                file.discard()
            # Otherwise the file object would complete the upload when it is garbage-collected.
            file.closed = True


class SpooledOutput:
    """A local temporary file, for file systems whose open files cannot be discarded."""

    def __init__(self, upload: Callable[[str], None]) -> None:
        self._upload = upload
        self._file: Any = tempfile.NamedTemporaryFile(prefix="lance-output-")  # noqa: SIM115
        self._written = 0

    def write(self, data: object) -> int:
        """Append the bytes."""
        if self._file is None:
            raise ValueError("write to a closed output file")
        view = as_byte_view(data)
        self._file.write(view)
        self._written += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._written

    def close(self) -> None:
        """Upload the file."""
        file, self._file = self._file, None
        if file is not None:
            with file:
                file.flush()
                self._upload(file.name)

    def abort(self) -> None:
        """Remove the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


# Transferring this much takes about as long as the round trip of another request.
MERGE_GAP_BYTES = 256 << 10
MERGE_MAX_BYTES = 8 << 20
# S3 allows 10,000 parts, so this is enough for objects of 160 GB.
UPLOAD_PART_BYTES = 16 << 20
CONNECTIONS = 64
CONFLICT_ATTEMPTS = 5

_OBJECT_STORES = ("s3", "gcs", "abfs")
# Of this package, which install the file system of a protocol.
_EXTRAS = {"gcs": "gcs", "abfs": "azure", "hf": "huggingface"}
_ENDPOINT_VARIABLES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "gcs": ("STORAGE_EMULATOR_HOST",),
}
# The first botocore that knows If-None-Match; older ones drop it without a word.
_BOTOCORE_WITH_CREATE = (1, 35, 20)

_HINTS = {
    "NoCredentialsError": "set storage.aws_access_key_id and storage.aws_secret_access_key, "
    "or storage.skip_signature=true for public buckets; where the session has fs.s3a.* settings "
    "and no plugin, options(**pyspark_lance.hadoop_options(spark, path))",
    "PermissionError": "check the credentials and what they may do",
    "EndpointConnectionError": "check storage.aws_endpoint and the network",
    "ConnectionError": "check the endpoint (storage.aws_endpoint or storage.endpoint_url) and the "
    "network",
    # Those of the store's package, by names that are not known here.
    "TypeError": "check the names of the storage options",
}

# By codes of S3, which obstore has in its messages only.
_HINTS_BY_CODE = {
    frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed"}): "set storage.aws_region to "
    "the region of the bucket",
    frozenset({"ExpiredToken", "TokenRefreshRequired"}): "the session token has expired: set new "
    "credentials, or use some that are renewed: of a role, a profile, or a catalog that returns "
    "expires_at_millis",
}

_T = TypeVar("_T")


def open_fsspec_store(scheme: str, uri: str, options: Mapping[str, str]) -> FsspecStore:
    """The store at a URI that is not local; see ``open_store``."""
    return FsspecStore(*parse_uri(scheme, uri, options))


def parse_uri(scheme: str, uri: str, options: Mapping[str, str]) -> tuple[str, str, StorageOptions]:
    """Return fsspec's name of the protocol, the URL in its usual form, and the options."""
    rest = uri.partition("://")[2].rstrip("/")
    protocol = SAME_PROTOCOL.get(scheme, scheme)
    if protocol in _OBJECT_STORES:
        rest = _normal(rest)
    # Others may have no hosts, or know by settings which one is meant, as Hadoop does.
    named = rest.partition("/")[0] if protocol in _OBJECT_STORES else rest
    if not named and scheme != "memory":
        raise _without_bucket(scheme, uri)
    if protocol == "s3":
        scheme = "s3"
        if "@" in rest.partition("/")[0]:
            raise InvalidInputError(
                "the URI of a table must not contain credentials",
                hint="use storage.aws_access_key_id and storage.aws_secret_access_key",
            )
    parsed = parse_storage_options(protocol, options, bucket=rest.partition("/")[0])
    return protocol, f"{scheme}://{rest}", parsed


def _normal(rest: str) -> str:
    """A bucket and path as Hadoop takes them: without empty parts, ``.`` and ``..``."""
    host, slash, path = rest.partition("/")
    return host + slash + posixpath.normpath(f"/{path}")[1:].lstrip("/") if path else rest


def _without_bucket(scheme: str, uri: str) -> InvalidInputError:
    """The error of a URI with one slash, or with nothing behind its slashes."""
    path = uri.partition(":")[2].strip("/")
    if scheme == "dbfs":  # Databricks shows the same files as a local folder
        hint = f"use the local path /dbfs/{path or '…'}"
    else:
        hint = f"write it as {scheme}://{path or 'bucket/path'}"
    return InvalidInputError(f"the URI {uri!r} names no bucket or host", hint=hint)


class FsspecStore(ObjectStore):
    """Objects of an fsspec file system below one path.

    ``url``: the root, without a slash at the end.
    """

    def __init__(self, protocol: str, url: str, options: StorageOptions) -> None:
        self.uri = options.scrub(url)
        # Directory buckets of S3 ("--x-s3") list in no order.
        bucket = url.partition("://")[2].partition("/")[0]
        self.lists_in_order = protocol in _OBJECT_STORES and not bucket.endswith("--x-s3")
        self.lists_names_only = False
        endpoint = endpoint_of(protocol, options.arguments)
        # The clouds themselves honour conditions; servers that speak their protocols may not.
        self.unproven_server = "" if options.allow_unsafe_put else endpoint
        self.server = endpoint
        self._protocol = protocol
        self._url = url
        self._options = options
        self._connection: tuple[int, Any, str] | None = None
        self.cache_key = self._open()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"

    def get(self, path: str) -> Buffer:
        """The whole object."""
        full = self._full(path)
        if self._protocol == "s3":  # cat_file asks for the size first
            content: bytes = self._read(
                "read", path, partial(self._s3, s3_requests.get_object, full)
            )[0]
        else:
            content = self._read("read", path, lambda: self._fs.cat_file(full))
        return content

    def get_tail(self, path: str, length: int) -> tuple[Buffer, int]:
        """The last bytes and the object's size; one request on S3, two elsewhere."""
        full = self._full(path)
        if self._protocol != "s3" or length <= 0:
            size = self.size(path)
            start = max(size - length, 0)
            return self.get_range(path, start, size), size

        def suffix() -> tuple[bytes, int]:
            try:
                tail: tuple[bytes, int] = self._s3(s3_requests.get_object, full, length)
            except OSError as error:
                # An empty object has no last bytes.
                if s3_requests.error_codes(error) & {"InvalidRange", "416"}:
                    return b"", 0
                raise
            return tail

        return self._read("read", path, suffix)

    def get_range(self, path: str, start: int, end: int) -> Buffer:
        """Read exactly the bytes from ``start`` to ``end``."""
        return self.get_ranges(path, [ByteRange(start, end)])[0]

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Buffer]:
        """The bytes of each range; neighbours share a request, requests run concurrently."""
        for start, end in ranges:
            if not 0 <= start <= end:
                raise too_short(self.uri, path, start, end)
        wanted = [piece for piece in ranges if piece.num_bytes]
        requests = merge_ranges(wanted, max_gap=MERGE_GAP_BYTES, max_bytes=MERGE_MAX_BYTES)
        answers = self._fetch(path, requests) if requests else []
        pieces = iter(cut_ranges(wanted, requests, answers))
        return [next(pieces) if piece.num_bytes else memoryview(b"") for piece in ranges]

    def stat(self, path: str) -> ObjectInfo:
        """Size and time of change."""
        full = self._full(path)
        if self._protocol == "s3":
            head = self._read("stat", path, lambda: self._s3(s3_requests.head_object, full))
            return ObjectInfo(path, head["ContentLength"], modification_time(head), _tag(head))
        info = self._read("stat", path, lambda: self._uncached_file_system().info(full))
        if info["type"] != "file":
            raise missing(self.uri, path)
        return ObjectInfo(path, int(info["size"]), modification_time(info), _tag(info))

    def put(self, path: str, data: Buffer) -> None:
        """Create or replace the object."""
        full, content = self._full(path), bytes(as_byte_view(data))
        self._write("write", path, lambda: self._pipe(full, content))

    def copy(self, source: str, target: str) -> None:
        """Copy within the store."""
        full, copied = self._full(source), self._full(target)
        if self._protocol == "s3":  # cp_file asks for the size first
            self._read("copy", source, partial(self._s3, s3_requests.copy_object, full, copied))
        else:
            self._read("copy", source, lambda: self._copy(full, copied))

    def put_if_absent(self, path: str, data: Content) -> bool:
        """Create the object with a conditional put, unless it exists."""
        full, content = self._full(path), bytes(as_byte_view(data))
        if self._protocol == "memory":
            return _create_in_memory(self._fs, full, content)
        conditions = create_only_arguments(self._protocol, type(self._fs))
        if conditions is None:
            return self._put_unsafely(path, content)
        if self._options.allow_unsafe_put and self.exists(path):
            return False
        return self._write("create", path, lambda: self._create(full, content, conditions))

    def open_output(self, path: str) -> OutputFile:
        """Start a multi-part upload, or a local file that is uploaded at close."""
        full = self._full(path)
        if self._protocol not in _OBJECT_STORES:
            return SpooledOutput(
                lambda name: self._write("write", path, lambda: self._put_file(name, full))
            )
        file = self._write(
            "write", path, lambda: self._fs.open(full, "wb", block_size=UPLOAD_PART_BYTES)
        )
        return MultipartOutput(file, lambda action: self._write("write", path, action))

    def list_names(self, folder: str) -> list[str]:
        """The names of the objects right in the folder."""
        return names_directly_in(folder, self.list(folder))

    def list(self, prefix: str, *, first: int | None = None) -> Iterator[ObjectInfo]:
        """List all objects in the folder and below; on S3 page by page on demand."""
        folder = folder_prefix(prefix)
        if self._protocol == "s3":
            yield from self._list_s3(folder, first)
            return
        base = self._root + "/"
        try:
            infos = self._read(
                "list", prefix, lambda: _find(self._uncached_file_system(), base + folder)
            )
        except FileNotFoundError:
            return
        if not isinstance(infos, Mapping):  # adlfs gives a list where there is a file of this name
            return
        for full, info in sorted(infos.items()):
            if info["type"] == "file" and full.startswith(base + folder):
                name, size = full.removeprefix(base), int(info["size"])
                yield ObjectInfo(name, size, modification_time(info), _tag(info))

    def delete(self, path: str) -> None:
        """Remove the object."""
        full = self._full(path)
        with contextlib.suppress(FileNotFoundError):
            self._read("delete", path, lambda: self._fs.rm_file(full))

    def delete_many(self, paths: Iterable[str]) -> None:
        """Remove the objects: a thousand with one request on S3, concurrently elsewhere."""
        if self._protocol != "s3":
            with ThreadPoolExecutor(CONNECTIONS) as threads:
                for _ in threads.map(self.delete, paths):
                    pass
            return
        fulls = [self._full(path) for path in paths]
        for start in range(0, len(fulls), s3_requests.MAX_KEYS_PER_DELETE):
            batch = fulls[start : start + s3_requests.MAX_KEYS_PER_DELETE]
            delete = partial(self._s3, s3_requests.delete_objects, batch)
            self._write("delete", "", delete)

    # ---- the connection

    def _open(self) -> Hashable:
        """Connect, so that a wrong option or a missing package shows now; return ``place``."""
        fs = self._fs
        if self._protocol == "abfs":  # whose account need not be in the root
            self.server = f"{self.server}/{getattr(fs, 'account_name', None) or ''}"
        # fsspec's token is of all arguments, and shows none of them.
        return (self._url, fs._fs_token) if self._protocol in _OBJECT_STORES else None

    @property
    def _fs(self) -> Any:
        """The file system of this process: a forked one must not use its parent's sockets."""
        if self._connection is None or self._connection[0] != os.getpid():
            self._connection = (os.getpid(), *self._connect())
        return self._connection[1]

    @property
    def _root(self) -> str:
        _ = self._fs
        assert self._connection is not None
        return self._connection[2]

    def _connect(self) -> tuple[Any, str]:
        arguments = dict(self._options.arguments)
        if self._protocol in _OBJECT_STORES:
            arguments["use_listings_cache"] = False
        if self._protocol == "s3":
            given = arguments.get("config_kwargs", {})
            arguments["config_kwargs"] = s3_requests.client_config(given, CONNECTIONS)
            _drop_old_clients(arguments)
        if self._protocol == "gcs":
            arguments["requests_timeout"] = _google_timeout(arguments.get("requests_timeout", {}))

        def connect() -> tuple[Any, str]:
            try:
                fs, root = _file_system(self._protocol, self._url, arguments)
            except ImportError as error:
                scheme = self._url.partition(":")[0]
                extra = _EXTRAS.get(self._protocol)
                hint = f"pip install 'pyspark-lance[{extra}]'" if extra else str(error)
                raise UnsupportedFeatureError(
                    f"a package is missing for {scheme}:// tables", hint=hint
                ) from None
            except ValueError as error:
                if "rotocol" not in str(error):
                    raise
                raise UnsupportedFeatureError(
                    f"no file system is known for {self.uri!r}",
                    hint=_OTHER_SCHEMES.get(
                        self._protocol,
                        "check the URI; or install the package that gives fsspec this kind of "
                        "URI, such as adlfs for abfss://",
                    ),
                ) from None
            if self._protocol == "s3":
                fs.retries = s3_requests.ROUNDS_OF_RETRIES
            return fs, root.rstrip("/")

        return self._write("open", "", connect)

    def _uncached_file_system(self) -> Any:
        """Return the file system with an empty cache; not every one can disable caching."""
        fs = self._fs
        fs.invalidate_cache()
        return fs

    def _full(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"

    def _s3(self, request: Callable[..., Any], *arguments: Any) -> Any:
        fs = self._fs
        return fsspec.asyn.sync(fs.loop, request, fs, *arguments)

    # ---- reading and writing

    def _fetch_ranges(self, path: str, requests: Sequence[ByteRange]) -> Sequence[Buffer]:
        answers: Sequence[bytes | Exception] = self._fs.cat_ranges(
            [self._full(path)] * len(requests),
            [request.start for request in requests],
            [request.end for request in requests],
            on_error="raise",
        )
        return [_raise_or_return(answer) for answer in answers]

    def _fetch(self, path: str, requests: Sequence[ByteRange]) -> Sequence[Buffer]:
        check_path(path)
        try:
            answers = self._read("read", path, lambda: self._fetch_ranges(path, requests))
        except StorageError:
            # Stores differ in how they refuse a range past the end; the size decides.
            size = self.size(path)
            start, end = requests[0].start, max(request.end for request in requests)
            if end > size:
                raise too_short(self.uri, path, start, end, size) from None
            raise
        for request, answer in zip(requests, answers, strict=True):
            if len(answer) != request.num_bytes:
                raise too_short(self.uri, path, request.start, request.end)
        return answers

    def _pipe(self, full: str, content: bytes) -> None:
        fs = self._fs
        if self._protocol not in _OBJECT_STORES:
            fs.makedirs(full.rpartition("/")[0], exist_ok=True)
        fs.pipe_file(full, content)

    def _copy(self, full: str, target: str) -> None:
        fs = self._fs
        if self._protocol not in _OBJECT_STORES:
            fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        fs.cp_file(full, target)

    def _put_file(self, name: str, full: str) -> None:
        fs = self._fs
        fs.makedirs(full.rpartition("/")[0], exist_ok=True)
        fs.put_file(name, full)

    def _create(self, full: str, content: bytes, conditions: Mapping[str, Any]) -> bool:
        """Return whether the conditional put created the object."""
        for attempt in range(1, CONFLICT_ATTEMPTS + 1):
            try:
                self._fs.pipe_file(full, content, **conditions)
            except FileExistsError:
                return False
            except Exception as error:
                codes = s3_requests.error_codes(error)
                exists = type(error).__name__ == "ResourceExistsError"  # Azure's
                if exists or codes & {"412", "PreconditionFailed"}:
                    return False
                if codes & {"501", "NotImplemented"}:
                    raise UnsupportedFeatureError(
                        "the store does not know conditional puts (If-None-Match), "
                        "which safe commits need",
                        where=self.uri,
                    ) from None
                # S3 asks to repeat a put that met another request for the same key.
                conflict = codes & {"ConditionalRequestConflict", "OperationAborted"}
                if not conflict or attempt == CONFLICT_ATTEMPTS:
                    raise
            else:
                return True
        raise AssertionError("unreachable")

    def _put_unsafely(self, path: str, content: bytes) -> bool:
        if not self._options.allow_unsafe_put:
            raise UnsupportedFeatureError(
                "this store cannot create an object only if it is absent, which safe commits need",
                where=f"{self.uri}/{path}",
                hint="with a single writer at a time, storage.allow_unsafe_put=true allows it",
            )
        if self.exists(path):
            return False
        self.put(path, content)
        return True

    def _list_s3(self, folder: str, first: int | None) -> Iterator[ObjectInfo]:
        base = self._root + "/"
        key_base = base.partition("/")[2]
        if base.startswith("arn:"):
            key_base = self._fs.split_path(base + "x")[1][:-1]
        continuation = None
        while True:
            # A caller that continues gets pages of the usual size.
            most = first if continuation is None else None
            request = partial(self._s3, s3_requests.list_page, base + folder, continuation, most)
            page = self._write("list", folder, request)
            for entry in page.get("Contents", []):
                if not entry["Key"].endswith("/"):  # consoles make such objects for folders
                    path = entry["Key"].removeprefix(key_base)
                    yield ObjectInfo(path, entry["Size"], modification_time(entry), _tag(entry))
            continuation = page.get("NextContinuationToken")
            if not continuation:
                return

    # ---- errors

    def _read(self, verb: str, path: str, action: Callable[[], _T]) -> _T:
        """Run the action; a missing object is a FileNotFoundError."""
        return self._run(verb, path, action, absence_is_normal=True)

    def _write(self, verb: str, path: str, action: Callable[[], _T]) -> _T:
        """Run the action; here a FileNotFoundError means that there is no such bucket."""
        return self._run(verb, path, action, absence_is_normal=False)

    def _run(
        self, verb: str, path: str, action: Callable[[], _T], *, absence_is_normal: bool
    ) -> _T:
        # The error is raised after the handler, or it would carry the unscrubbed one as context.
        try:
            return action()
        except LanceError:
            raise
        except Exception as error:  # noqa: BLE001 - backends raise anything; none may leak secrets
            cause = error
        if isinstance(cause, FileNotFoundError) and absence_is_normal:
            raise missing(self.uri, path) from self._options.safe_cause(cause)
        text = self._options.scrub(f"{type(cause).__name__}: {cause}")
        raise StorageError(
            f"cannot {verb}: {' '.join(text.split())}",
            where=f"{self.uri}/{path}".rstrip("/"),
            hint=_hint(cause),
        ) from self._options.safe_cause(cause)


def _find(fs: Any, folder: str) -> Any:
    """Return the files below a folder by path, or a list where it is a file.

    fsspec's own listing leaves out folders whose request fails, as if they were empty. File systems
    that do not replace it are listed folder by folder, and a failure is raised.
    """
    kind = type(fs)
    is_common = getattr(kind, "find", None) is AbstractFileSystem.find
    if isinstance(fs, fsspec.asyn.AsyncFileSystem):
        is_common = kind._find is fsspec.asyn.AsyncFileSystem._find
    return dict(_walk(fs, folder)) if is_common else fs.find(folder, detail=True)


def _walk(fs: Any, folder: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        infos = fs.ls(folder, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        return  # or removed since
    for info in infos:
        name = info["name"].rstrip("/")
        if info["type"] != "directory":
            yield name, info
        elif name != folder.rstrip("/"):
            yield from _walk(fs, name)


def create_only_arguments(protocol: str, filesystem: type) -> Mapping[str, Any] | None:
    """Return the arguments that make ``pipe_file`` create only; None if there are none.

    File systems ignore or drop arguments that they do not support, and the put would overwrite: so
    only those in the signature count.
    """
    if protocol not in _OBJECT_STORES:
        return None
    method = getattr(filesystem, "_pipe_file", None) or filesystem.pipe_file  # type: ignore[attr-defined]
    known = inspect.signature(method).parameters
    wanted = {"abfs": {"overwrite": False}}.get(protocol, {"mode": "create"})
    if protocol == "s3" and _botocore_version() < _BOTOCORE_WITH_CREATE:
        known = {}  # type: ignore[assignment]
    if not wanted.keys() <= known.keys():
        raise UnsupportedFeatureError(
            f"the installed {filesystem.__module__.partition('.')[0]} cannot create an object "
            "only if it is absent, which safe commits need",
            hint="install a newer one (and botocore 1.35.20 or newer for S3)",
        )
    return wanted


def endpoint_of(protocol: str, arguments: Mapping[str, Any]) -> str:
    """The address of an object store that is not the cloud's own; '' if there is none."""
    if protocol not in _OBJECT_STORES:
        return ""
    client = arguments.get("client_kwargs", {})
    given = arguments.get("endpoint_url") or client.get("endpoint_url")
    names = _ENDPOINT_VARIABLES.get(protocol, ())
    return str(given or next(filter(None, map(os.environ.get, names)), ""))


def _google_timeout(given: Mapping[str, float]) -> Any:
    """Time-outs of each request, which gcsfs has none of by itself; it makes it again."""
    try:
        from aiohttp import ClientTimeout  # noqa: PLC0415 - what gcsfs asks with
    except ImportError:  # then gcsfs is not there either, which is said when it is opened
        return None
    default = {
        "sock_connect": s3_requests.CONNECT_TIMEOUT_S,
        "sock_read": s3_requests.READ_TIMEOUT_S,
    }
    return ClientTimeout(**{**default, **given})


_OTHER_SCHEMES = {
    "ofs": "use the S3 gateway of Ozone: s3a://bucket/path",
    "o3fs": "use the S3 gateway of Ozone: s3a://bucket/path",
    "wasb": "use abfss://container@account.dfs.core.windows.net/path",
    "wasbs": "use abfss://container@account.dfs.core.windows.net/path",
    "swebhdfs": "use hdfs://host:port/path",
}
_files_of_clients: tuple[tuple[str, int, int], ...] = ()


def _drop_old_clients(arguments: Mapping[str, Any]) -> None:
    """Drop cached clients of S3 if the credential files that they have read have changed."""
    global _files_of_clients
    files = s3_requests.credential_files(arguments)
    if files and files != _files_of_clients:
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        _files_of_clients = files


def _check_key_file(token: object) -> None:
    """Raise an error for a missing file, whose path would be sent as an access token."""
    if not isinstance(token, str) or not (token.startswith(("/", "~")) or token.endswith(".json")):
        return
    if not os.path.exists(os.path.expanduser(token)):
        raise InvalidInputError(
            "the key file for Google Cloud Storage does not exist on this machine",
            hint="check the path in storage.token or fs.gs.auth.service.account.json.keyfile; the "
            "driver and each executor need the file",
        )


def _file_system(protocol: str, url: str, arguments: Mapping[str, Any]) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    if protocol == "gcs":
        _check_key_file(arguments.get("token"))
    if protocol == "gcs" and endpoint_of(protocol, arguments):
        # gcsfs' newer kind asks by gRPC which kind of bucket it is, and waits a minute for each
        # answer; only Google itself gives one.
        from gcsfs.core import GCSFileSystem  # noqa: PLC0415

        fs = GCSFileSystem(**arguments)
        return fs, fs._strip_protocol(url)
    found: tuple[Any, str] = fsspec.core.url_to_fs(url, **arguments)
    return found


def _raise_or_return(answer: bytes | Exception) -> bytes:
    """Return the result; some versions of fsspec return errors instead of raising them."""
    if isinstance(answer, Exception):
        raise answer
    return answer


def _hint(error: BaseException) -> str:
    """Return advice for the user about the error, '' if there is none."""
    codes = s3_requests.error_codes(error)
    for names, hint in _HINTS_BY_CODE.items():
        if codes & names or any(map(str(error).count, names)):
            return hint
    return _HINTS.get(type(error).__name__, "")


def _botocore_version() -> tuple[int, ...]:
    return tuple(int(part) for part in importlib.metadata.version("botocore").split(".")[:3])


def _create_in_memory(fs: Any, full: str, content: bytes) -> bool:
    """Fsspec's own exclusive mode looks first and writes then; setdefault is one step."""
    file = MemoryFile(fs, full, content)
    created: bool = fs.store.setdefault(full, file) is file
    return created


def _tag(info: Mapping[str, Any]) -> str:
    """Return the ETag of an object; '' if the file system has none."""
    return str(info.get("ETag") or info.get("etag") or "")


def modification_time(info: Mapping[str, Any]) -> int:
    """Return the time of the last change in nanoseconds, by any of its names; 0 if unknown."""
    for name in ("LastModified", "last_modified", "mtime", "updated", "created"):
        value = info.get(name)
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            return int(aware.timestamp() * 1_000_000) * 1000
        if isinstance(value, int | float):
            return int(value * 1_000_000) * 1000
    return 0
