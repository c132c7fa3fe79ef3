package org.pysparklance.read;

import java.util.*;
import java.util.stream.Stream;
import org.apache.spark.sql.RuntimeConfig;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.expressions.*;
import org.apache.spark.sql.connector.expressions.aggregate.*;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.connector.read.partitioning.Partitioning;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.*;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.compat.Releases;
import org.pysparklance.python.Description;
import org.pysparklance.python.PredicateJson;
import org.pysparklance.python.Python;
import org.pysparklance.python.PythonRead;
import org.pysparklance.python.PythonStreams;
import org.pysparklance.python.Responses;
import org.pysparklance.python.ScanRequest;

/**
 * A scan of one version: columns of the matching rows, read by Python. {@link LanceScanBuilder}
 * plans it; only Spark's runtime {@code filter} restricts the next batch further.
 */
public final class LanceScan implements Scan, SupportsReportStatistics, SupportsReportPartitioning,
    SupportsRuntimeV2Filtering {
  private static final String COLUMNAR = "spark.sql.lance.columnar";
  /** Since 4.3: Python functions read batches of a scan, and keep them while they read more. */
  private static final String COLUMNAR_PYTHON_INPUT =
      "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled";
  /** The maximum number of join keys to look up. */
  public static final int MAX_KEYS = 50_000;
  /** The same for changes of rows of large tables with an index that finds single keys. */
  private static final int MAX_CHANGED_KEYS = 200_000;
  /** Of these tables; with fewer rows for each key, reading all rows takes less time. */
  private static final int MIN_ROWS_PER_KEY = 20;
  /** The maximum number of keys in all tasks together, of eight bytes each. */
  private static final long MAX_SENT_KEYS = 2_000_000;
  private static final long TASK_BYTES = 128 << 20;
  private static final long MIN_TASKS = 16;

  private final Description table;
  private final CaseInsensitiveStringMap options;
  private final PredicateJson translator;
  private final StructType columns;
  private final Predicate[] pushed;
  private final String filter;
  private final int limit;
  private final ScanRequest request;
  private final String topText;
  private final boolean forRowLevelOperation;
  private final boolean hasStatistics;
  private final ScanPlan plan;
  private final ScanTasks tasks;
  private Responses.Estimates statistics;
  private boolean isStream;
  private Boolean readsBatches;
  /** The runtime filter of the next batch, as JSON; null if there is none. */
  private String runtimeFilter;

  public LanceScan(LanceScanBuilder builder) { this(builder, null); }

  /** {@code keyColumns}: the partitioning that was reported to Spark; null if none was. */
  private LanceScan(LanceScanBuilder builder, List<String> keyColumns) {
    this.table = builder.table;
    this.options = builder.options;
    this.translator = new PredicateJson(table);
    this.columns = builder.columns;
    this.pushed = builder.pushed;
    this.filter = builder.filter;
    this.limit = builder.limit;
    this.request = builder.request();
    this.topText = builder.topText;
    this.forRowLevelOperation = builder.operationScans != null;
    this.hasStatistics = builder.hasStatistics;
    this.plan = new ScanPlan(this);
    this.tasks = new ScanTasks(this, keyColumns);
  }

  /** The pushed condition, as JSON; null for all rows. */
  public String filter() { return filter; }

  /** Whether the scan is part of a command that changes rows. */
  public boolean isForRowLevelOperation() { return forRowLevelOperation; }

  /** Reads each fragment in one task. */
  public void keepFragmentsWhole() { tasks.keepFragmentsWhole(); }

  /** The description of the version. */
  public Description table() { return table; }

  public CaseInsensitiveStringMap options() { return options; }

  /** Whether the scan has a pushed condition. */
  public boolean isPushed(Predicate condition) { return Arrays.asList(pushed).contains(condition); }

  /** Whether Python can prune rows by one more condition, other than IS NOT NULL. */
  public boolean canPush(Predicate condition) {
    return !forRowLevelOperation && limit < 0 && topText.isEmpty() && !isPushed(condition)
        && !condition.name().equals("IS_NOT_NULL") && translator.all(condition) != null;
  }

  /** Whether a condition makes it likely that some rows are pruned. */
  public boolean isSelective() {
    return Arrays.stream(pushed).anyMatch(one -> !one.name().equals("IS_NOT_NULL"));
  }

  /** Whether rows can be pruned by keys in a column. */
  public boolean canFilterKeys(String column) {
    return canPruneColumns() && table.rows() >= 0
        && table.typeOf(new String[] {column}).isTextual();
  }

  /** This scan with more conditions. */
  public LanceScan withPredicates(Predicate[] predicates) { return copyWith(columns, predicates); }

  /** This scan with only some of its columns. */
  public LanceScan withColumns(StructType readColumns) {
    return copyWith(readColumns, new Predicate[0]);
  }

  private LanceScan copyWith(StructType readColumns, Predicate[] predicates) {
    LanceScanBuilder builder = new LanceScanBuilder(table, readColumns, options);
    builder.pushPredicates(
        Stream.of(pushed, predicates).flatMap(Arrays::stream).toArray(Predicate[]::new));
    return new LanceScan(builder, tasks.keyColumns());
  }

  /** Whether columns can be pruned: Spark knows no partitioning or order by them. */
  public boolean canPruneColumns() {
    return !forRowLevelOperation && limit < 0 && topText.isEmpty() && tasks.keyColumns() == null;
  }

  /** Reports the partitioning by the clustering columns, if each task has one value of them. */
  @Override public Partitioning outputPartitioning() {
    boolean isReported = SQLConf.get().v2BucketingEnabled() && table.rows() >= 0 && limit < 0
        && topText.isEmpty() && !forRowLevelOperation;
    return tasks.partitionBy(isReported ? table.keys() : List.of());
  }

  /** A scan whose rows are known while planning: Spark starts no task for it. */
  public record LocalRows(StructType readSchema, InternalRow[] rows, String description)
      implements LocalScan {}

  /** The value of a metric in one task. */
  public record TaskMetric(String name, long value) implements CustomTaskMetric {}

  @Override public StructType readSchema() { return columns; }

  /** The request to Python. */
  ScanRequest request() { return request; }

  /** The maximum number of rows; negative if there is none. */
  int limit() { return limit; }

  /** The columns of all pushed conditions. */
  Stream<String> predicateColumns() {
    return Arrays.stream(pushed).flatMap(one -> Arrays.stream(one.references()))
        .map(one -> one.fieldNames()[0]);
  }

  ScanPlan plan() { return plan; }

  ScanTasks tasks() { return tasks; }

  /**
   * The columns of runtime filters, which prune fragments, zones and rows. None for a command that
   * changes rows, for which Spark would add a join with all rows of the table.
   */
  @Override public NamedReference[] filterAttributes() {
    return forRowLevelOperation ? new NamedReference[0]
        : prunableColumns().toArray(NamedReference[]::new);
  }

  /**
   * The columns by which a join can prune rows. None with a top N, which must not be computed after
   * a runtime filter.
   */
  public Stream<NamedReference> prunableColumns() {
    return !topText.isEmpty() ? Stream.empty() : Arrays.stream(columns.fieldNames())
        .filter(table::isPrunable).map(FieldReference::column);
  }

  /** Sets the keys of the other side of a join as runtime filter of the next batch. */
  @Override public synchronized void filter(Predicate[] keys) {
    Predicate[] lookups = Arrays.stream(keys)
        .filter(one -> one.children().length <= 1 + maxFilterKeys(one)
            && translator.all(one) != null)
        .toArray(Predicate[]::new);
    runtimeFilter = lookups.length == 0 ? null
        : translator.all(
            Stream.of(pushed, lookups).flatMap(Arrays::stream).toArray(Predicate[]::new));
  }

  /** The maximum number of keys of a column to look up. */
  public int maxKeys(String column) {
    boolean hasKeyIndex = forRowLevelOperation && table.hasValueCounts(column);
    return !hasKeyIndex ? MAX_KEYS : (int) Math.max(MAX_KEYS,
        Math.min(MAX_CHANGED_KEYS, table.rows() / MIN_ROWS_PER_KEY));
  }

  /** Without an index all tasks test the keys, so each task gets all of them. */
  private long maxFilterKeys(Predicate keys) {
    long tasks = MIN_TASKS + table.storedBytes(columns, table.rows()) / TASK_BYTES;
    String column = keys.children()[0] instanceof NamedReference one ? one.fieldNames()[0] : "";
    return table.isPrunable(column) ? maxKeys(column)
        : Math.min(MAX_KEYS, MAX_SENT_KEYS / tasks);
  }

  @Override public synchronized Batch toBatch() {
    String keys = runtimeFilter;
    runtimeFilter = null;
    return new LanceBatch(this, keys);
  }

  /** A stream continues with every new version, so no version is pinned. */
  @Override public MicroBatchStream toMicroBatchStream(String checkpoint) {
    isStream = true;
    return PythonStreams.read(options, columns, checkpoint, table.root());
  }

  @Override public CustomMetric[] supportedCustomMetrics() {
    return PythonRead.metrics();
  }

  @Override public ColumnarSupportMode columnarSupportMode() {
    return readsBatches() ? ColumnarSupportMode.SUPPORTED : ColumnarSupportMode.UNSUPPORTED;
  }

  /** Whether Spark reads Arrow columns directly, rather than rows of its own reader. */
  synchronized boolean readsBatches() {
    if (readsBatches == null) {
      SQLConf conf = SQLConf.get();
      boolean keepsBatches = conf.isModifiable(COLUMNAR_PYTHON_INPUT)
          && !conf.getConfString(COLUMNAR_PYTHON_INPUT, "true").equals("false");
      readsBatches = !isStream && !keepsBatches && ColumnTypes.areSupported(columns)
          && !columnar().equals("off");
    }
    return readsBatches;
  }

  /** The next batch invalidates a batch. If Spark may keep batches, this reads rows. */
  public static void disableColumnarPythonInput(RuntimeConfig conf) {
    if (conf.isModifiable(COLUMNAR_PYTHON_INPUT) && !conf.contains(COLUMNAR_PYTHON_INPUT)) {
      conf.set(COLUMNAR_PYTHON_INPUT, "false");
    }
  }

  /** Whether rows must have a column, as their number is lost otherwise. */
  public static boolean needsColumn() {
    return !Releases.COUNTS_EMPTY_ROWS && columnar().equals("off");
  }

  static String columnar() { return SQLConf.get().getConfString(COLUMNAR, "shared"); }

  @Override public String description() {
    Long keptFragments = plan.remaining().fragments();
    List<String> keyColumns = tasks.keyColumns();
    return "lance " + table.title() + ", reads: " + columns.simpleString()
        + ", filters: " + Arrays.toString(pushed) + (limit < 0 ? "" : ", limit: " + limit) + topText
        + (keyColumns == null ? "" : ", tasks by: " + keyColumns)
        + (keptFragments == null ? "" : ", fragments: " + keptFragments + " kept, "
            + (table.fragments() - keptFragments) + " skipped") + indices();
  }

  /** The selectivity of the pushed conditions. */
  private String indices() {
    Responses.Plan remaining = plan.remaining();
    String titles = String.join(", ", remaining.indices());
    return titles.isEmpty() ? "" : ", index: " + titles + ", " + remaining.rows()
        + (table.rows() < 0 ? "" : " of " + table.rows()) + " rows";
  }

  /** The bytes to read; column statistics are only for the cost-based optimizer and DESCRIBE. */
  @Override public Statistics estimateStatistics() {
    if (table.rows() < 0) {
      return new ScanStatistics(OptionalLong.empty(), OptionalLong.empty(), Map.of());
    }
    boolean needsColumns =
        hasStatistics || SQLConf.get().cboEnabled() || SQLConf.get().planStatsEnabled();
    if (statistics == null && needsColumns) {
      statistics = Python.statistics(request, columns);
    }
    long matchingRows = Math.min(
        table.rows(), statistics == null ? plan.remaining().rows() : statistics.rows());
    long rows = limit < 0 ? matchingRows : Math.min(matchingRows, limit);
    return new ScanStatistics(OptionalLong.of(table.storedBytes(columns, rows)),
        OptionalLong.of(rows),
        ScanStatistics.of(columns, statistics == null ? Map.of() : statistics.columns()));
  }

  /** Scans that would read the same are equal, so that Spark runs them once. */
  @Override public boolean equals(Object other) {
    return other instanceof LanceScan scan && scan.request.equals(request)
        && scan.columns.equals(columns);
  }

  @Override public int hashCode() { return Objects.hash(table.root(), columns, filter, limit); }
}
