package org.pysparklance;

import java.util.*;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** One scan of one version: some columns of the rows that match, read by Python. */
final class LanceScan implements Scan, SupportsReportStatistics {
  private final Description table;
  private final CaseInsensitiveStringMap options;
  private final StructType columns;
  private final Predicate[] predicates;
  private final String filter;
  private final int limit;
  private Scan python;
  private Metadata plan;

  LanceScan(Description table, CaseInsensitiveStringMap options, StructType columns,
      Predicate[] predicates, String filter, int limit) {
    this.table = table;
    this.options = options;
    this.columns = columns;
    this.predicates = predicates;
    this.filter = filter;
    this.limit = limit;
  }

  @Override
  public StructType readSchema() {
    return columns;
  }

  private CaseInsensitiveStringMap pinned() {
    return Options.with(options, "_lance.root", table.root(), "_lance.version", table.version(),
        "_lance.filter", filter, "_lance.limit", limit < 0 ? null : Integer.toString(limit));
  }

  private synchronized Scan python() {
    if (python == null) {
      python = Python.scan(pinned(), columns);
    }
    return python;
  }

  @Override
  public Batch toBatch() {
    return python().toBatch();
  }

  /** A stream goes on with every new version, so nothing is pinned. */
  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return Python.scan(options, columns).toMicroBatchStream(checkpoint);
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return python().supportedCustomMetrics();
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.UNSUPPORTED;
  }

  /** Fragments and rows that the filter leaves; asked for once, when someone wants to know. */
  private synchronized Metadata plan() {
    if (plan == null) {
      plan = Python.call("plan", pinned());
    }
    return plan;
  }

  private long keptFragments() {
    return filter == null ? table.fragments() : plan().getLong("fragments");
  }

  @Override
  public String description() {
    String text = "lance " + table.root() + " version " + table.version() + ", reads: "
        + columns.simpleString();
    if (!table.canPushDown()) {
      return text;
    }
    long kept = keptFragments();
    return text + ", filters: " + Arrays.toString(predicates)
        + (limit < 0 ? "" : ", limit: " + limit)
        + ", fragments: " + kept + " kept, " + (table.fragments() - kept) + " skipped";
  }

  @Override
  public Statistics estimateStatistics() {
    long all = table.rows();
    long left = all < 0 || filter == null ? all : Math.min(all, plan().getLong("rows"));
    long rows = limit < 0 ? left : Math.min(left, limit);
    return new Statistics() {
      @Override
      public OptionalLong sizeInBytes() {
        return rows < 0 ? OptionalLong.empty()
            : OptionalLong.of(Math.max(1, rows * table.rowBytes(columns)));
      }

      @Override
      public OptionalLong numRows() {
        return rows < 0 ? OptionalLong.empty() : OptionalLong.of(rows);
      }
    };
  }

  /** Scans that would read the same are equal, so that Spark runs them once. */
  @Override
  public boolean equals(Object other) {
    return other instanceof LanceScan scan && scan.pinned().equals(pinned())
        && scan.columns.equals(columns);
  }

  @Override
  public int hashCode() {
    return Objects.hash(table.root(), columns, filter, limit);
  }
}
