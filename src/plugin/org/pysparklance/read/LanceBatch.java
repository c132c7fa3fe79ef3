package org.pysparklance.read;

import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.pysparklance.python.EarlyWorkers;

/**
 * The batch of a scan; batches of equal scans are equal, so that Spark runs them once.
 *
 * @param keys the runtime filter of a join, as JSON; null for all rows
 */
record LanceBatch(LanceScan scan, String keys) implements Batch {
  /** Inline rows are already read, including those that a runtime filter would prune. */
  @Override public InputPartition[] planInputPartitions() {
    byte[][] inline = inlineRows();
    return inline != null ? new InputPartition[] {new InlineRows(inline)}
        : scan.tasks().partitions(keys);
  }

  @Override public PartitionReaderFactory createReaderFactory() {
    return new Readers(
        inlineRows() != null ? null : scan.tasks().readers(), scan.readsBatches());
  }

  /** Null if a partitioning was reported to Spark, or if the rows are too large. */
  private byte[][] inlineRows() {
    return scan.tasks().keyColumns() == null ? scan.plan().inlineRows() : null;
  }

  /** All batches of a scan, as Arrow streams: its task needs no Python. */
  private record InlineRows(byte[][] batches) implements InputPartition {
    /** A message of Python with an inline batch; see {@code BatchReader}. */
    PartitionReader<InternalRow> reader() {
      return new PartitionReader<>() {
        private int index = -1;

        @Override public boolean next() { return ++index < batches.length; }

        @Override public InternalRow get() {
          return new GenericInternalRow(
              new Object[] {null, null, (long) batches[index].length, batches[index]});
        }

        @Override public void close() {}
      };
    }
  }

  /** Creates readers on executors; those of inline rows need no Python. */
  private record Readers(PartitionReaderFactory python, boolean ofBatches)
      implements PartitionReaderFactory {
    @Override public boolean supportColumnarReads(InputPartition partition) { return ofBatches; }

    @Override public PartitionReader<InternalRow> createReader(InputPartition partition) {
      EarlyWorkers.await();
      return new Reader(python.createReader(KeyGroups.KeyedPartition.unwrap(partition)));
    }

    @Override public PartitionReader<ColumnarBatch> createColumnarReader(
        InputPartition partition) {
      if (partition instanceof InlineRows rows) {
        return new BatchReader(rows.reader());
      }
      EarlyWorkers.await();
      return new BatchReader(python.createReader(KeyGroups.KeyedPartition.unwrap(partition)));
    }
  }

  /**
   * Spark requests metrics every hundred rows, and computing Python's takes as long as the rows; so
   * this returns them once, at the end. Runs on executors.
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
