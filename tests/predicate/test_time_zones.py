"""Clocks of time zones: those of Python in its years, and Java's rules beyond them."""

from __future__ import annotations

import datetime as dt
import itertools
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_seeds import cases

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.predicate.builder import membership
from pyspark_lance.predicate.conditions import evaluate
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.predicate.time_texts import (
    date_text,
    to_instants,
    to_local,
    to_local_dates,
    to_local_seconds,
    year_of,
)
from pyspark_lance.predicate.tree import Column

ZONES = [
    "America/Los_Angeles", "Asia/Kathmandu", "Europe/Dublin", "Australia/Lord_Howe",
    "Africa/Niamey", "Africa/Casablanca", "America/Sao_Paulo", "Pacific/Apia",
    "UTC", "+05:30", "-18:00",
]  # fmt: skip
IN_CI = ("Europe/Dublin", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia", "-18:00")
MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 29)) | st.datetimes(
    dt.datetime(1850, 1, 1), dt.datetime(2100, 1, 1)
)
LAST = 2**63 - 1
# 400 years, in which days of the year and of the week come back.
CYCLE = 146_097 * 86_400 * 10**6


def python_zone(name):
    if name[0] not in "+-":
        return ZoneInfo(name)
    hours, minutes = int(name[1:3]), int(name[4:])
    return dt.timezone((1 if name[0] == "+" else -1) * dt.timedelta(hours=hours, minutes=minutes))


def instants(*micros):
    return pa.array(micros, pa.int64()).view(pa.timestamp("us", "UTC"))


@pytest.mark.parametrize("zone", cases(ZONES, in_ci=IN_CI))
def test_zone_conversion_equals_python(zone):
    @given(st.lists(st.none() | MOMENTS, max_size=9))
    def check(moments):
        array = pa.array(moments, pa.timestamp("us"))
        known = [one and one.replace(tzinfo=python_zone(zone)) for one in moments]
        found = to_instants(array, zone)
        assert found.to_pylist() == [one and one.astimezone(dt.UTC) for one in known]
        at = [one and one.replace(tzinfo=dt.UTC).astimezone(python_zone(zone)) for one in moments]
        as_instants = array.cast(pa.timestamp("us", "UTC"))
        shown = [one and one.replace(tzinfo=None) for one in at]
        assert to_local(as_instants, zone).to_pylist() == shown
        assert to_local_dates(as_instants, zone).to_pylist() == [one and one.date() for one in at]
        seconds = [one and one.replace(microsecond=0) for one in shown]
        assert to_local_seconds(as_instants, zone).to_pylist() == seconds

    check()


@pytest.mark.parametrize("zone", cases(ZONES, in_ci=IN_CI))
def test_ambiguous_and_missing_local_times_use_earlier_offset(zone):
    """Around each transition of some years, among them those that only a rule defines."""
    name, wanted = python_zone(zone), []
    for year in (1883, 1911, 1912, 1942, 2011, 2024, 2037, 2038, 2199):
        hours = [dt.datetime(year, 1, 1) + dt.timedelta(hours=n) for n in range(-36, 366 * 24)]
        offsets = [one.replace(tzinfo=name).utcoffset() for one in hours]
        for place in range(1, len(hours)):
            if offsets[place] != offsets[place - 1]:
                wanted += [
                    hours[place] + dt.timedelta(minutes=n, microseconds=m)
                    for n in range(-150, 151, 15)
                    for m in (-1, 0, 1)
                ]
    found = to_instants(pa.array(wanted, pa.timestamp("us")), zone).to_pylist()
    assert found == [one.replace(tzinfo=name).astimezone(dt.UTC) for one in wanted]


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Australia/Lord_Howe"])
def test_years_beyond_python_repeat_every_400_years(zone):
    summer, winter = (dt.datetime(9999, month, 9, 8, tzinfo=dt.UTC) for month in (7, 1))
    micros = [int(one.timestamp()) * 10**6 for one in (summer, winter)]
    near = to_local(instants(*micros), zone).cast(pa.int64()).to_pylist()
    assert near[0] - micros[0] != near[1] - micros[1]
    later = [one + 100 * CYCLE for one in micros]
    far = to_local(instants(*later), zone)
    assert far.cast(pa.int64()).to_pylist() == [one + 100 * CYCLE for one in near]
    assert to_instants(far, zone).cast(pa.int64()).to_pylist() == later


def test_extreme_instants_convert_to_dates_and_seconds():
    far = instants(LAST, -LAST - 1, None)
    assert to_local_dates(far, "Asia/Kathmandu").cast(pa.int32()).to_pylist() == [
        106_751_991, -106_751_991, None
    ]  # fmt: skip
    assert to_local_dates(far, "America/Los_Angeles").cast(pa.int32()).to_pylist() == [
        106_751_990, -106_751_992, None
    ]  # fmt: skip
    batch = pa.record_batch({"ts": far})
    for text, expected in (
        ("year(ts) = 294247", [True, False, None]),
        ("hour(ts) = 20", [True, False, None]),
        ("hour(ts) = 12 AND minute(ts) = 6 AND second(ts) = 7", [False, True, None]),
        ("CAST(ts AS date) > DATE'+294247-01-08'", [True, False, None]),
    ):
        predicate = parse_predicate(text, batch.schema, time_zone="America/Los_Angeles")
        assert evaluate(predicate, batch).to_pylist() == expected, text
    with pytest.raises(InvalidInputError, match="does not fit"):
        evaluate(
            parse_predicate("CAST(ts AS timestamp_ntz) IS NULL", batch.schema, time_zone="+01:00"),
            batch,
        )


# Clocks go back at 00:01 in St. John's, and forward at 00:00 in Beirut.
@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns", "Asia/Beirut", "-18:00"])
@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_dates_compare_with_timestamps_as_midnights(zone, kind):
    days = [dt.date(2010, month, day) for month in (3, 11) for day in range(1, 31)]
    batch = pa.record_batch({"d": pa.array([*days, None], pa.date32())})

    def matches(text):
        return evaluate(parse_predicate(text, batch.schema, time_zone=zone), batch).to_pylist()

    moments = [f"2010-{month}-{day} {time}" for month, day in ((3, 28), (11, 6), (11, 7))
               for time in ("00:00", "00:00:00.000001", "23:30", "23:59:59.999999")]  # fmt: skip
    for moment in moments:
        for operator in ("=", "<>", "<", "<=", ">", ">=", "<=>"):
            expected = matches(f"CAST(d AS {kind}) {operator} {kind}'{moment}'")
            assert matches(f"d {operator} {kind}'{moment}'") == expected
    for one, other in itertools.pairwise(moments):
        both = f"({kind}'{one}', DATE'2010-03-05', {kind}'{other}')"
        assert matches(f"d IN {both}") == matches(f"CAST(d AS {kind}) IN {both}")
        between = f"BETWEEN {kind}'{one}' AND {kind}'{other}'"
        assert matches(f"d {between}") == matches(f"CAST(d AS {kind}) {between}")
        assert matches(f"{kind}'{one}' < d") == matches(f"d > {kind}'{one}'")


def test_dates_beyond_timestamps_compare_with_them():
    days = pa.array([2**31 - 1, -(2**31), 106_751_992, 0, None], pa.int32()).cast(pa.date32())
    batch = pa.record_batch({"d": days})
    for text, expected in (
        ("d > TIMESTAMP'2024-01-01'", [True, False, True, False, None]),
        ("d <= TIMESTAMP'+294247-01-10 04:00:54.775807'", [False, True, False, True, None]),
        ("d >= TIMESTAMP_NTZ'-290308-12-21 19:59:05.224192'", [True, False, True, True, None]),
        ("d = TIMESTAMP'2024-01-01 01:00'", [False, False, False, False, None]),
        ("d IN (TIMESTAMP'1970-01-01', NULL)", [None, None, None, True, None]),
        ("d <=> TIMESTAMP'1970-01-01'", [False, False, False, True, False]),
        ("d <=> TIMESTAMP'1970-01-01 01:00'", [False] * 5),
    ):
        predicate = parse_predicate(text, batch.schema, time_zone="UTC")
        assert evaluate(predicate, batch).to_pylist() == expected, text


def test_dates_are_members_of_timestamp_constants():
    batch = pa.record_batch({"d": pa.array([2**31 - 1, 0, 1], pa.int32()).cast(pa.date32())})
    midnights = pa.array([0, 86_400_000_000 + 1], pa.timestamp("us", "UTC"))
    predicate = membership(Column(("d",), pa.date32()), (), midnights)
    assert evaluate(predicate, batch).to_pylist() == [False, True, False]


@pytest.mark.parametrize("text", ["300000-01-01", "9999999-12-31", "-290309-01-01"])
def test_text_beyond_timestamp_range_is_refused(text):
    schema = pa.schema({"ts": pa.timestamp("us", "UTC")})
    with pytest.raises(InvalidInputError):
        parse_predicate(f"ts > TIMESTAMP'{text}'", schema)


def test_extreme_dates_format_like_spark():
    days = [2_932_897, -719_529, -719_528, -800_000, 2**31 - 1, -(2**31), None, 0]
    dates = pa.array(days, pa.int32()).view(pa.date32())
    assert date_text(dates).to_pylist() == [
        "+10000-01-01", "-0001-12-31", "0000-01-01", "-0221-09-04", "+5881580-07-11",
        "-5877641-06-23", None, "1970-01-01",
    ]  # fmt: skip
    assert year_of(dates).to_pylist() == [10_000, -1, 0, -221, 5_881_580, -5_877_641, None, 1970]
    far = pa.array([LAST, -LAST - 1, None]).view(pa.timestamp("us"))
    assert year_of(far).to_pylist() == [294_247, -290_308, None]
    assert len(date_text(dates[:0])) == len(year_of(dates[:0])) == 0
