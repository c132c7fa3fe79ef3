package org.pysparklance.write;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.concurrent.*;
import java.util.stream.Stream;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.write.*;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;
import org.pysparklance.compat.Releases;
import org.pysparklance.python.Python;

/**
 * Writes changes one by one to Spark's Python writer, which takes an iterator, through a thread with
 * a bounded queue: few rows, and few bytes, since values may be blobs. Runs on executors.
 */
final class LanceDeltaWriter implements DeltaWriter<InternalRow> {
  private static final int DELETE = 1;
  private static final int UPDATE = 2;
  private static final int INSERT = 3;
  private static final int MAX_QUEUED_ROWS = 4096;
  private static final int MAX_QUEUED_BYTES = 32 << 20;
  private static final QueuedRow END = new QueuedRow(null, 0);

  private final BlockingQueue<QueuedRow> queue = new ArrayBlockingQueue<>(MAX_QUEUED_ROWS);
  private final Semaphore freeBytes = new Semaphore(MAX_QUEUED_BYTES);
  private final DataWriter<InternalRow> python;
  private final InternalRow noValues;
  private final DataType[] types;
  private final int[] ordinals;
  private final FutureTask<Void> writing;
  private final Thread thread;

  /** Writes the values at some positions of the rows, which have the given types. */
  LanceDeltaWriter(DataWriter<InternalRow> python, DataType[] types, int[] ordinals) {
    this.python = python;
    this.types = types;
    this.ordinals = ordinals;
    this.noValues = new GenericInternalRow(types.length);
    TaskContext context = TaskContext.get();
    writing = new FutureTask<>(() -> Releases.inTask(context, this::writeAll));
    thread = new Thread(writing, "lance changes of task " + context.taskAttemptId());
    thread.setDaemon(true);
    thread.start();
  }

  private Void writeAll() {
    try {
      python.writeAll(Stream.generate(this::next).takeWhile(one -> one != END)
          .map(QueuedRow::row).iterator());
      return null;
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private QueuedRow next() {
    try {
      QueuedRow next = queue.take();
      freeBytes.release(next.bytes);
      return next;
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("the task was cancelled", error);
    }
  }

  @Override public void delete(InternalRow metadata, InternalRow id) throws IOException {
    enqueueChange(DELETE, null, id.getLong(0), noValues);
  }

  @Override
  public void update(InternalRow metadata, InternalRow id, InternalRow row) throws IOException {
    enqueueChange(UPDATE, metadata.getLong(0), id.getLong(0), values(row));
  }

  @Override public void insert(InternalRow row) throws IOException {
    enqueueChange(INSERT, null, null, values(row));
  }

  /** A row, and its size. */
  private record QueuedRow(InternalRow row, int bytes) {}

  private InternalRow values(InternalRow row) {
    Object[] values = new Object[ordinals.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = InternalRow.copyValue(row.get(ordinals[i], types[i]));
    }
    return new GenericInternalRow(values);
  }

  private void enqueueChange(int action, Long rowId, Long address, InternalRow values)
      throws IOException {
    InternalRow metadataValues = new GenericInternalRow(new Object[] {action, rowId, address});
    enqueue(new QueuedRow(new JoinedRow(metadataValues, values),
        (int) Math.min(MAX_QUEUED_BYTES, bytes(values))));
  }

  private long bytes(InternalRow values) {
    long total = 0;
    for (int i = 0; i < types.length; i++) {
      Object value = values.get(i, types[i]);
      total += value instanceof byte[] binary ? binary.length
          : value instanceof UTF8String text ? text.numBytes()
          : value instanceof UnsafeRow row ? row.getSizeInBytes() : Long.BYTES;
    }
    return total;
  }

  private void checkReading() throws InterruptedException, ExecutionException, IOException {
    if (writing.isDone()) {
      writing.get();
      throw new IOException("Python stopped reading before the last change");
    }
  }

  private void enqueue(QueuedRow row) throws IOException {
    try {
      while (!freeBytes.tryAcquire(row.bytes, 100, TimeUnit.MILLISECONDS)) {
        checkReading();
      }
      while (!queue.offer(row, 100, TimeUnit.MILLISECONDS)) {
        checkReading();
      }
      if (row == END) {
        writing.get();
      }
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new IOException("the task was cancelled", error);
    } catch (ExecutionException error) {
      if (error.getCause() instanceof RuntimeException cause) {
        throw cause;
      }
      throw new IOException(error.getCause());
    }
  }

  @Override public WriterCommitMessage commit() throws IOException {
    enqueue(END);
    return python.commit();
  }

  @Override public void abort() throws IOException {
    thread.interrupt();
    python.abort();
  }

  @Override public void close() throws IOException {
    thread.interrupt();
    python.close();
  }
}
