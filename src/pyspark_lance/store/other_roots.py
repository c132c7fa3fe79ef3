"""Roots named in a table's metadata: base paths of clones, folders of external blobs.

A manifest could name any host, to which the secrets of the reader would be sent. So only roots of
the same kind of store and the same authority as the table are opened.  Other roots have to be
listed in the storage option ``allowed_base_paths``, and get no options unless they are of the same
kind and reached through the same host.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import PurePath
from typing import Final
from urllib.parse import unquote

from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.store.hadoop_options import URI_SCHEME
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.store.open_store import open_store, split_uri
from pyspark_lance.store.storage_options import ALLOWED, PREFIX, allowed_roots

_SAME_KIND: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}
# The first part of these paths is not a host: requests go to the endpoint in the options.
_WITHOUT_HOST: Final = ("s3", "gs", "memory")


def open_other_root(table_uri: str, uri: str, options: Mapping[str, str]) -> ObjectStore:
    """Open the store of a root named in the metadata of a table; see ``options_for``."""
    uri = absolute_root(table_uri, uri, options)
    return open_store(uri, options_for(table_uri, uri, options))


def absolute_root(table_uri: str, uri: str, options: Mapping[str, str]) -> str:
    """Return the absolute root of a path in the metadata, independent of the working directory.

    Lance writes the path by which a table was opened into its branches and clones, even if it is
    relative. It then means a folder that contains the table, or a path in ``allowed_base_paths``
    that ends with it.

    Raises:
        UnsupportedFeatureError: There is no such folder.
    """
    if is_absolute(uri) or "\0" in uri or not uri.strip():
        return root_of_url(uri)
    wanted = f"/{os.path.normpath(uri)}"
    scheme, own = split_uri(table_uri)
    known = [own, *map(str, PurePath(own).parents)] if scheme == "file" else []
    known += [path for kind, path in map(split_uri, allowed_roots(options)) if kind == "file"]
    for root in known:
        if root.endswith(wanted):
            return root
    raise UnsupportedFeatureError(
        f"some files of the table are in {uri!r}, a path relative to the working directory",
        where=table_uri,
        hint=f"add the absolute path of the folder to {PREFIX}{ALLOWED}, or clone the table again "
        "from its absolute path",
    )


def root_of_url(uri: str) -> str:
    """The path that a ``file:`` URL of the metadata means; any other root as it is.

    Lance writes URLs there, with escapes. The paths that users give have none.
    """
    match = URI_SCHEME.match(uri)
    if match is None or match[1].lower() != "file" or "%" not in uri:
        return uri
    path = unquote(split_uri(uri)[1])
    if "\0" in path:
        raise CorruptFileError(f"{uri!r} is not the root of files")
    return os.path.abspath(path)


def options_for(table_uri: str, uri: str, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the storage options that a root may be opened with."""
    if "\0" in uri or not uri.strip():
        raise CorruptFileError(f"{uri!r} is not a storage root", where=table_uri)
    kind, authority = _kind_and_authority(uri)
    own_kind, own_authority = _kind_and_authority(table_uri)
    # fsspec interprets the text after "::" as another URI.
    has_low_latency = (kind, authority) == (own_kind, own_authority) and _chain(uri) == _chain(
        table_uri
    )
    if not has_low_latency and not any(is_below(uri, root) for root in allowed_roots(options)):
        raise UnsupportedFeatureError(
            f"some files of the table are in {uri!r}, outside the table's own location",
            where=table_uri,
            hint=f"if you trust it, add it to {PREFIX}{ALLOWED}",
        )
    return shared_options(table_uri, uri, options)


def options_for_source(target_uri: str, uri: str, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the storage options of a write that apply to a root that it copies from.

    A local target needs no options, so they apply to the source, unless they would be sent to a
    host that a row names.
    """
    kind, _ = _kind_and_authority(uri)
    is_meant = (
        _kind_and_authority(target_uri)[0] == "file" and kind in _WITHOUT_HOST and not _chain(uri)
    )
    return options if is_meant else shared_options(target_uri, uri, options)


def shared_options(table_uri: str, uri: str, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the table's storage options if they apply to another root too, else none."""
    (kind, authority), (own_kind, own_authority) = (
        _kind_and_authority(uri),
        _kind_and_authority(table_uri),
    )
    is_same_host = kind == own_kind and (kind in _WITHOUT_HOST or authority == own_authority)
    is_plain = _chain(uri) == _chain(table_uri)
    return options if is_same_host and is_plain else {}


def _kind_and_authority(uri: str) -> tuple[str, str]:
    """Return the kind of store, and the bucket or host; '' for local folders."""
    scheme, local_path = split_uri(uri)
    if local_path:
        return "file", ""
    authority = uri.partition("://")[2].partition("/")[0]
    return _SAME_KIND.get(scheme, scheme), authority if scheme != "memory" else ""


def is_absolute(uri: str) -> bool:
    """Return whether a path or URI is independent of the working directory."""
    return uri.startswith("/") or URI_SCHEME.match(uri) is not None


def _chain(uri: str) -> list[str]:
    """Return the parts before and after every ``::``, without the last path."""
    parts = uri.split("::")
    return [*parts[:-1], parts[-1].partition("://")[0].lower()] if len(parts) > 1 else []


def is_below(uri: str, root: str) -> bool:
    """Return whether a path or URI is a root or below it."""
    if _kind_and_authority(uri) != _kind_and_authority(root) or _chain(uri) != _chain(root):
        return False
    path, folder = _path(uri), _path(root)
    inside = ".." not in unquote(path).split("/")
    return inside and f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")


def _path(uri: str) -> str:
    """Return the path without scheme and host, decoded for local folders."""
    scheme, local_path = split_uri(uri)
    return local_path if scheme == "file" else uri.partition("://")[2]
