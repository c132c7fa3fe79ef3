"""Batches of a stream that ``foreachBatch`` writes, with the companion; see ``test_streams.py``."""

from __future__ import annotations

import lance
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.interop]


def run(query):
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def test_a_stream_is_written_batch_by_batch(companion, path, tmp_path):
    source = tmp_path / "in"
    for number in range(3):
        companion.range(number * 10, number * 10 + 10, 1, 1).write.mode("append").parquet(
            str(source)
        )
    stream = (
        companion.readStream.schema("id bigint")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(source))
    )

    def write(frame, number):
        frame.write.format("lance").mode("append").option("txnAppId", "stream").option(
            "txnVersion", number
        ).save(path)

    for _ in range(2):  # the second one finds nothing new
        run(
            stream.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
    assert companion.read.format("lance").load(path).count() == 30
    assert lance.dataset(path).version == 3
