"""How many requests operations make on an object store; what is known is not asked again."""

from __future__ import annotations

import collections
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from directed_store import Director, directed, in_charge
from local_changes import delete_rows, update_rows
from row_changes import upsert
from s3_server import s3_server, s3_table_root  # noqa: F401

from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.metafile import deletion_file
from pyspark_lance.metafile.manifest_file import encode_manifest, list_versions
from pyspark_lance.metafile.paths import NamingScheme, manifest_path
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.store.memory_store import MemoryStore
from pyspark_lance.store.open_store import open_store
from pyspark_lance.store.recently_used import RecentlyUsed
from pyspark_lance.table.cdf.change_feed import ChangeRequest, plan_changes
from pyspark_lance.table.cdf.change_window import Bound, Deduplication, resolve_window
from pyspark_lance.table.rows.write_fragments import write_fragments
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema
from pyspark_lance.table.version import snapshot as snapshots
from pyspark_lance.table.version.snapshot import (
    Snapshot,
    VersionSpec,
    newest_at,
    open_existing,
    version_at,
)
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import WriteSettings, commit_write, plan_write


class CountingStore(MemoryStore):
    """Counts what is read."""

    def __init__(self):
        super().__init__()
        self.reads = 0

    def get_tail(self, path, length):
        self.reads += 1
        return super().get_tail(path, length)


def history(times) -> CountingStore:
    """A table with one version for each commit time."""
    store = CountingStore()
    for version, time in enumerate(times, 1):
        manifest = Manifest(version=version, schema=LanceSchema(), timestamp_ns=time)
        store.put(manifest_path(version, NamingScheme.V2), encode_manifest(manifest, (), None))
    return store


def test_version_by_time_is_found_in_few_reads():
    store = history(range(1000, 3000, 2))
    versions = list_versions(store)
    for time in (1000, 1001, 1500, 2222, 2997, 2998, 2999, 9999):
        store.reads = 0
        assert versions[newest_at(store, time, versions)].version == min((time - 998) // 2, 1000)
        assert store.reads <= 19
    assert newest_at(store, 999, versions) is None
    assert version_at(store, 1500).version == 251


def test_newest_version_wins_among_unordered_timestamps():
    times = [10 * n + (35 if n % 2 else 0) for n in range(1, 200)]
    store = history(times)
    versions = list_versions(store)
    for time in range(9, 2050, 7):
        expected = max((n for n, one in enumerate(times) if one <= time), default=None)
        assert newest_at(store, time, versions) == expected


@pytest.fixture
def counted(s3_table_root, s3_server):  # noqa: F811
    """Count the requests of an action on a table of three fragments."""
    uri, options = f"{s3_table_root}/t", s3_server.options
    for start in range(3):
        append(uri, options, start)

    def count(action) -> dict[str, int]:
        del s3_server.requests[:]
        action(uri, options)
        kinds: collections.Counter[str] = collections.Counter()
        for method, path, *_ in s3_server.requests:
            is_manifest = path.endswith(".manifest")
            is_listing = method == "GET" and "/t/" not in path
            kind = "LIST" if is_listing else method
            kinds[f"{kind} manifest" if is_manifest else kind] += 1
        return dict(kinds)

    return count


def append(uri, options, start):
    return append_rows(
        uri, pa.table({"id": range(10 * start, 10 * start + 10), "v": [0] * 10}), options
    )


def append_rows(uri, table, options=None):
    existing = open_existing(Table(uri, options or {}))
    plan = plan_write(Table(uri, options or {}), table.schema, WriteSettings(), existing=existing)
    return commit_write(plan, write_fragments(plan.request, table.to_batches()))


def scan(uri, options, **at):
    tasks = plan_scan(Snapshot.open(Table(uri, options), VersionSpec(**at)), ScanRequest())
    return [batch for task in tasks for batch in task.run()]


def test_operations_take_expected_requests(counted):
    """At most so many; no manifest that a listing or a plan has named is looked for again."""
    first = {}

    def update(uri, options):
        values = {"columns": ["v"], "values": lambda batch: {"v": batch["id"]}}
        update_rows(uri, "id = 13", **values, options=options)

    def feed(uri, options):
        window = resolve_window(Table(uri, options), Bound(version=2), Bound())
        columns = logical_schema(Snapshot.open(Table(uri, options)).schema).fields
        request = ChangeRequest(window=window, columns=columns, mode=Deduplication.DROP_CARRYOVERS)
        for task in plan_changes(Table(uri, options), columns, request):
            first["rows"] = sum(batch.num_rows for batch in task.run())

    for name, action, most in (
        ("append", lambda *at: append(*at, 3), {"LIST": 2, "GET manifest": 1, "PUT": 2}),
        ("scan", scan, {"LIST": 1, "GET manifest": 1}),
        ("second scan", scan, {"LIST": 1}),
        ("version", lambda *at: scan(*at, version=2), {"HEAD manifest": 1, "GET manifest": 1}),
        ("time", lambda *at: scan(*at, timestamp_ns=2**62), {"LIST": 1, "GET manifest": 4}),
        (
            "delete",
            lambda uri, options: delete_rows(uri, "id = 3", options=options),
            {"LIST": 2, "PUT": 2},
        ),
        ("update", update, {"LIST": 2, "GET manifest": 1, "PUT": 3}),
        ("feed", feed, {"LIST": 3, "GET manifest": 8}),
    ):
        found = counted(action)
        found.pop("GET", 0)  # of data and deletion files
        puts = found.pop("PUT manifest", 0)
        assert puts == ("PUT" in most), (name, found)
        assert all(found[kind] <= most.get(kind, 0) for kind in found), (name, found)
    assert first["rows"]


def test_small_files_take_one_request_each(counted):
    """Footer, descriptions of columns and rows come together, for any condition."""

    def lookup(uri, options):
        snapshot = Snapshot.open(Table(uri, options))
        predicate = parse_predicate("id = 13", predicate_schema(snapshot.schema))
        (task,) = plan_scan(snapshot, ScanRequest(predicate=predicate, parallelism=1))
        assert sum(batch.num_rows for batch in task.run()) == 1

    assert counted(lookup) == {"LIST": 1, "GET manifest": 1, "GET": 3}
    assert counted(scan) == {"LIST": 1, "GET": 3}


def test_many_fragments_are_planned_without_opening_files(
    s3_table_root,  # noqa: F811
    s3_server,  # noqa: F811
):
    """One listing and one read, where there is no data file at all."""
    table, rows = Table(f"{s3_table_root}/t", s3_server.options), pa.table({"id": [1]})
    plan = plan_write(table, rows.schema, WriteSettings(), existing=None)
    (fragment,) = write_fragments(plan.request, rows.to_batches())
    (file,) = fragment.files
    names = [replace(file, path=f"{number:08}.lance") for number in range(1000)]
    commit_write(plan, [replace(fragment, files=(name,)) for name in names])
    open_store(table.root, s3_server.options).delete(f"data/{file.path}")
    snapshots._cache.clear()
    del s3_server.requests[:]
    predicate = parse_predicate("id = 7", predicate_schema(Snapshot.open(table).schema))
    request = ScanRequest(predicate=predicate, fragments_per_task=1)
    assert len(plan_scan(Snapshot.open(table), request)) == 1000
    assert [method for method, *_ in s3_server.requests] == ["GET", "GET", "GET"]


def test_row_in_large_remote_file_takes_four_rounds(tmp_path):
    """A listing, the manifest, the end of the file, and all that the row may need."""
    rng = np.random.default_rng(1)
    rows = pa.table({f"c{column}": rng.random(200_000) for column in range(4)})
    append_rows(str(tmp_path / "t"), rows)
    snapshots._cache.clear()
    director = Director()
    with directed(), in_charge(director):
        snapshot = Snapshot.open(Table(str(tmp_path / "t")))
        predicate = parse_predicate("_rowid = 123456", predicate_schema(snapshot.schema))
        (task,) = plan_scan(snapshot, ScanRequest(predicate=predicate, parallelism=1))
        (batch,) = task.run()
    assert batch.to_pylist() == rows.slice(123_456, 1).to_pylist()
    # Ranges of one call are asked for at once; a distant store says how large what it lists is.
    calls = [name for name, _ in director.calls if name != "stat"]
    assert calls == ["list", "get_tail", "get_tail", "get_ranges"]


def test_planned_commit_takes_three_requests(counted):
    """Two puts and a listing: what the plan has read and listed is not asked for again."""

    def prepared(uri, options):
        table = pa.table({"id": [100], "v": [0]})
        existing = open_existing(Table(uri, options))
        plan = plan_write(Table(uri, options), table.schema, WriteSettings(), existing=existing)
        written = list(write_fragments(plan.request, table.to_batches()))
        counts.update(counted(lambda *_: commit_write(plan, written)))

    counts: dict[str, int] = {}
    counted(prepared)
    assert counts == {"LIST": 1, "PUT": 1, "PUT manifest": 1}


def test_deletion_files_are_read_once_per_process(counted):
    def upsert_all(uri, options):
        source = pa.table({"id": [1, 11, 21], "v": [7, 7, 7]})
        upsert(uri, source, options=options)

    counted(upsert_all)
    known, deletion_file._known = deletion_file._known, RecentlyUsed(1 << 20, lambda _: 1)
    try:
        counted(scan)  # as another process
        gets = [counted(upsert_all).get("GET", 0) for _ in range(2)]
    finally:
        deletion_file._known = known
    # Of the file that the first upsert wrote; the second one's is the only new one.
    assert gets == [1, 1]
    read = []
    counted(lambda uri, options: read.extend(scan(uri, options)))
    assert pa.Table.from_batches(read).filter(pc.field("v") == 7).num_rows == 3


def test_local_append_lists_versions_twice(tmp_path):
    """For the plan, and to confirm what was put: there may be thousands of names."""
    path = str(tmp_path / "t")
    append_rows(path, pa.table({"id": [1]}))
    for _ in range(2):
        director = Director()
        with directed(), in_charge(director):
            append_rows(path, pa.table({"id": [2]}))
        assert director.calls.count(("list", "_versions")) == 2


def test_newest_version_takes_one_page(
    s3_table_root,  # noqa: F811
    s3_server,  # noqa: F811
):
    uri, options = f"{s3_table_root}/t", s3_server.options
    append(uri, options, 0)
    store = open_store(uri, options)
    file = Snapshot.open(Table(uri, options)).file
    for version in range(2, 41):
        manifest = replace(file.manifest, version=version)
        store.put(manifest_path(version, NamingScheme.V2), encode_manifest(manifest, (), None))
    del s3_server.requests[:]
    assert Snapshot.open(Table(uri, options)).version == 40
    assert [method for method, *_ in s3_server.requests] == ["GET", "GET"]
    assert len(list_versions(store)) == 40
    del s3_server.requests[:]
    store = open_store(uri, options | {"s3_client": "s3fs"})  # obstore has no pages of other sizes
    assert len(list(store.list("_versions", first=10))) == 40  # ten, and then the others
    assert [method for method, *_ in s3_server.requests] == ["GET", "GET"]


def test_recreated_table_in_same_second_is_not_cached(
    s3_table_root,  # noqa: F811
    s3_server,  # noqa: F811
):
    """The time of an object on S3 is in whole seconds, and the manifest has the same size."""
    uri, options = f"{s3_table_root}/t", s3_server.options
    found = []
    for start in range(4):
        append(uri, options, start)
        found.append(scan(uri, options)[0]["id"].to_pylist()[0])
        store = open_store(uri, options)
        store.delete_many([info.path for info in store.list("")])
    assert found == [0, 10, 20, 30]
