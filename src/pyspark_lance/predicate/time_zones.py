"""Conversion between instants and local times for whole arrays, of any year.

Arrow takes the offsets of a zone from the transitions listed in the system's files, which end with
the year 2037 or earlier.  So the transitions are those of Python's ``zoneinfo``, which follows the
rule at the end of such a file; a year that Python does not support gets the offsets of one with the
same calendar.  No I/O except for the files of ``zoneinfo``; no loop over rows.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from itertools import chain, pairwise
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.plain_values import (
    numbers_with_default,
    plain_array,
    plain_numbers,
    plain_values,
)
from pyspark_lance.predicate.types import DATE, TIMESTAMP, TIMESTAMP_NTZ

_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{1,2})?:?(\d{2})?")
_MICROS: Final = 1_000_000
_DAY: Final = 86_400
_WEEK: Final = 7 * _DAY
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# In seconds since 1970. Local times of the very first day may precede the range of datetime.
_FIRST: Final = int((datetime(1, 1, 2, tzinfo=UTC) - _EPOCH).total_seconds())
# Days of the year and of the week repeat every 400 years; later years follow each zone's last rule.
_CYCLE_START: Final = int((datetime(2400, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds())
_CYCLE: Final = 146_097 * _DAY

# Arrow formats the years between these as Spark does; it has 16 bits for a year.
_FIRST_SHOWN: Final = np.datetime64("-9999-01-01")
_LAST_SHOWN: Final = np.datetime64("9999-12-31")


def zone_of(name: str) -> ZoneInfo | timezone:
    """Return the time zone ``name``, such as ``UTC``, ``Europe/Berlin`` or ``+01:30``."""
    if name.upper() in ("Z", "UTC", "GMT", "ETC/UTC"):
        return UTC
    match = _OFFSET.fullmatch(name)
    if match:
        hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if offset <= timedelta(hours=18):
            return timezone(-offset if match[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInputError(
            f"{name!r} is not a time zone",
            hint="use UTC, a region such as Europe/Berlin, or +01:00",
        ) from error


def to_instants(local: pa.Array, time_zone: str) -> pa.Array:
    """Convert zoneless local timestamps of ``time_zone`` to instants.

    As in Java, the offset before a transition applies to ambiguous and skipped local times.
    """
    offsets = _local_offsets(zone_of(time_zone), _seconds(local))
    micros = pc.subtract_checked(local.cast(pa.int64()), plain_array(offsets * _MICROS))
    return micros.cast(TIMESTAMP_NTZ).cast(TIMESTAMP)


def to_local(instants: pa.Array, time_zone: str) -> pa.Array:
    """Convert instants to zoneless local timestamps of ``time_zone``."""
    offsets = _offsets(zone_of(time_zone), _seconds(instants))
    micros = pc.add_checked(instants.cast(pa.int64()), plain_array(offsets * _MICROS))
    return micros.cast(TIMESTAMP_NTZ)


def to_local_seconds(instants: pa.Array, time_zone: str) -> pa.Array:
    """Convert as ``to_local`` does, to whole seconds, which cannot overflow."""
    seconds = _seconds(instants)
    local = seconds + _offsets(zone_of(time_zone), seconds)
    return plain_array(local, plain_numbers(pc.is_null(instants))).cast(pa.timestamp("s"))


def to_local_dates(instants: pa.Array, time_zone: str) -> pa.Array:
    """Convert instants to local dates of ``time_zone``."""
    seconds = _seconds(instants)
    days = (seconds + _offsets(zone_of(time_zone), seconds)) // _DAY
    missing = plain_numbers(pc.is_null(instants))
    return plain_array(days.astype(np.int32), missing).cast(DATE)


def year_of(moments: pa.Array) -> pa.Array:
    """Return the years of dates and of zoneless timestamps; Arrow has 16 bits for them."""
    if pa.types.is_date32(moments.type):
        times = numbers_with_default(0, moments.view(pa.int32())).astype("datetime64[D]")
    elif moments.type == pa.timestamp("s"):
        times = numbers_with_default(0, moments.view(pa.int64())).astype("datetime64[s]")
    else:
        times = _seconds(moments).astype("datetime64[s]")
    years = times.astype("datetime64[Y]")
    return plain_array(years.astype(np.int64) + 1970, plain_numbers(pc.is_null(moments)))


def date_text(dates: pa.Array) -> pa.Array:
    """Format dates as Spark does: years of more than four digits have a sign."""
    days = numbers_with_default(0, dates.view(pa.int32())).astype("datetime64[D]")
    is_far = (days < _FIRST_SHOWN) | (days > _LAST_SHOWN)
    text = dates.cast(pa.string())
    if not is_far.any():
        return text
    far, places = np.unique(days[is_far], return_inverse=True)
    shown = np.char.add(np.where(far > _LAST_SHOWN, "+", ""), np.datetime_as_string(far))
    return pc.replace_with_mask(
        text, plain_array(is_far), plain_values(shown[places].tolist(), pa.string())
    )


def _seconds(moments: pa.Array) -> NDArray[np.int64]:
    """Return whole seconds since 1970, also for null."""
    return numbers_with_default(0, moments.cast(pa.int64())) // _MICROS


def _offsets(zone: ZoneInfo | timezone, seconds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the UTC offsets at instants in seconds, shape (n,)."""
    if isinstance(zone, timezone):
        return np.full(len(seconds), _ahead(zone, 0))
    seconds = _within_years(seconds)
    starts, _, after = _transitions(zone, seconds)
    return after[np.searchsorted(starts, seconds, "right") - 1]


def _local_offsets(zone: ZoneInfo | timezone, local: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the UTC offsets at local times."""
    if isinstance(zone, timezone):
        return np.full(len(local), _ahead(zone, 0))
    local = _within_years(local)
    # Offsets are less than a day.
    starts, before, after = _transitions(zone, np.concatenate([local - _DAY, local + _DAY]))
    # The start of a year may be an ambiguous or skipped local time.
    shown = np.maximum.accumulate(starts + np.maximum(before, after))
    # The first day of all may precede the known transitions; its offset is the first one.
    return after[np.maximum(np.searchsorted(shown, local, "right") - 1, 0)]


def _within_years(seconds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Map times to times with the same offset in the range of ``datetime``."""
    repeated = _CYCLE_START + (seconds - _CYCLE_START) % _CYCLE
    return np.maximum(np.where(seconds >= _CYCLE_START, repeated, seconds), _FIRST)


def _transitions(
    zone: ZoneInfo, seconds: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return transitions in the years of times: when, offsets before, offsets after."""
    years = np.unique(np.maximum(seconds, _FIRST).astype("datetime64[s]").astype("datetime64[Y]"))
    found = [_transitions_of_year(zone, 1970 + year) for year in years.astype(np.int64).tolist()]
    if not found:
        return (np.empty(0, np.int64),) * 3
    starts, before, after = np.concatenate(found).T
    return starts, before, after


@lru_cache(maxsize=4096)
def _transitions_of_year(zone: ZoneInfo, year: int) -> NDArray[np.int64]:
    """Return the start of a year and its transitions: when, offset before, offset after."""
    start = max(int((datetime(year, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()), _FIRST)
    end = int((datetime(year + 1, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds())
    # No zone has a transition that is reversed within a week.
    weeks = [*range(start, end, _WEEK), end - 1]
    found = (_transitions_between(zone, first, last) for first, last in pairwise(weeks))
    times = [start, *chain.from_iterable(found)]
    rows = [(at, _ahead(zone, max(at - 1, _FIRST)), _ahead(zone, at)) for at in times]
    return np.array(rows, np.int64)


def _transitions_between(zone: ZoneInfo, first: int, last: int) -> list[int]:
    """Return the seconds at which the offset changes, after ``first`` and up to ``last``."""
    if _ahead(zone, first) == _ahead(zone, last):
        return []
    if last - first == 1:
        return [last]
    middle = (first + last) // 2
    return _transitions_between(zone, first, middle) + _transitions_between(zone, middle, last)


def _ahead(zone: ZoneInfo | timezone, second: int) -> int:
    """Return the UTC offset at an instant in seconds."""
    offset = (_EPOCH + timedelta(seconds=second)).astimezone(zone).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())
