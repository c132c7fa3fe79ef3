package org.pysparklance;

import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.distributions.Distributions;
import org.apache.spark.sql.connector.expressions.*;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.*;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** UPDATE, MERGE or DELETE: Spark finds the rows and their new values, Python writes them. */
final class RowChange implements SupportsDelta {
  private final LanceTable table;
  private final Description version;
  private final CaseInsensitiveStringMap options;
  private final Command command;

  RowChange(LanceTable table, Description version, CaseInsensitiveStringMap options,
      Command command) {
    this.table = table;
    this.version = version;
    this.options = options;
    this.command = command;
  }

  @Override
  public Command command() {
    return command;
  }

  @Override
  public NamedReference[] rowId() {
    return new NamedReference[] {Expressions.column("_rowaddr")};
  }

  @Override
  public NamedReference[] requiredMetadataAttributes() {
    return new NamedReference[] {Expressions.column("_rowid")};
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap more) {
    return new LanceScanBuilder(version, table.schema(), Options.merge(options, more));
  }

  @Override
  public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    StructType rows = new StructType()
        .add("__lance_clause", DataTypes.IntegerType, false)
        .add("__lance_rowid", DataTypes.LongType, true)
        .add("__lance_rowaddr", DataTypes.LongType, true);
    for (var column : info.schema().fields()) {
      rows = rows.add(column.name(), column.dataType(), true);
    }
    CaseInsensitiveStringMap all = Options.with(Options.merge(options, info.options()),
        "_lance.change", command.toString(), "_lance.root", version.root(),
        "_lance.version", version.version());
    BatchWrite python =
        Python.write(new LanceWriteBuilder.Info(all, info.queryId(), rows)).build().toBatch();
    int width = info.schema().size();
    return new DeltaWriteBuilder() {
      @Override
      public DeltaWrite build() {
        return new Ordered(new Batch(python, width));
      }
    };
  }

  /** Rows of one fragment together, in the order in which they lie there; inserts last. */
  private record Ordered(DeltaBatchWrite toBatch)
      implements DeltaWrite, RequiresDistributionAndOrdering {
    @Override
    public Distribution requiredDistribution() {
      return Distributions.unspecified();
    }

    @Override
    public SortOrder[] requiredOrdering() {
      return new SortOrder[] {Expressions.sort(Expressions.column("_rowaddr"),
          SortDirection.ASCENDING, NullOrdering.NULLS_LAST)};
    }
  }

  private final class Batch implements DeltaBatchWrite {
    private final BatchWrite python;
    private final int width;

    Batch(BatchWrite python, int width) {
      this.python = python;
      this.width = width;
    }

    @Override
    public DeltaWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      return new ChangeWriter.Factory(python.createBatchWriterFactory(info), width);
    }

    @Override
    public boolean useCommitCoordinator() {
      return python.useCommitCoordinator();
    }

    @Override
    public void commit(WriterCommitMessage[] messages) {
      python.commit(messages);
      table.forgetVersion();
    }

    @Override
    public void abort(WriterCommitMessage[] messages) {
      python.abort(messages);
    }
  }
}
