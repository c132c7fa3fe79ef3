package org.pysparklance.python;

import static java.nio.charset.StandardCharsets.UTF_8;

import org.apache.spark.SparkConf;

/**
 * Python processes that start after the first use of a Lance table talk to the JVM by a Unix socket,
 * where all are on this machine: by TCP, each scan waits some 40 ms more. Not those before: a worker
 * that does nothing of ours prints a traceback when Spark closes its Unix socket after a minute.
 */
final class UnixSocket {
  private static final String SETTING = "spark.python.unix.domain.socket.";
  // A path of one has some 104 bytes; the name of the file takes 43.
  private static final int LONGEST_FOLDER = 60;

  private UnixSocket() {}

  static void use(SparkConf settings) {
    String folder = settings.get(SETTING + "dir", System.getProperty("java.io.tmpdir"));
    if (folder.startsWith("/") && folder.getBytes(UTF_8).length <= LONGEST_FOLDER) {
      settings.setIfMissing(SETTING + "enabled", "true");
    }
  }
}
