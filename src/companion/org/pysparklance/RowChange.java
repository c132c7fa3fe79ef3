package org.pysparklance;

import org.apache.spark.SparkContext;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.distributions.Distributions;
import org.apache.spark.sql.connector.expressions.*;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.*;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * UPDATE, MERGE or DELETE: Spark finds the rows and their new values, Python writes them. When
 * another commit was in the way, the command runs again on the version that it made.
 */
final class RowChange implements SupportsDelta {
  private final LanceTable table;
  private final Command command;
  private Description version;
  private int attempts;

  RowChange(LanceTable table, Description version, Command command) {
    this.table = table;
    this.version = version;
    this.command = command;
  }

  @Override public Command command() { return command; }

  @Override public NamedReference[] rowId() {
    return new NamedReference[] {Expressions.column("_rowaddr")};
  }

  @Override public NamedReference[] requiredMetadataAttributes() {
    return new NamedReference[] {Expressions.column("_rowid")};
  }

  @Override public ScanBuilder newScanBuilder(CaseInsensitiveStringMap more) {
    return new LanceScan(version, table.schema(), Options.merge(table.options, more));
  }

  @Override public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    StructType rows = new StructType()
        .add("__lance_clause", DataTypes.IntegerType, false)
        .add("__lance_rowid", DataTypes.LongType, true)
        .add("__lance_rowaddr", DataTypes.LongType, true);
    for (var column : info.schema().fields()) {
      rows = rows.add(column.name(), column.dataType(), true);
    }
    CaseInsensitiveStringMap all = Options.with(Options.merge(table.options, info.options()),
        "_lance.change", command.toString(), "_lance.root", version.root(),
        "_lance.version", version.version());
    BatchWrite python = Python.write(all, rows, info).build().toBatch();
    return new Changes(python, info.schema().size());
  }

  private void runAgain() {
    table.forgetVersion();
    version = Python.describe(table.options);
    String id = SparkContext.getOrCreate().getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
    QueryExecution first = SQLExecution.getQueryExecution(Long.parseLong(id));
    first.sparkSession().sessionState().executePlan(first.logical(), first.mode()).executedPlan()
        .executeCollect();
  }

  /** The rows of one fragment together, in the order in which they lie there; inserts last. */
  private final class Changes extends LanceWrite.Batch
      implements DeltaWriteBuilder, DeltaWrite, DeltaBatchWrite, RequiresDistributionAndOrdering {
    private final int width;

    Changes(BatchWrite python, int width) {
      super(python, table);
      this.width = width;
    }

    @Override public DeltaWrite build() { return this; }

    @Override public DeltaBatchWrite toBatch() { return this; }

    @Override public DeltaWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      DataWriterFactory writers = python.createBatchWriterFactory(info);
      int columns = width;
      return (part, task) -> new ChangeWriter(writers.createWriter(part, task), columns);
    }

    @Override public void commit(WriterCommitMessage[] messages) {
      try {
        super.commit(messages);
      } catch (Exception error) {
        boolean isRetryable = String.valueOf(error.getMessage()).contains("[LANCE_COMMIT_RETRY]");
        if (!isRetryable || attempts++ >= table.options.getInt("commitRetries", 10)) {
          throw error;
        }
        runAgain();
      }
    }

    @Override public Distribution requiredDistribution() { return Distributions.unspecified(); }

    @Override public SortOrder[] requiredOrdering() {
      return new SortOrder[] {Expressions.sort(
          Expressions.column("_rowaddr"), SortDirection.ASCENDING, NullOrdering.NULLS_LAST)};
    }
  }
}
