package org.pysparklance;

import java.util.Set;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.types.StructType;

/** A table without any capability. */
record UnwritableTable(StructType schema) implements Table {
  @Override
  public String name() {
    return "lance";
  }

  @Override
  public Set<TableCapability> capabilities() {
    return Set.of();
  }
}
