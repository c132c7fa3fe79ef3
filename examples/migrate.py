"""Copy a table of another format to a Lance table, compare both, and take over later changes.

    python examples/migrate.py FORMAT SOURCE TARGET [--key COLUMN …] [--cluster-by COLUMN …]

FORMAT is what ``spark.read.format`` takes, such as parquet, delta, orc or csv, or ``table`` for a
table of a catalog, such as Iceberg's. SOURCE is its path or name. Packages and catalogs are
settings of Spark, for example::

    PACKAGE=io.delta:delta-spark_4.2_2.13:4.4.0
    spark-submit --packages $PACKAGE examples/migrate.py delta /data/old /data/new --key id

The first run copies all rows in one version. A later run needs the key of the rows. It changes,
inserts and deletes the rows that differ, in one version, so the change feed has only these. Each
run compares both tables in the end and exits with 1 if they differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType

from pyspark_lance import LanceTable


def read_source(spark: SparkSession, source_format: str, source: str) -> DataFrame:
    """Return all rows of a path, or of a table of a catalog."""
    if source_format == "table":
        return spark.table(source)
    return spark.read.format(source_format).load(source)


def migrate(
    spark: SparkSession,
    rows: DataFrame,
    target: str,
    keys: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
) -> dict[str, int]:
    """Make the Lance table at ``target`` equal to ``rows``.

    Args:
        spark: A session that can write Lance tables.
        rows: All rows of the source.
        target: The path of the Lance table.
        keys: Columns whose values identify a row; needed if the table exists.
        cluster_by: Columns by which a new table is clustered.

    Returns:
        The number of inserted, updated and deleted rows.

    Raises:
        ValueError: The table exists and there is no key.
    """
    if not LanceTable.isLanceTable(spark, target):
        writer = rows.write.format("lance").mode("append")
        if cluster_by:
            writer = writer.option("clusterBy", ", ".join(cluster_by))
        writer.save(target)
        return {"inserted": LanceTable.forPath(spark, target).toDF().count()}
    if not keys:
        raise ValueError(f"{target} exists: name the key of its rows, as in --key id")
    table = LanceTable.forPath(spark, target)
    same_key = " AND ".join(f"target.`{key}` <=> source.`{key}`" for key in keys)
    # Unequal rows, so that unchanged rows do not become changes.
    differs = row_hash(rows, "target") != row_hash(rows, "source")
    merge = table.alias("target").merge(rows.alias("source"), same_key)
    merge = merge.whenMatchedUpdateAll(differs).whenNotMatchedInsertAll()
    result = merge.whenNotMatchedBySourceDelete().execute()
    return {
        "inserted": result.numInsertedRows,
        "updated": result.numUpdatedRows,
        "deleted": result.numDeletedRows,
    }


def row_hash(rows: DataFrame, alias: str | None = None) -> Column:
    """Return the hash of all columns of a row. Maps and variants are hashed as JSON."""
    prefix = f"{alias}." if alias else ""
    columns = []
    for field in sorted(rows.schema.fields, key=lambda field: field.name):
        column = sf.col(f"{prefix}`{field.name}`")
        if not is_hashable(field.dataType):
            column = sf.to_json(sf.struct(column))
        # A null value leaves a hash unchanged; whether it is null makes the difference.
        columns += [column.isNull(), column]
    return sf.xxhash64(*columns)


def is_hashable(data_type: DataType) -> bool:
    """Return whether ``xxhash64`` takes values of the type."""
    text = data_type.simpleString()
    return "map<" not in text and "variant" not in text


def checksum(rows: DataFrame) -> tuple[int, int]:
    """Return the number of rows, and the sum of their hashes, whatever their order."""
    hashes = row_hash(rows).cast("decimal(38, 0)")
    count, total = rows.agg(sf.count("*"), sf.sum(hashes)).first() or (0, None)
    return int(count), int(total or 0)


def main(arguments: Sequence[str]) -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("format", help="parquet, delta, orc, csv, … or table")
    parser.add_argument("source", help="path of the table, or its name in a catalog")
    parser.add_argument("target", help="path of the Lance table")
    parser.add_argument("--key", action="append", default=[], help="column of the key; repeatable")
    parser.add_argument("--cluster-by", action="append", default=[], help="column; repeatable")
    given = parser.parse_args(arguments)
    spark = SparkSession.builder.appName(f"migrate to {given.target}").getOrCreate()
    rows = read_source(spark, given.format, given.source)
    try:
        changes = migrate(spark, rows, given.target, given.key, given.cluster_by)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print("rows", ", ".join(f"{change}: {number}" for change, number in changes.items()))
    copied = LanceTable.forPath(spark, given.target).toDF()
    is_equal = checksum(rows) == checksum(copied)
    print("both tables are equal" if is_equal else "the tables differ", flush=True)
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
