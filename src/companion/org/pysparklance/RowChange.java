package org.pysparklance;

import java.util.*;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.distributions.Distributions;
import org.apache.spark.sql.connector.expressions.*;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.*;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/**
 * UPDATE, MERGE or DELETE: Spark finds the rows and their new values, Python writes them. When
 * another commit was in the way, and Python says that there are attempts left, the command runs
 * again on the version that it made.
 */
final class RowChange implements SupportsDelta {
  /** The attempts so far, which the next one hands back as an option. */
  private static final Pattern AGAIN = Pattern.compile("_lance\\.retries=(\\S+)");

  private final LanceTable table;
  private final Command command;
  private final List<LanceScan> scans = new ArrayList<>();
  private Description version;
  private QueryExecution running;
  private String retries;

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
    LanceScan scan = new LanceScan(version, table.schema(), Options.merge(table.options, more));
    scans.add(scan);
    return scan;
  }

  @Override public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return new Planned(info);
  }

  private BatchWrite python(LogicalWriteInfo info) {
    StructType rows = new StructType()
        .add("__lance_clause", DataTypes.IntegerType, false)
        .add("__lance_rowid", DataTypes.LongType, true)
        .add("__lance_rowaddr", DataTypes.LongType, true);
    for (var column : info.schema().fields()) {
      rows = rows.add(column.name(), column.dataType(), true);
    }
    CaseInsensitiveStringMap all = Options.with(Options.merge(table.options, info.options()),
        "_lance.change", command.toString(), "_lance.root", version.root(),
        "_lance.version", version.version(), "_lance.filter", lookedFor(),
        "_lance.retries", retries);
    return Python.write(all, rows, info).build().toBatch();
  }

  private QueryExecution query() {
    if (running == null) {
      String id = SparkContext.getOrCreate().getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
      running = SQLExecution.getQueryExecution(Long.parseLong(id));
    }
    return running;
  }

  /**
   * What holds of every row of the table that the command has looked at; null if nothing is known,
   * as when other scans, or counts that were answered from metadata, may be of the same table.
   */
  private String lookedFor() {
    LogicalPlan whole = query().optimizedPlan();
    List<LogicalPlan> plans = new ArrayList<>(CollectionConverters.asJava(whole.subqueriesAll()));
    plans.add(whole);
    Set<String> filters = new LinkedHashSet<>();
    for (LogicalPlan plan : plans) {
      for (LogicalPlan leaf : CollectionConverters.asJava(plan.collectLeaves())) {
        if (leaf instanceof DataSourceV2ScanRelation relation) {
          if (relation.scan() instanceof LanceScan scan) {
            filters.add(scans.stream().anyMatch(own -> own == scan) ? scan.filter() : null);
          } else if (relation.scan() instanceof LanceScan.LocalRows) {
            filters.add(null);
          }
        }
      }
    }
    return filters.contains(null) || filters.isEmpty() ? null
        : filters.size() == 1 ? filters.iterator().next()
        : "{\"op\": \"OR\", \"args\": [" + String.join(", ", filters) + "]}";
  }

  private void runAgain() {
    table.forgetVersion();
    version = Python.describe(table.options);
    scans.clear();
    QueryExecution last = query();
    running = last.sparkSession().sessionState().executePlan(last.logical(), last.mode());
    running.executedPlan().executeCollect();
  }

  /** The rows of one fragment together, in the order in which they lie there; inserts last. */
  private final class Planned
      implements DeltaWriteBuilder, DeltaWrite, RequiresDistributionAndOrdering {
    private final LogicalWriteInfo info;

    Planned(LogicalWriteInfo info) { this.info = info; }

    @Override public DeltaWrite build() { return this; }

    /** Called when the command runs, so the scans are decided. */
    @Override public DeltaBatchWrite toBatch() {
      return new Changes(python(info), info.schema().size());
    }

    @Override public Distribution requiredDistribution() { return Distributions.unspecified(); }

    @Override public SortOrder[] requiredOrdering() {
      return new SortOrder[] {Expressions.sort(
          Expressions.column("_rowaddr"), SortDirection.ASCENDING, NullOrdering.NULLS_LAST)};
    }
  }

  private final class Changes extends LanceWrite.Batch implements DeltaBatchWrite {
    private final int width;

    Changes(BatchWrite python, int width) {
      super(python, table);
      this.width = width;
    }

    @Override public DeltaWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      DataWriterFactory writers = python.createBatchWriterFactory(info);
      int columns = width;
      return (part, task) -> new ChangeWriter(writers.createWriter(part, task), columns);
    }

    @Override public void commit(WriterCommitMessage[] messages) {
      try {
        super.commit(messages);
      } catch (Exception error) {
        Matcher again = AGAIN.matcher(String.valueOf(error.getMessage()));
        if (!again.find()) {
          throw error;
        }
        retries = again.group(1);
        runAgain();
      }
    }
  }
}
