"""Full-text search next to pylance's: python benchmarks/search.py [--rows 1000000].

Documents are made from word frequencies as those of English (Zipf and Mandelbrot), 50 words each.
The same documents are indexed by both in one process, and the same queries asked of both: cold
(opened for each query) and warm, the ten best rows with their numbers. Processor time of the whole
process counts, since pylance uses all cores and a task uses one.

With --targets: what has to be met, and whether it is. With --folder: tables and indices are kept
there, and used again if they are there.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from harness import cost_with_memory, in_child, print_table, run, scratch, timed
from lance.query import FullTextOperator, MatchQuery, PhraseQuery

from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions
from pyspark_lance.table.index_build.column_indices import create_index
from pyspark_lance.table.index_build.index_plan import IndexRequest
from pyspark_lance.table.nearest.search_plan import read_found
from pyspark_lance.table.scan.plan_scan import predicate_schema, project
from pyspark_lance.table.text.queries import Match, Operator, Phrase, TextQuery
from pyspark_lance.table.text.search_plan import (
    SearchRequest,
    merge_matches,
    plan_batch,
    plan_search,
    search_batch,
)
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

K = 10
WORDS = 50
VOCABULARY = 100_000
# Mandelbrot's correction of Zipf's law, as measured in English texts.
OFFSET = 2.7
MAX_PART = 100_000
REPEATS = 5
ASKED = 20
MANY = 1_000
BUILD, WARM = 1.5, 2.0


def vocabulary(rng: np.random.Generator) -> np.ndarray:
    """Words of syllables, the frequent ones shorter."""
    syllables = [a + b for a in "bcdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "an", "er")]
    lengths = 1 + np.log2(np.arange(2, VOCABULARY + 2)).astype(int) // 4
    words = ["".join(rng.choice(syllables, length)) for length in lengths]
    # Each once: the rank makes equal ones differ.
    seen: set[str] = set()
    for rank, word in enumerate(words):
        words[rank] = f"{word}{rank}" if word in seen else word
        seen.add(words[rank])
    return np.array(words)


def word_shares(words: np.ndarray) -> np.ndarray:
    """The frequency of each word."""
    shares = 1 / (np.arange(1, len(words) + 1) + OFFSET)
    return shares / shares.sum()


def make_table(
    path: str, rows: int, words: np.ndarray, shares: np.ndarray, rng: np.random.Generator
) -> None:
    """Write documents."""
    for first in range(0, rows, MAX_PART):
        count = min(MAX_PART, rows - first)
        chosen = rng.choice(len(words), (count, WORDS), p=shares)
        texts = pa.array([" ".join(line) for line in words[chosen]])
        table = pa.table({"id": np.arange(first, first + count), "body": texts})
        lance.write_dataset(table, path, mode="append" if first else "create")


def processor(work: Callable[[], Any]) -> float:
    return timed(work)[0].processor


def build_ours(path: str) -> None:
    options = TokenizerOptions(with_position=True)
    create_index(Table(path), IndexRequest(("body",), "inverted", "own", text=options))


def build_theirs(path: str) -> None:
    lance.dataset(path).create_scalar_index("body", "INVERTED", name="own", with_position=True)


def ours(snapshot: Snapshot, query: TextQuery, condition: str | None) -> list[int]:
    predicate = condition and parse_predicate(condition, predicate_schema(snapshot.schema))
    request = SearchRequest(query, K, predicate or None, project(snapshot.schema, ["id"]), ())
    plan = plan_search(snapshot, request)
    found = merge_matches(plan.merge, [task.run() for task in plan.tasks])
    return [one for _, rows in read_found(plan.fetch, found) for one in rows.column(0).to_pylist()]


def theirs(dataset: lance.LanceDataset, query: object, condition: str | None) -> list[int]:
    more = {} if condition is None else {"filter": condition, "prefilter": True}
    found = dataset.to_table(columns=["id", "_score"], full_text_query=query, limit=K, **more)
    return found["id"].to_pylist()


def queries(
    words: np.ndarray, shares: np.ndarray, rng: np.random.Generator
) -> dict[str, list[tuple[TextQuery, object, str | None]]]:
    """Return queries of each kind, as ours and as pylance's, of words as they come in documents."""

    def some(count: int) -> str:
        return " ".join(rng.choice(words, count, p=shares))

    kinds: dict[str, list[tuple[TextQuery, object, str | None]]] = {}
    for _ in range(ASKED):
        one, three, two = some(1), some(3), some(2)
        both = Match(three, "body", Operator.AND)
        of_both = MatchQuery(three, "body", operator=FullTextOperator.AND)
        for kind, pair, condition in (
            ("one word", (Match(one, "body"), MatchQuery(one, "body")), None),
            ("three words, or", (Match(three, "body"), MatchQuery(three, "body")), None),
            ("three words, and", (both, of_both), None),
            ("a phrase of two", (Phrase(two, "body"), PhraseQuery(two, "body")), None),
            (
                "three words in 1 %",
                (Match(three, "body"), MatchQuery(three, "body")),
                "id % 100 = 7",
            ),
        ):
            kinds.setdefault(kind, []).append((*pair, condition))
    return kinds


def build(name: str, path: str) -> tuple[float, float, float]:
    """Build an index; return processor seconds, seconds, and how much memory grew, in MB."""
    cost, grown, _ = cost_with_memory(build_ours if name == "ours" else build_theirs, path)
    return cost.processor, cost.clock, grown


def measure_builds(folder: Path, rows: int) -> list[tuple[str, ...]]:
    """Build each index in a process of its own."""
    found = []
    for name in ("ours", "pylance"):
        seconds, clock, grown = in_child(build, name, str(folder / name))
        size = sum(one.stat().st_size for one in (folder / name / "_indices").rglob("*.lance"))
        found.append((name, f"{seconds:.2f}", f"{1e6 * seconds / rows / WORDS:.2f}", f"{clock:.1f}",
                      f"{grown:.0f}", f"{size / 2**20:.0f}"))  # fmt: skip
    return found


def measure_queries(folder: Path, kinds: dict) -> list[tuple[str, ...]]:
    rows = []
    for kind, asked in kinds.items():
        cells, warm = [kind], []
        for name in ("ours", "pylance"):
            path, is_ours = str(folder / name), name == "ours"

            def ask(known: Any, is_ours: bool = is_ours, asked: list = asked) -> None:
                for mine, other, condition in asked:
                    ours(known, mine, condition) if is_ours else theirs(known, other, condition)

            def opened(path: str = path, is_ours: bool = is_ours) -> Any:
                return Snapshot.open(Table(path)) if is_ours else lance.dataset(
                    path, session=lance.Session()
                )  # fmt: skip

            cold = processor(lambda: ask(opened()))
            known = opened()
            ask(known)
            seconds = min(processor(lambda known=known: ask(known)) for _ in range(REPEATS))
            warm.append(seconds)
            cells += [f"{1000 * cold / len(asked):.2f}", f"{1000 * seconds / len(asked):.2f}"]
        rows.append((*cells, f"{warm[0] / warm[1]:.2f}"))
    return rows


def measure_many(folder: Path, words: np.ndarray, shares: np.ndarray, rng: np.random.Generator):
    asked = [" ".join(line) for line in rng.choice(words, (MANY, 3), p=shares)]
    snapshot = Snapshot.open(Table(str(folder / "ours")))
    request = SearchRequest(Match(""), K, None, project(snapshot.schema, ["id"]), ())

    def own() -> None:
        plan = plan_batch(snapshot, request, ["body"], Operator.OR)
        for found in search_batch(plan, asked):
            list(read_found(plan.fetch, found.rows))

    dataset = lance.dataset(str(folder / "pylance"))

    def other() -> None:
        for text in asked:
            theirs(dataset, MatchQuery(text, "body"), None)

    times = [processor(own), processor(other)]
    return [f"{MANY} queries of three words", *(f"{one:.2f}" for one in times),
            f"{times[0] / times[1]:.2f}"]  # fmt: skip


def main(*, rows: int = 200_000, targets: bool = False, folder: str = "") -> int:
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(7)
    words = vocabulary(rng)
    shares = word_shares(words)
    title = f"{rows} documents of {WORDS} words"
    builds: list[tuple[str, ...]] = []
    with scratch(folder or None) as place:
        path = Path(place)
        if not (path / "pylance").exists():
            make_table(str(path / "ours"), rows, words, shares, rng)
            shutil.copytree(path / "ours", path / "pylance")
            builds = measure_builds(path, rows)
            header = "built by | processor s | µs per token | s | MB of memory | MiB"
            print_table(f"Index with positions, {title}", header, builds)
        rng = np.random.default_rng(8)
        asked = measure_queries(path, queries(words, shares, rng))
        header = "query | cold ms | warm ms | pylance cold | pylance warm | ours / pylance"
        print_table(f"The {K} best, processor time, {title}", header, asked)
        many = measure_many(path, words, shares, rng)
        print_table(f"Many at once, {title}", " | s | pylance | ours / pylance", [many])
    if not targets:
        return 0
    met = [("build", float(builds[0][1]) / float(builds[1][1]), BUILD)] if builds else []
    met += [(row[0], float(row[5]), WARM) for row in asked]
    lines = [(*one, "yes" if one[1] <= one[2] else "no") for one in met]
    print_table("Targets", " | ours / pylance | at most | met", lines)
    return int(any(ratio > most for _, ratio, most in met))


if __name__ == "__main__":
    run(main)
