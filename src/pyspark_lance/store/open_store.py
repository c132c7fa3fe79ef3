"""URI + options -> ObjectStore."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.store.hadoop_options import URI_SCHEME, absolute_path
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.store.storage_options import SAME_PROTOCOL, allowed_roots

_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


def open_store(uri: str, options: Mapping[str, str] = _NO_OPTIONS) -> ObjectStore:
    """The store whose root is ``uri``; nothing is read or created yet.

    ``uri``: a local path (relative to the working folder, or with ``~``), ``file:///path``, or a
    URI of any file system fsspec supports: ``s3://bucket/path``, ``gs://``, ``abfss://``, .
    ``options``: storage options by name, with or without the prefix ``storage.``; local folders
    have only the places that their links may lead to.
    """
    scheme, local_path = split_uri(uri)
    if scheme == "file":
        allowed = tuple(path for _, path in map(split_uri, allowed_roots(options)) if path)
        return LocalStore(local_path, allowed) if allowed else LocalStore(local_path)
    if scheme == "s3+ddb":
        raise UnsupportedFeatureError(
            "s3+ddb:// is the URI of a table, not of a place for other files", hint="use s3://"
        )
    if scheme in ("hdfs", "viewfs"):
        from pyspark_lance.store.hdfs_store import open_hdfs_store  # noqa: PLC0415

        return open_hdfs_store(scheme, uri, options)
    if scheme == "hf":
        from pyspark_lance.store.hub_store import open_hub_store  # noqa: PLC0415

        return open_hub_store(uri, options)
    if SAME_PROTOCOL.get(scheme, scheme) == "s3":
        from pyspark_lance.store.s3_store import open_s3_store  # noqa: PLC0415

        return open_s3_store(scheme, uri, options)
    # fsspec and what it brings along take longer to import than a local table takes to open.
    from pyspark_lance.store.fsspec_store import open_fsspec_store  # noqa: PLC0415

    return open_fsspec_store(scheme, uri, options)


def split_uri(uri: str) -> tuple[str, str]:
    """The scheme in small letters and, for scheme ``file``, the absolute path.

    A path is taken as it is written, as Hadoop takes it: ``%`` begins no escape.
    """
    if not uri.strip():
        raise InvalidInputError("the path of a table must not be empty")
    if "\0" in uri:
        raise InvalidInputError(f"{uri!r} is not a path: it has a NUL in it")
    match = URI_SCHEME.match(uri)
    if match is None:
        return "file", _normal(absolute_path(uri))
    scheme = match[1].lower()
    if scheme not in ("file", "local"):
        return scheme, ""
    rest = uri[match.end() :]
    if rest.startswith("//"):  # file://host/path; Hadoop also writes file:/path
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise InvalidInputError(
                f"{uri!r} names the host {host!r}; file:// is for local paths only"
            )
        rest = slash + path
    return "file", os.path.abspath("/" + rest.lstrip("/"))


# What an absolute path means does not change, and each commit asks for it often.
_normal = lru_cache(maxsize=256)(os.path.abspath)
