package org.pysparklance.python;

import static java.nio.charset.StandardCharsets.UTF_8;

import org.apache.spark.SparkConf;

/**
 * Makes Python processes that start after the first use of a Lance table connect to the JVM by a
 * Unix socket, if all are on this machine: with TCP, each scan waits about 40 ms more. Not earlier,
 * since other workers print a traceback when Spark closes their Unix socket after a minute.
 */
final class UnixSocket {
  private static final String SETTING = "spark.python.unix.domain.socket.";
  // The path of a socket has at most about 104 bytes; the file name takes 43.
  private static final int MAX_FOLDER_BYTES = 60;

  private UnixSocket() {}

  static void use(SparkConf settings) {
    String folder = settings.get(SETTING + "dir", System.getProperty("java.io.tmpdir"));
    if (folder.startsWith("/") && folder.getBytes(UTF_8).length <= MAX_FOLDER_BYTES) {
      settings.setIfMissing(SETTING + "enabled", "true");
    }
  }
}
