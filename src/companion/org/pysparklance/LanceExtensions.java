package org.pysparklance;

import static java.nio.charset.StandardCharsets.UTF_8;

import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import org.pysparklance.catalog.VectorSearch;
import org.pysparklance.rules.ForeignColumns;
import org.pysparklance.rules.ForeignStatements;
import org.pysparklance.rules.ChangedViews;
import org.pysparklance.rules.EvolvingWrites;
import org.pysparklance.rules.HiddenInCondition;
import org.pysparklance.rules.TimesOfPaths;
import org.pysparklance.rules.UnsetColumns;
import scala.runtime.BoxedUnit;

/**
 * Spark runs this when it makes a session with this jar on its class path; it sets the two
 * catalogs, where the user has set no other, and repairs what Spark makes of hidden columns.
 */
public final class LanceExtensions implements SparkSessionExtensionsProvider {
  private static final String SOCKET = "spark.python.unix.domain.socket.";
  // Of some 104 bytes; the name of a file takes 43.
  private static final int LONGEST_FOLDER = 60;

  @Override public BoxedUnit apply(SparkSessionExtensions extensions) {
    SparkConf settings = SparkContext.getOrCreate().conf();
    settings.setIfMissing("spark.sql.catalog.lance", LanceCatalog.class.getName());
    settings.setIfMissing("spark.sql.catalog.spark_catalog", LanceSessionCatalog.class.getName());
    useUnixSocket(settings);
    extensions.injectHintResolutionRule(
        session -> new EvolvingWrites((org.apache.spark.sql.classic.SparkSession) session));
    extensions.injectHintResolutionRule(
        session -> new TimesOfPaths((org.apache.spark.sql.classic.SparkSession) session));
    extensions.injectResolutionRule(session -> new ChangedViews());
    extensions.injectPostHocResolutionRule(session -> new HiddenInCondition());
    extensions.injectPostHocResolutionRule(session -> new UnsetColumns());
    extensions.injectPostHocResolutionRule(session -> new ForeignColumns());
    extensions.injectTableFunction(VectorSearch.injected());
    extensions.injectParser(ForeignStatements::over);
    return BoxedUnit.UNIT;
  }

  /**
   * Python processes that start from now on talk to the JVM by a Unix socket, where all are on this
   * machine: by TCP, each scan waits some 40 ms more. Not where its path would be too long for one.
   */
  private static void useUnixSocket(SparkConf settings) {
    String folder = settings.get(SOCKET + "dir", System.getProperty("java.io.tmpdir"));
    boolean isLocal = settings.get("spark.master", "").matches("local(\\[.*)?");
    if (isLocal && folder.startsWith("/") && folder.getBytes(UTF_8).length <= LONGEST_FOLDER) {
      settings.setIfMissing(SOCKET + "enabled", "true");
    }
  }
}
