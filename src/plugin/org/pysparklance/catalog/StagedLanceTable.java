package org.pysparklance.catalog;

import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.python.Creation;
import org.pysparklance.python.Python;
import org.pysparklance.write.LanceWrite;

/** A table to create or replace, with or without rows, in one version. */
public final class StagedLanceTable extends LanceTable implements StagedTable {
  private final Creation creation;
  private final Runnable made;
  private final Runnable failed;
  private boolean written;

  /**
   * @param table the table as the statement defines it
   * @param replaces whether it replaces an existing table, if any
   * @param made called after the commit
   * @param failed called if there is no commit
   */
  public StagedLanceTable(CaseInsensitiveStringMap options, Column[] columns, NewTable table,
      boolean replaces, Runnable made, Runnable failed) {
    super(options,
        PrimaryKeys.marked(CatalogV2Util.v2ColumnsToStructType(columns), table.constraints()),
        null, true);
    this.creation = new Creation(
        replaces, kept(table.properties()), ClusterColumns.of(table, replaces));
    this.made = made;
    this.failed = failed;
  }

  @Override public Creation creation() { return creation; }

  /** The properties of a statement that the table itself stores. */
  public static Map<String, String> kept(Map<String, String> properties) {
    Map<String, String> kept = new TreeMap<>();
    properties.forEach((name, value) -> {
      boolean isComment = name.equals(TableCatalog.PROP_COMMENT);
      boolean isOption = name.startsWith(TableCatalog.OPTION_PREFIX)
          || properties.containsKey(TableCatalog.OPTION_PREFIX + name);
      if (isComment || !isOption && !CatalogV2Util.TABLE_RESERVED_PROPERTIES().contains(name)) {
        kept.put(name, value);
      }
    });
    return kept;
  }

  @Override public LanceWrite newWriteBuilder(LogicalWriteInfo info) {
    written = true;
    LanceWrite write = super.newWriteBuilder(info);
    return creation.replaces() ? write.truncate() : write;
  }

  @Override public void commitStagedChanges() {
    if (!written) {
      Python.create(options(), schema(), creation);
      onCommitted();
    }
    made.run();
  }

  /** The table is not visible before the commit of the write. */
  @Override public void abortStagedChanges() { failed.run(); }

  /** Two interfaces of Spark have this method since 4.2. */
  public CustomTaskMetric[] reportDriverMetrics() { return new CustomTaskMetric[0]; }
}
