"""Which files a table has, and which of them its versions use by pylance's account."""

from __future__ import annotations

from pathlib import Path

import lance


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
    for version in range(1, lance.dataset(path).version + 1):
        dataset = lance.dataset(path, version=version)
        uuid = dataset.read_transaction(version).uuid
        used |= {name for name in transactions if name.endswith(f"-{uuid}.txn")}
        for fragment in dataset.get_fragments():
            used |= {f"data/{file.path}" for file in fragment.metadata.files}
            deletions = fragment.deletion_file()
            if deletions is not None:
                used.add(deletions)
    return used
