"""Live rows of a segment: of its fragments only, without deleted ones."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa

from pyspark_lance.format.row_address import row_addresses
from pyspark_lance.table.nearest.live_rows import LiveRows
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table


def test_rows_of_own_fragments_are_live(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": np.arange(40)}), path, max_rows_per_file=10)
    lance.dataset(path).delete("id in (3, 11, 20, 29)")
    snapshot = Snapshot.open(Table(path))
    fragments = {fragment.id: fragment for fragment in snapshot.manifest.fragments}
    live = LiveRows(snapshot.files, (fragments[2], fragments[0]), stable_row_ids=False)
    places = [(0, 2), (0, 3), (0, 9), (0, 10), (1, 2), (2, 0), (2, 1), (2, 9), (3, 5), (9, 1)]
    addresses = np.concatenate([row_addresses(number, [row]) for number, row in places])
    order = np.random.default_rng(1).permutation(len(places))
    found, is_live = live.addresses_of(addresses[order])
    assert np.array_equal(found, addresses[order])
    assert {places[one] for one in order[is_live]} == {(0, 2), (0, 9), (2, 1)}
    nothing = LiveRows(snapshot.files, (), stable_row_ids=False)
    assert not nothing.addresses_of(addresses)[1].any()
