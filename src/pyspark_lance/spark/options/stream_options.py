"""The options of ``spark.readStream``, in a module that batch reads do not import."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.options.option_table import canonical_options
from pyspark_lance.spark.options.parse_options import (
    LATEST_VERSION,
    ReadOptions,
    parse_count,
    parse_flag,
    parse_option,
    parse_whole,
)
from pyspark_lance.spark.options.times import parse_starting_timestamp, session_time_zone
from pyspark_lance.table.cdf.change_window import Bound, Deduplication, check_start
from pyspark_lance.table.cdf.stream_offset import StreamLimits, StreamSettings, Updates

_NOT_OF_STREAMS = ("version", "timestampAsOf", "tag", "endingVersion", "endingTimestamp",
    "nearest", "search")  # fmt: skip


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a stream."""

    settings: StreamSettings  # The start of the stream, and its content.
    limits: StreamLimits  # The maximum size of a batch.
    # The name under which cleanups keep versions until they are read.
    consumer: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str], read: ReadOptions) -> StreamOptions:
        """Read the options of a stream.

        ``read``: the same, as those of any read.
        """
        canonical, _ = canonical_options(options, "read")
        is_latest = canonical.get("startingVersion", "").strip().lower() == LATEST_VERSION
        starting = Bound(
            None if is_latest else parse_option(canonical, "startingVersion", parse_whole),
            parse_option(
                canonical,
                "startingTimestamp",
                partial(parse_starting_timestamp, zone=session_time_zone(options)),
            ),
        )
        if is_latest and not starting.is_open:
            raise InvalidInputError("startingVersion and startingTimestamp contradict each other")
        settings = StreamSettings(
            starting=starting,
            begins_after_newest=is_latest,
            updates=_updates(canonical, shows_changes=read.changes is not None),
            mode=Deduplication.DROP_CARRYOVERS if read.changes is None else read.changes.mode,
            fails_on_data_loss=parse_option(canonical, "failOnDataLoss", parse_flag) is not False,
        )
        limits = StreamLimits(
            parse_option(canonical, "maxVersionsPerTrigger", parse_count),
            parse_option(canonical, "maxRowsPerTrigger", parse_count),
            parse_option(canonical, "maxBytesPerTrigger", parse_count),
        )
        return cls(settings, limits, canonical.get("consumer"))


def check_stream(options: Mapping[str, str], read: ReadOptions, newest: Callable[[], int]) -> None:
    """Check the options of a stream before it starts.

    A removed starting version is no error here, as a stream with a checkpoint does not need it.
    """
    starting = StreamOptions.parse(options, read).settings.starting
    if starting.version is not None and read.follows_table:
        check_start(read.table.uri, starting.version, newest())


def check_no_batch(options: Mapping[str, str]) -> None:
    """Check that no option requires a batch read, which is unknown when options are parsed."""
    canonical, _ = canonical_options(options, "read")
    for name in _NOT_OF_STREAMS:
        if name in canonical:
            raise InvalidInputError(
                f"streams do not take the option {name}",
                hint="leave it out; set the start with startingVersion or startingTimestamp",
            )


def _updates(options: Mapping[str, str], *, shows_changes: bool) -> Updates:
    skips = parse_option(options, "skipChangeCommits", parse_flag)
    ignores = parse_option(options, "ignoreDeletes", parse_flag)
    if shows_changes:
        if skips or ignores:
            raise InvalidInputError(
                "readChangeFeed contradicts skipChangeCommits and ignoreDeletes",
                hint="leave out one of them",
            )
        return Updates.SHOWN
    if skips:
        return Updates.SKIPPED
    return Updates.DELETES_IGNORED if ignores else Updates.REFUSED
