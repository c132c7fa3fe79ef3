"""Tables with an index of every kind, and whether pylance answers from these as without them."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa

WORDS = ["apple", "banana", "cherry", "damson", "elder", "fig", "grape", "hazel"]
QUERIES = [
    "id = 17", "id >= 40 AND id < 60", "kind = 'k2'", "kind IN ('k1', 'k4')", "kind IS NULL",
    "array_has_any(tags, ['fig', 'grape'])", "array_has_all(tags, ['apple'])",
    "contains(name, 'err')", "contains(name, 'changed')", "id > 1000", "id % 3 = 1 AND kind = 'k0'",
]  # fmt: skip
# In the text of a plan that answers from an index.
USES_INDEX = {
    "id = 7": "id_idx",
    "kind = 'k2'": "kind_idx",
    "array_has_any(tags, ['fig'])": "tags_idx",
    "contains(name, 'apple')": "name_idx",
}


def some_rows(rng, ids):
    ids = np.asarray(ids, dtype=np.int64)
    kinds = [f"k{k}" if k else None for k in rng.integers(0, 5, len(ids))]
    tags = [list(rng.choice(WORDS, rng.integers(0, 4), replace=False)) for _ in ids]
    names = [" ".join(rng.choice(WORDS, 3)) for _ in ids]
    vectors = rng.standard_normal(len(ids) * 4).astype(np.float32)
    return pa.table(
        {
            "id": ids,
            "kind": pa.array(kinds, pa.string()),
            "tags": pa.array(tags, pa.list_(pa.string())),
            "name": pa.array(names, pa.string()),
            "text": pa.array(names[::-1], pa.string()),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors), 4),
        }
    )


def make_indices(path):
    dataset = lance.dataset(path)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("kind", "BITMAP")
    dataset.create_scalar_index("tags", "LABEL_LIST")
    dataset.create_scalar_index("name", "NGRAM")
    dataset.create_scalar_index("text", "INVERTED", with_position=False)
    dataset.create_index("vector", "IVF_FLAT", num_partitions=2)


def keys(table):
    return sorted(table["_rowid"].to_pylist())


def check(path):
    dataset = lance.dataset(path, session=lance.Session())
    everything = dataset.scanner(with_row_id=True).to_table()
    for query in QUERIES:
        with_index, without = (
            dataset.scanner(
                columns=["id"], filter=query, with_row_id=True, use_scalar_index=use
            ).to_table()
            for use in (True, False)
        )
        assert keys(with_index) == keys(without), query
    for word in WORDS[:3]:
        found = dataset.scanner(columns=["id"], full_text_query=word, with_row_id=True).to_table()
        expected = everything.filter(pa.compute.match_substring(everything["text"], word))
        assert keys(found) == keys(expected), word
    # More than there ever were: of rows that are gone, pylance counts those of an index.
    nearest = {"column": "vector", "q": np.zeros(4, np.float32), "k": 1000}
    found = dataset.scanner(
        columns=["id"], nearest=nearest | {"nprobes": 2}, with_row_id=True
    ).to_table()
    assert keys(found) == keys(everything)


def check_used(path, without=()):
    """Plans of pylance name the index, and what answers instead of a search is no scan."""
    dataset = lance.dataset(path)
    for condition, name in USES_INDEX.items():
        plan = dataset.scanner(filter=condition).explain_plan()
        assert (name in plan) == (name not in without), condition
    nearest = {"column": "vector", "q": np.zeros(4, np.float32), "k": 3}
    assert "ANNSubIndex" in dataset.scanner(nearest=nearest).explain_plan()
    assert "MatchQuery" in dataset.scanner(full_text_query="apple").explain_plan()
