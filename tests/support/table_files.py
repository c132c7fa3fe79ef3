"""Which files a table has, which of them its versions use, and sequences in files of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lance

from pyspark_lance.format.fragment import ExternalFile
from pyspark_lance.metafile.manifest_file import encode_manifest, latest_version, read_manifest
from pyspark_lance.store.open_store import open_store


def files_of(path: str) -> set[str]:
    """All data, deletion and transaction files, staging files among them."""
    return {
        str(one.relative_to(path))
        for folder in ("data", "_deletions", "_transactions")
        for one in Path(path, folder).glob("*")
    }


def used_files(path: str) -> set[str]:
    """Those that a version refers to."""
    used = set()
    transactions = {name for name in files_of(path) if name.startswith("_transactions/")}
    for version in [one["version"] for one in lance.dataset(path).versions()]:
        dataset = lance.dataset(path, version=version)
        uuid = dataset.read_transaction(version).uuid
        used |= {name for name in transactions if name.endswith(f"-{uuid}.txn")}
        for fragment in dataset.get_fragments():
            used |= {f"data/{file.path}" for file in fragment.metadata.files}
            deletions = fragment.deletion_file()
            if deletions is not None:
                used.add(deletions)
    return used


def move_sequences_outside(path: str) -> None:
    """Move row ids and versions of the newest version out of its manifest, into one file.

    The format allows it, but neither this package nor pylance does it.
    """
    store = open_store(path)
    location = latest_version(store)
    file = read_manifest(store, location)
    content, fragments = bytearray(b"..."), []
    for fragment in file.manifest.fragments:
        sources = {}
        for name in ("row_ids", "created_at", "last_updated_at"):
            data = getattr(fragment, name)
            sources[name] = ExternalFile("sequences.bin", len(content), len(data))
            content += data
        fragments.append(replace(fragment, **sources))
    store.put("sequences.bin", bytes(content))
    moved = replace(file.manifest, fragments=tuple(fragments))
    store.put(location.path, encode_manifest(moved, file.indices, file.transaction()))
