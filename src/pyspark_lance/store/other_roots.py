"""Roots that a table's metadata name: base paths of clones, folders of external blobs.

Who writes a manifest could name any host there, and have the secrets of the reader sent to it. So
only what is as near as the table itself is opened: the same kind of store and the same authority.
Others have to be named by the storage option ``allowed_base_paths``, and get no options unless they
are of the same kind and reached through the same host.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import PurePath
from typing import Final
from urllib.parse import unquote

from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.store.open_store import SCHEME, open_store, split_uri
from pyspark_lance.store.storage_options import ALLOWED, PREFIX, allowed_roots

_SAME_KIND: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}
# What stands first in the path is no host: requests go where the options say.
_WITHOUT_HOST: Final = ("s3", "gs", "memory")


def open_other_root(table_uri: str, uri: str, options: Mapping[str, str]) -> ObjectStore:
    """The store of a root that the metadata of a table name; see ``options_for``."""
    uri = absolute_root(table_uri, uri, options)
    return open_store(uri, options_for(table_uri, uri, options))


def absolute_root(table_uri: str, uri: str, options: Mapping[str, str]) -> str:
    """The root that a path of the metadata means, whatever folder a process was started in.

    Lance writes the path by which a table was opened into its branches and clones, also where that
    is a relative one. It means a folder that holds the table, or one that ``allowed_base_paths``
    names, if that ends with it. Raises UnsupportedFeatureError: there is none.
    """
    if is_absolute(uri) or "\0" in uri or not uri.strip():
        return uri
    wanted = f"/{os.path.normpath(uri)}"
    scheme, own = split_uri(table_uri)
    known = [own, *map(str, PurePath(own).parents)] if scheme == "file" else []
    known += [path for kind, path in map(split_uri, allowed_roots(options)) if kind == "file"]
    for root in known:
        if root.endswith(wanted):
            return root
    raise UnsupportedFeatureError(
        f"the table's files are partly in {uri!r}, which is another folder for each process",
        where=table_uri,
        hint=f"name the absolute path of the folder in {PREFIX}{ALLOWED}, or clone the table again "
        "from its absolute path",
    )


def options_for(table_uri: str, uri: str, options: Mapping[str, str]) -> Mapping[str, str]:
    """The storage options that a root may be opened with."""
    if "\0" in uri or not uri.strip():
        raise CorruptFileError(f"{uri!r} is not the root of files", where=table_uri)
    kind, authority = _place(uri)
    own_kind, own_authority = _place(table_uri)
    # fsspec takes what comes after "::" for another URI.
    is_near = (kind, authority) == (own_kind, own_authority) and _chain(uri) == _chain(table_uri)
    if not is_near and not any(is_below(uri, root) for root in allowed_roots(options)):
        raise UnsupportedFeatureError(
            f"the table's files are partly in {uri!r}, another place than the table's own",
            where=table_uri,
            hint=f"if you trust it, name it in {PREFIX}{ALLOWED}",
        )
    return shared_options(table_uri, uri, options)


def options_for_source(target_uri: str, uri: str, options: Mapping[str, str]) -> Mapping[str, str]:
    """The storage options of a write that are meant for a root that it copies from.

    A local target has none of its own: those that are given are for the source, unless they would
    be sent to a host that a row names.
    """
    kind, _ = _place(uri)
    is_meant = _place(target_uri)[0] == "file" and kind in _WITHOUT_HOST and not _chain(uri)
    return options if is_meant else shared_options(target_uri, uri, options)


def shared_options(table_uri: str, uri: str, options: Mapping[str, str]) -> Mapping[str, str]:
    """The storage options of a table that are meant for another root, too: all or none."""
    (kind, authority), (own_kind, own_authority) = _place(uri), _place(table_uri)
    is_same_host = kind == own_kind and (kind in _WITHOUT_HOST or authority == own_authority)
    is_plain = _chain(uri) == _chain(table_uri)
    return options if is_same_host and is_plain else {}


def _place(uri: str) -> tuple[str, str]:
    """Kind of store, and bucket or host; '' for folders of this machine."""
    scheme, local_path = split_uri(uri)
    if local_path:
        return "file", ""
    authority = uri.partition("://")[2].partition("/")[0]
    return _SAME_KIND.get(scheme, scheme), authority if scheme != "memory" else ""


def is_absolute(uri: str) -> bool:
    """Whether a path or URI means one place, whatever folder a process was started in."""
    return uri.startswith("/") or SCHEME.match(uri) is not None


def _chain(uri: str) -> list[str]:
    """What comes before and after every ``::`` but the last path."""
    parts = uri.split("::")
    return [*parts[:-1], parts[-1].partition("://")[0].lower()] if len(parts) > 1 else []


def is_below(uri: str, root: str) -> bool:
    """Whether a path or URI is a root, or a place in it."""
    if _place(uri) != _place(root) or _chain(uri) != _chain(root):
        return False
    path, folder = _path(uri), _path(root)
    inside = ".." not in unquote(path).split("/")
    return inside and f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")


def _path(uri: str) -> str:
    """Without scheme and host; of local folders as the system gets it."""
    scheme, local_path = split_uri(uri)
    return local_path if scheme == "file" else uri.partition("://")[2]
