package org.pysparklance.write;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.concurrent.*;
import java.util.stream.Stream;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.connector.write.*;
import org.apache.spark.sql.types.DataType;
import org.pysparklance.python.Python;

/**
 * Spark hands changes over one by one, and its Python writer wants an iterator; a thread between
 * them keeps at most a few rows waiting. Runs on executors.
 */
final class ChangeWriter implements DeltaWriter<InternalRow> {
  private static final int DELETE = 1;
  private static final int UPDATE = 2;
  private static final int INSERT = 3;
  private static final int WAITING_ROWS = 4096;
  private static final InternalRow END = new GenericInternalRow(0);

  private final BlockingQueue<InternalRow> queue = new ArrayBlockingQueue<>(WAITING_ROWS);
  private final DataWriter<InternalRow> python;
  private final InternalRow noValues;
  private final DataType[] types;
  private final int[] places;
  private final FutureTask<Void> writing;
  private final Thread thread;

  /** Writes the values at some places of the rows that come, which have the given types. */
  ChangeWriter(DataWriter<InternalRow> python, DataType[] types, int[] places) {
    this.python = python;
    this.types = types;
    this.places = places;
    this.noValues = new GenericInternalRow(types.length);
    TaskContext context = TaskContext.get();
    writing = new FutureTask<>(() -> TaskContext.withTaskContext(context, this::writeAll));
    thread = new Thread(writing, "lance changes of task " + context.taskAttemptId());
    thread.setDaemon(true);
    thread.start();
  }

  private Void writeAll() {
    try {
      python.writeAll(Stream.generate(this::next).takeWhile(row -> row != END).iterator());
      return null;
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private InternalRow next() {
    try {
      return queue.take();
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("the task was cancelled", error);
    }
  }

  @Override public void delete(InternalRow metadata, InternalRow id) throws IOException {
    put(DELETE, null, id.getLong(0), noValues);
  }

  @Override
  public void update(InternalRow metadata, InternalRow id, InternalRow row) throws IOException {
    put(UPDATE, metadata.getLong(0), id.getLong(0), values(row));
  }

  @Override public void insert(InternalRow row) throws IOException {
    put(INSERT, null, null, values(row));
  }

  private InternalRow values(InternalRow row) {
    Object[] values = new Object[places.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = InternalRow.copyValue(row.get(places[i], types[i]));
    }
    return new GenericInternalRow(values);
  }

  private void put(int action, Long rowId, Long address, InternalRow values) throws IOException {
    enqueue(new JoinedRow(new GenericInternalRow(new Object[] {action, rowId, address}), values));
  }

  private void enqueue(InternalRow row) throws IOException {
    try {
      while (!queue.offer(row, 100, TimeUnit.MILLISECONDS)) {
        if (writing.isDone()) {
          writing.get();
          throw new IOException("Python stopped reading before the last change");
        }
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
