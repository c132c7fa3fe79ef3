package org.pysparklance.write;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.distributions.Distributions;
import org.apache.spark.sql.connector.expressions.*;
import org.apache.spark.sql.connector.expressions.filter.AlwaysTrue;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.write.*;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.python.ActiveQuery;
import org.pysparklance.python.Description;
import org.pysparklance.python.Options;
import org.pysparklance.python.PredicateJson;
import org.pysparklance.python.Python;
import org.pysparklance.python.PythonStreams;
import org.pysparklance.python.PythonWrite;
import org.pysparklance.python.ScanRequest;
import org.pysparklance.read.LanceScan;

/**
 * An append or overwrite, done by Python; after the commit the table shows the new version.
 *
 * @param overwrites whether rows are replaced: all, or those that match {@code replaceWhere}
 * @param replaceWhere a condition for Python; null for none
 * @param split the columns by whose values rows are divided among tasks and files
 */
public record LanceWrite(WriteTarget table, CaseInsensitiveStringMap options, LogicalWriteInfo info,
    boolean overwrites, String replaceWhere, List<String> split)
    implements SupportsOverwriteV2, SupportsDynamicOverwrite, RequiresDistributionAndOrdering {
  /** An append; {@code description}: that of the table if it was requested, otherwise null. */
  public LanceWrite(WriteTarget table, CaseInsensitiveStringMap options, LogicalWriteInfo info,
      Description description) {
    this(table, options, info, false, null, split(description, options, info));
  }

  @Override public LanceWrite truncate() {
    return new LanceWrite(table, options, info, true, null, split);
  }

  @Override public boolean canOverwrite(Predicate[] predicates) {
    return conditionOf(predicates) != null;
  }

  @Override public LanceWrite overwrite(Predicate[] predicates) {
    boolean isTruncate = predicates.length == 1 && predicates[0] instanceof AlwaysTrue;
    return isTruncate ? truncate()
        : new LanceWrite(table, options, info, true, conditionOf(predicates), split);
  }

  private String conditionOf(Predicate[] predicates) {
    Description found = table.loadDescription();
    return found == null ? null : new PredicateJson(found).all(predicates);
  }

  /** Without partitions, new rows replace the whole table. */
  @Override public LanceWrite overwriteDynamicPartitions() { return truncate(); }

  @Override public Write build() { return this; }

  @Override public String description() { return table.name(); }

  /** As {@code EXPLAIN} shows it. */
  @Override public String toString() {
    return (!overwrites ? "append to "
        : replaceWhere == null ? "overwrite of " : "replace where " + replaceWhere + " in ")
        + table.name() + (split.isEmpty() ? "" : ", tasks by: " + split);
  }

  /**
   * The columns whose values get separate files, if this write orders rows.
   *
   * @param description the description of the table, if it was requested; otherwise null
   */
  private static List<String> split(
      Description description, CaseInsensitiveStringMap options, LogicalWriteInfo info) {
    List<String> columns =
        description == null || options.containsKey("sortBy") ? List.of() : description.split();
    return List.of(info.schema().fieldNames()).containsAll(columns) ? columns : List.of();
  }

  /** Distributes rows by value; a value with many rows to several tasks. */
  @Override public Distribution requiredDistribution() {
    Expression[] clustering = split.stream().map(FieldReference::column).toArray(Expression[]::new);
    return clustering.length == 0 ? Distributions.unspecified()
        : Distributions.clustered(clustering);
  }

  @Override public boolean distributionStrictlyRequired() { return false; }

  @Override public SortOrder[] requiredOrdering() {
    return split.stream()
        .map(one -> Expressions.sort(FieldReference.column(one), SortDirection.ASCENDING))
        .toArray(SortOrder[]::new);
  }

  /** Called when the query runs, so the versions that it reads are resolved. */
  @Override public BatchWrite toBatch() {
    return new Batch(new PythonWrite(ScanRequest.of(options), info.schema(),
        new PythonWrite.Parameters(overwrites, replaceWhere, split.isEmpty() ? null : split,
            overwrites ? sources() : null, null, null, table.creation(), false)), table);
  }

  /** By root, the oldest version that the query reads as the newest, and its stamp; may be null. */
  private static JsonNode sources() {
    QueryExecution query = ActiveQuery.executionId() == null ? null : ActiveQuery.execution();
    ObjectNode oldestVersions = Python.JSON.createObjectNode();
    if (query != null) {
      for (Scan leaf : ActiveQuery.scans(query.optimizedPlan())) {
        if (leaf instanceof LanceScan scan && !Options.isTimeTravel(scan.options())) {
          long version = Long.parseLong(scan.table().version());
          String root = scan.table().root();
          if (version <= oldestVersions.path(root).path(0).asLong(version)) {
            oldestVersions.putArray(root).add(version).add(scan.table().base());
          }
        }
      }
    }
    return oldestVersions.isEmpty() ? null : oldestVersions;
  }

  @Override public StreamingWrite toStreaming() {
    return new Stream(PythonStreams.write(options,
        split.isEmpty() ? null : Python.json(split), info, overwrites), table);
  }

  @Override public CustomMetric[] supportedCustomMetrics() {
    return PythonWrite.metrics();
  }

  private record Stream(StreamingWrite python, WriteTarget table) implements StreamingWrite {
    @Override public StreamingDataWriterFactory createStreamingWriterFactory(
        PhysicalWriteInfo info) {
      return python.createStreamingWriterFactory(info);
    }

    @Override public boolean useCommitCoordinator() { return python.useCommitCoordinator(); }

    @Override public void commit(long batch, WriterCommitMessage[] messages) {
      python.commit(batch, messages);
      table.onCommitted();
    }

    @Override public void abort(long batch, WriterCommitMessage[] messages) {
      python.abort(batch, messages);
    }

    @Override public String toString() { return table.name(); }
  }

  static class Batch implements BatchWrite {
    protected final BatchWrite python;
    private final WriteTarget table;

    Batch(BatchWrite python, WriteTarget table) {
      this.python = python;
      this.table = table;
    }

    @Override public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      return new RowWriter.Factory(python.createBatchWriterFactory(info));
    }

    @Override public boolean useCommitCoordinator() { return python.useCommitCoordinator(); }

    @Override public void commit(WriterCommitMessage[] messages) {
      python.commit(RowWriter.pythonMessages(messages));
      table.onCommitted();
    }

    @Override public void abort(WriterCommitMessage[] messages) {
      python.abort(RowWriter.pythonMessages(messages));
    }

    /** As Spark's log names a write that fails. */
    @Override public String toString() { return table.name(); }
  }
}
