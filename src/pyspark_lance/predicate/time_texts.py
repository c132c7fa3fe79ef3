"""Texts of dates, timestamps and times, as Spark's casts read them, and conversion to local time.

A function returns NULL for a malformed text; ``casts`` makes an error of that. Spark's class is
``SparkDateTimeUtils``.

Instants and local times are converted for whole arrays, of any year. Arrow takes the offsets of a
zone from the transitions listed in the system's files, which end with the year 2037 or earlier. So
the transitions are those of Python's ``zoneinfo``, which follows the rule at the end of such a
file; a year that Python does not support gets the offsets of one with the same calendar.

No I/O except for the files of ``zoneinfo``; no loop over rows.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone
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
    plain_scalar,
    plain_values,
)
from pyspark_lance.predicate.types import DATE, TIME, TIMESTAMP, TIMESTAMP_NTZ

# Characters that UTF8String.trimAll removes: control characters and blanks of the ASCII range.
TRIMMED: Final = "".join(map(chr, range(0x21))) + "\x7f"
_MICROS_PER_HOUR: Final = 3_600_000_000
_MICROS_PER_DAY: Final = 24 * _MICROS_PER_HOUR
_FIRST_DAY: Final = date(1970, 1, 1).toordinal()
# Farther days are no timestamps, in no zone.
_MAX_DAYS: Final = 2**63 // _MICROS_PER_DAY + 2
# Days of the year and of the week repeat every 400 years.
_CYCLE_DAYS: Final = 146_097

_DATE = (
    r"(?P<year>[+-]?[0-9]{4,DIGITS})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})(?:REST)?)?)?"
)
_DATE_TEXT = _DATE.replace("DIGITS", "7").replace("REST", r"[ T](?s:.*)")
# A zone follows seconds only.
_TIME = (
    r"(?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})"
    r"(?:\.(?P<fraction>[0-9]*))?(?P<zone>[^0-9.](?s:.*))?)?)?"
)
_TIMESTAMP_TEXT = _DATE.replace("DIGITS", "6").replace("REST", f"[ T]{_TIME}")
# The day is that of the query.
_ONLY_TIME: Final = r"\A(?:T[0-9]|[0-9]{1,2}:)"
_HALF_OF_DAY: Final = r" *(?P<half>[aApP][mM]) *\z"

# As java.time.ZoneId.SHORT_IDS.
_SHORT_ZONES: Final = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka", "CAT": "Africa/Harare", "CNT": "America/St_Johns",
    "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
    "EST": "-05:00", "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip
_OFFSET: Final = re.compile(
    r"[+-](?:[0-9]|[0-9]{2}|[0-9]{2}[0-5][0-9]|[0-9]{2}:[0-5][0-9]|[0-9]{2}[0-5][0-9][0-5][0-9]"
    r"|[0-9]{2}:[0-5][0-9]:[0-5][0-9])"
)
_REGION: Final = re.compile(r"[A-Za-z][A-Za-z0-9~/._+-]+")
# Names of files of time zones that are no zones of Java.
_NO_REGION: Final = re.compile(
    r"(?:posix|right)/.*|posixrules|localtime|Factory|.*\.\w+|(?:UTC|GMT)[+-].*"
    r"|(?!Etc/UTC)(?i:etc/utc)|(?i:utc|gmt)"
)
# Spark replaces these constants by moments, such as the start of a query.
_MOMENTS: Final = re.compile(r"(?i)\s*(?:epoch|now|today|tomorrow|yesterday)(?:\s+\S.*)?\s*")


def is_name_of_moment(text: str) -> bool:
    """Return whether Spark takes a constant for a moment, such as ``today`` or ``now UTC``."""
    return _MOMENTS.fullmatch(text) is not None


def dates_of(values: pa.Array) -> pa.Array:
    """Return texts as dates; NULL for those that are none."""
    parts = _parts(pc.utf8_trim(values, characters=TRIMMED), _DATE_TEXT)
    days, is_day = _days(parts)
    is_day &= (days >= -(2**31)) & (days < 2**31)
    return plain_array(np.where(is_day, days, 0).astype(np.int32), ~is_day).cast(DATE)


def timestamps_of(values: pa.Array, wanted: pa.DataType, time_zone: str) -> pa.Array:
    """Return texts as timestamps, with a zone or without; NULL for those that are none.

    ``time_zone``: of texts without one; a text without a date has the current day of its zone.
    """
    text = pc.utf8_trim(values, characters=TRIMMED)
    has_day = pc.invert(pc.match_substring_regex(text, _ONLY_TIME)).fill_null(True)
    if not pc.all(has_day).as_py():
        dated = pc.replace_substring_regex(text, r"\AT?", "1970-01-01T")
        # Blanks before T make it another text.
        is_time = pc.or_(pc.starts_with(values, "T"), pc.invert(pc.starts_with(text, "T")))
        text = pc.if_else(has_day, text, pc.if_else(is_time, dated, plain_scalar("", pa.string())))
    parts = _parts(text, _TIMESTAMP_TEXT)
    days, is_valid = _days(parts)
    micros, is_time_of_day = _time_of_day(parts)
    is_valid &= is_time_of_day & (np.abs(days) <= _MAX_DAYS)
    if wanted == TIMESTAMP_NTZ:
        is_valid &= plain_numbers(has_day)
    days = np.where(is_valid, days, 0)
    # So that nothing overflows before the zone is known: clocks repeat with the calendar.
    cycles = np.sign(days) * (np.abs(days) > _MAX_DAYS - 9)
    micros += (days - cycles * _CYCLE_DAYS) * _MICROS_PER_DAY
    local = plain_array(micros, ~is_valid).cast(TIMESTAMP_NTZ)
    zones = pc.if_else(
        local.is_valid(), pc.struct_field(parts, "zone"), plain_scalar(None, pa.string())
    )
    found = _in_zones(local, zones, plain_numbers(has_day), wanted, time_zone)
    return _later(found, cycles) if cycles.any() else found


def _later(moments: pa.Array, cycles: NDArray[np.int64]) -> pa.Array:
    """Return moments so many cycles of the calendar later; NULL for those that do not fit."""
    added = cycles * (_CYCLE_DAYS * _MICROS_PER_DAY)
    micros = numbers_with_default(0, moments.cast(pa.int64()))
    limits = np.iinfo(np.int64)
    fits = (micros <= limits.max - np.maximum(added, 0)) & (
        micros >= limits.min - np.minimum(added, 0)
    )
    missing = ~fits | plain_numbers(moments.is_null())
    return plain_array(np.where(fits, micros + added, 0), missing).cast(moments.type)


def times_of(values: pa.Array) -> pa.Array:
    """Return texts as times of a day; NULL for those that are none."""
    half = pc.struct_field(pc.extract_regex(values, _HALF_OF_DAY), "half")
    values = pc.if_else(
        half.is_valid(), pc.replace_substring_regex(values, _HALF_OF_DAY, ""), values
    )
    text = pc.utf8_trim(values, characters=TRIMMED)
    is_time = pc.or_(pc.starts_with(values, "T"), pc.match_substring_regex(text, r"\A[0-9]{1,2}:"))
    text = pc.replace_substring_regex(text, r"\AT", "")
    parts = _parts(pc.if_else(is_time, text, plain_scalar("", pa.string())), _TIME)
    micros, is_valid = _time_of_day(parts)
    is_valid &= plain_numbers(pc.equal(pc.struct_field(parts, "zone"), "").fill_null(False))
    hour = micros // _MICROS_PER_HOUR
    is_half = plain_numbers(half.is_valid())
    is_valid &= ~is_half | ((hour >= 1) & (hour <= 12))
    is_late = plain_numbers(pc.match_substring_regex(half, "[pP]").fill_null(False))
    hours = np.where(is_half, 12 * is_late - 12 * (hour == 12), 0)
    return plain_array((micros + hours * _MICROS_PER_HOUR) * 1000, ~is_valid).cast(TIME)


def _in_zones(
    local: pa.Array,
    zones: pa.Array,
    has_day: NDArray[np.bool_],
    wanted: pa.DataType,
    time_zone: str,
) -> pa.Array:
    """Return local times of some zones as ``wanted``; NULL where a zone is unknown."""
    found = pa.nulls(len(local), wanted)
    coded = zones.dictionary_encode()
    names = [
        _java_zone(zone.strip(TRIMMED[:-1])) if zone else time_zone
        for zone in coded.dictionary.to_pylist()
    ]
    known = list(dict.fromkeys(name for name in names if name is not None))
    index = dict(zip(known, range(len(known)), strict=True))
    numbers = np.array([*(-1 if name is None else index[name] for name in names), -1])
    numbers = numbers[numbers_with_default(len(names), coded.indices)]
    for number, name in enumerate(known):
        is_here = numbers == number
        rows = plain_array(is_here)
        times = local.filter(rows)
        if wanted == TIMESTAMP:
            times = to_instants(_on_days(times, has_day[is_here], name), name)
        found = pc.replace_with_mask(found, rows, times)
    return found


def _on_days(local: pa.Array, has_day: NDArray[np.bool_], time_zone: str) -> pa.Array:
    """Return local times; those of 1970-01-01 that have no day are of the current one."""
    if has_day.all():
        return local
    today = datetime.now(UTC).astimezone(zone_of(time_zone)).toordinal() - _FIRST_DAY
    micros = plain_numbers(local.cast(pa.int64())) + ~has_day * (today * _MICROS_PER_DAY)
    return plain_array(micros).cast(TIMESTAMP_NTZ)


def _java_zone(name: str) -> str | None:
    """Return the time zone of the Java name ``name``; None if there is none."""
    # As Spark: one digit of hours or of minutes is enough.
    name = re.sub(r"([+-])(\d):", r"\g<1>0\2:", name, count=1)
    name = re.sub(r"([+-])(\d\d):(\d)$", r"\1\2:0\3", name, count=1)
    name = _SHORT_ZONES.get(name, name)
    offset = re.sub(r"\A(?:UTC|GMT|UT)(?=[+-])", "", name)
    if _OFFSET.fullmatch(offset):
        return _offset_within_a_day(offset)
    if name in ("Z", "UTC", "GMT", "UT"):
        return "UTC"
    if not _REGION.fullmatch(name) or _NO_REGION.fullmatch(name):
        return None
    try:
        zone_of(name)
    except InvalidInputError:
        return None
    return name


def _offset_within_a_day(offset: str) -> str | None:
    digits = offset[1:].replace(":", "").rjust(2, "0").ljust(6, "0")
    if int(digits) > 18_00_00:
        return None
    return f"{offset[0]}{digits[:2]}:{digits[2:4]}:{digits[4:]}"


def _parts(text: pa.Array, pattern: str) -> pa.StructArray:
    return pc.extract_regex(text, rf"\A(?:{pattern})\z")


def _number(parts: pa.StructArray, name: str, default: int) -> NDArray[np.int64]:
    text = pc.struct_field(parts, name)
    text = pc.if_else(pc.equal(text, ""), str(default), text)
    text = pc.replace_substring_regex(text, r"\A\+", "").fill_null(str(default))
    return plain_numbers(text.cast(pa.int64()))


def _days(parts: pa.StructArray) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the days since 1970 of years, months and days, and which of them exist."""
    year, month, day = (
        _number(parts, "year", 1970),
        _number(parts, "month", 1),
        _number(parts, "day", 1),
    )
    in_range = (month >= 1) & (month <= 12)
    months = (year - 1970) * 12 + np.where(in_range, month - 1, 0)
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    after = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    days = first + day - 1
    is_valid = plain_numbers(parts.is_valid())
    return days, is_valid & in_range & (day >= 1) & (days < after)


def _time_of_day(parts: pa.StructArray) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return microseconds since midnight, and which of them exist."""
    hour, minute, second = (_number(parts, name, 0) for name in ("hour", "minute", "second"))
    is_valid = plain_numbers(parts.is_valid()) & (hour < 24) & (minute < 60) & (second < 60)
    # Spark cuts digits beyond the microsecond.
    digits = pc.struct_field(parts, "fraction").fill_null("")
    digits = pc.utf8_slice_codeunits(pc.utf8_rpad(digits, 6, "0"), 0, 6)
    seconds = (hour * 60 + minute) * 60 + second
    return seconds * 1_000_000 + plain_numbers(digits.cast(pa.int64())), is_valid


_ZONE_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{1,2})?:?(\d{2})?")
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
    match = _ZONE_OFFSET.fullmatch(name)
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


def day_begun_at(moment: pa.Scalar, time_zone: str) -> tuple[pa.Scalar, bool]:
    """Return the last date whose midnight is not after ``moment``, and whether it is that midnight.

    ``moment``: a timestamp, with a zone or without. ``time_zone``: of the midnights of the former.
    """
    zone = zone_of(time_zone) if moment.type == TIMESTAMP else UTC
    day = moment.value // _MICROS_PER_DAY
    # A zone is at most 18 hours from UTC, and clocks may be put back across a midnight.
    days = np.arange(day - 2, day + 3, dtype=np.int64)
    midnights = days * _DAY
    midnights -= _local_offsets(zone, midnights)
    last = int(np.searchsorted(midnights, moment.value // _MICROS, side="right")) - 1
    is_midnight = int(midnights[last]) * _MICROS == moment.value
    return plain_array(days[last : last + 1].astype(np.int32)).cast(DATE)[0], is_midnight


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
    far, indices = np.unique(days[is_far], return_inverse=True)
    shown = np.char.add(np.where(far > _LAST_SHOWN, "+", ""), np.datetime_as_string(far))
    return pc.replace_with_mask(
        text, plain_array(is_far), plain_values(shown[indices].tolist(), pa.string())
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
