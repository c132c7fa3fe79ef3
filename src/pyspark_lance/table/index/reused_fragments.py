"""Map row addresses of indices across compactions, by the fragment reuse index.

Source: docs/format/table-format.md, section 10.7.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from pyspark_lance.errors import CorruptFileError, MissingFileError
from pyspark_lance.format.index_metadata import (
    ReuseDetails,
    ReuseGroup,
    ReuseVersions,
    reuse_index_of,
    versions_from_bytes,
)
from pyspark_lance.format.row_address import OFFSET_BITS
from pyspark_lance.metafile.paths import INDICES
from pyspark_lance.table.version.snapshot import Snapshot


def reuse_versions(snapshot: Snapshot) -> ReuseVersions:
    """Return the compactions that indices of a version do not reflect yet, oldest first."""
    entry = reuse_index_of(snapshot.indices)
    if entry is None:
        return ()
    details = ReuseDetails.of(entry)
    if details.versions is not None:
        return details.versions
    store = snapshot.files.store_of(entry.base_id)
    path = f"{INDICES}/{entry.uuid}/{details.file}"
    try:
        content = store.get_range(path, details.start, details.start + details.size)
    except FileNotFoundError as error:
        raise MissingFileError(
            "the details of the fragment reuse index are missing", f"{store.uri}/{path}"
        ) from error
    return versions_from_bytes(bytes(content))


def moved_addresses(addresses: NDArray[np.uint64], versions: ReuseVersions) -> NDArray[np.uint64]:
    """Map addresses from before or after compactions to current ones, without removed rows.

    ``addresses``: of rows, in any order; ``versions``: the compactions, oldest first.
    """
    for version in versions:
        for group in version.groups:
            addresses = _moved(addresses, group)
    return addresses


def _moved(addresses: NDArray[np.uint64], group: ReuseGroup) -> NDArray[np.uint64]:
    old = np.array(sorted(group.old_ids), np.uint64)
    is_old = np.isin(addresses >> np.uint64(OFFSET_BITS), old)
    if not is_old.any():
        return addresses
    before = _addresses_before(group)
    if not len(before):
        return addresses[~is_old]
    asked = addresses[is_old]
    places = np.searchsorted(before, asked)
    places = places[before[np.minimum(places, len(before) - 1)] == asked]
    lengths = np.array([new.physical_rows for new in group.new_fragments], np.int64)
    ends = np.cumsum(lengths)
    which = np.searchsorted(ends, places, "right")
    ids = np.array([new.id for new in group.new_fragments], np.uint64)
    offsets = (places - (ends - lengths)[which]).astype(np.uint64)
    return np.concatenate([addresses[~is_old], ids[which] << np.uint64(OFFSET_BITS) | offsets])


def _addresses_before(group: ReuseGroup) -> NDArray[np.uint64]:
    """Return the old addresses of the rows of a group, ascending."""
    try:
        addresses = BitMap64.deserialize(group.row_addresses)
    except (ValueError, IndexError, MemoryError) as error:
        raise CorruptFileError(f"the fragment reuse index is corrupt: {error}") from error
    num_rows = sum(new.physical_rows for new in group.new_fragments)
    if len(addresses) != num_rows:
        raise CorruptFileError(f"{len(addresses)} rows moved to {num_rows} addresses")
    return np.frombuffer(addresses.to_array(), np.uint64)
