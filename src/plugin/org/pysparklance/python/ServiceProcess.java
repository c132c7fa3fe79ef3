package org.pysparklance.python;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkFiles;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.sql.internal.SQLConf;

/** The Python process of {@link LanceService}, which communicates over its standard streams. */
final class ServiceProcess {
  private static final String MODULE = "pyspark_lance.spark.service";
  private static final String MEMORY = "spark.sql.planner.pythonExecution.memory";
  private static final long END_WAIT_MS = 2_000;

  private final Process process;
  private final DataOutputStream requests;
  private final DataInputStream responses;
  private final ErrorOutput errors;

  private ServiceProcess(Process process) {
    this.process = process;
    this.requests = new DataOutputStream(new BufferedOutputStream(process.getOutputStream()));
    this.responses = new DataInputStream(new BufferedInputStream(process.getInputStream()));
    this.errors = new ErrorOutput(process.getErrorStream());
  }

  /** A Python to try, with its PYTHONPATH. */
  private record Candidate(String python, String path) {}

  /**
   * Starts the first Python that has this package and the same release of PySpark.
   *
   * @throws LanceException there is none
   */
  static ServiceProcess start(SparkContext spark) {
    List<String> failures = new ArrayList<>();
    for (Candidate candidate : candidates(spark.conf())) {
      try {
        ServiceProcess started = new ServiceProcess(builder(candidate, spark).start());
        String failure = started.handshake(spark.version());
        if (failure == null) {
          return started;
        }
        started.close();
        failures.add(candidate.python() + ": " + failure);
      } catch (IOException failure) {
        failures.add(candidate.python() + ": " + failure.getMessage());
      }
    }
    throw LanceException.notStarted(failures.stream().distinct().toList()).raise();
  }

  /** The driver's Python in Spark's order, each without and with the archives of Spark. */
  private static Set<Candidate> candidates(SparkConf conf) {
    Map<String, String> environment = System.getenv();
    List<String> pythons = Stream.of(
            conf.get("spark.pyspark.driver.python", null), conf.get("spark.pyspark.python", null),
            environment.get("PYSPARK_DRIVER_PYTHON"), environment.get("PYSPARK_PYTHON"), "python3")
        .filter(Objects::nonNull).filter(one -> !one.isEmpty()).distinct().toList();
    String pythonPath = environment.getOrDefault("PYTHONPATH", "");
    String spark = Stream.of(PythonUtils.sparkPythonPath(), pythonPath)
        .filter(one -> !one.isEmpty()).collect(Collectors.joining(File.pathSeparator));
    // A PySpark that pip installed is imported faster from its folder than from Spark's archives.
    boolean isInstalled =
        new File(environment.getOrDefault("SPARK_HOME", ""), "__init__.py").exists();
    Set<Candidate> candidates = new LinkedHashSet<>();
    for (String path : isInstalled ? List.of(pythonPath, spark) : List.of(spark)) {
      pythons.forEach(python -> candidates.add(new Candidate(python, path)));
    }
    return candidates;
  }

  private static ProcessBuilder builder(Candidate candidate, SparkContext spark) {
    List<String> command = new ArrayList<>(List.of(candidate.python(), "-m", MODULE,
        "--protocol", Integer.toString(LanceService.PROTOCOL)));
    String memory = SQLConf.get().getConfString(MEMORY, null);
    if (memory != null) {
      command.addAll(List.of("--memory-mb", Long.toString(JavaUtils.byteStringAsMb(memory))));
    }
    ProcessBuilder builder = new ProcessBuilder(command);
    String path = Stream.concat(Stream.of(candidate.path()), addedFiles(spark))
        .filter(one -> !one.isEmpty()).collect(Collectors.joining(File.pathSeparator));
    builder.environment().put("PYTHONPATH", path);
    return builder;
  }

  /** The files of {@code --py-files} and {@code addPyFile}. */
  private static Stream<String> addedFiles(SparkContext spark) {
    File root = new File(SparkFiles.getRootDirectory());
    File[] archives = root.listFiles((folder, name) -> name.matches(".*\\.(zip|egg|whl)"));
    Stream<String> paths = archives == null ? Stream.empty()
        : Stream.of(archives).map(File::getPath).sorted();
    return archives == null || archives.length == 0 ? paths
        : Stream.concat(Stream.of(root.getPath()), paths);
  }

  /** Reads the first frame; returns null if it is valid, otherwise the problem. */
  private String handshake(String sparkVersion) throws IOException {
    Frame hello = read();
    if (hello == null) {
      return errors.lastLine();
    }
    JsonNode head = hello.head();
    if (head.path("protocol").asInt() != LanceService.PROTOCOL) {
      return "pyspark-lance " + head.path("version").asText() + " does not fit this jar, which "
          + "belongs to another release";
    }
    if (!sparkVersion.startsWith(head.path("pyspark").asText())) {
      return "PySpark " + head.path("pyspark").asText() + " does not fit Spark " + sparkVersion;
    }
    errors.forward();
    return null;
  }

  synchronized void write(Frame frame) throws IOException { frame.write(requests); }

  /** Returns null when the process has ended. Not thread-safe. */
  Frame read() throws IOException { return Frame.read(responses); }

  /** A description of how the process ended. */
  String exit() {
    try {
      return process.waitFor(END_WAIT_MS, TimeUnit.MILLISECONDS)
          ? "exit code " + process.exitValue() : "it still runs";
    } catch (InterruptedException cancelled) {
      Thread.currentThread().interrupt();
      return "interrupted";
    }
  }

  /** Kills the process, whose running commits may or may not succeed. */
  void close() { process.destroy(); }

  /** The error output of the process: buffered until the process is accepted, then printed. */
  private static final class ErrorOutput {
    private static final int MAX_BUFFERED = 1 << 16;

    private final ByteArrayOutputStream buffered = new ByteArrayOutputStream();
    private final Thread reader;
    private boolean isForwarded;

    ErrorOutput(InputStream stream) {
      reader = new Thread(() -> copy(stream), "lance-service-errors");
      reader.setDaemon(true);
      reader.start();
    }

    private void copy(InputStream stream) {
      byte[] buffer = new byte[8192];
      try {
        for (int size = stream.read(buffer); size >= 0; size = stream.read(buffer)) {
          accept(buffer, size);
        }
      } catch (IOException closed) {
        // The process has ended.
      }
    }

    private synchronized void accept(byte[] buffer, int size) {
      if (isForwarded) {
        System.err.write(buffer, 0, size);
        System.err.flush();
      } else if (buffered.size() < MAX_BUFFERED) {
        buffered.write(buffer, 0, size);
      }
    }

    synchronized void forward() {
      isForwarded = true;
      System.err.writeBytes(buffered.toByteArray());
    }

    String lastLine() {
      try {
        reader.join(END_WAIT_MS);
      } catch (InterruptedException cancelled) {
        Thread.currentThread().interrupt();
      }
      String[] lines;
      synchronized (this) {
        lines = buffered.toString(UTF_8).strip().split("\n");
      }
      return lines[lines.length - 1].isEmpty() ? "it ended at once" : lines[lines.length - 1];
    }
  }
}
