package org.pysparklance.catalog;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;

/** A table of another source, which is created before the write, and dropped if that fails. */
public record StagedForeignTable(Table table, Runnable drop) implements StagedTable, SupportsWrite {
  @Override public String name() { return table.name(); }

  @Override public Column[] columns() { return table.columns(); }

  /** Spark 4.0 requires this method, and uses columns. */
  @Override public StructType schema() {
    return CatalogV2Util.v2ColumnsToStructType(table.columns());
  }

  @Override public Transform[] partitioning() { return table.partitioning(); }

  @Override public Map<String, String> properties() { return table.properties(); }

  @Override public Set<TableCapability> capabilities() { return table.capabilities(); }

  @Override public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return ((SupportsWrite) table).newWriteBuilder(info);
  }

  @Override public void commitStagedChanges() {
    // The table exists already.
  }

  @Override public void abortStagedChanges() { drop.run(); }

  /** Two interfaces of Spark have this method since 4.2. */
  public CustomTaskMetric[] reportDriverMetrics() { return new CustomTaskMetric[0]; }
}
