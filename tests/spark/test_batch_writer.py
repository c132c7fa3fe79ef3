"""The writer's promises towards Spark, called as Spark calls it; no JVM."""

from __future__ import annotations

import json
import shutil
from datetime import date
from decimal import Decimal

import lance
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
)

from pyspark_lance.errors import (
    CommitConflictError,
    InvalidInputError,
    SchemaMismatchError,
    StorageError,
    TableReplacedError,
)
from pyspark_lance.spark.data_source import LanceDataSource
from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.options.parse_options import WriteOptions, WriteParameters
from pyspark_lance.spark.source.batch_writer import LanceBatchWriter
from pyspark_lance.spark.types.declared_columns import declared_schema
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

SCHEMA = StructType([StructField("id", LongType())])


def writer(path, **options):
    return LanceBatchWriter(WriteOptions.parse({"path": path, **options}), SCHEMA, overwrite=False)


def rows(*ids):
    return iter([pa.record_batch([pa.array(ids, pa.int64())], ["id"])])


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t")


def data_files(tmp_path):
    return sorted(p.name for p in tmp_path.rglob("*.lance"))


def test_abort_without_table_access_keeps_files(path, tmp_path):
    failed = writer(path)
    message = failed.write(rows(1, 2))
    transactions = tmp_path / "t" / "_transactions"
    transactions.symlink_to(transactions)
    with pytest.raises(StorageError, match="symbolic links"):
        failed.commit([message])
    failed.abort([message])
    assert len(data_files(tmp_path)) == 1


def test_columns_differing_by_case_match_exact_names(path):
    table = pa.table({"id": [1, 2], "A": [3, 4], "a": [5, 6]})
    lance.write_dataset(table, path, enable_stable_row_ids=True)
    source = LanceDataSource({"path": path})
    every = source.schema()
    for names in (["id", "A", "a"], ["a", "ID"], ["A"], ["a"]):
        asked = StructType([StructField(name, LongType()) for name in names])
        reader = source.reader(asked)
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        spelled = [name if name in table.column_names else "id" for name in names]
        assert pa.Table.from_batches(batches).rename_columns(spelled) == table.select(spelled)
    options = WriteOptions.parse({"path": path})
    a, big, row_id = (every[name] for name in ("a", "A", "id"))
    for columns in ([a, row_id, big], [big]):
        names = [column.name for column in columns]
        one = LanceBatchWriter(options, StructType(columns), overwrite=False)
        one.commit([one.write(iter([table.select(names).to_batches()[0]]))])
    nulls = pa.table({"id": [None, None], "A": [3, 4], "a": [None, None]}, table.schema)
    assert lance.dataset(path).to_table() == pa.concat_tables([table, table, nulls])
    given = WriteOptions.parse({"path": path, "caseSensitive": "true"})
    other = StructField("iD", LongType())
    with pytest.raises(InvalidInputError, match="'id' and 'iD' differ by case only"):
        LanceBatchWriter(options, StructType([row_id, other]), overwrite=False)
    with pytest.raises(SchemaMismatchError, match="a column 'iD', which the table does not have"):
        LanceBatchWriter(given, StructType([row_id, other]), overwrite=False)
    either = StructType([StructField("B", LongType()), StructField("b", LongType())])
    with pytest.raises(InvalidInputError, match="'B' and 'b' differ by case only"):
        LanceBatchWriter(options, either, overwrite=True)
    LanceBatchWriter(given, either, overwrite=True)


def test_missing_commit_message_prevents_commit(path, tmp_path):
    one = writer(path)
    message = one.write(rows(1, 2))
    with pytest.raises(StorageError, match="partition 1 did not report"):
        one.commit([message, None])
    one.abort([message, None])
    assert data_files(tmp_path) == []
    assert not (tmp_path / "t" / "_versions").exists()


def test_abort_after_commit_keeps_files(path):
    one = writer(path)
    message = one.write(rows(1, 2))
    one.commit([message])
    # Spark calls abort when commit raised, and it may have raised only because an answer was lost.
    one.abort([message])
    assert lance.dataset(path).to_table()["id"].to_pylist() == [1, 2]


def test_abort_removes_files_of_all_partitions(path, tmp_path):
    writer(path).commit([writer(path).write(rows(7))])
    before = data_files(tmp_path)
    one = writer(path)
    messages = [one.write(rows(1)), None, one.write(rows(2))]
    one.abort(messages)
    assert data_files(tmp_path) == before


def test_failed_partition_removes_its_files(path, tmp_path):
    def failing():
        yield from rows(*range(10))
        raise RuntimeError("lost connection")

    with pytest.raises(RuntimeError, match="lost connection"):
        writer(path, max_rows_per_file="3").write(failing())
    assert data_files(tmp_path) == []


def test_concurrent_creating_writers_both_commit(path):
    first, second = writer(path), writer(path)
    messages = first.write(rows(1)), second.write(rows(2))
    first.commit([messages[0]])
    second.commit([messages[1]])
    dataset = lance.dataset(path)
    assert dataset.version == 2
    assert sorted(dataset.to_table()["id"].to_pylist()) == [1, 2]
    dataset.validate()


def test_overwrite_from_own_older_version_is_refused(path):
    writer(path).commit([writer(path).write(rows(1))])
    read = LanceDataSource({"path": path}).schema()
    pinned = LanceDataSource({"path": path, "version": "1"}).schema()
    LanceBatchWriter(WriteOptions.parse({"path": path}), read, overwrite=True)
    planned = LanceBatchWriter(WriteOptions.parse({"path": path}), read, overwrite=True)
    message = planned.write(rows(3))
    writer(path).commit([writer(path).write(rows(2))])
    with pytest.raises(CommitConflictError, match="would be lost"):
        planned.commit([message])
    with pytest.raises(CommitConflictError, match=r"from version 1 .* at version 2"):
        LanceBatchWriter(WriteOptions.parse({"path": path}), read, overwrite=True)
    partly = WriteOptions.parse({"path": path, "replaceWhere": "id > 1"})
    with pytest.raises(CommitConflictError, match="would be lost"):
        LanceBatchWriter(partly, read, overwrite=True)
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist()) == [1, 2]
    allowed = WriteOptions.parse({"path": path, "allowOlderSource": "true"})
    for options, schema in ((WriteOptions.parse({"path": path}), pinned), (allowed, read)):
        one = LanceBatchWriter(options, schema, overwrite=True)
        one.commit([one.write(rows(7))])
        assert lance.dataset(path).to_table()["id"].to_pylist() == [7]


@pytest.mark.parametrize("versions", [1, 2, 3])
def test_overwrite_from_replaced_table_is_refused(path, versions):
    for number in range(2):
        writer(path).commit([writer(path).write(rows(number))])
    read, plain = LanceDataSource({"path": path}).schema(), SCHEMA
    source = Snapshot.open(Table(path)).pinned
    shutil.rmtree(path)
    for number in range(versions):
        writer(path).commit([writer(path).write(rows(100 + number))])
    # As the metadata of columns say it, and as the plugin does.
    given = WriteParameters(sources={path: (source.version, source.stamp)})
    for parameters, schema in ((WriteParameters(), read), (given, plain)):
        parsed = WriteOptions.parse({"path": path}, parameters)
        with pytest.raises(TableReplacedError, match="replaced by another"):
            LanceBatchWriter(parsed, schema, overwrite=True)
        LanceBatchWriter(parsed, schema, overwrite=False)
    LanceBatchWriter(WriteOptions.parse({"path": path}), plain, overwrite=True)


def test_declared_columns_are_enforced_in_every_writer(path):
    declared = StructType(
        [
            StructField("id", LongType(), nullable=False),
            StructField("s", VarcharType(3), metadata={"comment": "short"}),
            StructField(
                "st", StructType([StructField("l", ArrayType(VarcharType(2), containsNull=False))])
            ),
        ]
    )
    LanceBatchWriter(
        WriteOptions.parse({"path": path}), declared, overwrite=False, declared=True
    ).commit([])
    plain = StructType.fromJson(json.loads(declared.json().replace("varchar(3)", "string")
                                           .replace("varchar(2)", "string")))  # fmt: skip
    kinds = pa.schema(
        [("id", pa.int64()), ("s", pa.string()), ("st", pa.struct([("l", pa.list_(pa.string()))]))]
    )
    for overwrite in (False, True):
        for bad, message in (
            ({"id": None}, "must not be null"),
            ({"s": "abcd"}, "4 characters, more than varchar"),
            ({"st": {"l": ["ab", "abc"]}}, "3 characters"),
            ({"st": {"l": [None]}}, "must not be null"),
        ):
            row = {"id": 1, "s": "abc", "st": {"l": ["ab"]}} | bad
            one = LanceBatchWriter(WriteOptions.parse({"path": path}), plain, overwrite=overwrite)
            with pytest.raises(SchemaMismatchError, match=message):
                one.write(iter([pa.RecordBatch.from_pylist([row], kinds)]))
        one = LanceBatchWriter(WriteOptions.parse({"path": path}), plain, overwrite=overwrite)
        row = {"id": 1, "s": "äöü", "st": {"l": ["ab"]}}
        one.commit([one.write(iter([pa.RecordBatch.from_pylist([row], kinds)]))])
        assert declared_schema(Snapshot.open(Table(path)).schema) == declared
    assert not lance.dataset(path).schema.field("id").nullable
    loose = WriteOptions.parse({"path": path, "overwriteSchema": "true"})
    one = LanceBatchWriter(loose, plain, overwrite=True)
    one.commit([one.write(iter([pa.RecordBatch.from_pylist([{"s": "abcd"}], kinds)]))])
    assert lance.dataset(path).to_table()["s"].to_pylist() == ["abcd"]


def with_defaults(path, **texts):
    """A table with the column ``id`` and others with defaults, declared as SQL does it."""
    kinds = {"v": "int", "s": "string", "d": "date", "m": "decimal(10,2)", "t": "timestamp"}
    columns = [
        StructField(name, _parse(kinds[name]), metadata={"CURRENT_DEFAULT": text})
        for name, text in texts.items()
    ]
    schema = StructType([*SCHEMA.fields, *columns])
    options = WriteOptions.parse({"path": path})
    LanceBatchWriter(options, schema, overwrite=False, declared=True).commit([])


def _parse(kind):
    known = {"int": IntegerType(), "string": StringType(), "date": DateType(),
             "decimal(10,2)": DecimalType(10, 2), "timestamp": TimestampType()}  # fmt: skip
    return known[kind]


def test_missing_column_gets_default(path):
    with_defaults(path, v="-7", s="'it''s'", d="DATE'2026-11-22'", m="1.5", t="NULL")
    one = writer(path)
    one.commit([one.write(rows(1, 2))])
    given = StructType([*SCHEMA.fields, StructField("V", IntegerType())])
    other = LanceBatchWriter(WriteOptions.parse({"path": path}), given, overwrite=False)
    batch = pa.record_batch([pa.array([3]), pa.array([None], pa.int32())], ["id", "V"])
    other.commit([other.write(iter([batch]))])
    default = {"s": "it's", "d": date(2026, 11, 22), "m": Decimal("1.50"), "t": None}
    assert lance.dataset(path).to_table().to_pylist() == [
        {"id": 1, "v": -7, **default},
        {"id": 2, "v": -7, **default},
        {"id": 3, "v": None, **default},
    ]


@pytest.mark.parametrize(
    ("zone", "expected"),
    [("America/Los_Angeles", 253402329599), ("Asia/Kathmandu", 253402280099), (None, 253402300799)],
)
def test_timestamp_defaults_use_session_zone(path, zone, expected):
    with_defaults(path, t="TIMESTAMP'9999-12-31 23:59:59'", d="DATE'+10000-01-01'")
    options = {"path": path} if zone is None else {"path": path, keys.TIME_ZONE: zone}
    planned = LanceBatchWriter(WriteOptions.parse(options), SCHEMA, overwrite=False)
    one = cloudpickle.loads(cloudpickle.dumps(planned))
    one.commit([one.write(rows(1))])
    table = lance.dataset(path).to_table()
    assert table["t"].cast(pa.int64()).to_pylist() == [expected * 10**6]
    assert table["d"].cast(pa.int32()).to_pylist() == [2_932_897]


def test_missing_column_with_unsupported_default_is_refused(path):
    with_defaults(path, t="current_timestamp()")
    with pytest.raises(SchemaMismatchError, match=r"'t', whose default current_timestamp\(\)"):
        writer(path)
