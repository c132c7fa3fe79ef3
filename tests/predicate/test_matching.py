"""Which rows a condition is true for, where AND connects several: those that ``evaluate`` says."""

from __future__ import annotations

import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.predicate import evaluate as evaluation
from pyspark_lance.predicate.conditions import evaluate, matching
from pyspark_lance.predicate.parse import parse_predicate

ROWS = 3000
# From those that few rows match to those that most do; some read several columns, one reads none.
CONDITIONS = (
    "number = 3", "number < 20", "number >= 20", "number IS NULL", "number IN (1, 2, 3, 70)",
    "number <> 5", "NOT number BETWEEN 10 AND 90", "price < 5.5", "price > number",
    "price <=> NULL", "word LIKE '%1%'", "word IN ('word 1', 'word 7')", "word <> 'word 3'",
    "word > text", "text LIKE 'a%9'", "text RLIKE '[0-4]$'", "upper(text) < 'C'", "text = 'a 17'",
    "length(word) = 6", "place.x > 500", "place.x > 2500 OR place.name = 'n 3'",
    "place.name IS NOT NULL", "number < 50 OR price < 5 OR word = 'word 2'", "true",
    "float(number) / 3 > 5",
)  # fmt: skip


def rows_of(rng: np.random.Generator, num_rows: int = ROWS) -> pa.RecordBatch:
    """Each column has nulls, and ``word`` few values."""

    def column(values: list, kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind, mask=rng.random(num_rows) < 0.1)

    numbers = rng.integers(0, 100, num_rows).tolist()
    prices = [Decimal(cents) / 100 for cents in rng.integers(0, 10_000, num_rows).tolist()]
    names = [f"{'abc'[number % 3]} {number}" for number in rng.integers(0, 400, num_rows).tolist()]
    places = [{"x": number, "name": f"n {number % 7}"} for number in range(num_rows)]
    return pa.record_batch(
        {
            "number": column(numbers, pa.int64()),
            "price": column(prices, pa.decimal128(12, 2)),
            "word": column([f"word {number % 11}" for number in numbers], pa.string()),
            "text": column(names, pa.string()),
            "place": column(places, pa.struct({"x": pa.int32(), "name": pa.string()})),
        }
    )


@pytest.mark.parametrize("seed", range(8))
def test_matching_requires_every_condition(seed):
    rng, batch = random.Random(seed), rows_of(np.random.default_rng(seed))
    at = batch.schema.get_field_index("word")
    kept = batch.set_column(at, "word", batch.column(at).dictionary_encode())
    shares = []
    for _ in range(60):
        text = " AND ".join(f"({one})" for one in rng.sample(CONDITIONS, rng.randint(2, 5)))
        predicate = parse_predicate(text, batch.schema)
        wanted = evaluate(predicate, batch).fill_null(False).to_pylist()
        for rows in (batch, kept, kept.slice(7)):
            assert matching(predicate, rows).tolist() == wanted[-rows.num_rows :], text
        shares.append(sum(wanted) / ROWS)
    assert min(shares) == 0 and max(shares) > 0.2


def test_expensive_conditions_run_on_remaining_rows(monkeypatch):
    batch, asked, find = rows_of(np.random.default_rng(1)), [], evaluation.contains

    def noted(values, pattern):
        asked.append(len(values))
        return find(values, pattern)

    monkeypatch.setattr(evaluation, "contains", noted)
    condition = "text LIKE '%7%' AND number < 10 AND price < 20"
    found = matching(parse_predicate(condition, batch.schema), batch)
    assert 0 < np.count_nonzero(found) <= asked.pop() < ROWS / 20
    assert not asked


def test_failing_conditions_run_after_earlier_ones():
    batch = pa.record_batch(
        {"divisor": [0, 2, 0, 4] * 50, "word": ["none", "has 1", "none", "has 1"] * 50}
    )
    guarded = "word LIKE '%1%' AND 10 / divisor > 3 AND divisor < 9"
    found = matching(parse_predicate(guarded, batch.schema), batch)
    assert found.tolist() == [False, True, False, False] * 50
    with pytest.raises(InvalidInputError, match="zero"):
        matching(parse_predicate("divisor < 9 AND 10 / divisor > 3", batch.schema), batch)


def test_empty_batch_has_no_matches():
    batch = rows_of(np.random.default_rng(0), 0)
    found = matching(parse_predicate("number < 5 AND text LIKE '%a%'", batch.schema), batch)
    assert (found.dtype, found.shape) == (np.bool_, (0,))
