"""Manifests of a table with other values than its writer gave them."""

from __future__ import annotations

from dataclasses import replace

from pyspark_lance.metafile.manifest_file import encode_manifest, latest_version, read_manifest
from pyspark_lance.store.open_store import open_store


def change_manifest(path, change):
    """Replace the newest manifest by what ``change`` makes of it."""
    store = open_store(str(path))
    location = latest_version(store)
    file = read_manifest(store, location)
    manifest = change(file.manifest)
    store.put(location.path, encode_manifest(manifest, file.indices, file.transaction()))


def change_fragment(path, **changes):
    """Other values for the only fragment."""

    def change(manifest):
        (fragment,) = manifest.fragments
        return replace(manifest, fragments=(replace(fragment, **changes),))

    change_manifest(path, change)
