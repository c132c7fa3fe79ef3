"""Directory namespaces, by pylance and by this package, alternately."""

from __future__ import annotations

import io
import multiprocessing.pool
import os

import lance
import lance.namespace as lance_namespace
import numpy as np
import pyarrow as pa
import pytest
from directed_store import Director, directed, in_charge, pause
from stale_mount import stale_mount
from table_access import append

from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pyspark_lance.namespace.directory import (
    DirectoryNamespace,
    ManifestTable,
    list_tables,
    with_row,
)
from pyspark_lance.namespace.open_namespace import open_namespace, real_namespace
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version import snapshot as snapshots
from pyspark_lance.table.version.snapshot import open_existing
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


@pytest.fixture
def root(tmp_path):
    (tmp_path / "tables").mkdir()
    return str(tmp_path / "tables")


@pytest.fixture
def ours(root):
    return DirectoryNamespace(Table(root))


@pytest.fixture
def pylance(root):
    return lance_namespace.DirectoryNamespace(root=root)


def create(names: DirectoryNamespace, *name: str, rows: int = 3) -> Table:
    """As the catalog does: the place, the table, its name."""
    table, is_new = names.declare(name)
    assert not is_new  # `register` adds the name
    append(table.root, 0, rows)
    names.register(name, table)
    return table


def create_by_pylance(pylance, *name: str, rows: int = 3) -> None:
    data = io.BytesIO()
    table = pa.table({"id": pa.array(range(rows), pa.int64())})
    with pa.ipc.new_stream(data, table.schema) as stream:
        stream.write_table(table)
    pylance.create_table(lance_namespace.CreateTableRequest(id=list(name)), data.getvalue())


def listed_by_pylance(pylance, *name: str) -> tuple[list[str], list[str]]:
    return (
        sorted(
            pylance.list_namespaces(lance_namespace.ListNamespacesRequest(id=list(name))).namespaces
        ),
        sorted(pylance.list_tables(lance_namespace.ListTablesRequest(id=list(name))).tables),
    )


def listed(names, *name: str) -> tuple[list[str], list[str]]:
    return names.namespaces(name), names.tables(name)


def test_names_of_pylance_are_visible(root, ours, pylance):
    create_by_pylance(pylance, "flat", rows=2)
    pylance.create_namespace(
        lance_namespace.CreateNamespaceRequest(id=["eu"], properties={"owner": "me"})
    )
    pylance.create_namespace(lance_namespace.CreateNamespaceRequest(id=["eu", "north"]))
    create_by_pylance(pylance, "eu", "north", "orders", rows=5)
    assert listed(ours) == (["eu"], ["flat"])
    assert listed(ours, "eu") == (["north"], [])
    assert ours.properties(("eu",)) == {"owner": "me"}
    assert ours.properties(("eu", "north")) == {}
    assert ours.properties(("us",)) is None
    for name, rows in ((("flat",), 2), (("eu", "north", "orders"), 5)):
        assert open_existing(ours.locate(name)).num_rows() == rows
    assert ours.locate(("eu", "orders")) is None
    assert ours.locate(("eu",)) is None


def test_names_are_visible_to_pylance(root, ours, pylance):
    create(ours, "flat", rows=2)
    assert ours.create_namespace(("eu",), {"owner": "me"})
    assert not ours.create_namespace(("eu",), {})
    assert ours.create_namespace(("eu", "north"), {})
    create(ours, "eu", "north", "orders", rows=5)
    assert listed_by_pylance(pylance) == (["eu"], ["flat"])
    assert listed_by_pylance(pylance, "eu") == (["north"], [])
    found = pylance.describe_namespace(lance_namespace.DescribeNamespaceRequest(id=["eu"]))
    assert found.properties == {"owner": "me"}
    described = pylance.describe_table(
        lance_namespace.DescribeTableRequest(id=["eu", "north", "orders"])
    )
    assert lance.dataset(described.location).count_rows() == 5
    lance.dataset(f"{root}/__manifest").validate()
    assert not verify(Table(f"{root}/__manifest")).findings


def test_legacy_directory_is_read_and_extended(root, ours, pylance):
    append(f"{root}/old.lance", 0, 4)
    assert listed(ours) == ([], ["old"])
    assert open_existing(ours.locate(("old",))).num_rows() == 4
    assert not os.path.exists(f"{root}/__manifest")
    create(ours, "new")
    assert listed(ours) == ([], ["new", "old"]) == listed_by_pylance(pylance)
    ours.rename_table(("old",), ("newer",))
    assert listed(ours) == ([], ["new", "newer"]) == listed_by_pylance(pylance)


def test_declared_names_of_pylance_accept_our_tables(ours, pylance):
    pylance.declare_table(lance_namespace.DeclareTableRequest(id=["later"]))
    assert ours.locate(("later",)) == ours.declare(("later",)).table
    create(ours, "later", rows=7)
    found = pylance.describe_table(lance_namespace.DescribeTableRequest(id=["later"]))
    assert lance.dataset(found.location).count_rows() == 7


def test_properties_are_set_and_removed(ours, pylance):
    ours.create_namespace(("eu",), {"a": "1", "b": "2"})
    ours.change_properties(("eu",), {"b": None, "c": "3"})
    found = pylance.describe_namespace(lance_namespace.DescribeNamespaceRequest(id=["eu"]))
    assert found.properties == ours.properties(("eu",)) == {"a": "1", "c": "3"}
    with pytest.raises(NamespaceNotFoundError, match="us"):
        ours.change_properties(("us",), {"a": "1"})


def test_nonempty_namespace_drops_only_with_cascade(root, ours):
    ours.create_namespace(("eu",), {})
    ours.create_namespace(("eu", "north"), {})
    kept = create(ours, "flat")
    table = create(ours, "eu", "north", "orders")
    with pytest.raises(NamespaceNotEmptyError, match="2 tables and namespaces"):
        ours.drop_namespace(("eu",), cascade=False)
    assert open_existing(table) is not None
    assert ours.drop_namespace(("eu",), cascade=True)
    assert not ours.drop_namespace(("eu",), cascade=True)
    assert open_existing(table) is None
    assert listed(ours) == ([], ["flat"])
    assert open_existing(kept) is not None


def test_cascade_drops_nothing_if_location_is_damaged(root, ours):
    ours.create_namespace(("eu",), {})
    table = create(ours, "eu", "orders")
    ManifestTable(Table(f"{root}/__manifest")).change(
        lambda rows: with_row(rows, object_id="eu$t", object_type="table", location="../out")
    )
    with pytest.raises(CorruptFileError, match="is not in the folder"):
        ours.drop_namespace(("eu",), cascade=True)
    assert open_existing(table) is not None and listed(ours, "eu") == ([], ["orders", "t"])


def test_table_requires_existing_namespace(ours):
    for call in (ours.declare, ours.create_namespace):
        arguments = ({},) if call == ours.create_namespace else ()
        with pytest.raises(NamespaceNotFoundError, match="us"):
            call(("us", "orders"), *arguments)
    with pytest.raises(NamespaceNotFoundError, match="us"):
        ours.tables(("us",))


def test_renamed_tables_keep_their_rows(root, ours, pylance):
    ours.create_namespace(("eu",), {})
    create(ours, "eu", "orders", rows=6)
    create(ours, "flat", rows=2)
    ours.rename_table(("eu", "orders"), ("eu", "sales"))
    ours.rename_table(("flat",), ("eu", "flat"))
    ours.rename_table(("eu", "flat"), ("round",))
    assert listed(ours) == (["eu"], ["round"]) == listed_by_pylance(pylance)
    assert listed(ours, "eu") == ([], ["sales"]) == listed_by_pylance(pylance, "eu")
    assert open_existing(ours.locate(("eu", "sales"))).num_rows() == 6
    assert open_existing(ours.locate(("round",))).num_rows() == 2
    with pytest.raises(TableAlreadyExistsError, match="round"):
        ours.rename_table(("eu", "sales"), ("round",))
    with pytest.raises(TableNotFoundError, match="flat"):
        ours.rename_table(("flat",), ("other",))


def test_concurrent_registration_keeps_first_table(ours):
    ours.create_namespace(("eu",), {})
    first, second = ours.declare(("eu", "t")).table, ours.declare(("eu", "t")).table
    assert first != second
    for table in (first, second):
        append(table.root, 0)
    ours.register(("eu", "t"), first)
    with pytest.raises(TableAlreadyExistsError, match="created concurrently"):
        ours.register(("eu", "t"), second)
    assert ours.locate(("eu", "t")) == first


def test_locations_must_be_inside_directory(root, ours, tmp_path):
    assert ours.declare(("t",), f"{root}/some/where").table.root == f"{root}/some/where"
    with pytest.raises(UnsupportedFeatureError, match="are in its own folder"):
        ours.declare(("t",), str(tmp_path / "elsewhere"))
    with pytest.raises(UnsupportedFeatureError, match="are in its own folder"):
        ours.declare(("t",), f"{root}/../elsewhere")


@pytest.mark.parametrize("location", ["../out", "/etc", "a/../../b", "s3://b/c", "", None, "a\0b"])
def test_rows_leading_outside_directory_are_refused(root, ours, location):
    append(os.path.join(os.path.dirname(root), "out"), 0)
    ManifestTable(Table(f"{root}/__manifest")).change(
        lambda rows: with_row(rows, object_id="t", object_type="table", location=location)
    )
    if location == "s3://b/c":  # a folder of that name would be meant
        with pytest.raises((CorruptFileError, InvalidInputError)):
            ours.locate(("t",))
        return
    with pytest.raises(CorruptFileError, match="is not in the folder"):
        ours.locate(("t",))


@pytest.mark.parametrize("part", ["", ".", "..", "a$b", "a/b", "a\\b", "a\0b"])
def test_unsafe_name_parts_are_refused(ours, part):
    for call in (ours.locate, ours.declare, ours.namespaces, ours.drop_table):
        with pytest.raises(InvalidInputError, match="cannot be the name"):
            call((part,))


def test_unknown_manifest_columns_are_kept(root, ours, pylance):
    """Columns that we do not know, and what rows have in them."""
    create_by_pylance(pylance, "first")
    lance.dataset(f"{root}/__manifest").add_columns(pa.field("extra", pa.string()))
    lance.dataset(f"{root}/__manifest").update({"extra": "'kept'"})
    create(ours, "second")
    rows = lance.dataset(f"{root}/__manifest").to_table().to_pylist()
    assert {row["object_id"]: row["extra"] for row in rows} == {"first": "kept", "second": None}
    assert listed(ours) == ([], ["first", "second"]) == listed_by_pylance(pylance)


def test_disabled_manifest_supports_root_tables_only(root):
    names = open_namespace({"path": root, "manifest_enabled": "false"})
    create(names, "flat")
    assert listed(names) == ([], ["flat"])
    assert sorted(os.listdir(root)) == ["flat.lance"]
    with pytest.raises(UnsupportedFeatureError, match="manifest_enabled"):
        names.create_namespace(("eu",), {})
    assert names.drop_table(("flat",)) and not names.drop_table(("flat",))


def test_disabled_listing_registers_all_tables(root):
    names = open_namespace({"root": root, "dir_listing_enabled": "false"})
    append(f"{root}/unnamed.lance", 0)
    table = create(names, "flat")
    assert listed(names) == ([], ["flat"])
    assert table.root.endswith("_flat") and names.locate(("unnamed",)) is None


def test_main_and_default_mean_root_namespace(ours):
    assert real_namespace(ours, ("main",)) == () == real_namespace(ours, ("default",))
    ours.create_namespace(("main",), {})
    assert real_namespace(ours, ("main",)) == ("main",)
    assert real_namespace(ours, ("main", "deep")) == ("main", "deep")


def _make_namespaces(root: str, by: str, seed: int) -> list[str]:
    done = [f"{by}_{seed}_{number}" for number in range(4)]
    if by == "ours":
        names = DirectoryNamespace(Table(root))
        for name in done:
            names.create_namespace((name,), {})
        return done
    pylance = lance_namespace.DirectoryNamespace(root=root)
    made = []
    for name in done:
        for _ in range(50):
            try:
                pylance.create_namespace(lance_namespace.CreateNamespaceRequest(id=[name]))
                break
            except Exception as error:  # noqa: BLE001  # of its own types, all of them
                if "already exists" in str(error).lower():
                    break
        made.append(name)
    return made


def test_concurrent_writers_lose_no_names(root):
    """Three threads, one of them pylance's, from a folder without ``__manifest``."""
    with multiprocessing.pool.ThreadPool(3) as pool:
        jobs = [(root, "ours", 1), (root, "ours", 2), (root, "theirs", 3)]
        made = {name for names in pool.starmap(_make_namespaces, jobs) for name in names}
    assert set(DirectoryNamespace(Table(root)).namespaces(())) == made
    assert len(made) == 12


@pytest.mark.parametrize("seed", range(4))
def test_random_histories_alternate_with_pylance(root, ours, pylance, seed):
    """Both make, drop and look at names by chance; both see the same all the time."""
    rng = np.random.default_rng(seed)
    spaces: set[tuple[str, ...]] = {()}
    tables: dict[tuple[str, ...], int] = {}
    for step in range(25):
        parent = sorted(spaces)[rng.integers(len(spaces))]
        name = (*parent, f"n{step}")
        by_us = bool(rng.integers(2))
        match rng.integers(5):
            case 0 if len(parent) < 3:
                if by_us:
                    assert ours.create_namespace(name, {"step": str(step)})
                else:
                    properties = {"step": str(step)}
                    pylance.create_namespace(
                        lance_namespace.CreateNamespaceRequest(id=list(name), properties=properties)
                    )
                spaces.add(name)
            case 1 | 2:
                tables[name] = step + 1
                if by_us:
                    create(ours, *name, rows=step + 1)
                else:
                    create_by_pylance(pylance, *name, rows=step + 1)
            case 3 if tables:
                gone = sorted(tables)[rng.integers(len(tables))]
                if by_us:
                    assert ours.drop_table(gone)
                else:
                    pylance.drop_table(lance_namespace.DropTableRequest(id=list(gone)))
                del tables[gone]
            case 4 if parent and not any(
                other != parent and other[: len(parent)] == parent for other in (*spaces, *tables)
            ):
                if by_us:
                    assert ours.drop_namespace(parent, cascade=False)
                else:
                    pylance.drop_namespace(lance_namespace.DropNamespaceRequest(id=list(parent)))
                spaces.discard(parent)
    for space in spaces:
        children = [name[-1] for name in spaces if name and name[:-1] == space]
        named = [name[-1] for name in tables if name[:-1] == space]
        assert listed(ours, *space) == (sorted(children), sorted(named))
        assert listed_by_pylance(pylance, *space) == (sorted(children), sorted(named))
    for name, rows in tables.items():
        assert open_existing(ours.locate(name)).num_rows() == rows
        found = pylance.describe_table(lance_namespace.DescribeTableRequest(id=list(name)))
        assert lance.dataset(found.location).count_rows() == rows


def test_names_survive_concurrent_changes_and_cleanup(root, ours):
    create(ours, "one")
    ours.create_namespace(("space",), {})
    create(ours, "space", "two")
    manifest = Table(f"{root}/__manifest")
    made = []

    def others():
        made.append(f"n{len(made)}")
        ours.create_namespace((made[-1],), {})
        cleanup_old_versions(manifest, CleanupPolicy(older_than_s=0))

    def work():
        snapshots._cache.clear()
        assert ours.tables(("space",)) == ["two"]
        assert ours.locate(("one",)) is not None
        ours.change_properties(("space",), {"a": "b"})

    director = Director()
    with directed(), in_charge(director):
        work()
    for number in range(len(director.calls)):
        with directed(), in_charge(Director({number: pause(others)})):
            work()
    assert len(made) == len(director.calls)
    assert sorted(ours.namespaces(())) == sorted([*made, "space"])


def test_directory_moved_during_listing_has_no_tables(tmp_path, root, ours, monkeypatch):
    create(ours, "one")
    real = os.listdir

    def listdir(path):
        if path == root and os.path.isdir(root):
            os.rename(root, tmp_path / "moved")
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", listdir)
        assert list_tables(Table(root)) == []


def test_stale_handles_are_retried_during_listing(root, ours):
    create(ours, "one")
    with stale_mount(root) as mount:
        list_tables(Table(root))
    assert mount.calls
    for number in range(len(mount.calls)):
        with stale_mount(root, {number}):
            assert list_tables(Table(root)) == ["one"]
