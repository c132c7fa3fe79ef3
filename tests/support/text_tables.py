"""Tables of texts, and what we and pylance find in them."""

from __future__ import annotations

import warnings

import lance
import numpy as np
import pyarrow as pa
from lance.query import (
    BooleanQuery,
    BoostQuery,
    FullTextOperator,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
)

from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.nearest.search_plan import read_found
from pyspark_lance.table.scan.plan_scan import predicate_schema, project
from pyspark_lance.table.text.queries import (
    Boolean,
    Boost,
    Match,
    MultiMatch,
    Operator,
    Phrase,
    parse_query,
)
from pyspark_lance.table.text.search_plan import SearchRequest, merge_matches, plan_search
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

_USUAL = """
cat dog house running runner fox quick brown jumps lazy tree river the of mountain cats dogs walk
walked walking Füße naïve İstanbul straße don't e-mail
"""
WORDS = [*_USUAL.split(), *(f"w{number}" for number in range(150))]
PER_FILE = 400


def texts(rng, count, words=WORDS):
    """Texts of words that are the rarer the later they are in the list; some empty or null."""
    found = []
    for _ in range(count):
        places = np.minimum(rng.zipf(1.3, rng.integers(1, 40)), len(words)) - 1
        text = " ".join(words[place] for place in places)
        found.append(text if rng.random() > 0.04 else (None if rng.random() > 0.5 else ""))
    return found


def make(path, rng, rows=1500, *, stable=False, segments=1, **options):
    """A table of texts with an index of pylance, of one segment or of one for each fragment."""
    table = pa.table({"id": np.arange(rows), "s": texts(rng, rows)})
    dataset = lance.write_dataset(
        table, str(path), max_rows_per_file=PER_FILE, enable_stable_row_ids=stable
    )
    if segments == 1:
        dataset.create_scalar_index("s", "INVERTED", name="by_s", **options)
        return
    own = [
        dataset.create_index_uncommitted(
            "s", "INVERTED", name="by_s", fragment_ids=[fragment.fragment_id], **options
        )
        for fragment in dataset.get_fragments()
    ]
    dataset.commit_existing_index_segments("by_s", "s", own)


def ours(path, query, *, k=None, condition=None, columns=("id",), pickled=None, **more):
    """Row id -> score, in the order of the answer, and the rows that are read."""
    snapshot = Snapshot.open(path if isinstance(path, Table) else Table(str(path)))
    predicate = condition and parse_predicate(condition, predicate_schema(snapshot.schema))
    request = SearchRequest(
        parse_query(query), k, predicate, project(snapshot.schema, columns), (), **more
    )
    plan = plan_search(snapshot, request)
    if pickled is not None:
        plan = pickled(plan)
    found = merge_matches(plan.merge, [task.run() for task in plan.tasks])
    batches = [batch for _, batch in read_found(plan.fetch, found)]
    rows = pa.Table.from_batches(batches) if batches else None
    return dict(zip(found.row_id.tolist(), found.score.tolist(), strict=True)), rows


def from_pylance(path, query, *, k=None, condition=None):
    """Row id -> score, as pylance finds them."""
    dataset = lance.dataset(str(path), session=lance.Session())
    more = {} if condition is None else {"filter": condition, "prefilter": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = dataset.to_table(
            full_text_query=query if isinstance(query, str) else lances(query),
            columns=["_score", "id"],
            with_row_id=True,
            limit=k,
            **more,
        )
    return dict(zip(table["_rowid"].to_pylist(), table["_score"].to_pylist(), strict=True))


def lances(query):
    """A query of ours as one of pylance."""
    if isinstance(query, Match):
        return MatchQuery(
            query.terms,
            query.column,
            boost=query.boost,
            fuzziness=query.fuzziness,
            max_expansions=query.max_expansions,
            operator=_operator(query),
            prefix_length=query.prefix_length,
        )
    if isinstance(query, Phrase):
        return PhraseQuery(query.terms, query.column, slop=query.slop)
    if isinstance(query, MultiMatch):
        first = query.queries[0]
        return MultiMatchQuery(
            first.terms,
            [one.column for one in query.queries],
            boosts=[one.boost for one in query.queries],
            operator=_operator(first),
        )
    if isinstance(query, Boost):
        return BoostQuery(
            lances(query.positive), lances(query.negative), negative_boost=query.negative_boost
        )
    assert isinstance(query, Boolean)
    kinds = (Occur.MUST, query.must), (Occur.SHOULD, query.should), (Occur.MUST_NOT, query.must_not)
    return BooleanQuery([(kind, lances(one)) for kind, parts in kinds for one in parts])


def _operator(query):
    return FullTextOperator.AND if query.operator is Operator.AND else FullTextOperator.OR


def assert_same(found, expected, k=None):
    """Rows and scores are equal; among the last of ``k``, rows of equal scores may differ."""
    if k is None:
        assert set(found) == set(expected), (
            len(found), len(expected), sorted(set(found) ^ set(expected))[:5],
        )  # fmt: skip
        scores = np.array([(found[row], expected[row]) for row in found]).reshape(-1, 2).T
    else:
        assert len(found) == len(expected)
        scores = np.array([sorted(found.values()), sorted(expected.values())])
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-5, atol=1e-6)


def random_query(rng, column="s", *, phrases=True, depth=1):
    """A query of any kind over one column."""

    def some(count):
        return " ".join(WORDS[min(int(x), len(WORDS)) - 1] for x in rng.zipf(1.2, count))

    kind = rng.integers(0, 9 if depth else 5)
    if kind == 0:
        return Match(some(1), column)
    if kind == 1:
        return Match(some(rng.integers(2, 5)), column, boost=float(rng.choice([1.0, 2.5])))
    if kind == 2:
        return Match(some(rng.integers(2, 4)), column, Operator.AND)
    if kind == 3:
        word = some(1)
        place = int(rng.integers(0, len(word)))
        word = word[:place] + "x" + word[place + int(rng.integers(0, 2)) :]
        return Match(
            " ".join([word, *some(rng.integers(0, 2)).split()]), column,
            Operator(str(rng.choice(list(Operator)))), int(rng.integers(1, 3)),
            prefix_length=int(rng.integers(0, 3)), max_expansions=int(rng.choice([5, 50])),
        )  # fmt: skip
    if kind in (3, 4):
        if not phrases:
            return Match(some(3), column)
        words = some(rng.integers(1, 4))
        # With slop pylance misses phrases of three words, and of equal ones.
        slop = int(rng.integers(0, 3)) if len(set(words.split())) == words.count(" ") + 1 < 3 else 0
        return Phrase(words, column, slop=slop)

    def part():
        return random_query(rng, column, phrases=phrases, depth=0)

    if kind == 5:
        return Boost(part(), part(), negative_boost=0.3)
    if kind == 6:
        return Boolean(must=(part(), part()), should=(part(),))
    if kind == 7:
        return Boolean(should=(part(), part()), must_not=(part(),))
    return Boolean(must=(part(),), must_not=(part(),))
