package org.pysparklance.python;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Prepares Python workers for the first tasks while the driver still plans, if both are on the same
 * machine: a new worker takes a second for its imports. Like a task, this runs a read, which returns
 * no row. With our daemon, one worker makes the daemon import the modules, and exits. With PySpark's
 * daemon, each worker imports them, and Spark keeps the workers for later tasks.
 */
public final class EarlyWorkers {
  private static final int MAX_WORKERS = 4;
  private static final long MAX_WAIT_MS = 10_000;
  private static final StructType EMPTY_ROWS = new StructType().add("nothing", "boolean");
  private static final Set<String> WRITE_METHODS = Set.of("plan_write", "absent", "exists");

  /** The running application; there is one at a time. */
  private static String application;
  private static volatile List<Thread> startingThreads = List.of();
  private static final AtomicInteger awaitingTasks = new AtomicInteger();

  private EarlyWorkers() {}

  /** Called with each request to Python; only the first one starts workers. */
  static synchronized void start(String method) {
    SparkContext spark = ActiveQuery.context();
    if (spark.applicationId().equals(application)) {
      return;
    }
    application = spark.applicationId();
    awaitingTasks.set(0);
    String pickleName = WRITE_METHODS.contains(method) ? "writes" : "reads";
    if (spark.isLocal()) {
      UnixSocket.use(spark.conf());
      startingThreads = startAll(spark, pickleName);
    } else {
      startingThreads = List.of();
    }
  }

  private static List<Thread> startAll(SparkContext spark, String pickleName) {
    int workers = Math.min(MAX_WORKERS, spark.defaultParallelism());
    Properties settings = new Properties();
    settings.putAll(CollectionConverters.asJava(SQLConf.get().getAllConfs()));
    return IntStream.range(0, workers).mapToObj(number -> {
      Thread thread = new Thread(() -> {
        // Here and not before the request: Spark starts a Python for its version.
        if (!WarmDaemon.use(spark.conf(), PythonTasks.source().dataSourceCls()) || number == 0) {
          run(PythonTasks.readers(pickle(pickleName), EMPTY_ROWS), settings);
        }
      }, "lance-early-worker-" + number);
      thread.setDaemon(true);
      thread.start();
      return thread;
    }).toList();
  }

  private static void run(PartitionReaderFactory readers, Properties settings) {
    TaskContext task = TaskContext$.MODULE$.empty();
    task.getLocalProperties().putAll(settings);
    TaskContext$.MODULE$.setTaskContext(task);
    try (PartitionReader<InternalRow> rows =
        readers.createReader(new PythonInputPartition(0, pickle("none")))) {
      while (rows.next()) {
        rows.get();
      }
    } catch (Exception | LinkageError failure) {
      // A task that needs a worker starts one, and reports the error.
    } finally {
      task.markTaskCompleted(Option.empty());
      TaskContext$.MODULE$.unset();
    }
  }

  /** Called by a task: a starting worker is ready sooner than a new one. */
  public static void await() {
    List<Thread> all = startingThreads;
    if (awaitingTasks.get() < all.size() && awaitingTasks.getAndIncrement() < all.size()) {
      try {
        for (Thread one : all) {
          one.join(MAX_WAIT_MS);
        }
      } catch (InterruptedException cancelled) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** A pickle that the build puts into the jar; see {@code early_pickles} of {@code build.py}. */
  private static byte[] pickle(String name) {
    try (InputStream found = EarlyWorkers.class.getResourceAsStream(name + ".pickle")) {
      return found.readAllBytes();
    } catch (IOException unreadable) {
      throw new UncheckedIOException(unreadable);
    }
  }
}
