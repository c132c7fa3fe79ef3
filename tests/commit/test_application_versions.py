"""Work that is committed at most once, and the table that applied changes come from."""

from __future__ import annotations

import pytest

from pyspark_lance.commit.application_versions import (
    ApplicationVersion,
    FeedWindow,
    SourceIdentity,
    application_of_source,
    application_version,
    config_with_application_version,
    is_committed,
    keep_application_versions,
)
from pyspark_lance.errors import CorruptFileError, TableReplacedError

FOLLOWS = application_of_source("orders")


def after(*works, config=None):
    """The configuration after some works, whose properties travel in transactions."""
    for work in works:
        config = config_with_application_version(
            config or {}, application_version(work.properties())
        )
    return config


def applied(version, **source):
    return ApplicationVersion(FOLLOWS, version, SourceIdentity(**source) if source else None)


ONCE = applied(5, first="a", applied_us=50)


@pytest.mark.parametrize(
    "work",
    [
        applied(7, first="b"),
        applied(3, first="b"),  # which would be left out
        applied(7, before=5, before_us=51),
        applied(7, first="a", before=5, before_us=51),
    ],
)
def test_changes_of_other_source_table_are_refused(work):
    config = after(ONCE)
    with pytest.raises(TableReplacedError, match="replaced by another one since version 5"):
        is_committed(work, config)
    with pytest.raises(TableReplacedError):
        config_with_application_version(config, work)


@pytest.mark.parametrize(
    "work",
    [
        applied(7),  # of an older release, or without the columns of a feed
        applied(7, first="a"),
        applied(7, before=5, before_us=50),
        applied(7, before=4, before_us=40),
        applied(7, before=5),
    ],
)
def test_changes_of_possibly_same_source_are_accepted(work):
    assert not is_committed(work, after(ONCE))
    assert is_committed(applied(5, first="a"), after(ONCE, work)) is True
    assert is_committed(work, after(ONCE, work))


def test_old_configuration_learns_source_identity():
    config = after(applied(5))
    assert not any("source" in key for key in config)
    later = after(applied(6, first="a", applied_us=60), config=config)
    with pytest.raises(TableReplacedError):
        is_committed(applied(7, before=6, before_us=61), later)


def test_source_identity_keeps_first_version_but_not_times():
    config = after(ONCE, applied(6, applied_us=60), applied(7))
    with pytest.raises(TableReplacedError):
        is_committed(applied(8, first="b"), config)
    assert not is_committed(applied(8, before=7, before_us=71), config)
    assert not is_committed(applied(8, before=5, before_us=51), config)


def test_recreated_target_skips_no_work():
    work = ApplicationVersion("job", 7)
    assert is_committed(work, after(work))
    assert not is_committed(work, {}) and not is_committed(ONCE, {})


def test_restored_table_reapplies_only_changes():
    job = ApplicationVersion("replica", 4, SourceIdentity(first="a"))
    old = after(applied(2, first="a", applied_us=20))
    config = keep_application_versions(old, after(job, ONCE, config=old))
    assert not is_committed(applied(5, before=2, before_us=20), config)
    with pytest.raises(TableReplacedError):
        is_committed(applied(5, before=2, before_us=21), config)
    with pytest.raises(TableReplacedError):
        is_committed(ApplicationVersion("replica", 5, SourceIdentity(first="b")), config)


@pytest.mark.parametrize("text", ["", "[]", '{"when": 5}', "x"])
def test_invalid_source_identity_is_corrupt(text):
    with pytest.raises(CorruptFileError, match="does not identify a table"):
        SourceIdentity.parse(text)


@pytest.mark.parametrize(("applied", "reached"), [(3, 3), (4, 4), (5, 9), (7, 9), (9, 9), (12, 12)])
def test_window_reaches_its_end_after_last_changed_version(applied, reached):
    assert FeedWindow.parse(FeedWindow(5, 9, 90).to_text()).reached(applied) == reached


@pytest.mark.parametrize("text", ["", "[]", '{"end": 5}', "x"])
def test_invalid_feed_window_is_corrupt(text):
    with pytest.raises(CorruptFileError, match="does not describe a change feed"):
        FeedWindow.parse(text)
