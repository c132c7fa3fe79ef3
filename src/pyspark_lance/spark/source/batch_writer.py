"""Batch writes: executors write data files, the driver commits them once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_lance.errors import StorageError, TableAlreadyExistsError
from pyspark_lance.format.column_names import sources_of
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.transaction import APPLICATION_PROPERTY
from pyspark_lance.spark.options.parse_options import WriteOptions
from pyspark_lance.spark.options.write_settings import write_settings
from pyspark_lance.spark.source.clean_errors import clean_errors
from pyspark_lance.spark.source.messages import FragmentsWritten, application_of_task
from pyspark_lance.spark.source.read_plan import version_read
from pyspark_lance.spark.source.worker_overhead import trim_worker_overhead
from pyspark_lance.spark.types.declared_columns import default_columns, defaults_for
from pyspark_lance.spark.types.variant_text import variants_as_text
from pyspark_lance.spark.types.write_schema import stored_schema
from pyspark_lance.table.version.snapshot import open_to_write
from pyspark_lance.table.write.write_plan import WritePlan, plan_write
from pyspark_lance.table.write.write_table import abort_write, commit_write, write_rows


class LanceBatchWriter(DataSourceArrowWriter):
    """Writer that appends to one table or overwrites it.

    ``overwrite``: replace the contents instead of adding to them.
    """

    def __init__(
        self, options: WriteOptions, schema: StructType, *, overwrite: bool, declared: bool = False
    ) -> None:
        options = options.for_columns(schema.names)
        existing = open_to_write(options.table)
        if options.must_create and existing is not None:
            raise TableAlreadyExistsError("the table already exists", where=existing.uri)
        source = None
        if existing is not None and overwrite and not options.allow_older_source:
            source = version_read(schema, options.sources, existing)
        replaced = overwrite and options.replace_where is None
        self._defaults: Mapping[str, pa.Array] = {}
        if existing is not None and not replaced:
            self._defaults = defaults_for(existing.schema, schema.names, options.time_zone)
            filled = default_columns(existing.schema, self._defaults)
            schema = StructType([*schema.fields, *filled])
        self._plan = plan_write(
            options.table,
            stored_schema(
                schema,
                options.column_types,
                existing=existing.schema if existing is not None else None,
                overwrite=replaced,
                keeps_declarations=options.keeps_declarations and not options.overwrite_schema,
                declared=declared,
                case_sensitive=options.case_sensitive,
            ),
            write_settings(options, overwrite=overwrite, source_version=source),
            existing=existing,
        )

    @clean_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition as it streams in."""
        return FragmentsWritten(self.write_fragments(iterator), application_of_task())

    @property
    def plan(self) -> WritePlan:
        """The plan of the write."""
        return self._plan

    def write_fragments(self, iterator: Iterator[pa.RecordBatch]) -> tuple[Fragment, ...]:
        """Write the rows of one partition to new data files."""
        trim_worker_overhead()
        if self._plan.is_done:
            deque(iterator, maxlen=0)  # Spark expects the writer to consume its rows
            return ()
        fields = self._plan.request.schema.fields
        batches = (_table_columns(batch, fields, self._defaults) for batch in iterator)
        return write_rows(self._plan, batches)

    @clean_errors
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the rows of all partitions, in one version."""
        trim_worker_overhead()
        fragments = _fragments_of(messages)
        applications = (
            message.application for message in messages if isinstance(message, FragmentsWritten)
        )
        commit_write(with_application(self._plan, next(applications, None)), fragments)

    @clean_errors
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the files of a failed write.

        Spark also calls this after a failed ``commit``, and with messages missing.
        """
        abort_write(self._plan, _fragments_of(messages, some_missing=True))


def with_application(plan: WritePlan, application: str | None) -> WritePlan:
    """Add the id of the Spark application to the transaction, unless its properties have one."""
    if application is None:
        return plan
    properties = {APPLICATION_PROPERTY: application, **plan.settings.properties}
    return replace(plan, settings=replace(plan.settings, properties=properties))


def _fragments_of(
    messages: Sequence[WriterCommitMessage | None], *, some_missing: bool = False
) -> list[Fragment]:
    fragments: list[Fragment] = []
    for number, message in enumerate(messages):
        if isinstance(message, FragmentsWritten):
            fragments += message.fragments
        elif not some_missing:
            raise StorageError(
                f"partition {number} did not report what it wrote; nothing was committed",
                hint="its rows did not pass through this source's writer; write with df.write",
            )
    return fragments


def _table_columns(
    batch: pa.RecordBatch, fields: Sequence[Field], defaults: Mapping[str, pa.Array]
) -> pa.RecordBatch:
    """Return the columns to store, with names as the table spells them."""
    sources = sources_of([field.name for field in fields], batch.schema.names)
    columns = [
        pa.repeat(defaults[field.name][0], batch.num_rows)
        if field.name in defaults
        else variants_as_text(batch.column(sources[field.name]), field)
        for field in fields
    ]
    return pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields])
