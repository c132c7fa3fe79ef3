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
 * by a file that it checks (see task_end.py), and discards the remaining rows. Failed and cancelled
 * tasks do not wait. Runs on executors.
 */
final class CancelOnLimit implements PartitionReader<InternalRow> {
  private final PartitionReader<InternalRow> python;
  private final AutoCloseable channel;
  private Thread listening;
  private boolean isOver;

  /** @param channel a channel whose close wakes up a waiting worker */
  CancelOnLimit(PartitionReader<InternalRow> python, AutoCloseable channel) {
    this.python = python;
    this.channel = channel;
  }

  @Override public boolean next() throws IOException {
    isOver = !python.next();
    if (listening == null) {
      // Listeners run in reverse order: this one before Spark's, which was added with the first
      // row and releases the worker.
      listening = Thread.currentThread();
      TaskContext.get().addTaskCompletionListener((TaskCompletionListener) this::hear);
    }
    return !isOver;
  }

  boolean isOver() { return isOver; }

  private void hear(TaskContext task) {
    boolean isAlone = Thread.currentThread() == listening;  // TRANSFORM reads in another thread
    if (isOver || !isAlone || task.isInterrupted() || task.isFailed()) {
      return;
    }
    File sign = new File(
        SparkEnv.get().blockManager().diskBlockManager().localDirs()[0],
        "lance-enough-" + task.taskAttemptId());
    try {
      sign.createNewFile();
      channel.close();
      while (!task.isInterrupted() && python.next()) {
        python.get();
      }
    } catch (Exception lost) {
      // Errors of Python are irrelevant now; at worst this worker exits.
    } finally {
      sign.delete();
    }
  }

  @Override public InternalRow get() { return python.get(); }

  @Override public CustomTaskMetric[] currentMetricsValues() {
    return python.currentMetricsValues();
  }

  @Override public void close() throws IOException { python.close(); }
}
