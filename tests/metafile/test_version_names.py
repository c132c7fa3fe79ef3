"""Versions are found from the names of manifests, newest first, without parsing all of them."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.format.manifest import DETACHED_BIT
from pyspark_lance.metafile import paths as version_names
from pyspark_lance.metafile.manifest_file import (
    latest_version,
    list_versions,
    newest_versions,
    recently_listed_version,
)
from pyspark_lance.metafile.paths import (
    VERSION_HINT,
    VERSIONS,
    NamingScheme,
    manifest_path,
    names_in_history,
    parse_manifest_name,
)
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.memory_store import MemoryStore

OTHERS = (
    VERSION_HINT,
    f"{VERSIONS}/.tmp_1.manifest_0f.part",
    f"{VERSIONS}/removed_18446744073709551600.manifest.part",
    f"{VERSIONS}/18446744073709551600.manifest-2f6b",
    f"{VERSIONS}/folder/18446744073709551600.manifest",
    f"{VERSIONS}/notdigits-notdigits-.manifest",  # as long as a name of V2
    f"{VERSIONS}/00000000000000000000.manifest",
    f"{VERSIONS}/007.manifest",
    f"{VERSIONS}/.manifest",
    manifest_path(DETACHED_BIT | 5, NamingScheme.V2),
    manifest_path(DETACHED_BIT | 10**18, NamingScheme.V2),
)


def versions_of(paths):
    return [name.version for name in names_in_history(MemoryStore(), names_in(paths))]


def names_in(paths):
    return [path.removeprefix(f"{VERSIONS}/") for path in paths]


@pytest.mark.parametrize("scheme", list(NamingScheme))
@pytest.mark.parametrize("count", [0, 1, 3, 16, 17, 40, 1200])
@pytest.mark.parametrize("others", [(), OTHERS], ids=["alone", "among others"])
def test_versions_come_newest_first(scheme, count, others):
    rng = random.Random(f"{scheme} {count}")
    numbers = rng.sample(range(1, 10 * count + 2), count)
    paths = [*(manifest_path(number, scheme) for number in numbers), *others]
    rng.shuffle(paths)
    assert versions_of(paths) == sorted(numbers, reverse=True)


def test_mixed_naming_schemes_in_listing_are_refused():
    paths = [manifest_path(number, NamingScheme.V2) for number in range(1, 40)]
    with pytest.raises(UnsupportedFeatureError, match="both naming schemes"):
        versions_of([*paths, manifest_path(50, NamingScheme.V1)])


def test_newest_versions_parse_only_needed_names(monkeypatch):
    parsed = []

    def parse(name):
        parsed.append(name)
        return parse_manifest_name(name)

    monkeypatch.setattr(version_names, "parse_manifest_name", parse)
    paths = [manifest_path(number, NamingScheme.V2) for number in range(1, 5000)]
    found = itertools.islice(names_in_history(MemoryStore(), names_in(paths)), 2)
    assert [name.version for name in found] == [4999, 4998]
    assert len(parsed) == 2


def test_latest_version_is_found_after_gap(tmp_path):
    # 7 was kept, 8 and 9 were cleaned up: a search for 8 after 7 would stop too early.
    (tmp_path / VERSIONS).mkdir()
    for number in (7, 10, 11):
        (tmp_path / manifest_path(number, NamingScheme.V2)).touch()
    (tmp_path / VERSIONS / "12.manifest").mkdir()  # no object, as in an object store
    store = LocalStore(str(tmp_path))
    assert latest_version(store).version == 11
    assert [one.version for one in newest_versions(store, 2)] == [11, 10]
    assert [one.version for one in list_versions(store)] == [7, 10, 11]


@pytest.fixture
def store(tmp_path):
    """A folder with versions 1 to 3, which this process has listed."""
    (tmp_path / VERSIONS).mkdir()
    for number in (1, 2, 3):
        (tmp_path / manifest_path(number, NamingScheme.V2)).touch()
    store = LocalStore(str(tmp_path))
    assert latest_version(store).version == 3
    return store


def test_recently_listed_version_avoids_listing(store, monkeypatch):
    monkeypatch.setattr(LocalStore, "list_names", None)
    seen = recently_listed_version(LocalStore(store.uri))
    assert seen is not None
    assert (seen.version, seen.path) == (3, manifest_path(3, NamingScheme.V2))


@pytest.mark.parametrize("change", ["followed", "removed", "recreated"])
def test_outdated_listed_version_is_not_used(store, change):
    path = manifest_path(3, NamingScheme.V2)
    if change == "followed":
        store.put(manifest_path(4, NamingScheme.V2), b"")
    elif change == "removed":
        store.delete(path)
    else:
        store.put(path, b"another")
    assert recently_listed_version(store) is None


def test_old_listing_is_not_used(store, monkeypatch):
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    assert recently_listed_version(store) is None


def test_memory_store_is_always_listed():
    store = MemoryStore()
    store.put(manifest_path(1, NamingScheme.V2), b"")
    assert latest_version(store).version == 1
    assert recently_listed_version(store) is None


def test_remote_listing_is_reused_before_put(monkeypatch):
    store = MemoryStore()
    store.cache_key = "bucket", "user"
    store.put(manifest_path(1, NamingScheme.V2), b"")
    assert recently_listed_version(store, put_follows=True) is None
    assert latest_version(store).version == 1
    store.put(manifest_path(2, NamingScheme.V2), b"")
    monkeypatch.setattr(MemoryStore, "list", None)
    monkeypatch.setattr(MemoryStore, "stat", None)
    assert recently_listed_version(store, put_follows=True).version == 1
    assert recently_listed_version(store) is None
    store.cache_key = "bucket", "another user"
    assert recently_listed_version(store, put_follows=True) is None
