"""Times that users write: ISO texts, in the zone of the session unless they say another."""

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
    """The zone of the session, which only the plugin tells; UTC without it."""
    return zone_named(options.get(keys.TIME_ZONE))


def session_zone(spark: SparkSession) -> tzinfo:
    """The zone in which a session shows times."""
    return zone_named(session_zone_name(spark))


def session_zone_name(spark: SparkSession) -> str:
    """The name of the zone in which times of texts are meant, as Spark has it."""
    return spark.conf.get("spark.sql.session.timeZone") or "UTC"


def is_ansi(spark: SparkSession) -> bool:
    """Whether the session has the rules of ANSI mode."""
    return spark.conf.get("spark.sql.ansi.enabled") == "true"


def zone_named(name: str | None) -> tzinfo:
    """A time zone of Spark's, ``Europe/Berlin`` or ``+02:00``; UTC if there is none."""
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
    """UTC nanoseconds since 1970 of an ISO time, as an end; without a zone it is in ``zone``.

    A time given to the second or microsecond means its end: commits happen at nanoseconds, and
    who asks for the time that a listing shows means that very version. Listings that keep times
    in doubles show them a little early.
    """
    instant, unit = _instant(text, zone)
    return instant + unit


def parse_starting_timestamp(text: str, *, zone: tzinfo = UTC) -> int:
    """As ``parse_timestamp``, as a start: listings that keep times in doubles round up, too."""
    instant, unit = _instant(text, zone)
    return instant - (_DOUBLE_ERROR_NS if unit else 0)


def instant_of(spark: SparkSession, timestamp: str | datetime | None) -> int | None:
    """UTC nanoseconds since 1970 of a time that a method was given; None for none."""
    if timestamp is None:
        return None
    if isinstance(timestamp, datetime):
        timestamp = timestamp.astimezone().isoformat()
    try:
        return parse_timestamp(timestamp, zone=session_zone(spark))
    except ValueError as error:
        raise InvalidInputError(f"{timestamp!r} is not a time", hint=str(error)) from None


def with_zone(text: str, zone: tzinfo) -> str:
    """The same time with ``zone`` if it says none; what is no ISO time stays as it is."""
    try:
        moment = _iso_time(text)
    except ValueError:
        return text
    return text if moment.tzinfo is not None else moment.replace(tzinfo=zone).isoformat()


def _iso_time(text: str) -> datetime:
    return datetime.fromisoformat(text.strip().replace("Z", "+00:00"))


def _instant(text: str, zone: tzinfo) -> tuple[int, int]:
    """UTC nanoseconds since 1970, and how many later ones are meant as well."""
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
