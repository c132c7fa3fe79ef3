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
 * What a Python worker reads, heard to its end also where the task ends before: by a limit, by a
 * join that is content. Spark kills a worker that has more to say, and the next task pays for a new
 * one. So it is told to stop, by a file that it looks for (see task_end.py), and what it had sent
 * is thrown away. Tasks that failed or were cancelled do not wait for it. Runs on executors.
 */
final class CancelOnLimit implements PartitionReader<InternalRow> {
  private final PartitionReader<InternalRow> python;
  private final AutoCloseable channel;
  private Thread listening;
  private boolean isOver;

  /** @param channel what makes a worker that waits look up, once it is closed */
  CancelOnLimit(PartitionReader<InternalRow> python, AutoCloseable channel) {
    this.python = python;
    this.channel = channel;
  }

  @Override public boolean next() throws IOException {
    isOver = !python.next();
    if (listening == null) {
      // Listeners run in turn, the last one first: this one before Spark's, which the first row
      // has brought and which takes the worker away.
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
      // What Python has to say now concerns nobody; at worst this worker ends.
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
