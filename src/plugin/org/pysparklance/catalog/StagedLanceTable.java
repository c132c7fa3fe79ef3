package org.pysparklance.catalog;

import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.python.Python;
import org.pysparklance.python.TableCreation;
import org.pysparklance.write.LanceWrite;

/** A table to create or replace, with or without rows, in one version. */
public final class StagedLanceTable extends LanceTable implements StagedTable {
  private final TableCreation creation;
  private final Runnable onCommit;
  private final Runnable onAbort;
  private boolean isWritten;

  /**
   * @param table the table as the statement defines it
   * @param replaces whether it replaces an existing table, if any
   * @param onCommit called after the commit
   * @param onAbort called if there is no commit
   */
  public StagedLanceTable(CaseInsensitiveStringMap options, Column[] columns, TableDefinition table,
      boolean replaces, Runnable onCommit, Runnable onAbort) {
    super(options,
        PrimaryKeys.withKeyPositions(CatalogV2Util.v2ColumnsToStructType(columns),
        table.constraints()),
        null, true);
    this.creation = new TableCreation(
        replaces, storedProperties(table.properties()), ClusteringColumns.of(table, replaces));
    this.onCommit = onCommit;
    this.onAbort = onAbort;
  }

  @Override public TableCreation creation() { return creation; }

  /** The properties of a statement that the table itself stores. */
  public static Map<String, String> storedProperties(Map<String, String> properties) {
    Map<String, String> stored = new TreeMap<>();
    properties.forEach((name, value) -> {
      boolean isComment = name.equals(TableCatalog.PROP_COMMENT);
      boolean isOption = name.startsWith(TableCatalog.OPTION_PREFIX)
          || properties.containsKey(TableCatalog.OPTION_PREFIX + name);
      if (isComment || !isOption && !CatalogV2Util.TABLE_RESERVED_PROPERTIES().contains(name)) {
        stored.put(name, value);
      }
    });
    return stored;
  }

  @Override public LanceWrite newWriteBuilder(LogicalWriteInfo info) {
    isWritten = true;
    LanceWrite write = super.newWriteBuilder(info);
    return creation.replaces() ? write.truncate() : write;
  }

  @Override public void commitStagedChanges() {
    if (!isWritten) {
      Python.create(options(), schema(), creation);
      onCommitted();
    }
    onCommit.run();
  }

  /** The table is not visible before the commit of the write. */
  @Override public void abortStagedChanges() { onAbort.run(); }

  /** Two interfaces of Spark have this method since 4.2. */
  public CustomTaskMetric[] reportDriverMetrics() { return new CustomTaskMetric[0]; }
}
