import json
from datetime import UTC, datetime

import pytest
from damage import bit_flips, splices, survive_every, truncations

from pyspark_lance.errors import CorruptFileError, VersionNotFoundError
from pyspark_lance.metafile.refs_file import (
    Branch,
    Tag,
    list_branches,
    list_tags,
    read_branch,
    read_tag,
    write_tag,
)
from pyspark_lance.store.memory_store import MemoryStore

TAG = {
    "branch": "feat/x",
    "version": 3,
    "createdAt": "2026-11-20T19:41:49.822118521Z",
    "updatedAt": "2026-11-20T19:41:49.822118522Z",
    "manifestSize": 466,
    "metadata": {"k": "v"},
}
BRANCH = {
    "parentBranch": "a",
    "identifier": {"version_mapping": [[2, "36abe37b1bdc458ab2c8d3410e43f005"]]},
    "parentVersion": 2,
    "createAt": 1795203709,
    "manifestSize": 424,
    "metadata": {},
}


def store_with(**files):
    store = MemoryStore("memory://t")
    for name, content in files.items():
        folder, name = name.split("_", 1)
        data = content if isinstance(content, bytes) else json.dumps(content, indent=2).encode()
        store.put(f"_refs/{folder}/{name}.json", data)
    return store


def test_tag_is_read():
    moment = datetime(2026, 11, 20, 19, 41, 49, 822118, UTC)
    expected = Tag("v1", 3, "feat/x", moment, moment, {"k": "v"})
    assert read_tag(store_with(tags_v1=TAG), "v1") == expected


def test_rewritten_tag_keeps_nanosecond_times():
    store = store_with(tags_v1=TAG)
    before = read_tag(store, "v1")
    write_tag(store, before, manifest_size=466, replace=True)
    assert json.loads(bytes(store.get("_refs/tags/v1.json"))) == TAG
    moment = datetime(2026, 12, 1, 12, tzinfo=UTC)
    moved = Tag("v1", 4, None, moment, moment).in_place_of(before)
    assert (moved.createdAt, moved.metadata) == (before.createdAt, {"k": "v"})
    write_tag(store, moved, manifest_size=1, replace=True)
    found = json.loads(bytes(store.get("_refs/tags/v1.json")))
    assert found["createdAt"] == TAG["createdAt"]
    assert found["updatedAt"] == "2026-12-01T12:00:00Z"
    assert read_tag(store, "v1") == moved


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00Z"])
def test_tag_with_invalid_time_is_read_and_preserved(text):
    store = store_with(tags_v1=TAG | {"createdAt": text})
    tag = read_tag(store, "v1")
    assert tag.version == 3 and tag.createdAt is None and tag.updatedAt is not None
    write_tag(store, tag, manifest_size=466, replace=True)
    assert json.loads(bytes(store.get("_refs/tags/v1.json"))) == TAG | {"createdAt": text}


def test_branch_with_invalid_time_is_read():
    store = store_with(branches_c=BRANCH | {"createAt": 10**30})
    assert read_branch(store, "c").createdAt is None


def test_tag_needs_only_version():
    assert read_tag(store_with(tags_v1={"version": 3, "new": [1]}), "v1") == Tag("v1", 3)
    assert read_tag(store_with(tags_v1=TAG | {"branch": None}), "v1").branch is None


def test_branch_is_read():
    store = MemoryStore()
    store.put("_refs/branches/feat%2Fx.json", json.dumps(BRANCH).encode())
    mapping = ((2, "36abe37b1bdc458ab2c8d3410e43f005"),)
    expected = Branch("feat/x", "a", 2, datetime.fromtimestamp(1795203709, UTC), mapping)
    assert read_branch(store, "feat/x") == expected
    assert list_branches(store) == [expected]


def test_references_are_listed_by_name():
    store = store_with(tags_b=TAG, tags_a=TAG, branches_c=BRANCH)
    store.put("_refs/tags/leftover.tmp", b"")
    assert [tag.name for tag in list_tags(store)] == ["a", "b"]
    assert [branch.name for branch in list_branches(store)] == ["c"]
    assert list_tags(MemoryStore()) == []


def test_missing_reference_error_suggests_nearest():
    store = store_with(tags_release=TAG)
    with pytest.raises(VersionNotFoundError, match="did you mean 'release'"):
        read_tag(store, "relaese")
    with pytest.raises(VersionNotFoundError, match="no branch 'x'"):
        read_branch(store, "x")


def test_reference_names_stay_inside_folder():
    store = store_with(tags_v1=TAG)
    store.put("secret.json", json.dumps(TAG).encode())
    with pytest.raises(VersionNotFoundError):
        read_tag(store, "../../secret")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"version": 1e3}',
        b'{"version": true}',
        b'{"version": -3}',
        b'{"version": 0}',
        b'{"version": 18446744073709551616}',
        b'{"version": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"version": 3, "branch": 7}',
        b'{"version": 3, "metadata": "x"}',
        b'{"version": 3, "createdAt": {}}',
        b"{}",
    ],
    ids=lambda content: content[:30].decode("latin-1"),
)
def test_broken_tag_error_names_file(content):
    store = store_with(tags_v1=content)
    with pytest.raises(CorruptFileError, match=r"memory://t/_refs/tags/v1\.json"):
        read_tag(store, "v1")
    with pytest.raises(CorruptFileError):
        list_tags(store)


@pytest.mark.parametrize(
    "change",
    [
        {"parentVersion": None},
        {"createAt": "x"},
        {"identifier": []},
        {"identifier": {"version_mapping": {}}},
        {"identifier": {"version_mapping": [[1]]}},
        {"identifier": {"version_mapping": [["1", "x"]]}},
        {"identifier": {"version_mapping": 7}},
    ],
    ids=str,
)
def test_broken_branches_are_corrupt(change):
    with pytest.raises(CorruptFileError):
        read_branch(store_with(branches_x=BRANCH | change), "x")


def test_damaged_references_are_refused_or_read():
    for content, kind, read in ((TAG, "tags_x", read_tag), (BRANCH, "branches_x", read_branch)):
        data = json.dumps(content).encode()

        def attempt(damaged, kind=kind, read=read):
            read(store_with(**{kind: damaged}), "x")

        assert survive_every(truncations(data), attempt) == len(list(truncations(data)))
        assert survive_every(bit_flips(data, 500), attempt) > 100
        assert survive_every(splices(data, 500), attempt) > 100
