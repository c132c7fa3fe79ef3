package org.pysparklance.write;

import java.util.*;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.distributions.Distributions;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.NullOrdering;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.*;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.python.ActiveQuery;
import org.pysparklance.python.Description;
import org.pysparklance.python.LanceException;
import org.pysparklance.python.Options;
import org.pysparklance.python.Python;
import org.pysparklance.python.PythonWrite;
import org.pysparklance.python.ScanRequest;
import org.pysparklance.read.LanceScan;
import org.pysparklance.read.LanceScanBuilder;

/**
 * UPDATE, MERGE or DELETE: Spark finds the rows and their new values, Python writes them. After a
 * conflict with another commit, if Python has attempts left, the command runs again on the newest
 * version.
 */
public final class LanceRowLevelOperation implements SupportsDelta {
  private final WriteTarget table;
  private final Command command;
  private final List<LanceScan> scans = new ArrayList<>();
  private Description version;
  private QueryExecution execution;
  /** The retry state, which the next attempt sends. */
  private String retries;
  private int[] assigned;
  /** Whether the rows of an UPDATE are those of one scan, each fragment in the order of its rows. */
  private boolean isOfOneScan;
  private boolean hasCondition;
  private Rewrite rewrite = Rewrite.ROWS;

  /** How an UPDATE is written; {@code COUNT}: the number of changed rows decides. */
  private enum Rewrite { ROWS, COLUMNS, COUNT }

  public LanceRowLevelOperation(WriteTarget table, Description version, Command command) {
    this.table = table;
    this.version = version;
    this.command = command;
  }

  @Override public Command command() { return command; }

  @Override public NamedReference[] rowId() {
    return new NamedReference[] {Expressions.column("_rowaddr")};
  }

  @Override public NamedReference[] requiredMetadataAttributes() {
    // All columns that a condition or a value may reference: Spark resolves only these.
    List<String> names = new ArrayList<>(List.of("_rowid"));
    version.lineageColumns().forEach(
        name -> { if (!name.equals("_rowid") && !name.equals("_rowaddr")) names.add(name); });
    return names.stream().map(Expressions::column).toArray(NamedReference[]::new);
  }

  @Override public ScanBuilder newScanBuilder(CaseInsensitiveStringMap scanOptions) {
    return new LanceScanBuilder(
        version, table.read(version),
        Options.merge(table.options(), scanOptions)).forRowLevelOperation(scans);
  }

  @Override public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return new RowDeltaWrite(info);
  }

  public boolean hasAssigned() { return assigned != null; }

  /** Sets the positions of the assigned columns; by default all. */
  public void setAssigned(List<Integer> ordinals) {
    assigned = ordinals.stream().mapToInt(Integer::intValue).toArray();
  }

  /** Adds positions of columns that are not assigned. */
  public void removeAssigned(List<Integer> ordinals, int columns) {
    if (!ordinals.isEmpty()) {
      assigned = IntStream.range(0, columns)
          .filter(ordinal -> !ordinals.contains(ordinal) && !isUnassigned(ordinal)).toArray();
    }
  }

  public boolean isUnassigned(int ordinal) {
    return assigned != null && IntStream.of(assigned).noneMatch(one -> one == ordinal);
  }

  /** Allows to rewrite columns: the changed rows are those of one scan, possibly filtered. */
  public void allowColumnRewrite(boolean isFiltered) {
    isOfOneScan = true;
    hasCondition = isFiltered;
  }

  /** Plans to rewrite columns if that may cost less; then each fragment is read by one task. */
  private void planRewrite(List<String> columns) {
    rewrite = Rewrite.ROWS;
    if (isOfOneScan && scans.size() == 1
        && Python.rewritesColumns(readRequest(), columns, null)) {
      scans.get(0).keepFragmentsWhole();
      rewrite = hasCondition ? Rewrite.COUNT : Rewrite.COLUMNS;
    }
  }

  private ScanRequest readRequest() { return ScanRequest.of(table.options(), version); }

  /** Whether to rewrite columns; may run a job that counts the changed rows. */
  private boolean rewritesColumns(List<String> columns) {
    if (rewrite != Rewrite.COUNT || !(query().optimizedPlan() instanceof WriteDelta command)) {
      return rewrite == Rewrite.COLUMNS;
    }
    // Not the values, whose functions may cost more than a scan.
    LogicalPlan matching = command.query().find(one -> one instanceof Filter)
        .getOrElse(() -> command.query().collectLeaves().head());
    Map<Long, Long> changed = new TreeMap<>();
    Dataset.ofRows(query().sparkSession(), matching)
        .groupBy(functions.shiftrightunsigned(functions.col("_rowaddr"), 32)).count()
        .collectAsList().forEach(row -> changed.put(row.getLong(0), row.getLong(1)));
    return Python.rewritesColumns(readRequest(), columns, changed);
  }

  private int[] assignedOrdinals(StructType columns) {
    return assigned != null ? assigned : IntStream.range(0, columns.size()).toArray();
  }

  private BatchWrite createPythonWrite(LogicalWriteInfo info, boolean byColumns) {
    StructType rows = new StructType()
        .add("__lance_clause", DataTypes.IntegerType, false)
        .add("__lance_rowid", DataTypes.LongType, true)
        .add("__lance_rowaddr", DataTypes.LongType, true);
    for (int ordinal : assignedOrdinals(info.schema())) {
      StructField column = info.schema().apply(ordinal);
      rows = rows.add(column.name(), column.dataType(), true);
    }
    CaseInsensitiveStringMap options = Options.merge(table.options(), info.options());
    return new PythonWrite(ScanRequest.of(options, version).filtered(readCondition()), rows,
        new PythonWrite.Parameters(false, null, null, null, command.toString(), retries, null,
            byColumns));
  }

  private QueryExecution query() {
    if (execution == null) {
      execution = ActiveQuery.execution();
    }
    return execution;
  }

  /**
   * The condition of all rows that the command has read; null if it is unknown, as when other scans,
   * or counts from metadata, may be of the same table.
   */
  private String readCondition() {
    Set<String> filters = new LinkedHashSet<>();
    for (Scan one : ActiveQuery.scans(query().optimizedPlan())) {
      if (one instanceof LanceScan scan) {
        filters.add(scans.stream().anyMatch(recorded -> recorded == scan) ? scan.filter() : null);
      } else if (one instanceof LanceScan.LocalRows) {
        filters.add(null);
      }
    }
    return filters.contains(null) || filters.isEmpty() ? null
        : filters.size() == 1 ? filters.iterator().next()
        : "{\"op\": \"OR\", \"args\": [" + String.join(", ", filters) + "]}";
  }

  private void rerun() {
    table.forgetVersion();
    version = Python.describe(table.options());
    scans.clear();
    QueryExecution previous = query();
    execution =
        previous.sparkSession().sessionState().executePlan(previous.logical(), previous.mode());
    execution.executedPlan().executeCollect();
  }

  /** Requires the rows grouped by fragment, in the order of their addresses; inserts last. */
  private final class RowDeltaWrite
      implements DeltaWriteBuilder, DeltaWrite, RequiresDistributionAndOrdering {
    private final LogicalWriteInfo info;

    RowDeltaWrite(LogicalWriteInfo info) { this.info = info; }

    /** Called once the scans are built. */
    @Override public DeltaWrite build() {
      planRewrite(assignedNames());
      return this;
    }

    private List<String> assignedNames() {
      return IntStream.of(assignedOrdinals(info.schema()))
          .mapToObj(ordinal -> info.schema().apply(ordinal).name()).toList();
    }

    /** As {@code EXPLAIN} shows it. */
    @Override public String toString() {
      return command + " of " + table.name()
          + (command == Command.DELETE ? "" : ", writes: " + assignedNames())
          + (rewrite == Rewrite.ROWS ? ""
              : rewrite == Rewrite.COLUMNS ? ", by columns" : ", by rows or columns");
    }

    /** Called when the command runs, so the scans are planned. */
    @Override public DeltaBatchWrite toBatch() {
      return new RowDeltaBatch(createPythonWrite(info, rewritesColumns(assignedNames())), info.schema(),
          assignedOrdinals(info.schema()));
    }

    @Override public Distribution requiredDistribution() { return Distributions.unspecified(); }

    @Override public SortOrder[] requiredOrdering() {
      return new SortOrder[] {Expressions.sort(
          Expressions.column("_rowaddr"), SortDirection.ASCENDING, NullOrdering.NULLS_LAST)};
    }
  }

  private final class RowDeltaBatch extends LanceWrite.Batch implements DeltaBatchWrite {
    private final DataType[] types;
    private final int[] ordinals;

    RowDeltaBatch(BatchWrite python, StructType columns, int[] ordinals) {
      super(python, table);
      this.types = Arrays.stream(ordinals).mapToObj(i -> columns.apply(i).dataType())
          .toArray(DataType[]::new);
      this.ordinals = ordinals;
    }

    @Override public DeltaWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      DataWriterFactory writers = python.createBatchWriterFactory(info);
      DataType[] writerTypes = types;
      int[] writerOrdinals = ordinals;
      return (part, task) ->
          new LanceDeltaWriter(writers.createWriter(part, task), writerTypes, writerOrdinals);
    }

    @Override public void commit(WriterCommitMessage[] messages) {
      try {
        super.commit(messages);
      } catch (Exception error) {
        if (!(error instanceof LanceException conflict) || conflict.retries() == null) {
          throw error;
        }
        retries = conflict.retries();
        rerun();
      }
    }
  }
}
