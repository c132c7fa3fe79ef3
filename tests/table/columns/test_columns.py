"""Columns come, go and change, each in one version; against pylance."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from table_access import LINEAGE, assert_same_rows, read_ours, read_pylance, write_table

from pyspark_lance.commit.application_versions import ApplicationVersion
from pyspark_lance.errors import (
    CommitConflictError,
    InvalidInputError,
    RetryableCommitError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.operation import Merge, Project, UpdateConfig
from pyspark_lance.table.columns.change_columns import (
    add_columns,
    add_null_columns,
    change_nullability,
    compute_columns,
    copy_column,
    drop_columns,
    has_nulls,
    rename_column,
    set_metadata,
    widen_column,
)
from pyspark_lance.table.unit_of_work import CommitSettings
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

VERSIONS = ["2.0", "2.1", "2.2"]


def table(rows=10):
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "x": pa.array([None if i % 5 == 4 else i for i in range(rows)], pa.int32()),
            "s": pa.array([{"a": i, "b": str(i)} for i in range(rows)]),
            "l": pa.array([[i] * (i % 3) for i in range(rows)], pa.list_(pa.int16())),
        }
    )


@pytest.fixture(params=VERSIONS)
def path(request, tmp_path):
    """Three fragments, of which the second has lost its first and a middle row."""
    where = str(tmp_path / "t.lance")
    write_table(where, table(), file_version=request.param, max_rows_per_file=4)
    lance.dataset(where).delete("id IN (4, 6)")
    return where


@pytest.fixture
def small(tmp_path):
    where = str(tmp_path / "t.lance")
    write_table(where, table(4), max_rows_per_file=2)
    return where


def doubled(batch):
    return [pc.multiply(batch.column("id"), 2)]


def column(path, name):
    found = read_ours(path, system_columns=()).sort_by("id")
    return found[name].to_pylist()


def check_both(path):
    lance.dataset(path).validate()
    assert_same_rows(read_ours(path), read_pylance(path))


def files_of(path):
    fragments = Snapshot.open(Table(path)).manifest.fragments
    return [[(list(f.fields), list(f.column_indices)) for f in one.files] for one in fragments]


def data_files(path):
    return {one.path for one in Snapshot.open(Table(path)).store.list("data")}


# Values --------------------------------------------------------------------------------------


def test_added_column_has_one_file_per_fragment(path):
    before = read_ours(path)
    schema = pa.schema([("d", pa.int64()), ("t", pa.string())])
    run = compute_columns(["id"], lambda b: [*doubled(b), pc.cast(b.column("id"), pa.string())])
    result = add_columns(Table(path), schema, run)
    assert (result.version, result.num_written_files, result.num_written_rows) == (3, 3, 8)
    assert column(path, "d") == [0, 2, 4, 6, 10, 14, 16, 18]
    assert column(path, "t") == ["0", "1", "2", "3", "5", "7", "8", "9"]
    check_both(path)
    after = read_ours(path)
    same = [name for name in before.column_names if name != "_row_last_updated_at_version"]
    assert after.select(same).equals(before.select(same))
    assert set(after["_row_last_updated_at_version"].to_pylist()) == {3}
    # pylance goes on with what we made.
    dataset = lance.dataset(path)
    dataset.update({"d": "d + 1"}, where="id = 5")
    dataset.optimize.compact_files()
    lance.dataset(path).add_columns({"e": "d * 10"})
    assert column(path, "e") == [0, 20, 40, 60, 110, 140, 160, 180]
    check_both(path)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([{"q": [1, None]}, None], pa.struct([("q", pa.list_(pa.float32()))])),
        pa.array([[1.5, 2], None], pa.list_(pa.float32(), 2)),
        pa.array(["x", None], pa.dictionary(pa.int8(), pa.string())),
        pa.array([True, None]),
        pa.array([None, None], pa.null()),
        pa.array([b"\0", None], pa.large_binary()),
    ],
    ids=lambda one: str(one.type),
)
def test_columns_of_any_type_can_be_added(tmp_path, values):
    path = str(tmp_path / "t.lance")
    write_table(path, table(6), max_rows_per_file=3)
    lance.dataset(path).delete("id IN (0, 4)")
    indices = lambda batch: pa.array(np.arange(batch.num_rows) % 2)  # noqa: E731
    run = compute_columns(["id"], lambda batch: [values.take(indices(batch))])
    add_columns(Table(path), pa.schema([("v", values.type)]), run)
    first, second = values.to_pylist()
    assert column(path, "v") == [first, second, first, second]
    check_both(path)


def test_deleted_rows_never_have_null_in_required_column(tmp_path):
    path = str(tmp_path / "t.lance")
    write_table(path, pa.table({"id": pa.array(range(200_000), pa.int64())}))
    lance.dataset(path).delete("id < 70000 OR (id > 70000 AND id < 190000) OR id = 199999")
    schema = pa.schema([pa.field("d", pa.int64(), nullable=False)])
    add_columns(Table(path), schema, compute_columns(["id"], doubled))
    assert column(path, "d") == [140_000, *range(380_000, 399_998, 2)]
    check_both(path)


def test_add_columns_requires_one_value_per_row(small):
    schema, files = pa.schema([("d", pa.int64())]), data_files(small)

    def without_last(request):
        good = compute_columns(["id"], doubled)(request)
        yield next(iter(good))

    with pytest.raises(InvalidInputError, match="values are missing for fragment 1"):
        add_columns(Table(small), schema, without_last)
    with pytest.raises(SchemaMismatchError):
        text = compute_columns(["id"], lambda b: [pc.cast(b.column("id"), pa.string())])
        add_columns(Table(small), schema, text)
    with pytest.raises(ZeroDivisionError):
        add_columns(Table(small), schema, compute_columns(["id"], lambda b: [1 / 0]))
    assert Snapshot.open(Table(small)).version == 1
    assert data_files(small) == files


def test_concurrent_append_requires_only_its_new_fragments(small):
    requests = []

    def run(request):
        requests.append((request.read_version, sorted(request.fragments), request.is_partial))
        yield from compute_columns(["id"], doubled)(request)
        if len(requests) == 1:
            write_table(small, table(1))  # fragment 2
            lance.dataset(small).delete("id = 3")  # does not touch the files
            lance.dataset(small).add_columns({"other": "id"})
            lance.dataset(small).drop_columns(["other"])

    result = add_columns(Table(small), pa.schema([("d", pa.int64())]), run)
    # Drops meet a Merge as a conflict that is final in Lance; so the table was left alone.
    assert result.version == 6
    assert requests == [(1, [0, 1], False), (5, [2], True)]
    assert column(small, "d") == [0, 0, 2, 4]
    check_both(small)


def test_new_column_gets_new_id_after_concurrent_add(small):
    def run(request):
        yield from compute_columns(["id"], doubled)(request)
        if Snapshot.open(Table(small)).version == 1:
            add_null_columns(Table(small), pa.schema([("n", pa.int8())]))

    add_columns(Table(small), pa.schema([("d", pa.int64())]), run)
    schema = Snapshot.open(Table(small)).schema
    assert schema.field("d").id == schema.field("n").id + 1
    assert column(small, "d") == [0, 2, 4, 6]
    check_both(small)


def test_conflicting_add_column_leaves_no_files(small):
    def run(request):
        yield from compute_columns(["id"], doubled)(request)
        rename_column(Table(small), "x", "xx")

    files = data_files(small)
    with pytest.raises(CommitConflictError):
        add_columns(Table(small), pa.schema([("d", pa.int64())]), run)

    def always(request):
        yield from compute_columns(["id"], doubled)(request)
        write_table(small, table(1).rename_columns(["id", "xx", "s", "l"]))

    settings = CommitSettings(retries=2)
    with pytest.raises(RetryableCommitError):
        add_columns(Table(small), pa.schema([("d", pa.int64())]), always, settings)
    assert len(data_files(small)) == len(files) + 3


def test_application_version_is_applied_once(small):
    settings = CommitSettings(properties=ApplicationVersion("app", 1).properties())
    run = compute_columns(["id"], doubled)
    assert add_columns(Table(small), pa.schema([("d", pa.int64())]), run, settings).version == 2
    files = data_files(small)
    assert add_columns(Table(small), pa.schema([("d", pa.int64())]), run, settings).version is None
    assert drop_columns(Table(small), ["d"], settings).version is None
    assert data_files(small) == files


# Schema only ---------------------------------------------------------------------------------


def test_null_column_writes_no_files(path):
    before, files = read_ours(path), data_files(path)
    columns = pa.schema([("n", pa.int8()), ("m", pa.list_(pa.struct([("k", pa.int8())])))])
    assert add_null_columns(Table(path), columns).version == 3
    assert data_files(path) == files
    assert read_ours(path).drop_columns(["n", "m"]).equals(before)
    assert column(path, "m") == [None] * 8
    check_both(path)
    transaction = Snapshot.open(Table(path)).file.transaction()
    assert isinstance(transaction.operation, Merge)
    assert transaction.operation.preserves_nullability
    for name, message in (("n", "there is a column 'n' already"), ("N", "'n' and 'N' differ by")):
        with pytest.raises(InvalidInputError, match=message):
            add_null_columns(Table(path), pa.schema([(name, pa.int8())]))
    with pytest.raises(InvalidInputError, match="must not be null"):
        add_null_columns(Table(path), pa.schema([pa.field("z", pa.int8(), nullable=False)]))
    # Rows that pylance updates or appends have a value.
    lance.dataset(path).update({"n": "1"}, where="id = 0")
    assert column(path, "n")[0] == 1


def test_drop_keeps_shared_files(path):
    files = files_of(path)
    add_columns(Table(path), pa.schema([("d", pa.int64())]), compute_columns(["id"], doubled))
    assert drop_columns(Table(path), ["d", "s.a", "L"]).version == 4
    assert files_of(path) == files
    assert read_ours(path, system_columns=()).column_names == ["id", "x", "s"]
    assert column(path, "s")[0] == {"b": "0"}
    check_both(path)
    for bad in (["nope"], ["s.b"], ["id", "x", "s"], []):
        with pytest.raises(InvalidInputError):
            drop_columns(Table(path), bad)
    # Dropped with its file, the id is free; ids that files still hold are not given again.
    add_null_columns(Table(path), pa.schema([("again", pa.string())]))
    assert column(path, "again") == [None] * 8
    lance.dataset(path).optimize.compact_files()
    check_both(path)


def test_renaming_changes_names_only(path):
    dataset = lance.dataset(path)
    dataset.create_scalar_index("x", "BTREE")
    files = files_of(path)
    rename_column(Table(path), "x", "ex")
    rename_column(Table(path), "s.a", "aa")
    rename_column(Table(path), "ID", "Id")
    assert rename_column(Table(path), "ex", "ex").version is None
    assert files_of(path) == files
    assert Snapshot.open(Table(path)).schema.to_arrow().names == ["Id", "ex", "s", "l"]
    check_both(path)
    indexed = lance.dataset(path).scanner(filter="ex = 7", columns=["Id", "s"])
    assert indexed.to_table().to_pylist() == [{"Id": 7, "s": {"aa": 7, "b": "7"}}]
    for old, new in (("ex", "ID"), ("s.aa", "B"), ("ex", "a.b"), ("ex", "_rowid"), ("no", "x")):
        with pytest.raises(InvalidInputError):
            rename_column(Table(path), old, new)


def test_not_null_requires_column_without_nulls(path):
    def change(name, nullable):
        return change_nullability(Table(path), name, nullable=nullable, has_nulls=has_nulls)

    with pytest.raises(InvalidInputError, match="holds nulls"):
        change("x", nullable=False)
    lance.dataset(path).delete("id IN (4, 9)")  # the rows with null
    assert change("x", nullable=False).version == 4
    assert change("s.a", nullable=False).version == 5
    assert change("x", nullable=False).version is None
    transaction = Snapshot.open(Table(path)).file.transaction()
    assert isinstance(transaction.operation, Project)
    assert not transaction.operation.preserves_nullability
    check_both(path)
    with pytest.raises(SchemaMismatchError, match="must not be null"):
        write_table(path, table(5))
    assert change("x", nullable=True).version == 6
    write_table(path, table(5))
    check_both(path)
    with pytest.raises(InvalidInputError):
        change("l.element", nullable=False)


def test_set_metadata_changes_schema_and_columns(small):
    result = set_metadata(
        Table(small), schema={"owner": "us"}, columns={"x": {"comment": "an x"}, "s.a": {"k": "v"}}
    )
    assert result.version == 2
    assert isinstance(Snapshot.open(Table(small)).file.transaction().operation, UpdateConfig)
    schema = lance.dataset(small).schema
    assert schema.metadata == {b"owner": b"us"}
    assert schema.field("x").metadata == {b"comment": b"an x"}
    assert schema.field("s").type.field("a").metadata == {b"k": b"v"}
    set_metadata(Table(small), schema={"owner": None}, columns={"x": {"comment": None}})
    assert not lance.dataset(small).schema.metadata
    assert not lance.dataset(small).schema.field("x").metadata
    assert set_metadata(Table(small), schema={}, columns={"x": {}}).version is None
    check_both(small)


def test_indices_follow_renamed_and_dropped_columns(small):
    dataset = lance.dataset(small)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("x", "BITMAP")

    def coverage():
        return {one.name: set(one.fragment_bitmap) for one in Snapshot.open(Table(small)).indices}

    everything = {"id_idx": {0, 1}, "x_idx": {0, 1}}
    add_columns(Table(small), pa.schema([("d", pa.int64())]), compute_columns(["id"], doubled))
    add_null_columns(Table(small), pa.schema([("n", pa.int8())]))
    rename_column(Table(small), "x", "y")
    assert coverage() == everything
    for condition in ("id = 2", "y = 3", "d = 4", "n IS NULL AND y < 2"):
        answers = [
            lance.dataset(small).scanner(filter=condition, use_scalar_index=use).to_table()
            for use in (True, False)
        ]
        assert answers[0].num_rows
        assert answers[0].equals(answers[1]), condition
    drop_columns(Table(small), ["y"])
    assert coverage() == {"id_idx": {0, 1}}
    check_both(small)


# Types ---------------------------------------------------------------------------------------


def test_widened_column_gets_new_id_and_files(path):
    before = column(path, "x"), column(path, "l")
    assert widen_column(Table(path), "x", pa.int64(), copy_column("x")).version == 3
    result = widen_column(Table(path), "l", pa.list_(pa.int32()), copy_column("l"))
    assert (result.version, result.num_written_files) == (4, 3)
    assert (column(path, "x"), column(path, "l")) == before
    schema = read_ours(path, system_columns=()).schema
    assert (schema.field("x").type, schema.names) == (pa.int64(), ["id", "x", "s", "l"])
    check_both(path)
    # The file of the first widening holds nothing else, so it goes.
    number = len(Snapshot.open(Table(path)).manifest.fragments[0].files)
    widen_column(Table(path), "x", pa.decimal128(20, 0), copy_column("x"))
    assert len(Snapshot.open(Table(path)).manifest.fragments[0].files) == number
    check_both(path)
    assert widen_column(Table(path), "x", pa.decimal128(20, 0), copy_column("x")).version is None


def test_lossy_type_changes_are_refused(small):
    for name, kind in [
        ("id", pa.int32()), ("id", pa.float64()), ("x", pa.float32()), ("x", pa.uint64()),
        ("x", pa.string()), ("s", pa.string()), ("l", pa.list_(pa.int8())),
    ]:  # fmt: skip
        with pytest.raises(InvalidInputError, match="cannot change"):
            widen_column(Table(small), name, kind, copy_column(name))
    with pytest.raises(InvalidInputError, match="only whole columns"):
        widen_column(Table(small), "s.a", pa.float64(), copy_column("s"))
    lance.dataset(small).create_scalar_index("x", "BITMAP")
    with pytest.raises(InvalidInputError, match="x_idx"):
        widen_column(Table(small), "x", pa.int64(), copy_column("x"))
    assert widen_column(Table(small), "x", pa.int32(), copy_column("x")).version is None


def test_unwritten_column_is_widened_without_files(small):
    add_null_columns(Table(small), pa.schema([("n", pa.int8())]))
    result = widen_column(Table(small), "n", pa.int64(), copy_column("n"))
    assert (result.version, result.num_written_files) == (3, 0)
    assert column(small, "n") == [None] * 4
    check_both(small)


def test_types_unsupported_by_file_version_are_refused(tmp_path):
    path = str(tmp_path / "t.lance")
    write_table(path, table(4), file_version="2.1")
    columns = pa.schema([("m", pa.map_(pa.string(), pa.int8()))])
    with pytest.raises(UnsupportedFeatureError, match=r"2\.2"):
        add_null_columns(Table(path), columns)


def test_nullable_structs_are_refused_in_2_0_files(tmp_path):
    path = str(tmp_path / "t.lance")
    write_table(path, table(4), file_version="2.0")
    wider = pa.struct([("a", pa.int64()), ("n", pa.struct([("k", pa.int8())]))])
    with pytest.raises(UnsupportedFeatureError, match=r"'m'.*2\.0"):
        add_null_columns(Table(path), pa.schema([("m", pa.struct([("k", pa.int8())]))]))
    rows = pa.table({"s": pa.array([{"a": 1, "n": {"k": 1}}], wider)})
    with pytest.raises(UnsupportedFeatureError, match=r"'n'.*2\.0"):
        write_table(path, rows, merge_schema=True)
    # With a value for every row it can be added.
    kind = pa.struct([("k", pa.int64())])
    run = compute_columns(["id"], lambda b: [pa.StructArray.from_arrays([b.column("id")], ["k"])])
    add_columns(Table(path), pa.schema([("m", kind)]), run)
    lance.dataset(path).delete("id = 1")
    add_columns(Table(path), pa.schema([("m2", kind)]), run)
    assert column(path, "m2") == [{"k": 0}, {"k": 2}, {"k": 3}]
    check_both(path)


def test_columns_change_without_stable_row_ids(tmp_path):
    path = str(tmp_path / "t.lance")
    write_table(path, table(), max_rows_per_file=4, enable_stable_row_ids=False)
    add_columns(Table(path), pa.schema([("d", pa.int64())]), compute_columns(["id"], doubled))
    drop_columns(Table(path), ["x"])
    dataset = lance.dataset(path)
    dataset.validate()
    assert dataset.to_table(columns=["id", "d"]).equals(
        pa.table({"id": range(10), "d": [2 * i for i in range(10)]})
    )
    assert LINEAGE[0] not in dataset.schema.names
