package org.pysparklance.read;

import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.sql.internal.SQLConf;
import org.pysparklance.python.Description;
import org.pysparklance.python.Python;
import org.pysparklance.python.Responses;

/** The fragments and rows after pruning, and the rows of a small scan; requested on first use. */
final class ScanPlan {
  /** Up to this many bytes, rows are read while planning; Spark warns of tasks twice as large. */
  private static final String SMALL = "spark.sql.lance.smallScanBytes";
  private static final String SMALL_BYTES = "512k";
  private static final int SMALL_FRAGMENTS = 16;

  private final LanceScan scan;
  private Responses.Plan remaining;
  /** Null if there are more rows, or if they were not requested. */
  private byte[][] inlineRows;
  private boolean isRequested;

  ScanPlan(LanceScan scan) { this.scan = scan; }

  /** The remaining fragments and rows. */
  synchronized Responses.Plan remaining() {
    if (remaining == null) {
      boolean isUnpruned = scan.filter() == null || readsAllFragments() && !isSmall();
      remaining = isUnpruned ? scan.table().wholePlan() : request();
    }
    return remaining;
  }

  /** All rows of a small scan as batches, which is cheaper than a Python task; else null. */
  synchronized byte[][] inlineRows() {
    if (scan.filter() != null) {
      remaining();
    } else if (!isRequested && isSmall()) {
      request();
    }
    isRequested = true;
    return inlineRows;
  }

  private Responses.Plan request() {
    isRequested = true;
    long bytes = scan.readsBatches() ? smallBytes() : 0;
    Responses.Plan plan =
        Python.plan(scan.request(), scan.readSchema(), LanceScan.columnar(), bytes);
    inlineRows = plan.batches();
    return plan;
  }

  /** Whether there are no statistics by which a condition could prune a fragment. */
  private boolean readsAllFragments() {
    Description table = scan.table();
    return table.hasNoIndices()
        && scan.predicateColumns().noneMatch(table.lineageColumns()::contains);
  }

  /** Whether all rows, or those within the limit, may be small. Of a search only Python knows. */
  private boolean isSmall() {
    if (scan.options().containsKey("search") || scan.options().containsKey("nearest")) {
      return scan.readsBatches() && smallBytes() > 0;
    }
    Description table = scan.table();
    long rows = scan.limit() < 0 ? table.rows() : Math.min(scan.limit(), table.rows());
    return scan.readsBatches() && table.rows() >= 0 && table.fragments() <= SMALL_FRAGMENTS
        && smallBytes() > 0 && rows * table.rowBytes(scan.readSchema()) <= smallBytes();
  }

  private static long smallBytes() {
    return JavaUtils.byteStringAsBytes(SQLConf.get().getConfString(SMALL, SMALL_BYTES));
  }
}
