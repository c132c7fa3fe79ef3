"""Rankings by words and by a vector, fused."""

from __future__ import annotations

import numpy as np
import pytest

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.table.nearest.exact_search import NOTHING_FOUND, FoundRows
from pyspark_lance.table.text.hybrid import Fusion, HybridOptions, fuse
from pyspark_lance.table.text.scoring import NO_ROWS, ScoredRows


def by_words(*pairs):
    ids = np.array([row for row, _ in pairs], np.uint64)
    return ScoredRows(ids, ids + np.uint64(100), np.array([score for _, score in pairs], "f4"))


def by_vector(*pairs):
    ids = np.array([row for row, _ in pairs], np.uint64)
    distances = np.array([distance for _, distance in pairs], "f4")
    return FoundRows(np.zeros(len(ids), np.int64), distances, ids, ids + np.uint64(100))


WORDS = by_words((1, 9.0), (2, 5.0), (3, 1.0))
VECTOR = by_vector((3, 0.5), (4, 1.0), (1, 2.5))


def test_fusion_by_reciprocal_rank():
    found = fuse(WORDS, VECTOR, Fusion.parse("RRF"), 3)
    # Rows 1 and 3 have the ranks 1 and 3, in either order; of equal scores the lower id is first.
    assert found.rows.row_id.tolist() == [1, 3, 2]
    expected = [1 / 61 + 1 / 63, 1 / 61 + 1 / 63, 1 / 62]
    assert found.rows.score.tolist() == pytest.approx(expected, rel=1e-6)
    assert found.rows.address.tolist() == [101, 103, 102]
    assert found.text_score.tolist()[:2] == [9.0, 1.0]
    np.testing.assert_array_equal(found.distance, np.array([2.5, 0.5, np.nan], "f4"))


def test_fusion_by_weighted_scores():
    found = fuse(WORDS, VECTOR, Fusion.parse({"text": 1, "vector": 3.0}), 9)
    assert dict(zip(found.rows.row_id.tolist(), found.rows.score.tolist(), strict=True)) == (
        pytest.approx({3: 3.0, 4: 2.25, 1: 1.0, 2: 0.5}, rel=1e-6)
    )
    assert found.rows.row_id.tolist() == [3, 4, 1, 2]
    one = fuse(by_words((7, 2.0)), NOTHING_FOUND, Fusion.parse({"text": 2, "vector": 0}), 9)
    assert one.rows.score.tolist() == [2.0]
    assert len(fuse(NO_ROWS, NOTHING_FOUND, Fusion(), 5)) == 0


@pytest.mark.parametrize(
    "given", ["sum", None, {"text": 1}, {"text": -1, "vector": 1}, {"text": 0, "vector": 0}]
)
def test_invalid_fusions_are_refused(given):
    with pytest.raises(InvalidInputError, match="rankings cannot be fused by"):
        Fusion.parse(given)


@pytest.mark.parametrize("k", [None, 0, -1, True, 1.5, "3"])
def test_options_refuse_invalid_number_of_rows(k):
    with pytest.raises(InvalidInputError, match="at least 1, not"):
        HybridOptions([0.5], k, Fusion.parse("rrf"))
