"""Every type, from pylance to Spark and from Spark to pylance."""

from __future__ import annotations

import datetime
import decimal

import lance
import pyarrow as pa
import pytest
from random_tables import SCALARS, random_table

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.logical_type import plain_type, to_plain

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled")]


def load(spark, path, **options):
    return spark.read.format("lance").options(**options).load(str(path))


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_random_pylance_tables_show_plain_values(spark, tmp_path, version):
    for seed in (1, 2, 3):
        table = random_table(seed + 500, 200, version, columns=6)
        keep = [
            n for n in table.column_names if "decimal256" not in str(table.schema.field(n).type)
        ]
        table = table.select(keep)
        path = str(tmp_path / f"{seed}")
        try:
            lance.write_dataset(table, path, data_storage_version=version, max_rows_per_file=70)
        except OSError as error:
            pytest.skip(f"pylance cannot write this: {error}")
        stored = lance.dataset(path).to_table()
        try:
            expected = {
                name: to_plain(
                    stored[name].combine_chunks(), plain_type(stored[name].type, name), name
                )
                for name in keep
            }
        except InvalidInputError:
            # A nanosecond value that does not fit microseconds: Spark must refuse as well.
            with pytest.raises(Exception, match="LANCE_INVALID_INPUT"):
                load(spark, path).collect()
            continue
        found = load(spark, path).toArrow().sort_by("id")
        for name in keep:
            mine = found[name].combine_chunks()
            assert repr(mine.to_pylist()) == repr(expected[name].to_pylist()), name


def test_scalar_types_round_trip(spark, tmp_path):
    columns = {}
    for number, kind in enumerate(SCALARS):
        if pa.types.is_null(kind) or pa.types.is_decimal256(kind):
            continue
        if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
            values = pa.array([0, 1000, None], pa.int64()).cast(kind)
        elif pa.types.is_date64(kind):
            values = pa.array([0, 86_400_000, None], pa.int64()).cast(kind)
        elif pa.types.is_date32(kind):
            values = pa.array([0, -1, None], pa.int32()).cast(kind)
        elif pa.types.is_time(kind):
            values = pa.array([0, 1, None], pa.int32() if kind.bit_width == 32 else pa.int64())
            values = values.cast(kind)
        elif pa.types.is_fixed_size_binary(kind):
            values = pa.array([b"abc", b"xyz", None], kind)
        elif pa.types.is_dictionary(kind):
            values = pa.array(["a", "b", None]).dictionary_encode().cast(kind)
        elif pa.types.is_decimal(kind):
            values = pa.array([decimal.Decimal(1), decimal.Decimal("-2.5"), None], kind)
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            values = pa.array(["", "é", None], kind)
        elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            values = pa.array([b"", b"\xff", None], kind)
        elif pa.types.is_boolean(kind):
            values = pa.array([True, False, None])
        else:
            values = pa.array([0, 1, None], pa.int64()).cast(kind)
        columns[f"c{number}"] = values
    first, second = str(tmp_path / "a"), str(tmp_path / "b")
    lance.write_dataset(pa.table(columns), first, data_storage_version="2.1")
    load(spark, first).coalesce(1).write.format("lance").mode("append").save(second)
    before, after = lance.dataset(first).to_table(), lance.dataset(second).to_table()
    for name in columns:
        assert before.schema.field(name).type == after.schema.field(name).type, name
        assert before[name].to_pylist() == after[name].to_pylist(), name


def test_spark_types_are_stored_as_arrow_types(spark, tmp_path):
    path = str(tmp_path / "t")
    frame = spark.sql(
        "SELECT cast(1 AS tinyint) b, cast(2 AS smallint) s, 3 i, 4L l, cast(1.5 AS float) f, "
        "2.5D d, cast('1.25' AS decimal(10,2)) n, 'x' t, X'0102' x, DATE '2024-02-29' day, "
        "TIMESTAMP '2024-02-29 12:00:00' ts, TIMESTAMP_NTZ '2024-02-29 12:00:00' ntz, "
        "INTERVAL '1 02:03:04' DAY TO SECOND iv, array(1, 2) a, map('k', 1) m, "
        "named_struct('p', 1, 'q', 'z') st, "
        "true ok"
    )
    frame.write.format("lance").mode("append").save(path)
    dataset = lance.dataset(path)
    assert dataset.data_storage_version == "2.2"  # for the map
    row = dataset.to_table().to_pylist()[0]
    assert row["day"] == datetime.date(2024, 2, 29)
    assert row["n"] == decimal.Decimal("1.25")
    assert row["ts"].tzinfo is not None and row["ntz"].tzinfo is None
    assert row["m"] == [("k", 1)] and row["st"] == {"p": 1, "q": "z"}
    assert all(field.nullable for field in dataset.schema)
    back = load(spark, path)
    assert back.schema.simpleString() == frame.schema.simpleString()
    assert back.collect() == frame.collect()


def test_unrepresentable_nanoseconds_raise(spark, tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"t": pa.array([1001], pa.timestamp("ns")), "i": [1]}), path)
    with pytest.raises(Exception, match=r"LANCE_INVALID_INPUT.*'t'"):
        load(spark, path).collect()
    assert load(spark, path, columns="i").collect()[0].i == 1


def test_null_columns_and_empty_structs_round_trip(spark, tmp_path):
    path = str(tmp_path / "t")
    frame = spark.sql(
        "SELECT id, null AS n, cast(null AS array<struct<a: int, b: array<string>>>) AS l "
        "FROM range(3)"
    )
    frame.write.format("lance").mode("append").save(path)
    assert load(spark, path).orderBy("id").collect() == frame.collect()
