package org.pysparklance;

import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * What Python reads for a scan; batches of equal scans are equal, so that Spark runs them once.
 *
 * @param keys what else holds of the rows that a join needs, as Python reads it; null for all rows
 */
record LanceBatch(LanceScan scan, String keys) implements Batch {
  @Override public InputPartition[] planInputPartitions() {
    return scan.python(keys).toBatch().planInputPartitions();
  }

  @Override public PartitionReaderFactory createReaderFactory() {
    return new Readers(scan.python().toBatch().createReaderFactory(), scan.readsBatches());
  }

  /** Makes readers on executors. */
  private record Readers(PartitionReaderFactory python, boolean ofBatches)
      implements PartitionReaderFactory {
    @Override public boolean supportColumnarReads(InputPartition partition) { return ofBatches; }

    @Override public PartitionReader<InternalRow> createReader(InputPartition partition) {
      return new Reader(python.createReader(partition));
    }

    @Override public PartitionReader<ColumnarBatch> createColumnarReader(
        InputPartition partition) {
      return new BatchReader(python.createReader(partition));
    }
  }

  /**
   * Spark asks for metrics every hundred rows, and making Python's takes as long as making the
   * rows; so they are given once, at the end. Runs on executors.
   */
  private static final class Reader implements PartitionReader<InternalRow> {
    private static final CustomTaskMetric[] NONE = {};

    private final PartitionReader<InternalRow> python;
    private boolean hasRow = true;

    Reader(PartitionReader<InternalRow> python) {
      this.python = python;
    }

    @Override public boolean next() throws IOException {
      hasRow = python.next();
      return hasRow;
    }

    @Override public InternalRow get() { return python.get(); }

    @Override public CustomTaskMetric[] currentMetricsValues() {
      return hasRow ? NONE : python.currentMetricsValues();
    }

    @Override public void close() throws IOException { python.close(); }
  }
}
