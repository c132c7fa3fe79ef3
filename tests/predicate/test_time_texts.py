"""Texts of dates and times: the forms that Spark's casts accept, and what became of the others."""

# ruff: noqa: E501 - tables of cases read better with few lines

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.predicate.casts import cast_array, cast_or_null
from pyspark_lance.predicate.conditions import evaluate
from pyspark_lance.predicate.parse import parse_predicate

TIMESTAMP, NTZ = pa.timestamp("us", "UTC"), pa.timestamp("us")
LOS_ANGELES = "America/Los_Angeles"
LAST, FIRST = 2**63 - 1, -(2**63)


def noon(hour=12, minute=0, second=0):
    return dt.datetime(2024, 2, 29, hour, minute, second, tzinfo=dt.UTC)


TIMESTAMPS = {
    "2024-02-29": noon(8), "2024-02-29 12": noon(20), "2024-2-29T12:0": noon(20),
    "2024-02-29 12:00:00 Z": noon(), "2024-02-29 12:00:00.Z": noon(), "2024-02-29 12:00:00-1:30": noon(13, 30),
    "2024-02-29 12:00:00PST": noon(20), "2024-02-29 12:00:00+01:02:03": noon(10, 57, 57),
    "2024-02-29 12:00:00UTC+1": noon(11), "\t 2024-02-29 12\x7f": noon(20),
    # A zone follows seconds, and is one of Java's; nothing may be left open.
    "2024-02-29 12:00Z": None, "2024-02-29T": None, "2024-02-29 12:": None, "2024-02-29 12:00:00utc": None,
    "2024-02-29 12:00:00posix/UTC": None, "2024-02-29 12:00:00+19:00": None, "1234567-01-01": None, "": None,
}  # fmt: skip


def test_timestamp_texts_parse_like_spark():
    found = cast_or_null(pa.array([*TIMESTAMPS, None]), TIMESTAMP, LOS_ANGELES).to_pylist()
    assert dict(zip([*TIMESTAMPS, None], found, strict=True)) == {**TIMESTAMPS, None: None}
    for text, wanted in TIMESTAMPS.items():
        one = pa.array([text])
        if wanted is None:
            with pytest.raises(InvalidInputError, match="is not a valid timestamp"):
                cast_array(one, TIMESTAMP, LOS_ANGELES)
        else:
            assert cast_array(one, TIMESTAMP, LOS_ANGELES).to_pylist() == [wanted]


def test_extreme_timestamps_parse_in_every_zone():
    last, first = "+294247-01-10 04:00:54.775807Z", "-290308-12-21T19:59:05.224192Z"
    texts = pa.array([last, first, last.replace("7Z", "8Z"), first.replace("2Z", "1Z")])
    for zone in ("UTC", "Asia/Kathmandu"):
        found = cast_or_null(texts, TIMESTAMP, zone).cast(pa.int64())
        assert found.to_pylist() == [LAST, FIRST, None, None]
    local = pa.array(["+294247-01-10 09:45:54.775807", "+294247-01-10 09:45:54.775808"])
    found = cast_or_null(local, TIMESTAMP, "Asia/Kathmandu").cast(pa.int64())
    assert found.to_pylist() == [LAST, None]
    assert cast_or_null(local, NTZ, "Asia/Kathmandu").null_count == 2


def test_time_without_date_means_today_in_zone():
    texts = pa.array(["T12:30:00", "12:30", " T12:30", "12:30:00+14:00", "12:30:00-12:00"])
    zones = ["UTC", "UTC", None, "+14:00", "-12:00"]
    days = []
    for _ in range(2):
        found = cast_or_null(texts, TIMESTAMP, "UTC")
        days.append([dt.datetime.now(dt.UTC), found.to_pylist()])
    (begin, before), (end, _) = days
    assert before[2] is None and cast_or_null(texts, NTZ).null_count == len(texts)
    for moment, zone in zip(before, zones, strict=True):
        if zone is not None:
            hours = {"UTC": 0, "+14:00": 14, "-12:00": -12}[zone]
            here = dt.timezone(dt.timedelta(hours=hours))
            shown = moment.astimezone(here)
            assert shown.time() == dt.time(12, 30)
            assert shown.date() in (begin.astimezone(here).date(), end.astimezone(here).date())


def test_times_accept_twelve_hour_clock():
    wanted = {
        "12:30": "12:30:00", "T1:2:3.5": "01:02:03.500000", "12:30 am": "00:30:00", "12:30:01PM ": "12:30:01",
        "1:00 pm": "13:00:00", "13:00 pm": None, "0:30 am": None, "pm": None, "12": None, "12:30:00Z": None,
    }  # fmt: skip
    found = cast_or_null(pa.array(list(wanted)), pa.time64("ns")).to_pylist()
    assert [None if value is None else str(value) for value in found] == list(wanted.values())


def test_non_ansi_mode_compares_texts_with_dates():
    batch = pa.record_batch({"s": ["2024-02-29", "x", None, "2024-13-01", "2025 "]})
    for text, wanted in (
        ("s >= DATE'2024-02-29'", [True, None, None, None, True]),
        ("year(s) = 2025", [False, None, None, None, True]),
        ("CAST(s AS timestamp) IS NULL", [False, True, True, True, False]),
    ):
        predicate = parse_predicate(text, batch.schema, ansi=False)
        assert evaluate(predicate, batch).to_pylist() == wanted
        with pytest.raises(InvalidInputError, match="'x' is not a valid"):
            evaluate(parse_predicate(text, batch.schema), batch)


@pytest.mark.parametrize("ansi", [True, False])
@pytest.mark.parametrize("word", ["today", " Now", "tomorrow UTC"])
def test_query_time_words_are_left_to_spark(ansi, word):
    schema = pa.schema({"day": pa.date32()})
    with pytest.raises(InvalidInputError, match=r"df\.where"):
        parse_predicate(f"day < '{word}'", schema, ansi=ansi)
