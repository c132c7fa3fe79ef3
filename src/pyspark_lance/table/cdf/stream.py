"""A table as a stream: how far the next batch goes, and the tasks that read it.

The first snapshot comes as inserts, then the changes of every commit.  ``latest_offset`` decides,
``plan_batch`` only carries out: the same two offsets give the same rows, whatever is newest by
then, as long as the versions between them are there.

Source: docs/format/table-format.md, sections 7, 12.4.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark_lance.metafile.manifest_file import retry_if_removed
from pyspark_lance.table.cdf.batch_ends import beginning, latest_offset
from pyspark_lance.table.cdf.batch_tasks import plan_batch
from pyspark_lance.table.cdf.change_feed import check_change_feed
from pyspark_lance.table.cdf.change_feed_task import ChangeFeedTask
from pyspark_lance.table.cdf.followed_table import FollowedTable
from pyspark_lance.table.cdf.stream_offset import BEGINNING, StreamOffset
from pyspark_lance.table.cdf.stream_settings import BatchView, StreamLimits, StreamSettings
from pyspark_lance.table.version.snapshot import Snapshot


class TableStream(FollowedTable):
    """A table that is followed."""

    __slots__ = ()

    @classmethod
    def of(cls, snapshot: Snapshot, settings: StreamSettings) -> TableStream:
        """The stream that shows the columns of a version."""
        check_change_feed(snapshot)
        return cls(
            snapshot.table,
            snapshot.version,
            snapshot.schema.to_arrow(),
            settings,
            snapshot.identity,
        )

    def newest(self) -> int:
        """The newest version."""
        return self.versions()[-1].version

    def newest_offset(self, start: StreamOffset = BEGINNING) -> StreamOffset:
        """Where a batch of everything ends, with what recognizes table and rows.

        ``start``: what was returned before.
        """

        def look() -> StreamOffset:
            locations = self.versions()
            end = StreamOffset(locations[-1].version)
            return self.identified(self.recognizable(end, start, locations), locations)

        return retry_if_removed(self.table.store(), look)

    def beginning(self) -> StreamOffset:
        """Where the stream begins by what is there now; ``BEGINNING`` if that is not there yet.

        For those that cannot ask for an offset after ``BEGINNING`` and log it: a stream of a
        snapshot begins at ``BEGINNING``, too.
        """
        return retry_if_removed(self.table.store(), lambda: beginning(self))

    def latest_offset(
        self, start: StreamOffset, limits: StreamLimits, newest: int | None = None
    ) -> StreamOffset:
        """Where the batch ends that begins at ``start``; ``start`` itself if there is nothing new.

        ``limits``: how much a batch holds; one row at least. ``newest``: versions after this one do
        not count.
        """
        return retry_if_removed(
            self.table.store(), lambda: latest_offset(self, start, limits, newest)
        )

    def plan_batch(
        self, start: StreamOffset, end: StreamOffset, view: Callable[[Snapshot], BatchView]
    ) -> tuple[ChangeFeedTask, ...]:
        """The tasks that read what is between two offsets; reads no data file."""
        if start == end and start.identity == end.identity:
            return ()
        self.check_cursors(start, end)
        return retry_if_removed(self.table.store(), lambda: plan_batch(self, start, end, view))
