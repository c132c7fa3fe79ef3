package org.pysparklance.python;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Client of {@code python -m pyspark_lance.spark.service}, the one Python process of an application
 * that plans and commits. Requests of several threads run at the same time. The process ends with
 * the application; if it dies, the requests that it was serving fail, and the next one starts
 * another process.
 */
final class LanceService {
  /** Version of frames and methods; equal to {@code PROTOCOL} in spark/service/server.py. */
  static final int PROTOCOL = 5;

  /** Methods that change nothing. */
  private static final Set<String> READS = Set.of(
      "describe", "find", "exists", "absent", "new_table_options", "plan", "task_keys",
      "statistics", "bounds", "counts", "first", "choose_rewrite", "analysis", "indices",
      "create_index", "procedures", "statement", "declare", "tables", "namespaces", "namespace",
      "plan_read", "plan_write");

  /** The process of the running application; null before the first request. */
  private static LanceService current;

  private final String application;
  private final ServiceProcess process;
  private final AtomicLong lastId = new AtomicLong();
  private final Map<Long, CompletableFuture<Frame>> pending = new ConcurrentHashMap<>();
  private volatile boolean isClosed;

  private LanceService(String application, ServiceProcess process) {
    this.application = application;
    this.process = process;
  }

  /**
   * Calls a method and waits for its response. One that only reads is called once more if the process
   * ends before it responds, as it may have ended unnoticed before the call.
   *
   * <p>An interrupt of the thread cancels the request. The wait for one that only reads ends then.
   * Others end or have happened before this returns: Spark removes the files of a failed write, and
   * a commit that went on would refer to them.
   *
   * @throws LanceException the method failed, or the process ended before it responded
   */
  static Frame call(String method, Frame request) {
    LanceService service = running();
    Frame response = service.send(method, request);
    if (response == null && READS.contains(method)) {
      service = running();
      response = service.send(method, request);
    }
    if (response == null) {
      throw LanceException.processEnded(method, service.process.exit()).raise();
    }
    return response;
  }

  /** Returns null if the process ended. */
  private Frame send(String method, Frame request) {
    CompletableFuture<Frame> response = new CompletableFuture<>();
    long id = lastId.incrementAndGet();
    pending.put(id, response);
    try {
      process.write(request.with("id", id).with("method", method));
    } catch (IOException failure) {
      close();
    }
    if (isClosed) {  // and may have been so before the response was registered
      fail(response);
    }
    return await(id, method, response);
  }

  private Frame await(long id, String method, CompletableFuture<Frame> response) {
    boolean isInterrupted = false;
    try {
      while (true) {
        try {
          return checkResponse(response.get(), method);
        } catch (InterruptedException interrupt) {
          isInterrupted = true;
          cancel(id);
          if (READS.contains(method)) {
            throw interrupted(method);
          }
        }
      }
    } catch (ExecutionException failure) {
      return null;
    } finally {
      pending.remove(id);
      if (isInterrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  private static Frame checkResponse(Frame response, String method) {
    JsonNode error = response.head().get("error");
    if (error == null) {
      return response;
    }
    throw error.has("cancelled") ? interrupted(method) : LanceException.of(error).raise();
  }

  /** An error that Spark's streams take for their own end. */
  private static UncheckedIOException interrupted(String method) {
    return new UncheckedIOException(new InterruptedIOException("interrupted in " + method));
  }

  /** Cancels a request, which ends at its next check. */
  private void cancel(long id) {
    ObjectNode head = Python.JSON.createObjectNode().put("cancel", id);
    try {
      process.write(new Frame(head));
    } catch (IOException closed) {
      // Then there is nothing to cancel.
    }
  }

  private static LanceService running() {
    SparkContext spark = ActiveQuery.context();
    synchronized (LanceService.class) {
      if (current != null
          && (current.isClosed || !spark.applicationId().equals(current.application))) {
        current.close();
        current = null;
      }
      if (current == null) {
        current = new LanceService(spark.applicationId(), ServiceProcess.start(spark));
        current.listen(spark);
      }
      return current;
    }
  }

  private void listen(SparkContext spark) {
    Thread reader = new Thread(this::readResponses, "lance-service-responses");
    reader.setDaemon(true);
    reader.start();
    spark.addSparkListener(new SparkListener() {
      @Override public void onApplicationEnd(SparkListenerApplicationEnd end) { close(); }
    });
  }

  private void readResponses() {
    try {
      for (Frame frame = process.read(); frame != null; frame = process.read()) {
        JsonNode record = frame.head().get("log");
        if (record != null) {
          log(record);
          continue;
        }
        CompletableFuture<Frame> waiting = pending.remove(frame.head().path("id").asLong());
        if (waiting != null) {
          waiting.complete(frame);
        }
      }
    } catch (IOException | RuntimeException failure) {
      // The stream cannot be read any further: treat it as if the process had ended.
    } finally {
      close();
    }
  }

  /** Logs a line of the process under the name of its logger in Python. */
  private static void log(JsonNode record) {
    Logger logger = LoggerFactory.getLogger(record.path("logger").asText());
    String message = record.path("message").asText();
    switch (record.path("level").asText()) {
      case "INFO" -> logger.info(message);
      case "WARNING" -> logger.warn(message);
      default -> logger.error(message);
    }
  }

  private void close() {
    isClosed = true;
    process.close();
    pending.values().forEach(this::fail);
  }

  private void fail(CompletableFuture<Frame> response) {
    response.completeExceptionally(new IOException("the process ended"));
  }
}
