"""Parse ISO timestamps of users, by default in the time zone of the session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql import SparkSession

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.options import internal_keys as keys

# Half the distance of neighbouring doubles among the nanoseconds since 1970.
_DOUBLE_ERROR_NS = 128


def session_time_zone(options: Mapping[str, str]) -> tzinfo:
    """Return the time zone of the session, which the plugin sends; UTC without the plugin."""
    return zone_named(options.get(keys.TIME_ZONE))


def session_zone(spark: SparkSession) -> tzinfo:
    """Return the time zone of a session."""
    return zone_named(session_zone_name(spark))


def session_zone_name(spark: SparkSession) -> str:
    """Return Spark's name of the time zone of a session."""
    return spark.conf.get("spark.sql.session.timeZone") or "UTC"


def is_ansi(spark: SparkSession) -> bool:
    """Return whether ANSI mode is enabled in the session."""
    return spark.conf.get("spark.sql.ansi.enabled") == "true"


def zone_named(name: str | None) -> tzinfo:
    """Parse a time zone of Spark, ``Europe/Berlin`` or ``+02:00``; UTC for None."""
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        match = re.fullmatch(r"(?:GMT|UTC|UT)?([+-])(\d\d?):?(\d\d)?", name)
        if match is None:
            return UTC
        offset = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
        return timezone(-offset if match[1] == "-" else offset)


def parse_timestamp(text: str, *, zone: tzinfo = UTC) -> int:
    """Parse an ISO timestamp, as an end, into UTC nanoseconds since 1970.

    Without a time zone it is in ``zone``. A time with seconds or microseconds means the end of
    that interval: commits have nanoseconds, and the time that a listing shows must select the
    version. Listings that keep times in doubles round them down a little.
    """
    instant, unit = _instant(text, zone)
    return instant + unit


def parse_starting_timestamp(text: str, *, zone: tzinfo = UTC) -> int:
    """Parse an ISO timestamp as a start; listings that keep times in doubles may round them up."""
    instant, unit = _instant(text, zone)
    return instant - (_DOUBLE_ERROR_NS if unit else 0)


def parse_instant(spark: SparkSession, timestamp: str | datetime | None) -> int | None:
    """Convert an argument of a method to UTC nanoseconds since 1970."""
    if timestamp is None:
        return None
    if isinstance(timestamp, datetime):
        timestamp = timestamp.astimezone().isoformat()
    try:
        return parse_timestamp(timestamp, zone=session_zone(spark))
    except ValueError as error:
        raise InvalidInputError(f"{timestamp!r} is not a time", hint=str(error)) from None


def with_zone(text: str, zone: tzinfo) -> str:
    """Add ``zone`` to an ISO timestamp without a time zone; return other text unchanged."""
    try:
        moment = _iso_time(text)
    except ValueError:
        return text
    return text if moment.tzinfo is not None else moment.replace(tzinfo=zone).isoformat()


def _iso_time(text: str) -> datetime:
    return datetime.fromisoformat(text.strip().replace("Z", "+00:00"))


def _instant(text: str, zone: tzinfo) -> tuple[int, int]:
    """Return UTC nanoseconds since 1970, and the length of the interval that the text means."""
    try:
        moment = _iso_time(text)
    except ValueError:
        try:
            return int(float(text) * 1e9), 0
        except ValueError:
            raise ValueError("use a time such as 2026-11-20 08:00:00, or …+01:00") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    seconds = int(moment.replace(microsecond=0).timestamp())
    return seconds * 10**9 + moment.microsecond * 1000, 999 + _DOUBLE_ERROR_NS
