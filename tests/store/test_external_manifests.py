"""Both external manifest stores keep the same promises."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import external_manifests
import pytest
from s3_server import s3_server  # noqa: F401

from pyspark_lance.errors import StorageError
from pyspark_lance.store.external_manifest_tables import (
    DynamoDBManifests,
    ManifestEntry,
    SqliteManifests,
)


@pytest.fixture(params=["sqlite", pytest.param("dynamodb", marks=pytest.mark.s3)])
def opened(request, tmp_path):
    """Open the rows of a table by its key."""
    if request.param == "sqlite":
        return lambda base: SqliteManifests(str(tmp_path / "manifests.db"), base)
    server = request.getfixturevalue("s3_server")
    name = external_manifests.new_dynamodb_table(server)
    return lambda base: DynamoDBManifests(name, base, external_manifests.options(server))


def entry(version, path="v", size=7):
    return ManifestEntry(version, f"_versions/{path}", size)


def test_version_is_inserted_once(opened):
    table = opened("a/b")
    assert table.latest() is None
    assert table.get(1) is None
    assert table.insert(entry(1, "mine"))
    assert not opened("a/b").insert(entry(1, "theirs"))
    assert table.get(1) == table.latest() == entry(1, "mine")


def test_latest_is_highest_version(opened):
    table = opened("a/b")
    for version in (2, 10, 9):
        assert table.insert(entry(version))
    assert table.latest().version == 10


def test_tables_are_isolated(opened):
    assert opened("a/b").insert(entry(1))
    assert opened("a/bc").latest() is None
    assert opened("a").insert(entry(1, "other"))
    assert opened("a/b").get(1) == entry(1)


def test_replace_path_changes_only_existing_version(opened):
    table = opened("a/b")
    table.insert(entry(1, "staged"))
    table.replace_path(entry(1, "final", 9))
    table.replace_path(entry(2, "final"))
    assert table.get(1) == entry(1, "final", 9)
    assert table.get(2) is None


def test_forgotten_versions_can_be_inserted_again(opened):
    table = opened("a/b")
    for version in range(1, 61):
        table.insert(entry(version))
    table.forget([*range(1, 56), 99])
    assert table.get(55) is None
    assert table.get(56) == entry(56)
    assert table.insert(entry(1, "again"))


def test_concurrent_inserts_add_version_once(opened):
    def write(number):
        return opened("a/b").insert(entry(1, f"of {number}"))

    with ThreadPoolExecutor(8) as pool:
        added = list(pool.map(write, range(12)))
    assert sum(added) == 1
    assert opened("a/b").get(1) == entry(1, f"of {added.index(True)}")


@pytest.mark.s3
def test_lost_response_of_own_insert_is_recognised(s3_server):  # noqa: F811
    name = external_manifests.new_dynamodb_table(s3_server)
    table = DynamoDBManifests(name, "a/b", external_manifests.options(s3_server))
    s3_server.lose_answers.append("POST")
    assert table.insert(entry(1, "mine"))
    assert s3_server.lose_answers == []


@pytest.mark.s3
def test_missing_dynamodb_table_error_names_keys_without_secrets(s3_server):  # noqa: F811
    table = DynamoDBManifests("nothing", "a/b", external_manifests.options(s3_server))
    with pytest.raises(StorageError, match="base_uri") as caught:
        table.latest()
    assert s3_server.secret_key not in str(caught.value)


def test_invalid_sqlite_file_error_names_file(tmp_path):
    (tmp_path / "x.db").write_bytes(b"no database" * 100)
    with pytest.raises(StorageError, match="not a database"):
        SqliteManifests(str(tmp_path / "x.db"), "a").latest()
