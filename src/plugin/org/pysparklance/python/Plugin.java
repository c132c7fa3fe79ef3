package org.pysparklance.python;

import java.io.File;
import java.io.IOException;
import java.security.CodeSource;
import java.util.List;
import java.util.jar.Attributes;
import java.util.jar.JarFile;
import org.apache.spark.SparkFiles;
import org.apache.spark.package$;
import org.apache.spark.sql.internal.SQLConf;

/**
 * Whether this jar takes part in a session. It lies among Spark's own jars, so that it may meet a
 * Spark that it was not tested with: this class uses what all releases have.
 */
public final class Plugin {
  /** {@code off} leaves all to Python, as without the jar. */
  public static final String SETTING = "spark.sql.lance.plugin";
  /** The same for applications that do not set the above. */
  private static final String VARIABLE = "PYSPARK_LANCE_PLUGIN";
  /** Python has the same list. */
  private static final List<String> TESTED = List.of("4.1", "4.2", "4.3");
  /** Of a source that no query finds. */
  public static final String HIDDEN_NAME = "lance, whose plugin is off";
  /** Python says once in an application that there is no plugin, and then makes this file. */
  private static final String NOTICE = ".pyspark-lance-notice";

  private static String identity;

  private Plugin() {}

  /** Whether it takes part in the session that asks. */
  public static boolean isOn() { return isOn(SQLConf.get().getConfString(SETTING, null)); }

  public static boolean isOn(String setting) {
    String said = setting != null ? setting : System.getenv().getOrDefault(VARIABLE, "on");
    return isTested(package$.MODULE$.SPARK_VERSION()) && !said.equalsIgnoreCase("off");
  }

  /** Vendors add to the number of a release, and change little. */
  private static boolean isTested(String release) {
    return TESTED.stream().anyMatch(one -> release.equals(one) || release.startsWith(one + "."));
  }

  /** A user who has switched the plugin off needs no advice; in an untested Spark Python gives it. */
  public static void hideNotice() {
    if (isTested(package$.MODULE$.SPARK_VERSION())) {
      try {
        new File(SparkFiles.getRootDirectory(), NOTICE).createNewFile();
      } catch (IOException notWritten) {
        // Then the advice is given.
      }
    }
  }

  /** Version, digest of the sources and place of this jar, by which Python knows its own. */
  public static synchronized String identity() {
    if (identity == null) {
      CodeSource source = Plugin.class.getProtectionDomain().getCodeSource();
      String place = source == null ? "" : source.getLocation().getPath();
      try (JarFile jar = new JarFile(place)) {
        Attributes said = jar.getManifest().getMainAttributes();
        identity = said.getValue("Implementation-Version") + " "
            + said.getValue("Sources-Digest") + " " + place;
      } catch (IOException unreadable) {
        identity = "unknown unknown " + place;
      }
    }
    return identity;
  }
}
