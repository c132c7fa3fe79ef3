package org.pysparklance.read;

import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.pysparklance.python.EarlyWorkers;

/**
 * What Python reads for a scan; batches of equal scans are equal, so that Spark runs them once.
 *
 * @param keys what else holds of the rows that a join needs, as Python reads it; null for all rows
 */
record LanceBatch(LanceScan scan, String keys) implements Batch {
  /** Few rows are read already, those that a join does not need among them. */
  @Override public InputPartition[] planInputPartitions() {
    byte[][] few = scan.fewRows();
    return few != null ? new InputPartition[] {new FewRows(few)} : scan.tasks(keys);
  }

  @Override public PartitionReaderFactory createReaderFactory() {
    return new Readers(scan.fewRows() != null ? null : scan.readers(), scan.readsBatches());
  }

  /** All batches of a scan, as Arrow streams: its task needs no Python. */
  private record FewRows(byte[][] batches) implements InputPartition {
    /** As Python tells of batches that come within rows; see {@code BatchReader}. */
    PartitionReader<InternalRow> reader() {
      return new PartitionReader<>() {
        private int at = -1;

        @Override public boolean next() { return ++at < batches.length; }

        @Override public InternalRow get() {
          return new GenericInternalRow(
              new Object[] {null, null, (long) batches[at].length, batches[at]});
        }

        @Override public void close() {}
      };
    }
  }

  /** Makes readers on executors; those of rows that are read already need no Python. */
  private record Readers(PartitionReaderFactory python, boolean ofBatches)
      implements PartitionReaderFactory {
    @Override public boolean supportColumnarReads(InputPartition partition) { return ofBatches; }

    @Override public PartitionReader<InternalRow> createReader(InputPartition partition) {
      EarlyWorkers.await();
      return new Reader(python.createReader(KeyGroups.Keyed.inner(partition)));
    }

    @Override public PartitionReader<ColumnarBatch> createColumnarReader(
        InputPartition partition) {
      if (partition instanceof FewRows few) {
        return new BatchReader(few.reader());
      }
      EarlyWorkers.await();
      return new BatchReader(python.createReader(KeyGroups.Keyed.inner(partition)));
    }
  }

  /**
   * Spark asks for metrics every hundred rows, and making Python's takes as long as making the
   * rows; so they are given once, at the end. Runs on executors.
   */
  private static final class Reader implements PartitionReader<InternalRow> {
    private static final CustomTaskMetric[] NONE = {};

    private final CancelOnLimit python;

    Reader(PartitionReader<InternalRow> python) {
      this.python = new CancelOnLimit(python, () -> {});
    }

    @Override public boolean next() throws IOException { return python.next(); }

    @Override public InternalRow get() { return python.get(); }

    @Override public CustomTaskMetric[] currentMetricsValues() {
      return python.isOver() ? python.currentMetricsValues() : NONE;
    }

    @Override public void close() throws IOException { python.close(); }
  }
}
