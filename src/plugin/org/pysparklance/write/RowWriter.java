package org.pysparklance.write;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.*;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.*;
import org.apache.spark.sql.internal.SQLConf;
import org.pysparklance.python.EarlyWorkers;
import org.pysparklance.read.LanceScan;

/**
 * Writes rows to Python. To enforce a limit of bytes, Spark sums up the sizes of all columns of the
 * Arrow batch after each row; for narrow rows that takes most of the time. So this disables the
 * limit while the sizes of the rows prove that batches are small. Once a batch would be large, the
 * remaining rows go to a second worker, with the limit. Runs on executors.
 */
final class RowWriter implements DataWriter<InternalRow> {
  private static final String LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch";
  private static final String NO_LIMIT = Integer.toString(Integer.MAX_VALUE);
  private static final long SMALL_BATCH_BYTES = 64L << 20;
  private static final CustomTaskMetric[] NONE = {};

  private final Supplier<DataWriter<InternalRow>> workers;
  private final List<WriterCommitMessage> earlier = new ArrayList<>();
  private DataWriter<InternalRow> python;
  private CustomTaskMetric[] metrics = NONE;
  private boolean isOver;

  private RowWriter(Supplier<DataWriter<InternalRow>> workers) {
    this.workers = workers;
    this.python = workers.get();
  }

  /** Creates writers on executors. */
  record Factory(DataWriterFactory python) implements DataWriterFactory {
    @Override public DataWriter<InternalRow> createWriter(int partition, long task) {
      EarlyWorkers.await();
      return new RowWriter(() -> python.createWriter(partition, task));
    }
  }

  /** The messages of the workers of one task, in order. */
  private record Parts(List<WriterCommitMessage> messages) implements WriterCommitMessage {}

  /** The messages of all workers. */
  static WriterCommitMessage[] ofPython(WriterCommitMessage[] messages) {
    return Arrays.stream(messages)
        .flatMap(one -> one instanceof Parts parts ? parts.messages.stream() : Stream.of(one))
        .toArray(WriterCommitMessage[]::new);
  }

  @Override public void write(InternalRow row) throws IOException { python.write(row); }

  @Override public void writeAll(Iterator<InternalRow> rows) throws IOException {
    SQLConf conf = SQLConf.get();
    SmallBatches small = new SmallBatches(rows, conf.arrowMaxRecordsPerBatch(),
        Math.min(SMALL_BATCH_BYTES, conf.arrowMaxBytesPerBatch()));
    boolean hasSmall = small.hasNext();
    if (hasSmall) {
      withoutLimit(small);
    }
    if (hasSmall && small.isCut) {
      earlier.add(python.commit());
      metrics = python.currentMetricsValues();
      python.close();
      python = workers.get();
    }
    if (!hasSmall || small.isCut) {
      python.writeAll(small.others());
    }
    isOver = true;
  }

  private void withoutLimit(Iterator<InternalRow> rows) throws IOException {
    SQLConf conf = new SQLConf();
    Properties given = TaskContext.get().getLocalProperties();
    given.stringPropertyNames().forEach(key -> conf.settings().put(key, given.getProperty(key)));
    conf.settings().put(LIMIT, NO_LIMIT);
    try {
      SQLConf.withExistingConf(conf, () -> {
        try {
          python.writeAll(rows);
        } catch (IOException error) {
          throw new UncheckedIOException(error);
        }
        return null;
      });
    } catch (UncheckedIOException error) {
      throw error.getCause();
    }
  }

  /** Iterates over the rows up to the first one that makes a batch large; then over the rest. */
  private static final class SmallBatches implements Iterator<InternalRow> {
    private final Iterator<InternalRow> rows;
    private final int batchRows;
    private final long mostBytes;
    private InternalRow next;
    private long taken;
    private long bytes;
    private boolean isCut;
    private boolean takesAll;

    SmallBatches(Iterator<InternalRow> rows, int batchRows, long mostBytes) {
      this.rows = rows;
      this.batchRows = batchRows;
      this.mostBytes = mostBytes;
    }

    @Override public boolean hasNext() {
      if (next == null && rows.hasNext()) {
        next = rows.next();
        bytes = batchRows > 0 && taken++ % batchRows == 0 ? 0 : bytes;
        bytes += next instanceof UnsafeRow row ? row.getSizeInBytes() : mostBytes;
        isCut |= bytes >= mostBytes;
      }
      return next != null && (takesAll || !isCut);
    }

    @Override public InternalRow next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      InternalRow row = next;
      next = null;
      return row;
    }

    Iterator<InternalRow> others() {
      takesAll = true;
      return this;
    }
  }

  @Override public WriterCommitMessage commit() throws IOException {
    earlier.add(python.commit());
    return earlier.size() == 1 ? earlier.get(0) : new Parts(List.copyOf(earlier));
  }

  @Override public void abort() throws IOException { python.abort(); }

  @Override public void close() throws IOException { python.close(); }

  /** Python's metrics of all workers; at the end, since Spark requests them every hundred rows. */
  @Override public CustomTaskMetric[] currentMetricsValues() {
    if (!isOver) {
      return NONE;
    }
    Map<String, Long> totals = Stream.of(metrics, python.currentMetricsValues())
        .flatMap(Arrays::stream)
        .collect(Collectors.groupingBy(
            CustomTaskMetric::name, Collectors.summingLong(CustomTaskMetric::value)));
    return totals.entrySet().stream().map(one -> new LanceScan.Total(one.getKey(), one.getValue()))
        .toArray(CustomTaskMetric[]::new);
  }
}
