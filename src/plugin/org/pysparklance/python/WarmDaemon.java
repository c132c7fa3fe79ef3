package org.pysparklance.python;

import java.io.IOException;
import java.lang.ProcessBuilder.Redirect;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.spark.SparkConf;
import org.apache.spark.api.python.PythonFunction;

/**
 * Configures the daemon that forks Python workers: ours is PySpark's, and can import the modules of
 * tasks before it forks. Only if the Python of all workers can import it, since no worker starts
 * without it, and only if the session sets no other daemon.
 */
final class WarmDaemon {
  private static final String SETTING = "spark.python.daemon.module";
  private static final String MODULE = "pyspark_lance.spark.daemon";
  /** Finds the package without importing it. */
  private static final String FIND_PACKAGE = """
      import importlib.util, os, sys
      found = importlib.util.find_spec("pyspark_lance")
      folders = found and found.submodule_search_locations or ()
      sys.exit(not any(os.path.exists(f"{one}/spark/daemon.py") for one in folders))
      """;
  private static final long MAX_WAIT_S = 20;

  /** Results by Python executable. */
  private static final Map<String, Boolean> CAN_IMPORT = new HashMap<>();

  private WarmDaemon() {}

  /** Whether our daemon forks new workers of {@code function}. */
  static synchronized boolean use(SparkConf settings, PythonFunction function) {
    if (!settings.contains(SETTING) && areImportable(function)) {
      settings.setIfMissing(SETTING, MODULE);
    }
    return settings.get(SETTING, "").equals(MODULE);
  }

  private static boolean areImportable(PythonFunction function) {
    Map<String, String> environment = System.getenv();
    String defaultPython = environment.getOrDefault("PYSPARK_PYTHON", "python3");
    return Stream.of(function.pythonExec(), defaultPython).distinct()
        .allMatch(
        python -> CAN_IMPORT.computeIfAbsent(python, name -> canImport(name, function.envVars())));
  }

  private static boolean canImport(String python, Map<String, String> environment) {
    ProcessBuilder builder = new ProcessBuilder(python, "-c", FIND_PACKAGE)
        .redirectOutput(Redirect.DISCARD).redirectError(Redirect.DISCARD);
    builder.environment().putAll(environment);
    try {
      Process process = builder.start();
      process.getOutputStream().close();
      boolean hasEnded = process.waitFor(MAX_WAIT_S, TimeUnit.SECONDS);
      process.destroy();
      return hasEnded && process.exitValue() == 0;
    } catch (IOException failure) {
      return false;
    } catch (InterruptedException cancelled) {
      Thread.currentThread().interrupt();
      return false;
    }
  }
}
