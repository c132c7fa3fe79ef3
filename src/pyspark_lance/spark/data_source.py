"""The data source ``lance``.

Spark imports this module in every session to look up the name, so everything else is imported when
it is used.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from pyspark_lance.errors import LanceError
from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.source.clean_errors import clean_errors
from pyspark_lance.spark.source.worker_overhead import end_quietly, trim_worker_overhead

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

    from pyspark_lance.spark.options.parse_options import ReadOptions, WriteOptions, WriteParameters
    from pyspark_lance.spark.source.batch_reader import LanceBatchReader
    from pyspark_lance.spark.source.batch_writer import LanceBatchWriter
    from pyspark_lance.spark.source.change_feed_reader import LanceChangeReader, PinnedFeed
    from pyspark_lance.spark.source.nearest_reader import LanceNearestReader
    from pyspark_lance.spark.source.read_plan import PushedDown
    from pyspark_lance.spark.source.search_reader import LanceSearchReader
    from pyspark_lance.spark.source.stream_writer import LanceStreamWriter
    from pyspark_lance.spark.sql.metadata_tables import LanceMetadataReader, MetadataRead
    from pyspark_lance.table.version.table_identity import PinnedVersion

end_quietly()


class LanceDataSource(DataSource):
    """``spark.read.format("lance")`` and ``df.write.format("lance")``.

    Spark creates it when it analyses a query, and pickles it with the query: every scan of the
    query reads the version that is current then.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        if keys.PLUGIN not in options:
            from pyspark_lance.spark.source.plugin_state import advise_on_plugin

            advise_on_plugin()
            self._add_site_settings()
        self._pinned: PinnedVersion | None = None
        self._feed: PinnedFeed | None = None
        # An error is ignored here: a write may create the table, and a read raises the error
        # later. A write of the plugin, which sends the application, reads nothing.
        if keys.APPLICATION not in options:
            with contextlib.suppress(LanceError, OSError):
                self._pin()
        trim_worker_overhead()

    def _add_site_settings(self) -> None:
        """Add the settings of Hadoop's files for a path without a host: Spark passes none."""
        from pyspark_lance.store.hadoop_options import has_host, settings_of_site

        # LanceTable has resolved its path by the settings of the session.
        if keys.HADOOP in self.options or has_host(self.options.get("path", "/")):
            return
        settings = settings_of_site()
        if settings:
            import json

            self.options[keys.HADOOP] = json.dumps(settings)

    def __getstate__(self) -> dict[str, Any]:
        """Storage options are among the options, and Spark keeps the pickle."""
        from pyspark_lance.store.storage_options import mask_options

        return {**self.__dict__, "options": (type(self.options), mask_options(dict(self.options)))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        from pyspark_lance.store.storage_options import unmask_options

        kind, options = state["options"]
        self.__dict__.update(state, options=kind(unmask_options(options)))

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "lance"

    @clean_errors
    def schema(self) -> StructType:
        """Return the columns of the pinned version that the options select."""
        about = self._metadata_read()
        if about is not None:
            return about.schema
        from pyspark_lance.spark.options.option_table import is_for_catalog, keep_options
        from pyspark_lance.spark.source.read_plan import spark_schema_of, with_origin

        read = self._read_options()
        if read.may_be_stream:
            from pyspark_lance.spark.options.stream_options import check_stream

            check_stream(self.options, read, lambda: self._pin().version)
        if read.changes is not None:
            from pyspark_lance.spark.source.change_feed_reader import describe_feed, feed_schema_of

            schema = feed_schema_of(read, describe_feed(read, self._pin_feed))
        elif read.nearest is not None:
            from pyspark_lance.spark.source.nearest_reader import nearest_schema_of

            schema = nearest_schema_of(read, self._pin())
        elif read.search is not None:
            from pyspark_lance.spark.source.search_reader import search_schema_of

            schema = search_schema_of(read, read.search, self._pin())
        else:
            schema = spark_schema_of(read, self._pin())
            if read.follows_table and not is_for_catalog(self.options):
                schema = with_origin(schema, self._pin())
        schema = keep_options(schema, self.options)
        trim_worker_overhead()
        return schema

    @clean_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """Plan a scan of the pinned version, or of the changes up to it."""
        trim_worker_overhead()
        return self._reader(schema)

    def _reader(
        self,
        schema: StructType,
        pushed: PushedDown | None = None,
        *,
        keep_dictionaries: bool = False,
        in_parts: bool = False,
    ) -> (
        LanceBatchReader
        | LanceChangeReader
        | LanceMetadataReader
        | LanceNearestReader
        | LanceSearchReader
    ):
        from pyspark_lance.spark.source.batch_reader import LanceBatchReader
        from pyspark_lance.spark.source.read_plan import NOTHING_PUSHED

        self._restore_options(schema)
        about = self._metadata_read()
        if about is not None:
            from pyspark_lance.spark.sql.metadata_tables import LanceMetadataReader

            return LanceMetadataReader(about, schema)
        pushed = pushed or NOTHING_PUSHED
        read = self._read_options()
        read.check_batch()
        if read.changes is not None:
            from pyspark_lance.spark.source.change_feed_reader import LanceChangeReader

            return LanceChangeReader(read, self._pin_feed(), schema, pushed)
        if read.nearest is not None:
            from pyspark_lance.spark.source.nearest_reader import LanceNearestReader

            return LanceNearestReader(
                read, read.nearest, self._pin(), schema, pushed, in_parts=in_parts
            )
        if read.search is not None:
            from pyspark_lance.spark.source.search_reader import LanceSearchReader

            return LanceSearchReader(read, read.search, self._pin(), schema, pushed)
        return LanceBatchReader(
            read, self._pin(), schema, pushed, keep_dictionaries=keep_dictionaries
        )

    @clean_errors
    def writer(self, schema: StructType, overwrite: bool) -> LanceBatchWriter:
        """Plan an append or overwrite."""
        from pyspark_lance.spark.source.batch_writer import LanceBatchWriter

        write, replaces = self._write_options(overwrite)
        return LanceBatchWriter(write, schema, overwrite=replaces)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Follow the table from the version that is newest when the query starts."""
        from pyspark_lance.spark.options.stream_options import StreamOptions, check_no_batch
        from pyspark_lance.spark.source.stream_reader import RefusedStream, stream_reader
        from pyspark_lance.table.version.snapshot import Snapshot

        trim_worker_overhead()
        try:
            self._restore_options(schema)
            about = self._metadata_read()
            if about is not None:
                raise about.not_followed()
            read = self._read_options()
            check_no_batch(self.options)
            stream = StreamOptions.parse(self.options, read)
            return stream_reader(read, stream, Snapshot.open(read.table), schema)
        except (LanceError, OSError) as error:
            return RefusedStream(error)

    @clean_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> LanceStreamWriter:  # noqa: N802
        """Commit each batch of a stream as a version."""
        from pyspark_lance.spark.source.stream_writer import LanceStreamWriter

        write, _ = self._write_options(overwrite)
        return LanceStreamWriter(write, schema, overwrite=overwrite)

    def _write_options(
        self, overwrite: bool, parameters: WriteParameters | None = None
    ) -> tuple[WriteOptions, bool]:
        """Parse the options of a write, and whether it replaces existing rows."""
        from pyspark_lance.spark.options.parse_options import WriteOptions, check_full_overwrite

        trim_worker_overhead()
        about = self._metadata_read(writes=True)
        if about is not None:
            raise about.not_written()
        write = WriteOptions.parse(self.options, parameters)
        replaces = overwrite or write.must_overwrite
        if replaces and write.replace_where is None:
            check_full_overwrite(self.options)
        return write, replaces

    def _metadata_read(self, *, writes: bool = False) -> MetadataRead | None:
        """Return the read of a metadata table, such as the history, if the path names one."""
        if "$" not in self.options.get("path", ""):
            return None
        from pyspark_lance.spark.sql.metadata_tables import metadata_read

        return metadata_read(self.options, writes=writes)

    def _restore_options(self, schema: StructType) -> None:
        """Restore the options of a catalog table from its schema."""
        if "path" not in self.options:
            from pyspark_lance.spark.options.option_table import kept_options

            self.options = {**kept_options(schema), **self.options}

    def _read_options(self) -> ReadOptions:
        from pyspark_lance.spark.options.parse_options import ReadOptions

        return ReadOptions.parse(self.options)

    def _pin(self) -> PinnedVersion:
        """Return the version that this query reads; resolve it once."""
        if self._pinned is None:
            from pyspark_lance.table.version.snapshot import Snapshot
            from pyspark_lance.table.version.table import suggest_paths

            options = self._read_options()
            if options.changes is not None:
                self._pinned = self._pin_feed().pinned
                return self._pinned
            with suggest_paths(options.table):
                snapshot = Snapshot.open(options.table, options.at)
            self._pinned = snapshot.pinned
        return self._pinned

    def _pin_feed(self) -> PinnedFeed:
        """Return the change feed that this query reads; resolve its versions once."""
        if self._feed is None:
            from pyspark_lance.spark.source.change_feed_reader import pin_feed

            self._feed = pin_feed(self._read_options(), None)
        return self._feed
