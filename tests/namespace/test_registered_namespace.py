"""Catalogs by implementations of ``lance_namespace``: Glue, Hive, Unity, Polaris, a user's own."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import traceback
import types

import lance_namespace
import pytest
from catalog_servers import hive_metastore, unity_and_polaris  # noqa: F401
from s3_server import running_server
from table_access import append

from pyspark_lance.errors import (
    InvalidInputError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    StorageError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pyspark_lance.namespace.namespace import ExternalTable
from pyspark_lance.namespace.open_namespace import open_namespace
from pyspark_lance.store.credential_issuer import with_fresh_credentials
from pyspark_lance.table.version.snapshot import open_existing
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop
TOKEN = "s3cr3t-token"


def glue(request, folder):
    server = running_server()
    settings = {
        "namespace": "glue", "region": "us-east-1", "endpoint": server.endpoint,
        "access_key_id": server.access_key, "secret_access_key": server.secret_key,
    }  # fmt: skip
    return settings, ("glue_db",), {"location": str(folder)}


def hive(request, folder):
    uri = request.getfixturevalue("hive_metastore")
    return {"namespace": "hive2", "uri": uri, "root": str(folder)}, ("hive_db",), {}


def unity(request, folder):
    settings = {
        "namespace": "unity", "unity.root": str(folder), "unity.auth_token": TOKEN,
        "unity.endpoint": request.getfixturevalue("unity_and_polaris"),
    }  # fmt: skip
    return settings, ("main_catalog", "eu"), {}


def polaris(request, folder):
    settings = {
        "namespace": "polaris", "polaris.root": str(folder), "polaris.auth_token": TOKEN,
        "polaris.endpoint": request.getfixturevalue("unity_and_polaris"),
    }  # fmt: skip
    return settings, ("main_catalog", "eu"), {}


def iceberg(request, folder):
    server = request.getfixturevalue("unity_and_polaris")
    settings = {
        "namespace": "iceberg", "root": str(folder), "auth_token": TOKEN,
        "endpoint": f"{server}/api/catalog",
    }  # fmt: skip
    return settings, ("main_catalog", "us"), {}


CATALOGS = [
    glue,
    pytest.param(hive, marks=[pytest.mark.spark, pytest.mark.slow]),
    unity,
    polaris,
    iceberg,
]


@pytest.fixture(params=CATALOGS, ids=lambda make: make.__name__)
def catalog(request, tmp_path):
    """The catalog, the name of a namespace and the properties that it needs, and a folder."""
    settings, parent, properties = request.param(request, tmp_path)
    names = open_namespace(settings)
    yield names, parent, properties, tmp_path
    if names.properties(parent) is not None:
        names.drop_namespace(parent, cascade=True)


def test_catalog_creates_describes_lists_and_drops_namespaces(catalog):
    names, parent, properties, _ = catalog
    assert names.properties(()) is not None and names.properties(parent) is None
    assert names.create_namespace(parent, {**properties, "comment": "Europe", "a": "1"})
    assert not names.create_namespace(parent, properties)
    described = names.properties(parent)
    assert described["comment"] == "Europe" and described["a"] == "1"
    assert parent[-1] in names.namespaces(parent[:-1])
    assert names.tables(parent) == [] and names.namespaces(parent) == []
    with pytest.raises(UnsupportedFeatureError, match="properties"):
        names.change_properties(parent, {"a": "2"})
    names.declare((*parent, "t"))
    with pytest.raises(NamespaceNotEmptyError):
        names.drop_namespace(parent, cascade=False)
    assert names.drop_namespace(parent, cascade=True)
    assert names.properties(parent) is None
    assert not names.drop_namespace(parent, cascade=False)


def add_foreign_table(names, parent, name):
    """Create a table of another format, with the client of the catalog."""
    connection = names.catalog.connect()
    kind = names.catalog.implementation
    if kind == "glue":
        connection.glue.create_table(DatabaseName=parent[-1], TableInput={"Name": name})
    elif kind == "hive2":
        from thrift_files.libraries.thrift_hive_metastore_client import ttypes

        stored = ttypes.StorageDescriptor(cols=[], serdeInfo=ttypes.SerDeInfo())
        table = ttypes.Table(tableName=name, dbName=parent[-1], sd=stored, parameters={})
        with connection.client as client:
            client.create_table(table)
    elif kind == "unity":
        catalog, schema = parent
        body = {"catalog_name": catalog, "schema_name": schema, "name": name}
        connection.rest_client.post("/tables", {**body, "data_source_format": "DELTA"})
    else:
        place = f"/v1/{parent[0]}/namespaces/{parent[1]}/tables"
        connection.rest_client.post(place, {"name": name, "properties": {}})


def drop_foreign_table(names, parent, name):
    connection = names.catalog.connect()
    kind = names.catalog.implementation
    if kind == "glue":
        connection.glue.delete_table(DatabaseName=parent[-1], Name=name)
    elif kind == "hive2":
        with connection.client as client:
            client.drop_table(parent[-1], name, deleteData=False)
    elif kind == "unity":
        connection.rest_client.delete(f"/tables/{'.'.join((*parent, name))}")
    else:
        connection.rest_client.delete(f"/v1/{parent[0]}/namespaces/{parent[1]}/tables/{name}")


def test_cascade_keeps_all_beside_tables_of_other_formats(catalog):
    names, parent, properties, _ = catalog
    names.create_namespace(parent, properties)
    add_foreign_table(names, parent, "logs")
    with pytest.raises(NamespaceNotEmptyError):
        names.drop_namespace(parent, cascade=False)
    table = names.declare((*parent, "t")).table
    append(table.root, 0, 5)
    add_foreign_table(names, parent, "more")
    with pytest.raises(
        UnsupportedFeatureError, match=r"not Lance tables: [^$]*logs, [^$]*more"
    ) as caught:
        names.drop_namespace(parent, cascade=True)
    assert "nothing was dropped" in str(caught.value)
    assert names.tables(parent) == ["t"] and open_existing(table).num_rows() == 5
    for name in ("logs", "more"):
        drop_foreign_table(names, parent, name)
    assert names.drop_namespace(parent, cascade=True)
    assert names.properties(parent) is None and open_existing(table) is None


def test_cascade_checks_inner_namespaces_before_drops(request, tmp_path):
    settings, parent, _ = polaris(request, tmp_path)
    names = open_namespace(settings)
    inner = (*parent, "north")
    for namespace in (parent, inner, (*inner, "pole")):
        assert names.create_namespace(namespace, {})
    table = names.declare((*inner, "t")).table
    append(table.root, 0, 5)
    names.catalog.connect().rest_client.post(
        "/v1/main_catalog/namespaces/eu.north/tables", {"name": "logs"}
    )
    for whole, message in (
        (parent, r"not Lance tables: main_catalog.eu.north.logs\n"),
        (parent[:1], "main_catalog is no namespace that can be dropped"),
    ):
        with pytest.raises(UnsupportedFeatureError, match=message):
            names.drop_namespace(whole, cascade=True)
    assert open_existing(table).num_rows() == 5
    drop_foreign_table(names, ("main_catalog", "eu.north"), "logs")
    assert names.drop_namespace(parent, cascade=True) and open_existing(table) is None


def test_cascade_drops_nothing_if_a_table_fails(catalog, monkeypatch):
    names, parent, properties, _ = catalog
    names.create_namespace(parent, properties)
    tables = [names.declare((*parent, name)).table for name in ("a", "b")]
    append(tables[0].root, 0, 5)
    connection = names.catalog.connect()
    describe = connection.describe_table

    def fail(request):
        if request.id[-1] == "b":
            raise RuntimeError("access denied")
        return describe(request)

    with monkeypatch.context() as patched:
        patched.setattr(connection, "describe_table", fail)
        with pytest.raises(StorageError, match="access denied"):
            names.drop_namespace(parent, cascade=True)
    assert names.tables(parent) == ["a", "b"] and open_existing(tables[0]).num_rows() == 5


def test_missing_names_are_none_and_missing_parents_raise(catalog):
    names, parent, properties, _ = catalog
    assert names.locate((*parent, "t")) is None  # nor is there the namespace
    for call in (lambda: names.tables(parent), lambda: names.declare((*parent, "t"))):
        with pytest.raises(NamespaceNotFoundError, match=parent[-1]):
            call()
    names.create_namespace(parent, properties)
    assert names.locate((*parent, "t")) is None
    assert not names.drop_table((*parent, "t"))
    with pytest.raises(TableNotFoundError):
        names.rename_table((*parent, "t"), (*parent, "u"))
    with pytest.raises(InvalidInputError, match="cannot be the name"):
        names.declare((*parent, "a/b"))


def test_drop_table_removes_files_only_at_catalog_location(catalog):
    names, parent, properties, folder = catalog
    names.create_namespace(parent, properties)
    placed, is_new = names.declare((*parent, "managed"))
    given = names.declare((*parent, "external"), str(folder / "elsewhere")).table
    assert is_new and not names.declare((*parent, "managed")).is_new
    for table in (placed, given):
        append(table.root, 0, 5)
    assert names.tables(parent) == ["external", "managed"]
    for again in (names.locate((*parent, "managed")), names.declare((*parent, "managed")).table):
        assert again.root.removeprefix("file:") == placed.root  # Hive makes it a URI
    assert open_existing(names.locate((*parent, "external"))).num_rows() == 5
    assert isinstance(names.locate((*parent, "external")), ExternalTable)
    assert not isinstance(names.locate((*parent, "managed")), ExternalTable)
    with pytest.raises(UnsupportedFeatureError, match=r"cannot be renamed[^$]*CREATE TABLE"):
        names.rename_table((*parent, "managed"), (*parent, "new"))
    for name in ("managed", "external"):
        assert names.drop_table((*parent, name)) and not names.drop_table((*parent, name))
    assert names.tables(parent) == []
    assert open_existing(placed) is None and open_existing(given).num_rows() == 5
    # The name is free again.
    append(names.declare((*parent, "managed")).table.root, 0, 3)
    assert open_existing(names.locate((*parent, "managed"))).num_rows() == 3


def test_undeclare_removes_names_without_tables_only(catalog):
    names, parent, properties, _ = catalog
    names.create_namespace(parent, properties)
    append(names.declare((*parent, "written")).table.root, 0, 5)
    names.declare((*parent, "declared"))
    for name in ("written", "declared", "missing"):
        names.undeclare((*parent, name))
    assert names.tables(parent) == ["written"]


def test_errors_name_catalog_and_hide_secrets(catalog, monkeypatch):
    names, parent, _, _ = catalog
    assert TOKEN not in repr(names)
    connection = names.catalog.connect()

    def fail(*given):
        raise RuntimeError(f"no route for {dict(names.catalog.properties)}")

    for operation in ("describe_table", "list_tables", "describe_namespace", "list_namespaces"):
        monkeypatch.setattr(connection, operation, fail, raising=False)
    calls = (
        lambda: names.locate((*parent, "t")),
        lambda: names.tables(()),
        lambda: names.properties(()),
        lambda: names.namespaces(()),
    )
    for call in calls:
        with pytest.raises(StorageError, match="lance_namespace implementation") as caught:
            call()
        text = "".join(traceback.format_exception(caught.value))
        assert "no route" in text and "check the settings of the catalog" in text
        secrets = [value for name, value in names.catalog.properties.items() if "token" in name]
        secrets += [names.catalog.properties.get("secret_access_key", TOKEN)]
        assert not [secret for secret in secrets if secret in text]


def test_names_without_namespace_are_in_default(tmp_path):
    names = open_namespace(glue(None, None)[0])
    with pytest.raises(StorageError, match=r"declare_table"):
        names.declare(("t",))
    names.create_namespace(("default",), {"location": str(tmp_path)})
    try:
        placed = names.declare(("t",)).table
        assert placed.root == f"{tmp_path}/t.lance"
        append(placed.root, 0, 2)
        assert names.tables(()) == names.tables(("default",)) == ["t"]
        assert names.locate(("t",)) == names.locate(("default", "t"))
        assert names.drop_table(("t",)) and names.tables(("default",)) == []
        assert not names.has_root_tables()
    finally:
        names.drop_namespace(("default",), cascade=True)


def test_glue_database_without_location_refuses_tables(tmp_path):
    names = open_namespace(glue(None, None)[0])
    names.create_namespace(("nowhere",), {})
    try:
        with pytest.raises(InvalidInputError, match=r"nowhere has no location[^$]*LOCATION"):
            names.declare(("nowhere", "t"))
        assert names.tables(("nowhere",)) == []
        assert names.declare(("nowhere", "t"), str(tmp_path)).table.root == str(tmp_path)
    finally:
        names.drop_namespace(("nowhere",), cascade=True)


@pytest.mark.spark
@pytest.mark.slow
def test_hive_without_root_uses_its_warehouse(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings, _, _ = hive(request, tmp_path)
    names = open_namespace({name: text for name, text in settings.items() if name != "root"})
    warehouse = names.properties(("default",))["location"]
    for name, given, location in (
        ("Eu", {}, f"{warehouse}/eu.db"),
        ("us", {"location": f"file:{tmp_path}/us"}, f"file:{tmp_path}/us"),
    ):
        names.create_namespace((name,), given)
        assert names.properties((name,))["location"] == location
        table = names.declare((name, "t")).table
        assert table.root == f"{location}/t"
        append(table.root, 0, 3)
        assert open_existing(names.locate((name, "t"))).num_rows() == 3
        assert names.drop_namespace((name,), cascade=True) and open_existing(table) is None
    assert [folder.name for folder in tmp_path.iterdir()] == []


@pytest.mark.parametrize("make", [unity, polaris, iceberg], ids=lambda make: make.__name__)
def test_tables_need_a_root_or_location(make, request, tmp_path):
    settings, parent, _ = make(request, tmp_path)
    names = open_namespace({key: text for key, text in settings.items() if "root" not in key})
    setting = next(key for key in settings if "root" in key)
    names.create_namespace(parent, {})
    try:
        with pytest.raises(InvalidInputError, match=rf"has no location[^$]*<name>\.{setting}"):
            names.declare((*parent, "t"))
        assert names.tables(parent) == []
        given = names.declare((*parent, "t"), str(tmp_path / "given")).table
        assert given.root == str(tmp_path / "given")
        assert isinstance(names.locate((*parent, "t")), ExternalTable)
        names.drop_namespace(parent, cascade=True)
        names.create_namespace(parent, {"location": str(tmp_path)})
        assert names.declare((*parent, "t")).table.root == str(tmp_path / "t")
        assert not isinstance(names.locate((*parent, "t")), ExternalTable)
    finally:
        names.drop_namespace(parent, cascade=True)


def test_implementations_do_not_print_errors(tmp_path):
    script = """
import logging
from pyspark_lance.namespace.open_namespace import open_namespace
open_namespace({"namespace": "hive2", "uri": "thrift://127.0.0.1:9", "root": "/"})
logging.getLogger("lance_namespace_impls.hive2").error("printed")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and "printed" not in done.stderr


class VendingNamespace(lance_namespace.LanceNamespace):
    """A user's own catalog, whose credentials expire."""

    def __init__(self, **properties):
        self.properties = properties

    def namespace_id(self):
        return "vending"

    def describe_table(self, request):
        if request.id[-1] == "denied":
            raise lance_namespace.PermissionDeniedError("the token abcd1234 is not enough")
        if request.id[-1] != "t":
            raise lance_namespace.TableNotFoundError(str(request.id))
        return lance_namespace.DescribeTableResponse(
            location=f"{self.properties['root']}/t",
            storage_options={
                "expires_at_millis": self.properties["expires"],
                "aws_session_token": "vended",
                "allowed_base_paths": "/",
                "issuer": "another",
            },
        )

    def describe_namespace(self, request):
        if request.id != ["empty"]:
            raise lance_namespace.NamespaceNotFoundError(str(request.id))
        return lance_namespace.DescribeNamespaceResponse(properties={})

    def list_tables(self, request):
        """As Hive, without an error for a namespace that is missing."""
        return lance_namespace.ListTablesResponse(tables=[] if request.id else ["t", "denied"])


@pytest.fixture
def vending(monkeypatch, tmp_path):
    """Settings of a catalog by the path of its class."""
    module = types.ModuleType("catalog_of_a_user")
    module.VendingNamespace = VendingNamespace
    monkeypatch.setitem(sys.modules, module.__name__, module)
    expires = str(2 * 10**12)
    return {
        "impl": "catalog_of_a_user.VendingNamespace", "root": str(tmp_path), "expires": expires,
        "access_token": "abcd1234", "storage.key": "k",
    }  # fmt: skip


def test_vended_credentials_are_renewed_on_open(vending):
    table = pickle.loads(pickle.dumps(open_namespace(vending).locate(("t",))))
    assert isinstance(table, Table) and table.storage["storage.key"] == "k"
    assert table.storage["storage.aws_session_token"] == "vended"
    assert "storage.allowed_base_paths" not in table.storage
    issuer = json.loads(table.storage["storage.issuer"])
    assert issuer["name"] == ["t"] and issuer["catalog"]["implementation"] == vending["impl"]
    assert with_fresh_credentials(table.storage) == table.storage
    ended = {**table.storage, "storage.expires_at_millis": "1000", "storage.aws_session_token": "x"}
    renewed = with_fresh_credentials(ended)
    assert renewed["storage.expires_at_millis"] == vending["expires"]
    assert renewed["storage.aws_session_token"] == "vended"


def test_error_codes_map_to_error_types(vending):
    names = open_namespace(vending)
    assert names.locate(("u",)) is None
    with pytest.raises(StorageError, match=r"PermissionDeniedError: the token \*\*\* is not"):
        names.locate(("denied",))
    with pytest.raises(UnsupportedFeatureError, match="create_namespace"):
        names.create_namespace(("eu",), {})


def test_name_of_faster_client_is_not_new(vending, monkeypatch):
    names = open_namespace(vending)
    describe = VendingNamespace.describe_table

    def declare(self, request):
        monkeypatch.setattr(VendingNamespace, "describe_table", describe)
        raise RuntimeError("exists")

    def is_missing(self, request):
        raise lance_namespace.TableNotFoundError(str(request.id))

    monkeypatch.setattr(VendingNamespace, "describe_table", is_missing)
    monkeypatch.setattr(VendingNamespace, "declare_table", declare)
    assert names.declare(("t",)) == (names.locate(("t",)), False)


def test_name_that_appears_during_lookup_is_found(vending, monkeypatch):
    describe = VendingNamespace.describe_table

    def fail_once(self, request):
        monkeypatch.setattr(VendingNamespace, "describe_table", describe)
        raise RuntimeError("does not exist")

    monkeypatch.setattr(VendingNamespace, "describe_table", fail_once)
    assert open_namespace(vending).locate(("t",)) is not None


def test_drop_ends_well_if_another_client_is_faster(vending, monkeypatch):
    def deregister(self, request):
        if is_gone:
            monkeypatch.setattr(VendingNamespace, "list_tables", lambda *_: empty)
            monkeypatch.setattr(VendingNamespace, "describe_table", deregister)
        raise RuntimeError("does not exist")

    empty = lance_namespace.ListTablesResponse(tables=["another"])
    monkeypatch.setattr(VendingNamespace, "deregister_table", deregister)
    names = open_namespace(vending)
    is_gone = False
    with pytest.raises(StorageError, match="deregister_table"):
        names.drop_table(("t",))
    is_gone = True
    assert names.drop_table(("t",))


def test_missing_namespace_differs_from_empty_one(vending):
    names = open_namespace(vending)
    assert names.tables(()) == ["denied", "t"] and names.has_root_tables()
    assert names.tables(("empty",)) == []
    with pytest.raises(NamespaceNotFoundError, match="gone"):
        names.tables(("gone",))


def test_wrong_settings_are_refused_before_requests():
    for implementation, message in (
        ("gleu", "did you mean glue"),
        ("nonsense", "one of .*, unity"),
        ("os.path.join", "set impl to dir, rest"),
        ("unity", "unity.endpoint"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            open_namespace({"impl": implementation})
    with pytest.raises(InvalidInputError, match="rest with uri"):
        open_namespace({"namespace": "rest"})


def test_missing_package_error_names_extra(vending, monkeypatch):
    monkeypatch.setitem(sys.modules, "lance_namespace", None)
    with pytest.raises(UnsupportedFeatureError, match=r"pyspark-lance\[namespaces\]"):
        open_namespace({**vending, "another": "1"}).tables(())
