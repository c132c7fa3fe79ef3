"""Pictures that look like others: stored, indexed, searched, corrected, and searched again.

    pip install "pyspark-lance[examples]"; python examples/similar_images.py [folder]

The pictures are 1,797 digits written by hand, which scikit-learn brings. Some of them are stored
upside down at first; once they are corrected, the change feed says which vectors to compute again.
"""

from __future__ import annotations

import struct
import sys
import tempfile
import zlib

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_lance import LanceTable

SIDE = 8
COLUMNS = "id bigint, digit int, image binary, vector array<float>"
UPSIDE_DOWN = "digit IN (2, 6) AND id % 3 = 0"


def digits() -> pa.Table:
    """Number, digit and picture: 64 shades from 0 to 16."""
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415
    except ImportError:
        sys.exit('The digits come with scikit-learn: pip install "pyspark-lance[examples]"')
    known = load_digits()
    pictures = [image.astype(np.uint8).tobytes() for image in known.images]
    return pa.table({"id": range(len(pictures)), "digit": known.target, "image": pictures})


def embed(image: str) -> sf.Column:
    """Stands for a model: of a picture its shades between 0 and 1."""

    def shade(place: sf.Column) -> sf.Column:
        point = sf.conv(sf.hex(sf.substring(image, place, sf.lit(1))), 16, 10)
        return (point.cast("float") / 16).cast("float")

    return sf.transform(sf.sequence(sf.lit(1), sf.lit(SIDE * SIDE)), shade)


def turned(image: str) -> sf.Column:
    """The picture upside down."""
    return sf.unhex(sf.array_join(sf.reverse(sf.split(sf.regexp_replace(
        sf.hex(image), "(.{16})", "$1 "), " ")), ""))  # fmt: skip


def refresh_vectors(table: LanceTable) -> int:
    """Makes the vectors of the pictures that are new or other ones than before; returns how many.

    How far the changes were read is what the consumer ``vectors`` keeps.
    """
    read = {row["name"]: row["version"] for row in table.consumers().collect()}.get("vectors", 0)
    newest = table.detail().first()["version"]
    changes = table.changes(read + 1, newest, deduplicationMode="netChanges", layout="debezium")
    pictures = changes.where("op != 'd' AND after.image IS DISTINCT FROM before.image")
    pictures = pictures.select(
        sf.col("source.rowId").alias("row_id"), sf.col("after.image").alias("image")
    )
    vectors = pictures.select("row_id", embed("image").alias("vector"))
    merge = table.merge(vectors, "target._rowid = source.row_id", rewrite="columns")
    done = merge.whenMatchedUpdate(set={"vector": "source.vector"}).execute()
    table.registerConsumer("vectors", newest)
    return done.num_updated_rows


def look_alikes(table: LanceTable, of: str, k: int) -> DataFrame:
    """For pictures their ``k`` nearest; the first is the picture itself."""
    asked = table.toDF().where(of).selectExpr("vector", "id AS asked", "digit AS asked_digit")
    return table.nearest(asked, k, columns=["id", "digit", "image"], nprobes=4)


def share_of_same_digit(table: LanceTable, of: str) -> float:
    """Of the pictures most like others, how many show the same digit."""
    nearest = look_alikes(table, of, 2).where("id != asked").dropDuplicates(["asked"])
    return nearest.agg(sf.avg((sf.col("digit") == sf.col("asked_digit")).cast("int"))).first()[0]


def save_picture(found: DataFrame, path: str) -> tuple[int, int]:
    """Writes a PNG with a line for each picture that was asked for; returns its shape."""
    rows = found.orderBy("asked", "_rank").select("asked", "image").collect()
    lines: dict[int, list[np.ndarray]] = {}
    for row in rows:
        shades = np.frombuffer(row["image"], np.uint8).reshape(SIDE, SIDE)
        lines.setdefault(row["asked"], []).append(np.pad(255 - shades * 15, 1))
    pixels = np.vstack([np.hstack(line) for line in lines.values()]).repeat(4, 0).repeat(4, 1)
    height, width = pixels.shape
    content = zlib.compress(np.pad(pixels, ((0, 0), (1, 0))).tobytes())
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
             (b"IDAT", content), (b"IEND", b"")]  # fmt: skip
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for name, data in parts:
            file.write(struct.pack(">I", len(data)) + name + data)
            file.write(struct.pack(">I", zlib.crc32(name + data)))
    return height, width


def main(spark: SparkSession, folder: str) -> dict[str, object]:
    """Runs all of it below ``folder``.

    Returns:
        What was printed, by name.
    """
    table = LanceTable.create(
        spark, f"{folder}/digits", COLUMNS, options={"vector.fixed_size_list": str(SIDE * SIDE)}
    )
    picture = sf.when(sf.expr(UPSIDE_DOWN), turned("image")).otherwise(sf.col("image"))
    stored = spark.createDataFrame(digits()).withColumn("image", picture)
    stored.coalesce(1).write.format("lance").mode("append").save(f"{folder}/digits")
    seen: dict[str, object] = {"vectors made at first": refresh_vectors(table)}
    index = table.createVectorIndex("vector", "ivf_flat", numPartitions=16, seed=1)
    seen["rows in the index"] = index.num_rows
    seen["same digit, upside down"] = round(share_of_same_digit(table, UPSIDE_DOWN), 2)

    right = table.toDF().where(UPSIDE_DOWN).select("id", turned("image").alias("image"))
    merge = table.merge(right.localCheckpoint(), "target.id = source.id")
    corrected = merge.whenMatchedUpdate(set={"image": "source.image"}).execute()
    seen["pictures corrected"] = corrected.num_updated_rows
    seen["vectors computed again"] = refresh_vectors(table)
    (added,) = table.refreshVectorIndices()
    seen["rows added to the index"] = added.num_rows
    seen["same digit, corrected"] = round(share_of_same_digit(table, UPSIDE_DOWN), 2)
    shape = save_picture(look_alikes(table, "id < 6", 8), f"{folder}/look_alikes.png")
    seen["points of the picture"] = shape[0] * shape[1]
    for name, value in seen.items():
        print(f"{name:24} {value}")
    return seen


def _start() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("similar images")
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    return builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()


if __name__ == "__main__":
    root = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="pyspark-lance-")
    main(_start(), root)
    print(f"Pictures, and those that look like them: {root}/look_alikes.png")
