"""Find documents by their words, by their meaning and by both; embed again only what changed.

    pip install "pyspark-lance[text]"; python examples/search_documents.py [folder]

The embeddings stand for those of a model: they count the runs of three letters of a text, so texts
of similar words are near to each other. The change feed says which documents need a new one.
"""

from __future__ import annotations

import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_lance import LanceTable

SIZE = 256
VECTOR = pa.list_(pa.float32())
COLUMNS = "id bigint, title string, body string, vector array<float>"
DOCUMENTS = [
    (1, "Harbour", "Fishing boats leave the harbour before the sun is up."),
    (2, "Market", "At the market the fishermen sell what the boats brought home."),
    (3, "Lighthouse", "The keeper of the lighthouse writes down every storm."),
    (4, "Bakery", "The bakery opens at five, and smells of fresh bread."),
    (5, "School", "Children draw ships and whales on the walls of the school."),
    (6, "Station", "Trains to the mountains leave the station every hour."),
    (7, "Hut", "The hut in the mountains has bread, soup and eight beds."),
    (8, "Library", "The library lends books, and lately sewing machines."),
]


def embedding() -> Callable[[list[str]], np.ndarray]:
    """Stands for a model: unit vectors of how often texts have each run of three letters."""

    # Defined here, so that Spark sends it to executors, which need not have this file.
    def embed(texts: list[str]) -> np.ndarray:
        vectors = np.zeros((len(texts), SIZE), np.float32)
        for row, text in enumerate(texts):
            letters = f" {text.lower()} "
            runs = [letters[start : start + 3] for start in range(len(letters) - 2)]
            np.add.at(vectors[row], [zlib.crc32(run.encode()) % SIZE for run in runs], 1)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    return embed


def embedded(texts: DataFrame) -> DataFrame:
    """Embeds the column ``body`` on executors; keeps ``row_id``."""
    embed = embedding()

    def with_vectors(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            vectors = pa.array(list(embed(batch.column("body").to_pylist())), VECTOR)
            columns = {"row_id": batch.column("row_id"), "vector": vectors}
            yield pa.RecordBatch.from_pydict(columns)

    return texts.mapInArrow(with_vectors, "row_id bigint, vector array<float>")


def embed_changes(table: LanceTable) -> int:
    """Embeds documents that are new or have another text than before; returns how many.

    How far the changes were read is what the consumer ``embeddings`` keeps.
    """
    read = {row["name"]: row["version"] for row in table.consumers().collect()}
    newest = table.detail().first()["version"]
    changes = table.changes(
        read.get("embeddings", 0) + 1, newest, deduplicationMode="netChanges", layout="debezium"
    )
    texts = changes.where("op != 'd' AND after.body IS DISTINCT FROM before.body")
    texts = texts.select(sf.col("source.rowId").alias("row_id"), sf.col("after.body").alias("body"))
    merge = table.merge(embedded(texts), "target._rowid = source.row_id", rewrite="columns")
    done = merge.whenMatchedUpdate(set={"vector": "source.vector"}).execute()
    table.registerConsumer("embeddings", newest)
    return done.num_updated_rows


def titles(found: DataFrame) -> list[str]:
    """The titles of what was found, the best first."""
    return [row["title"] for row in found.orderBy("_rank").collect()]


def ask(table: LanceTable, question: str, k: int = 2) -> dict[str, list[str]]:
    """What a question finds by its words, by its embedding, and by both."""
    (vector,) = embedding()([question])
    columns = ["title"]
    return {
        "by words": titles(table.search(question, k, "body", columns=columns)),
        "by meaning": titles(table.nearest(vector, k, metric="cosine", columns=columns)),
        "by both": titles(
            table.hybridSearch(question, vector, k, column="body", metric="cosine", columns=columns)
        ),
    }


def main(spark: SparkSession, folder: str) -> dict[str, object]:
    """Runs all of it below ``folder``.

    Returns:
        What was printed, by name.
    """
    path = f"{folder}/documents"
    table = LanceTable.create(spark, path, COLUMNS, options={"vector.fixed_size_list": str(SIZE)})
    rows = spark.createDataFrame(DOCUMENTS, "id bigint, title string, body string")
    stored = rows.withColumn("vector", sf.lit(None).cast("array<float>"))
    stored.coalesce(1).write.format("lance").mode("append").save(path)
    seen: dict[str, object] = {"embedded at first": embed_changes(table)}
    table.createIndex("body", "inverted")
    for question in ("a fisherman's boat", "bread in the mountains"):
        for way, found in ask(table, question).items():
            seen[f"{question}, {way}"] = found

    table.update("id = 8", {"body": "'The library lends boats to anyone who fishes.'"})
    table.update("id = 6", {"title": "'Railway station'"})
    table.delete("id = 2")
    seen["embedded again"] = embed_changes(table)
    table.refreshIndices()
    for way, found in ask(table, "a fisherman's boat").items():
        seen[f"later, {way}"] = found
    several = spark.createDataFrame([("who fishes",), ("fresh bread",)], "query string")
    best = table.search(several, 1, "body", columns=["title"]).orderBy("query").collect()
    seen["several questions"] = [(row["query"], row["title"]) for row in best]
    for name, value in seen.items():
        print(f"{name:36} {value}")
    return seen


def _start() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("documents")
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    return builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()


if __name__ == "__main__":
    root = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="pyspark-lance-")
    main(_start(), root)
