"""ObstoreStore: S3 by obstore, whose requests take a fraction of the processor time of s3fs'.

obstore is Python's interface to the Rust crate object_store, which Lance itself uses. s3fs does
what it lacks: aborting uploads, keys with empty parts, requests of forked processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial, wraps
from importlib.metadata import version
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from pyspark_lance.errors import StorageError, UnsupportedFeatureError
from pyspark_lance.store import s3_requests
from pyspark_lance.store.fsspec_store import (
    CONFLICT_ATTEMPTS,
    CONNECTIONS,
    UPLOAD_PART_BYTES,
    FsspecStore,
    endpoint_of,
)
from pyspark_lance.store.object_store import (
    Buffer,
    ByteRange,
    Content,
    ObjectInfo,
    OutputFile,
    as_byte_view,
    check_path,
)
from pyspark_lance.store.storage_options import StorageOptions

if TYPE_CHECKING:
    from obstore.store import S3Credential, S3CredentialProvider

# Requests that one call of obstore runs at once; more go to threads.
_RANGES_PER_CALL: Final = 8
_CONCURRENT_PARTS: Final = 2
_RETRY_TIMEOUT: Final = timedelta(seconds=60)
_MAX_RETRIES: Final = 5
# The time-out of a whole request would end downloads over slow connections.
_REQUEST_TIMEOUT: Final = "1h"
_WAIT_S: Final = 0.5
# object_store asks for credentials again five minutes before they expire.
_CREDENTIALS_KEPT: Final = timedelta(minutes=6)

_S3_ERROR: Final = re.compile(r"<(?:Code|Message)>([^<]*)")
# Kinds of errors that obstore has no types for, by what their messages contain.
_KINDS: Final[Mapping[str, type[OSError]]] = {
    "NoSuchBucket": FileNotFoundError,
    "HTTP error": ConnectionError,
    "timed out": ConnectionError,
}

_P = ParamSpec("_P")
_T = TypeVar("_T")

# Older ones have no time-outs of single reads.
_MIN_VERSION: Final = (0, 11)
if tuple(map(int, version("obstore").split(".")[:2])) < _MIN_VERSION:
    raise ImportError("obstore is too old")


def open_obstore(url: str, options: StorageOptions) -> ObstoreStore:
    """Return the store at ``url``.

    Raises UnsupportedFeatureError: only s3fs supports these options, bucket or path.
    """
    bucket, _, path = url.partition("://")[2].partition("/")
    unknown = sorted(_leaf_names(options.arguments) - _SUPPORTED)
    reason = ""
    if unknown:
        reason = f"the options {', '.join(unknown)}"
    elif bucket.startswith("arn:") or bucket.endswith("--x-s3"):
        reason = f"the bucket {bucket}"
    elif not path.isprintable() or "//" in path:
        reason = "the characters of the path"
    else:
        environment = tuple(item for item in os.environ.items() if item[0].startswith("AWS_"))
        arguments = json.dumps(options.arguments, sort_keys=True)
        files = s3_requests.credential_files(options.arguments)
        client = _shared_client(bucket, arguments, environment, files)
        if isinstance(client, S3Store):
            user = hashlib.sha256(arguments.encode()).hexdigest()
            return ObstoreStore(url, options, client, user)
        reason = client
    raise UnsupportedFeatureError(
        f"obstore does not support {reason}", hint="leave storage.s3_client out to use s3fs"
    )


_process_with_threads: int | None = None


def _may_use_obstore() -> bool:
    """Return whether obstore's threads, if there are any, belong to this process."""
    global _process_with_threads
    if _process_with_threads is None:
        _process_with_threads = os.getpid()
    return _process_with_threads == os.getpid()


def _unless_forked(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """Use s3fs instead in a process that was forked after its parent used obstore.

    The threads of obstore do not survive a fork, and its calls would never return.
    """
    by_s3fs: Callable[_P, _T] = getattr(FsspecStore, method.__name__)

    @wraps(method)
    def call(*args: _P.args, **given: _P.kwargs) -> _T:
        return (method if _may_use_obstore() else by_s3fs)(*args, **given)

    return call


class ObstoreStore(FsspecStore):
    """Objects of an S3 bucket below one path.

    ``user``: equal for equal options; shows none of them.
    """

    def __init__(self, url: str, options: StorageOptions, client: S3Store, user: str) -> None:
        self._client = client
        self._user = user
        self._key_prefix = url.partition("://")[2].partition("/")[2]
        super().__init__("s3", url, options)

    def _open(self) -> Hashable:
        return self._url, "obstore", self._user

    def _key(self, path: str) -> str:
        return f"{self._key_prefix}/{check_path(path)}".lstrip("/")

    @_unless_forked
    def get(self, path: str) -> Buffer:
        """Return the whole object."""
        client, key = self._client, self._key(path)
        content = self._read("read", path, lambda: _look(lambda: obstore.get(client, key).bytes()))
        return memoryview(content)

    @_unless_forked
    def get_tail(self, path: str, length: int) -> tuple[Buffer, int]:
        """Return the last bytes and the object's size; one request."""
        if length <= 0:
            return super().get_tail(path, length)
        client, key = self._client, self._key(path)

        def suffix() -> tuple[Buffer, int]:
            found = obstore.get(client, key, options={"range": {"suffix": length}})
            return memoryview(found.bytes()), int(found.meta["size"])

        try:
            return self._read("read", path, lambda: _look(suffix))
        except StorageError:
            # An empty object has no last bytes.
            if self.size(path):
                raise
            return b"", 0

    @_unless_forked
    def stat(self, path: str) -> ObjectInfo:
        """Return size, time of the last change and tag."""
        key = self._key(path)
        head = self._read("stat", path, lambda: _look(lambda: obstore.head(self._client, key)))
        return _object_info(path, head)

    @_unless_forked
    def put(self, path: str, data: Buffer) -> None:
        """Create or replace the object."""
        key, content = self._key(path), bytes(as_byte_view(data))
        put = partial(obstore.put, self._client, key, content, chunk_size=UPLOAD_PART_BYTES)
        self._write("write", path, lambda: _call(put))

    @_unless_forked
    def put_if_absent(self, path: str, data: Content) -> bool:
        """Create the object with a conditional put, unless it exists."""
        if self._options.allow_unsafe_put and self.exists(path):
            return False
        key, content = self._key(path), bytes(as_byte_view(data))
        return self._write("create", path, lambda: self._create_object(key, content))

    @_unless_forked
    def copy(self, source: str, target: str) -> None:
        """Copy within the store."""
        keys = self._key(source), self._key(target)
        self._read("copy", source, lambda: _call(lambda: obstore.copy(self._client, *keys)))

    @_unless_forked
    def open_output(self, path: str) -> OutputFile:
        """Start an object; one larger than a part is uploaded in parts."""
        file = obstore.open_writer(
            self._client,
            self._key(path),
            buffer_size=UPLOAD_PART_BYTES,
            max_concurrency=_CONCURRENT_PARTS,
        )
        run = partial(self._write, "write", path)
        return _BufferedUpload(file, run, partial(self._abort_uploads, path))

    def _abort_uploads(self, path: str) -> None:
        """Abort unfinished uploads of an object, which obstore cannot."""
        self._write("abort", path, partial(self._s3, s3_requests.abort_uploads, self._full(path)))

    @_unless_forked
    def delete(self, path: str) -> None:
        """Remove the object."""
        key = self._key(path)
        self._write("delete", path, lambda: _call(lambda: obstore.delete(self._client, key)))

    @_unless_forked
    def delete_many(self, paths: Iterable[str]) -> None:
        """Remove the objects, a thousand with one request."""
        keys = [self._key(path) for path in paths]
        for start in range(0, len(keys), s3_requests.MAX_KEYS_PER_DELETE):
            batch = keys[start : start + s3_requests.MAX_KEYS_PER_DELETE]
            self._write("delete", "", partial(_call, partial(obstore.delete, self._client, batch)))

    def _list_s3(self, folder: str, first: int | None) -> Iterator[ObjectInfo]:
        last = ""
        if _may_use_obstore():
            try:
                for info in self._list_folder(folder):
                    yield info
                    last = info.path
            except _OddKeyError:
                pass
            else:
                return
        yield from (info for info in super()._list_s3(folder, first) if info.path > last)

    def _list_folder(self, folder: str) -> Iterator[ObjectInfo]:
        base = f"{self._key_prefix}/" if self._key_prefix else ""
        prefix = base + folder
        pages = obstore.list(self._client, prefix or None, chunk_size=s3_requests.MAX_KEYS_PER_PAGE)
        while page := self._write("list", folder, lambda: _look(lambda: next(pages, None))):
            for entry in page:
                key = entry["path"]
                # obstore shows the objects that consoles make for folders, "data/", as "data".
                if key.startswith(prefix) and (entry["size"] or self.exists(key[len(base) :])):
                    yield _object_info(key[len(base) :], entry)

    @_unless_forked
    def _fetch_ranges(self, path: str, requests: Sequence[ByteRange]) -> Sequence[Buffer]:
        client, key = self._client, self._key(path)

        def fetch(part: Sequence[ByteRange]) -> list[Buffer]:
            starts, ends = zip(*part, strict=True)
            found = obstore.get_ranges(client, key, starts=starts, ends=ends, coalesce=0)
            return [memoryview(content) for content in found]

        parts = [
            requests[start : start + _RANGES_PER_CALL]
            for start in range(0, len(requests), _RANGES_PER_CALL)
        ]
        if len(parts) == 1:
            return _look(lambda: fetch(requests))

        def fetch_all() -> list[Buffer]:
            threads = min(len(parts), CONNECTIONS // _RANGES_PER_CALL)
            with ThreadPoolExecutor(threads) as pool:
                fetched = pool.map(lambda part: _call(lambda: fetch(part)), parts)
                return [content for part in fetched for content in part]

        return _look(fetch_all)

    def _create_object(self, key: str, content: bytes) -> bool:
        """Return whether the conditional put created the object."""
        put = partial(obstore.put, self._client, key, content, mode="create", use_multipart=False)
        for attempt in range(1, CONFLICT_ATTEMPTS + 1):
            try:
                _call(put)
            except AlreadyExistsError as error:
                # S3 asks to repeat a put that met another request for the same key.
                if " 409 " not in str(error):
                    return False
                if attempt == CONFLICT_ATTEMPTS:
                    raise
            except ConnectionError:
                # obstore repeats only requests that change nothing; a condition makes this safe.
                if attempt == CONFLICT_ATTEMPTS:
                    raise
            except OSError as error:
                if "NotImplemented" in str(error):
                    raise UnsupportedFeatureError(
                        "the store does not know conditional puts (If-None-Match), "
                        "which safe commits need",
                        where=self.uri,
                    ) from None
                raise
            else:
                return True
        raise AssertionError("unreachable")


class _BufferedUpload:
    """An object that obstore puts at once if it is small, and uploads in parts otherwise."""

    def __init__(
        self,
        file: obstore.WritableFile,
        run: Callable[[Callable[[], object]], object],
        abort_uploads: Callable[[], None],
    ) -> None:
        self._file: obstore.WritableFile | None = file
        self._run = run
        self._abort_uploads = abort_uploads
        self._written = 0

    def write(self, data: object) -> int:
        """Append the bytes; upload a part once it is large enough."""
        if (file := self._file) is None:
            raise ValueError("write to a closed output file")
        view = as_byte_view(data)
        self._run(lambda: _call(lambda: file.write(view)))
        self._written += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._written

    def close(self) -> None:
        """Publish the object; discard it on failure."""
        if (file := self._file) is None:
            return
        try:
            self._run(lambda: _call(file.close))
            self._file = None
        finally:
            self.abort()

    def abort(self) -> None:
        """Discard the written bytes."""
        file, self._file = self._file, None
        if file is not None and self._written >= UPLOAD_PART_BYTES:
            del file  # ends its requests
            # If the requests fail, the store's lifecycle rules drop unfinished uploads.
            with contextlib.suppress(Exception):
                self._abort_uploads()


class _OddKeyError(StorageError):
    """A key that obstore cannot represent, such as one with an empty part."""


# Arguments of s3fs that have the same meaning here; a dot separates levels.
_SUPPORTED: Final = frozenset(
    {
        "key", "secret", "token", "anon", "endpoint_url", "requester_pays", "profile",
        "client_kwargs.region_name", "client_kwargs.verify",
        "config_kwargs.read_timeout", "config_kwargs.connect_timeout",
        "config_kwargs.retries.max_attempts", "config_kwargs.s3.addressing_style",
    }
)  # fmt: skip


def _leaf_names(arguments: Mapping[str, Any], above: str = "") -> set[str]:
    names: set[str] = set()
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            names |= _leaf_names(value, f"{above}{name}.")
        else:
            names.add(above + name)
    return names


@lru_cache(maxsize=64)
def _shared_client(
    bucket: str,
    arguments_json: str,
    environment: tuple[tuple[str, str], ...],
    _files: tuple[tuple[str, int, int], ...],
) -> S3Store | str:
    """Return a client, shared by all tables of a bucket, or an unsupported setting.

    ``arguments_json``: arguments of s3fs; ``environment``: AWS's variables, which both read;
    ``_files``: state of the files that both read, after a change of which the client is a new one.
    """
    arguments, variables = json.loads(arguments_json), dict(environment)
    config = arguments.get("config_kwargs", {})
    given = arguments.get("client_kwargs", {})
    endpoint = endpoint_of("s3", arguments)
    provider, region = None, given.get("region_name") or variables.get("AWS_REGION")
    region = region or variables.get("AWS_DEFAULT_REGION") or ""
    if not (arguments.get("anon") or (arguments.get("key") and arguments.get("secret"))):
        session = _botocore_session(arguments.get("profile"))
        if isinstance(session, str):
            return session
        provider = _credential_provider(session.get_credentials())
        region = region or session.get_config_variable("region") or ""
    if not (region or endpoint):
        return "buckets whose region is not given"
    is_virtual = config.get("s3", {}).get("addressing_style") == "virtual"
    if endpoint and is_virtual:
        # object_store wants the bucket in the endpoint here.
        scheme, _, host = endpoint.partition("://")
        endpoint = f"{scheme}://{bucket}.{host}"
    settings = {
        "region": region or "us-east-1",
        "endpoint": endpoint,
        "virtual_hosted_style_request": is_virtual,
        "skip_signature": bool(arguments.get("anon")),
        "request_payer": bool(arguments.get("requester_pays")),
        "access_key_id": arguments.get("key"),
        "secret_access_key": arguments.get("secret"),
        "session_token": arguments.get("token"),
    }
    return S3Store(
        bucket,
        client_options={
            "allow_http": endpoint.startswith("http://"),
            "allow_invalid_certificates": given.get("verify", True) is False,
            "connect_timeout": _duration(
                config.get("connect_timeout", s3_requests.CONNECT_TIMEOUT_S)
            ),
            "read_timeout": _duration(config.get("read_timeout", s3_requests.READ_TIMEOUT_S)),
            "timeout": _REQUEST_TIMEOUT,
        },
        retry_config={
            "max_retries": config.get("retries", {}).get("max_attempts", _MAX_RETRIES),
            "retry_timeout": _RETRY_TIMEOUT,
        },
        credential_provider=provider,
        **{name: value for name, value in settings.items() if value not in (None, "")},
    )


def _botocore_session(profile: str | None) -> Any:
    """Return botocore's session, which finds credentials wherever AWS's tools do.

    A text if there are none, or the session has settings that only botocore obeys.
    """
    import botocore.exceptions  # noqa: PLC0415 - slow to import, and options are often sufficient
    import botocore.session  # noqa: PLC0415

    session = botocore.session.Session(profile=profile)
    try:
        if {"s3", "services", "endpoint_url"} & session.get_scoped_config().keys():
            return "the settings of S3 in the configuration of AWS"
        if session.get_credentials() is None:
            return "tables without credentials, unless storage.skip_signature=true"
    except botocore.exceptions.BotoCoreError as error:
        return f"this configuration of AWS: {type(error).__name__}"
    return session


def _credential_provider(credentials: Any) -> S3CredentialProvider:
    """Return a provider of botocore's credentials, which renews them, for obstore."""

    def current() -> S3Credential:
        frozen = credentials.get_frozen_credentials()
        kept_until = datetime.now(UTC) + _CREDENTIALS_KEPT
        expires = getattr(credentials, "_expiry_time", None)  # botocore has no public name for it
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": min(expires.astimezone(UTC), kept_until) if expires else kept_until,
        }

    return current


def _duration(seconds: float) -> str:
    return f"{max(round(seconds * 1000), 1)}ms"


def _object_info(path: str, meta: Mapping[str, Any]) -> ObjectInfo:
    modified_ns = int(meta["last_modified"].timestamp() * 1_000_000) * 1000
    return ObjectInfo(path, int(meta["size"]), modified_ns, str(meta.get("e_tag") or ""))


def _call(request: Callable[[], _T]) -> _T:
    """Run a request; raise Python's own kinds of errors, with the message for people only."""
    try:
        return request()
    except (PermissionDeniedError, UnauthenticatedError) as error:
        found: OSError = PermissionError(_summary(error))
    except InvalidPathError as error:
        raise _OddKeyError(_summary(error)) from None
    except FileNotFoundError as error:
        found = FileNotFoundError(_summary(error))
    except AlreadyExistsError:
        raise
    except BaseError as error:
        text = _summary(error)
        found = _KINDS.get(next(filter(text.count, _KINDS), ""), OSError)(text)
    raise found


def _look(request: Callable[[], _T]) -> _T:
    """Run a request that changes nothing; in the main thread, an interrupt ends the wait for it.

    obstore waits where Python handles no signals, until its request has ended.
    """
    if threading.current_thread() is not threading.main_thread():
        return _call(request)
    thread = _idle_threads.pop() if _idle_threads else _RequestThread()
    result: Future[_T] = Future()
    thread.requests.put((result, request))
    try:
        # Again and again, as a signal right before a wait does not end it.
        while not wait((result,), _WAIT_S).done:
            pass
    except BaseException:
        thread.requests.put(None)
        raise
    _idle_threads.append(thread)
    return result.result()


class _RequestThread:
    """Runs requests of the main thread, one after another."""

    def __init__(self) -> None:
        self.requests: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        # A daemon, which no exit of the process waits for.
        threading.Thread(target=self._run, daemon=True, name="pyspark-lance-requests").start()

    def _run(self) -> None:
        while (task := self.requests.get()) is not None:
            result, request = task
            try:
                result.set_result(_call(request))
            except BaseException as error:  # noqa: BLE001 - raised by the main thread
                result.set_exception(error)
            del task, result, request  # not kept until the next request


# Only the main thread uses them.
_idle_threads: Final[list[_RequestThread]] = []


def _summary(error: Exception) -> str:
    """Return the message without its structure and with S3's code instead of its document."""
    text, _, document = str(error).partition("\n\nDebug source:")[0].partition("<?xml")
    return text + ": ".join(_S3_ERROR.findall(document))
