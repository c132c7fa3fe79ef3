"""Streams into a table: each batch that is not empty becomes one version, exactly once.

The version records the query and the number of the batch, which identify a batch that Spark replays
after a crash, even if there are many newer versions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_lance.commit.application_versions import ApplicationVersion, recorded_version
from pyspark_lance.errors import InvalidInputError, StorageError
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.metafile.manifest_file import (
    ManifestLocation,
    list_versions,
    load_transaction,
    read_manifest,
)
from pyspark_lance.spark.options.parse_options import WriteOptions
from pyspark_lance.spark.source.batch_writer import LanceBatchWriter, with_application
from pyspark_lance.spark.source.clean_errors import clean_errors
from pyspark_lance.spark.source.messages import application_of_task
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.version.snapshot import open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import WritePlan
from pyspark_lance.table.write.write_table import abort_write, commit_write

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0, which passes batches to this class also for a stream
    from pyspark.sql.datasource import DataSourceArrowWriter as DataSourceStreamArrowWriter  # type: ignore[assignment]

logger = logging.getLogger(__name__)

QUERY_PROPERTY = "lance.streaming.queryId"
"""Transaction property: the query of the batch, under the key that lance-spark uses, too."""
BATCH_PROPERTY = "lance.streaming.epochId"
"""Transaction property: the number of the batch."""

_QUERY = "sql.streaming.queryId"
# As many versions as lance-spark searches.
_LOOKED_AT, _PARALLEL_READS = 100, 16


@dataclass
class BatchWritten(WriterCommitMessage):
    """The fragments that one task of a batch wrote.

    Spark creates a new writer for the commit, so the message contains the plan of the write.
    """

    plan: WritePlan
    fragments: tuple[Fragment, ...]
    query: str
    application: str | None = None


class LanceStreamWriter(DataSourceStreamArrowWriter):
    """Stream writer that appends each batch to a table, or replaces all rows.

    ``overwrite``: each batch replaces all rows (output mode ``complete``).
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        _check_options(options)
        self._query = options.streaming_query_id
        self._compact_every = options.compact_every
        self._batches = LanceBatchWriter(options, schema, overwrite=overwrite)

    @clean_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition of a batch as it streams in."""
        context = TaskContext.get()
        own = "" if context is None else context.getLocalProperty(_QUERY) or ""
        written = self._batches.write_fragments(iterator)
        query = self._query or own
        return BatchWritten(self._batches.plan, written, query, application_of_task())

    @clean_errors
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit a batch, unless an earlier attempt already did."""
        written = [message for message in messages if isinstance(message, BatchWritten)]
        if len(written) < len(messages):
            raise StorageError("a task did not report what it wrote; nothing was committed")
        if not written:
            return
        first = written[0]
        if not first.query:
            raise StorageError("Spark did not report the query of a batch; nothing was committed")
        properties = {
            **first.plan.settings.properties,
            **ApplicationVersion(f"stream {first.query}", batchId).properties(),
            QUERY_PROPERTY: first.query,
            BATCH_PROPERTY: str(batchId),
        }
        plan = replace(first.plan, settings=replace(first.plan.settings, properties=properties))
        plan = with_application(plan, first.application)
        fragments = [fragment for batch in written for fragment in batch.fragments]
        if batchId and _is_committed_by_other_writer(
            first.plan.request.table, first.query, batchId
        ):
            abort_write(first.plan, fragments)
        else:
            commit_write(plan, fragments)
        # Also after an earlier commit of the batch, as a crash may have prevented this step.
        if self._compact_every and (batchId + 1) % self._compact_every == 0:
            _compact(first.plan.request.table)

    @clean_errors
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove the files of a failed batch, unless its commit succeeded after all."""
        for message in messages:
            if isinstance(message, BatchWritten):
                abort_write(message.plan, message.fragments)


def _is_committed_by_other_writer(table: Table, query: str, batch: int) -> bool:
    """Return whether a writer that records no batches in the config committed this one.

    lance-spark is such a writer. Only needed for queries that this package has not recorded.
    """
    newest = open_existing(table)
    if newest is None or recorded_version(newest.manifest.config, f"stream {query}") is not None:
        return False
    locations = list_versions(newest.store)[-_LOOKED_AT:]
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        done = list(pool.map(partial(_batch_of, newest.store, query), locations))
    return any(number is not None and number >= batch for number in done)


def _batch_of(store: ObjectStore, query: str, location: ManifestLocation) -> int | None:
    """Return the batch number of a version; None if it is not of this query."""
    try:
        file = read_manifest(store, location, with_indices=False)
    except FileNotFoundError:
        return None  # cleaned up since it was listed
    made = load_transaction(store, file)
    properties = {} if made is None else made.properties
    number = properties.get(BATCH_PROPERTY, "")
    is_ours = properties.get(QUERY_PROPERTY) == query
    return int(number) if is_ours and number.isascii() and number.isdigit() else None


def _check_options(options: WriteOptions) -> None:
    """Check that there are no options of batch writes."""
    if "pyspark_lance.txn_app_id" in options.properties:
        raise InvalidInputError(
            "txnAppId and txnVersion are for single writes; a stream numbers its own batches",
            hint="leave them out; streamingQueryId gives the query another name",
        )
    if options.must_create or options.must_overwrite:
        raise InvalidInputError(
            "writeMode is for single writes: a stream writes to its table again and again",
            hint='leave it out; with outputMode("complete") each batch replaces the one before',
        )


def _compact(table: Table) -> None:
    """Compact small fragments. The rows are committed, so errors are only logged.

    This does not sort a clustered table, which is too much work for the driver.
    """
    try:
        compact(table, CompactionRequest(cluster_by=()))
    except Exception as error:  # noqa: BLE001 - the batch is committed
        logger.warning("%s was not compacted after a batch: %s", table.uri, error)
