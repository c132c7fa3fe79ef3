package org.pysparklance.read;

import java.io.File;
import java.io.IOException;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.util.TaskCompletionListener;
import org.pysparklance.python.Python;

/**
 * Drains a Python worker when its task ends early, by a limit or a join. Spark kills a worker that
 * has more rows to send, and the next task has to start a new one. So this asks the worker to stop,
 * by a file that it checks (see scan_rows.py), and discards the remaining rows. Failed and cancelled
 * tasks do not wait. Runs on executors.
 */
final class CancelOnLimit implements PartitionReader<InternalRow> {
  private final PartitionReader<InternalRow> python;
  private final AutoCloseable channel;
  private Thread readingThread;
  private boolean isOver;

  /** @param channel a channel whose close wakes up a waiting worker */
  CancelOnLimit(PartitionReader<InternalRow> python, AutoCloseable channel) {
    this.python = python;
    this.channel = channel;
  }

  @Override public boolean next() throws IOException {
    isOver = !python.next();
    if (readingThread == null) {
      // Listeners run in reverse order: this one before Spark's, which was added with the first
      // row and releases the worker.
      readingThread = Thread.currentThread();
      TaskContext.get().addTaskCompletionListener((TaskCompletionListener) this::onTaskCompletion);
    }
    return !isOver;
  }

  boolean isOver() { return isOver; }

  private void onTaskCompletion(TaskContext task) {
    // TRANSFORM reads in another thread.
    boolean isSameThread = Thread.currentThread() == readingThread;
    if (isOver || !isSameThread || task.isInterrupted() || task.isFailed()) {
      return;
    }
    File marker = new File(
        SparkEnv.get().blockManager().diskBlockManager().localDirs()[0],
        "lance-enough-" + task.taskAttemptId());
    try {
      marker.createNewFile();
      channel.close();
      while (!task.isInterrupted() && python.next()) {
        python.get();
      }
    } catch (Exception failure) {
      // Errors of Python are irrelevant now; at worst this worker exits.
    } finally {
      marker.delete();
    }
  }

  @Override public InternalRow get() { return python.get(); }

  @Override public CustomTaskMetric[] currentMetricsValues() {
    return python.currentMetricsValues();
  }

  @Override public void close() throws IOException { python.close(); }
}
