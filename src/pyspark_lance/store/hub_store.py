"""HubStore: datasets of the Hugging Face Hub, read-only, by ``huggingface_hub``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NoReturn

from pyspark_lance.errors import InvalidInputError, TableNotFoundError, UnsupportedFeatureError
from pyspark_lance.store.fsspec_store import FsspecStore, modification_time
from pyspark_lance.store.object_store import (
    Buffer,
    ByteRange,
    Content,
    ObjectInfo,
    missing,
    too_short,
)
from pyspark_lance.store.storage_options import parse_storage_options

_CONNECTIONS: Final = 16
_KINDS: Final = ("datasets", "spaces", "buckets")


def open_hub_store(uri: str, options: Mapping[str, str]) -> HubStore:
    """Return the store at ``hf://datasets/USER/NAME[@REVISION]/PATH``.

    Raises UnsupportedFeatureError: ``huggingface_hub`` is not installed; TableNotFoundError: the
    repository does not exist, or its readers need a token.
    """
    path = uri.partition("://")[2].strip("/")
    kind, *names = path.split("/")
    if kind not in _KINDS or len(names) < 2:
        raise InvalidInputError(
            f"the URI {uri!r} names no dataset",
            hint="write it as hf://datasets/USER/NAME/PATH, or NAME@REVISION",
        )
    return HubStore("hf", f"hf://{path}", parse_storage_options("hf", options))


class HubStore(FsspecStore):
    """Files below one folder of a repository."""

    def stat(self, path: str) -> ObjectInfo:
        """Return size, time of change and identity; one request."""
        full = self._full(path)
        info = self._read("stat", path, lambda: self._fs.info(full, refresh=True, expand_info=True))
        if info["type"] != "file":
            raise missing(self.uri, path)
        changed = getattr(info.get("last_commit"), "date", None)
        modified_ns = modification_time({"updated": changed})
        return ObjectInfo(path, int(info["size"]), modified_ns, str(info.get("blob_id") or ""))

    def check_writable(self) -> NoReturn:
        """Raise UnsupportedFeatureError, as all methods that write."""
        raise UnsupportedFeatureError(
            "tables on the Hugging Face Hub are read-only",
            where=self.uri,
            hint="change a copy in a local folder and upload it: "
            "hf upload USER/NAME FOLDER --repo-type dataset",
        )

    def put(self, path: str, data: Buffer) -> NoReturn:
        """Raise UnsupportedFeatureError."""
        self.check_writable()

    def put_if_absent(self, path: str, data: Content) -> NoReturn:
        """Raise UnsupportedFeatureError."""
        self.check_writable()

    def copy(self, source: str, target: str) -> NoReturn:
        """Raise UnsupportedFeatureError."""
        self.check_writable()

    def open_output(self, path: str) -> NoReturn:
        """Raise UnsupportedFeatureError."""
        self.check_writable()

    def delete(self, path: str) -> NoReturn:
        """Raise UnsupportedFeatureError."""
        self.check_writable()

    def delete_many(self, paths: Iterable[str]) -> NoReturn:
        """Raise UnsupportedFeatureError."""
        self.check_writable()

    def _connect(self) -> tuple[Any, str]:
        fs, root = super()._connect()
        with contextlib.suppress(FileNotFoundError):
            self._read("open", "", lambda: fs.resolve_path(root))
            return fs, root
        raise TableNotFoundError(
            "the Hugging Face Hub shows no such repository or revision",
            where=self.uri,
            hint="check the name; private and gated datasets need storage.token or HF_TOKEN",
        )

    def _uncached_file_system(self) -> Any:
        fs = self._fs
        fs.dircache.clear()  # Only listings: that the repository exists is not asked again.
        return fs

    def _fetch(self, path: str, requests: Sequence[ByteRange]) -> Sequence[bytes]:
        """Fetch ranges concurrently, which the file system itself does not."""
        full = self._full(path)

        def fetch(wanted: ByteRange) -> bytes:
            # Otherwise each read fetches 5 MB more.
            with self._fs.open(full, "rb", cache_type="none") as file:
                if wanted.end > file.size:
                    raise too_short(self.uri, path, wanted.start, wanted.end, file.size)
                file.seek(wanted.start)
                content: bytes = file.read(wanted.num_bytes)
                return content

        def fetch_all() -> list[bytes]:
            with ThreadPoolExecutor(min(_CONNECTIONS, len(requests))) as threads:
                return list(threads.map(fetch, requests))

        return self._read("read", path, fetch_all)
