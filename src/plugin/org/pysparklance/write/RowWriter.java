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
 * remaining rows go to a second worker, with the limit, and so to another file. If the first rows
 * are wide, there is one worker with the limit. Runs on executors.
 */
final class RowWriter implements DataWriter<InternalRow> {
  private static final String LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch";
  private static final String NO_LIMIT = Integer.toString(Integer.MAX_VALUE);
  private static final long SMALL_BATCH_BYTES = 64L << 20;
  private static final int SAMPLED_ROWS = 64;
  private static final CustomTaskMetric[] NONE = {};

  private final Supplier<DataWriter<InternalRow>> workers;
  private final List<WriterCommitMessage> earlier = new ArrayList<>();
  private DataWriter<InternalRow> python;
  private CustomTaskMetric[] metrics = NONE;
  private boolean isFinished;

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
  private record TaskMessages(List<WriterCommitMessage> messages) implements WriterCommitMessage {}

  /** The messages of all workers. */
  static WriterCommitMessage[] pythonMessages(WriterCommitMessage[] messages) {
    return Arrays.stream(messages)
        .flatMap(one -> one instanceof TaskMessages parts ? parts.messages.stream()
        : Stream.of(one))
        .toArray(WriterCommitMessage[]::new);
  }

  @Override public void write(InternalRow row) throws IOException { python.write(row); }

  @Override public void writeAll(Iterator<InternalRow> rows) throws IOException {
    SQLConf conf = SQLConf.get();
    SmallBatches smallBatches = new SmallBatches(rows, conf.arrowMaxRecordsPerBatch(),
        Math.min(SMALL_BATCH_BYTES, conf.arrowMaxBytesPerBatch()));
    smallBatches.sampleFirstRows();
    boolean hasSmallBatches = smallBatches.hasNext();
    if (hasSmallBatches) {
      writeWithoutLimit(smallBatches);
    }
    if (hasSmallBatches && smallBatches.isLimitReached) {
      earlier.add(python.commit());
      metrics = python.currentMetricsValues();
      python.close();
      python = workers.get();
    }
    if (!hasSmallBatches || smallBatches.isLimitReached) {
      python.writeAll(smallBatches.remaining());
    }
    isFinished = true;
  }

  private void writeWithoutLimit(Iterator<InternalRow> rows) throws IOException {
    SQLConf conf = new SQLConf();
    Properties taskProperties = TaskContext.get().getLocalProperties();
    taskProperties.stringPropertyNames().forEach(key ->
        conf.settings().put(key, taskProperties.getProperty(key)));
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
    private final Deque<InternalRow> sampled = new ArrayDeque<>();
    private final int batchRows;
    private final long maxBytes;
    private InternalRow next;
    private long rowCount;
    private long bytes;
    private boolean isLimitReached;
    private boolean isUnlimited;

    SmallBatches(Iterator<InternalRow> rows, int batchRows, long maxBytes) {
      this.rows = rows;
      this.batchRows = batchRows;
      this.maxBytes = maxBytes;
    }

    /** Reaches the limit at once if full batches of rows as wide as the first ones are large. */
    void sampleFirstRows() {
      long sampledBytes = 0;
      while (sampled.size() < SAMPLED_ROWS && sampledBytes < maxBytes && rows.hasNext()) {
        InternalRow row = rows.next().copy();  // Spark reuses the object for the next row.
        sampled.add(row);
        sampledBytes += size(row);
      }
      if (sampled.size() == SAMPLED_ROWS || sampledBytes >= maxBytes) {
        isLimitReached = sampledBytes / sampled.size() * batchRows >= maxBytes;
      }
    }

    @Override public boolean hasNext() {
      if (next == null && (!sampled.isEmpty() || rows.hasNext())) {
        next = sampled.isEmpty() ? rows.next() : sampled.remove();
        bytes = batchRows > 0 && rowCount++ % batchRows == 0 ? 0 : bytes;
        bytes += size(next);
        isLimitReached |= bytes >= maxBytes;
      }
      return next != null && (isUnlimited || !isLimitReached);
    }

    private long size(InternalRow row) {
      return row instanceof UnsafeRow unsafe ? unsafe.getSizeInBytes() : maxBytes;
    }

    @Override public InternalRow next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      InternalRow row = next;
      next = null;
      return row;
    }

    Iterator<InternalRow> remaining() {
      isUnlimited = true;
      return this;
    }
  }

  @Override public WriterCommitMessage commit() throws IOException {
    earlier.add(python.commit());
    return earlier.size() == 1 ? earlier.get(0) : new TaskMessages(List.copyOf(earlier));
  }

  @Override public void abort() throws IOException { python.abort(); }

  @Override public void close() throws IOException { python.close(); }

  /** Python's metrics of all workers; at the end, since Spark requests them every hundred rows. */
  @Override public CustomTaskMetric[] currentMetricsValues() {
    if (!isFinished) {
      return NONE;
    }
    Map<String, Long> totals = Stream.of(metrics, python.currentMetricsValues())
        .flatMap(Arrays::stream)
        .collect(Collectors.groupingBy(
            CustomTaskMetric::name, Collectors.summingLong(CustomTaskMetric::value)));
    return totals.entrySet().stream().map(one ->
        new LanceScan.TaskMetric(one.getKey(), one.getValue()))
        .toArray(CustomTaskMetric[]::new);
  }
}
