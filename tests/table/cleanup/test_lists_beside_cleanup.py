"""Operations that list versions and then read them, beside commits and cleanups."""

from __future__ import annotations

import os
import shutil
import time
from functools import partial
from pathlib import Path

import lance
import pytest
from directed_store import Director, directed, in_charge, pause
from interleaving import sweep, sweep_by_ours
from local_changes import delete_rows
from random_seeds import grid
from row_changes import add_to
from table_access import append, read_batch, read_ours
from temporary_folders import memory_folder

from pyspark_lance.command_line.picture import draw_table
from pyspark_lance.errors import MissingFileError, TableNotFoundError, VersionNotFoundError
from pyspark_lance.table.cdf.change_window import OPEN, Bound, resolve_window
from pyspark_lance.table.cdf.stream import TableStream
from pyspark_lance.table.cdf.stream_offset import BEGINNING, StreamLimits, StreamSettings, Updates
from pyspark_lance.table.cleanup.cleanup import (
    CleanupPolicy,
    cleanup_old_versions,
    find_orphan_files,
    remove_orphan_files,
)
from pyspark_lance.table.history.history import history
from pyspark_lance.table.history.row_history import ancestor_history, row_history
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version import snapshot as snapshots
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


@pytest.fixture(params=[sweep, sweep_by_ours], ids=["by pylance", "by ours"])
def swept(request):
    return request.param


@pytest.fixture
def original():
    """Two versions that add rows and one that deletes some; files that are old."""
    with memory_folder() as folder:
        path = str(folder / "original")
        append(path, 0)
        append(path, 10)
        delete_rows(path, "id = 11")
        make_old(path)
        yield path


def make_old(path):
    then = time.time() - 30 * 86400
    for file in Path(path).rglob("*"):
        if file.is_file() and file.parent.name != "_versions":
            os.utime(file, (then, then))


def at_each_call(original, work, others):
    """Runs ``work`` on copies, with ``others`` before each of its calls; yields the copies."""
    director = Director()
    snapshots._cache.clear()
    with directed(), in_charge(director):
        work(shutil.copytree(original, f"{original}-alone"))
    for number, call in enumerate(director.calls):
        path = shutil.copytree(original, f"{original}-{number}")
        snapshots._cache.clear()
        with directed(), in_charge(Director({number: pause(partial(others, path))})):
            found = work(path)
        yield call, path, found


def ids(path, branch=None):
    snapshots._cache.clear()
    return sorted(read_ours(path, branch=branch)["id"].to_pylist())


def test_orphan_removal_keeps_live_files_during_version_removal(original, swept):
    rows = ids(original)
    for call, path, found in at_each_call(
        original, lambda path: remove_orphan_files(Table(path), older_than_s=8 * 86400), swept
    ):
        assert ids(path) == rows, (call, found)
        assert lance.dataset(path).count_rows() == len(rows)


def test_orphan_listing_excludes_live_files_during_version_removal(original, swept):
    for call, path, found in at_each_call(
        original, lambda path: find_orphan_files(Table(path)), swept
    ):
        there = {one.path for one in found if Path(path, one.path).exists()}
        assert not {one for one in there if one.startswith(("data/", "_deletions/"))}, call


def cleanup(table, *, dry_run=False):
    return cleanup_old_versions(table, CleanupPolicy(retain_versions=1), dry_run=dry_run)


def test_overtaken_cleanup_keeps_files_of_newest_version(original, swept):
    rows = ids(original)
    director = Director()
    snapshots._cache.clear()
    with directed(), in_charge(director):
        cleanup(Table(shutil.copytree(original, f"{original}-alone")))
    calls = director.calls
    first = next(n for n, (name, path) in enumerate(calls) if name == "get_tail")
    for second in range(first + 1, len(calls) + 3):
        path = shutil.copytree(original, f"{original}-{second}")
        make_old(path)
        scene = pause(partial(swept, path))
        with directed(), in_charge(Director({first: scene, second: scene})):
            cleanup(Table(path))
        assert ids(path) == rows, second


def test_overtaken_dry_run_lists_no_live_files(original, swept):
    live = {f"data/{one.name}" for one in Path(original, "data").iterdir()}
    assert len(live) == 2
    for call, _, found in at_each_call(
        original, lambda path: cleanup(Table(path), dry_run=True), swept
    ):
        assert not live & set(found.paths), call


# Reading what is listed --------------------------------------------------------------------


def compact_and_sweep(path):
    lance.dataset(path).optimize.compact_files()
    sweep(path)


OTHERS = {"swept": sweep_by_ours, "compacted": compact_and_sweep}


@pytest.fixture(params=OTHERS)
def others(request):
    return OTHERS[request.param]


@pytest.fixture
def changed(original):
    """One version more, in which a row has other values."""
    add_to(original, "id = 1", "id", 100)
    return original


def test_verify_finds_no_errors_during_removal(changed, others):
    for call, _, found in at_each_call(
        changed, lambda path: verify(Table(path), read_data=True), others
    ):
        assert not found.findings, call
        assert found.version >= 4


def test_verify_reports_confirmed_findings(changed):
    Path(changed, "_refs/tags").mkdir(parents=True)
    Path(changed, "_refs/tags/gone.json").write_text('{"version": 99, "manifestSize": 1}')
    assert [one.kind for one in verify(Table(changed)).findings] == ["dangling_tag"]


def test_version_removed_during_verify_is_missing(changed, others):
    ends = set()
    for _ in at_each_call(changed, lambda path: ends.add(findings_of(path, 3)), others):
        pass
    assert ends == {(), "the table has no version 3"}


def findings_of(path, version):
    try:
        return verify(Table(path), version).findings
    except TableNotFoundError as error:
        return error.what


def test_plot_shows_remaining_versions(changed, others):
    for call, _, found in at_each_call(changed, lambda path: draw_table(Table(path)), others):
        assert found.shapes, call


@pytest.mark.parametrize(
    "look",
    [
        lambda path: history(Table(path)),
        lambda path: history(Table(path), 1),
        lambda path: ancestor_history(Table(path)),
    ],
    ids=["history", "newest", "line"],
)
def test_history_during_removal_has_newest_version(changed, others, look):
    for call, _, found in at_each_call(changed, look, others):
        assert found, call
        assert found[0].version >= 4


def test_row_history_during_removal_has_remaining_states(changed, others):
    for call, _, found in at_each_call(changed, lambda path: row_history(Table(path), 1), others):
        assert [one.version for one in found] in ([4, 1], [4]), call


# A stream, or a window of the feed, may need a version that was removed, and then says so.
TYPED = (VersionNotFoundError, MissingFileError)


def window(path, **bound):
    return resolve_window(Table(path), Bound(**bound), OPEN)


def third_ns(path):
    """Right after the second version was made."""
    return int(history(Table(path))[-2].timestamp.timestamp() * 1e9) + 2000


def streamed(path, most, **settings):
    """The rows of all batches."""
    snapshot = Snapshot.open(Table(path))
    stream = TableStream.of(snapshot, StreamSettings(updates=Updates.SHOWN, **settings))
    if "starting" in settings:
        stream.beginning()
    at, rows = BEGINNING, []
    while (end := stream.latest_offset(at, StreamLimits(rows=most))) != at:
        rows += read_batch(stream, at, end)
        at = end
    return rows


FOLLOWING = {
    "window from a version": lambda path, _: window(path, version=2),
    "window from a time": lambda path, time_ns: window(path, timestamp_ns=time_ns),
    "stream": lambda path, _: streamed(path, None),
    "stream by rows": lambda path, _: streamed(path, 2),
    "stream from the beginning": lambda path, _: streamed(path, 2, starting=Bound(version=0)),
    "stream from a version": lambda path, _: streamed(path, None, starting=Bound(version=2)),
    "stream from a time": lambda path, time_ns: streamed(
        path, None, starting=Bound(timestamp_ns=time_ns)
    ),
    "stream from now": lambda path, _: streamed(path, None, begins_after_newest=True),
}


@pytest.mark.parametrize(
    ("follow", "others"), grid(tuple(FOLLOWING), tuple(OTHERS), step=3), indirect=["others"]
)
def test_followers_get_error_for_removed_versions(changed, others, follow):
    time_ns, ends = third_ns(changed), []

    def once(path):
        try:
            FOLLOWING[follow](path, time_ns)
        except TYPED as error:
            ends.append(error)
        else:
            ends.append(None)

    for _ in at_each_call(changed, once, others):
        pass
    assert None in ends


def test_new_stream_during_removal_begins_with_newest_version(changed, others):
    def first(path):
        stream = TableStream.of(Snapshot.open(Table(path)), StreamSettings(updates=Updates.SHOWN))
        return stream.latest_offset(BEGINNING, StreamLimits(rows=2))

    for call, _, found in at_each_call(changed, first, others):
        assert found.target >= 4, call
