"""How many partitions a search looks at first, where nobody says so: as many as Lance does.

Those that are hardly further away than the nearest one, but neither too few nor too many.  What
that means depends on how many rows are wanted: the more these are, the further they lie apart.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.table.nearest.metric import Metric

# Up to how many rows each column of the tables below is for.
_ROWS: Final = (1, 10, 100, 200, 500, 1000, 10_000)
# By which share of the least distance others may be above it; fewest and most partitions.
_SHARES: Final = {
    Metric.L2: (0.2175, 0.265, 0.33, 0.375, 0.3725, 0.4175, 0.57, 0.75),
    Metric.COSINE: (0.235, 0.2875, 0.38, 0.415, 0.45, 0.47, 0.6475, 0.58),
    Metric.DOT: (0.14, 0.055, 0.0625, 0.0675, 0.07, 0.0725, 0.0825, 0.21),
}
_FEWEST: Final = {
    Metric.L2: (5, 6, 11, 15, 22, 29, 98, 463),
    Metric.COSINE: (3, 8, 7, 18, 28, 34, 104, 738),
    Metric.DOT: (56, 144, 200, 211, 244, 279, 517, 1009),
}
_MOST: Final = {
    Metric.L2: (19, 24, 38, 56, 81, 93, 238, 704),
    Metric.COSINE: (50, 77, 106, 156, 192, 248, 447, 958),
    Metric.DOT: (112, 432, 768, 833, 971, 1092, 1824, 2528),
}


def first_probes(distances: NDArray[np.floating[Any]], metric: Metric, k: int) -> NDArray[np.intp]:
    """How many of the nearest partitions to look at, shape (queries,).

    ``distances``: of the centroids from each query, ascending, shape (queries, partitions): the
    squares of the distances, or 1 - x·q for the metric ``dot``.
    """
    column = int(np.searchsorted(_ROWS, k))
    least = distances[:, :1]
    scale = np.abs(1 - least) if metric is Metric.DOT else least
    near = distances - least <= _SHARES[metric][column] * scale
    counts = np.count_nonzero(near, axis=1)
    counts = np.clip(counts, _FEWEST[metric][column], _MOST[metric][column])
    return np.minimum(counts, distances.shape[1])
