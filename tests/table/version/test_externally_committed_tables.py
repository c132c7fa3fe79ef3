"""Tables whose versions an external manifest store decides: ours, pylance's, and half-made ones."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import external_manifests
import lance
import pyarrow as pa
import pytest
import s3fs
from local_changes import delete_rows
from row_changes import set_to, upsert
from s3_server import s3_server  # noqa: F401
from table_access import append, read_ours

from pyspark_lance.errors import CorruptFileError, InvalidInputError, LanceError
from pyspark_lance.metafile.external_commits import ExternallyCommittedStore
from pyspark_lance.metafile.manifest_file import latest_version, list_versions
from pyspark_lance.metafile.paths import NamingScheme, manifest_path
from pyspark_lance.store.external_manifest_tables import SqliteManifests
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.refs import create_branch, remove_branch
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import (
    WriteSettings,
    commit_write,
    plan_write,
    write_rows,
)


def ids(path, at=None):
    rows = read_ours(path, *([] if at is None else [VersionSpec(version=at)]))
    return sorted(rows["id"].to_pylist())


class DynamoDB:
    """A bucket and a DynamoDB table that both clients reach."""

    def __init__(self, server):
        self.server = server
        self.bucket = server.new_bucket()
        self.table = external_manifests.new_dynamodb_table(server)
        self.client = external_manifests.dynamodb_client(server)
        self.uri = f"s3+ddb://{self.bucket}/warehouse/t?ddbTableName={self.table}"
        self.options = external_manifests.options(server)

    def pylance(self, version=None):
        return lance.dataset(self.uri, version=version, storage_options=self.options)

    def rows(self):
        """Version -> path in the bucket."""
        items = self.client.scan(TableName=self.table)["Items"]
        return {int(item["version"]["N"]): item["path"]["S"] for item in items}

    def objects(self):
        listed = self.server.client().list_objects_v2(Bucket=self.bucket)
        return {one["Key"] for one in listed.get("Contents", ())}

    def unfinish(self, version, *, is_copied=False):
        """The state after a writer died after the second step, or after the third."""
        final = self.rows()[version]
        staged = f"{final}-0ddba115-0000-4000-8000-000000000000"
        source = {"Bucket": self.bucket, "Key": final}
        self.server.client().copy_object(Bucket=self.bucket, Key=staged, CopySource=source)
        if not is_copied:
            self.server.client().delete_object(Bucket=self.bucket, Key=final)
        self.client.update_item(
            TableName=self.table,
            Key={"base_uri": {"S": "warehouse/t"}, "version": {"N": str(version)}},
            UpdateExpression="SET #path = :path",
            ExpressionAttributeNames={"#path": "path"},
            ExpressionAttributeValues={":path": {"S": staged}},
        )


@pytest.fixture
def dynamodb(s3_server, monkeypatch):  # noqa: F811
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server.endpoint)
    monkeypatch.setenv("DYNAMODB_ENDPOINT", s3_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    # s3fs keeps file systems by their arguments, which these credentials are none of.
    s3fs.S3FileSystem.clear_instance_cache()
    return DynamoDB(s3_server)


# With pylance in one table ------------------------------------------------------------------


@pytest.mark.s3
@pytest.mark.interop
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_pylance_and_package_alternately_write_external_table(dynamodb, seed):
    rng = random.Random(seed)
    expected = set(range(12))
    append(dynamodb.uri, 0, 12)
    for step in range(1, 13):
        first = 20 * step
        rows = pa.table({"id": pa.array(range(first, first + 3), pa.int64())})
        gone = rng.choice(sorted(expected))
        match rng.randrange(4):
            case 0:
                append(dynamodb.uri, first)
                expected |= {first, first + 1, first + 2}
            case 1:
                dynamodb.pylance().insert(rows)
                expected |= {first, first + 1, first + 2}
            case 2:
                delete_rows(dynamodb.uri, f"id = {gone}")
                expected -= {gone}
            case _:
                dynamodb.pylance().delete(f"id = {gone}")
                expected -= {gone}
        assert ids(dynamodb.uri) == sorted(expected)
        assert sorted(dynamodb.pylance().to_table()["id"].to_pylist()) == sorted(expected)
    assert dynamodb.pylance().version == max(dynamodb.rows()) == 13
    assert all(path.endswith(".manifest") for path in dynamodb.rows().values())
    assert not [name for name in dynamodb.objects() if ".manifest-" in name]
    dynamodb.pylance().validate()
    assert not verify(Table(dynamodb.uri)).findings


@pytest.mark.s3
@pytest.mark.interop
@pytest.mark.parametrize("is_copied", [False, True])
def test_clients_complete_each_others_half_committed_versions(dynamodb, is_copied):
    append(dynamodb.uri, 0)
    append(dynamodb.uri, 3)
    dynamodb.unfinish(2, is_copied=is_copied)
    assert sorted(dynamodb.pylance().to_table()["id"].to_pylist()) == list(range(6))
    assert dynamodb.rows()[2].endswith(".manifest")
    dynamodb.pylance().insert(pa.table({"id": pa.array([6], pa.int64())}))
    dynamodb.unfinish(3, is_copied=is_copied)
    assert ids(dynamodb.uri) == list(range(7))
    assert dynamodb.rows()[3].endswith(".manifest")
    assert not [name for name in dynamodb.objects() if ".manifest-" in name]
    dynamodb.unfinish(3, is_copied=is_copied)
    assert append(dynamodb.uri, 7) == 4
    assert ids(dynamodb.uri, 3) == list(range(7))


@pytest.mark.s3
def test_missing_staged_manifest_is_corrupt(dynamodb):
    append(dynamodb.uri, 0)
    append(dynamodb.uri, 3)
    dynamodb.unfinish(2)
    (staged,) = [name for name in dynamodb.objects() if ".manifest-" in name]
    dynamodb.server.client().delete_object(Bucket=dynamodb.bucket, Key=staged)
    with pytest.raises(CorruptFileError, match="version 2 is in the external manifest store"):
        ids(dynamodb.uri)


@pytest.mark.s3
@pytest.mark.interop
def test_cleanup_removes_versions_from_external_store(dynamodb):
    for number in range(4):
        append(dynamodb.uri, 3 * number)
    cleanup_old_versions(Table(dynamodb.uri), CleanupPolicy(before_version=3))
    assert sorted(dynamodb.rows()) == [3, 4]
    dynamodb.pylance().cleanup_old_versions(older_than=timedelta(0))
    assert ids(dynamodb.uri) == list(range(12))
    assert append(dynamodb.uri, 12) == 5
    assert dynamodb.pylance().count_rows() == 15


@pytest.mark.s3
def test_concurrent_writers_get_separate_versions(dynamodb):
    append(dynamodb.uri, 0)
    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(lambda n: append(dynamodb.uri, 10 * n), range(1, 9)))
    assert sorted(versions) == list(range(2, 10))
    assert len(ids(dynamodb.uri)) == 27


@pytest.mark.parametrize(
    "uri",
    [
        "s3+ddb://bucket/t",
        "s3+ddb://bucket/t?ddbTableName=",
        "s3+ddb://bucket/t?table=a",
        "s3+ddb://bucket/t?ddbTableName=a&b=c",
    ],
)
def test_uri_without_single_dynamodb_table_is_refused(uri):
    with pytest.raises(InvalidInputError, match="ddbTableName"):
        Table(uri)


def test_unknown_manifest_store_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="sqlite:FILE"):
        Table(str(tmp_path), {"storage.manifest_store": "redis:x"}).store()


# Writers that die, with SQLite --------------------------------------------------------------


class Died(BaseException):
    """The end of a process."""


class DyingVersions(SqliteManifests):
    """An external manifest store whose client dies after, or at, one of its calls."""

    def __init__(self, path, base, dies):
        super().__init__(path, base)
        self._dies = dies

    def insert(self, entry):
        if self._dies == "before insert":
            raise Died
        done = super().insert(entry)
        if self._dies == "after insert":
            raise Died
        return done

    def replace_path(self, entry):
        if self._dies == "after copy":
            raise Died
        super().replace_path(entry)
        if self._dies == "after all but the staged file":
            raise Died


POINTS = {
    "before insert": 1,
    "after insert": 2,
    "after copy": 2,
    "after all but the staged file": 2,
}


def write(table, numbers, **settings):
    """Append ids; return the version."""
    data = pa.table({"id": pa.array(numbers, pa.int64())})
    existing = open_existing(table)
    plan = plan_write(table, data.schema, WriteSettings(**settings), existing=existing)
    return commit_write(plan, write_rows(plan, data.to_batches())).version


def rows(table, **at):
    """The ids, sorted."""
    tasks = plan_scan(Snapshot.open(table, VersionSpec(**at)), ScanRequest())
    return sorted(
        value for task in tasks for batch in task.run() for value in batch["id"].to_pylist()
    )


def sqlite_table(tmp_path):
    return Table(str(tmp_path / "t"), {"storage.manifest_store": f"sqlite:{tmp_path / 'v.db'}"})


@pytest.mark.parametrize("point", POINTS)
def test_later_clients_repair_table_of_killed_writer(point, tmp_path):
    table = sqlite_table(tmp_path)
    write(table, [0, 1])
    # The second version as it would have become, and its writer's end on the way there.
    write(table, [2, 3])
    inner, path = LocalStore(table.root), manifest_path(2, NamingScheme.V2)
    second = bytes(inner.get(path))
    table.store().delete(path)
    dying = DyingVersions(str(tmp_path / "v.db"), inner.uri, point)
    with pytest.raises(Died):
        ExternallyCommittedStore(inner, dying).put_if_absent(path, second)
    assert latest_version(table.store()).version == POINTS[point]
    assert rows(table) == list(range(2 * POINTS[point]))
    assert write(table, [6]) == POINTS[point] + 1
    assert rows(table) == [*range(2 * POINTS[point]), 6]
    cleanup_old_versions(table, CleanupPolicy(before_version=1, delete_unverified=True))
    assert not [one.path for one in inner.list("_versions") if ".manifest-" in one.path]
    assert not verify(table).findings


def test_operations_work_with_external_manifest_store(tmp_path):
    table = sqlite_table(tmp_path)
    path, storage = table.root, {"options": table.storage}
    write(table, [0, 1, 2])
    write(table, [3, 4, 5])
    delete_rows(path, "id = 1", **storage)
    set_to(path, "id = 2", id=20, _arguments=storage)
    upsert(path, pa.table({"id": pa.array([0, 7], pa.int64())}), **storage)
    compact(table)
    assert rows(table) == [0, 3, 4, 5, 7, 20]
    assert rows(table, version=2) == list(range(6))
    create_branch(table, "b")
    assert rows(table.on_branch("b")) == rows(table)
    assert write(table.on_branch("b"), [8]) == write(table, [1], overwrite=True) == 7
    assert rows(table) == [1]
    assert rows(table.on_branch("b")) == [0, 3, 4, 5, 7, 8, 20]
    assert [one.version for one in list_versions(table.store())] == list(range(1, 8))
    assert not verify(table).findings


def test_removed_branch_name_is_reusable(tmp_path):
    table = sqlite_table(tmp_path)
    write(table, [1])
    for number in (2, 3):
        create_branch(table, "b")
        write(table.on_branch("b"), [number])
        assert rows(table.on_branch("b")) == [1, number]
        remove_branch(table, "b")


def test_existing_table_continues_with_external_store(tmp_path):
    plain = str(tmp_path / "t")
    append(plain, 0)
    append(plain, 3)
    table = sqlite_table(tmp_path)
    assert Snapshot.open(table).version == 2
    # A version that the store does not know is not overwritten.
    data = bytes(table.store().get(manifest_path(2, NamingScheme.V2)))
    assert not table.store().put_if_absent(manifest_path(2, NamingScheme.V2), data)
    delete_rows(plain, "id = 1", options=table.storage)
    assert Snapshot.open(table).version == 3
    assert SqliteManifests(str(tmp_path / "v.db"), LocalStore(plain).uri).latest().version == 3


def test_missing_external_store_raises(tmp_path):
    table = Table(str(tmp_path / "t"), {"manifest_store": f"sqlite:{tmp_path}/no/where.db"})
    with pytest.raises(LanceError, match="external manifest store failed"):
        Snapshot.open(table)
