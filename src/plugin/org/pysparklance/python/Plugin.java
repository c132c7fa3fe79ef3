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
 * Decides whether the plugin is active in a session. The jar is in Spark's jars folder, so Spark
 * may be an untested release: this class only uses what all releases have.
 */
public final class Plugin {
  /** {@code off} disables the plugin, as without the jar. */
  public static final String SETTING = "spark.sql.lance.plugin";
  /** The environment variable with the same meaning. */
  private static final String VARIABLE = "PYSPARK_LANCE_PLUGIN";
  /** Python has the same list. */
  private static final List<String> TESTED_RELEASES = List.of("4.0", "4.1", "4.2", "4.3");
  /** The short name of an inactive source, which no query uses. */
  public static final String HIDDEN_NAME = "lance, whose plugin is off";
  /** Python prints once per application how to install the plugin, and creates this file. */
  private static final String NOTICE = ".pyspark-lance-notice";

  private static String identity;

  private Plugin() {}

  /** Whether the plugin is active in the current session. */
  public static boolean isOn() { return isOn(SQLConf.get().getConfString(SETTING, null)); }

  public static boolean isOn(String setting) {
    String state = setting != null ? setting : System.getenv().getOrDefault(VARIABLE, "on");
    return isTested(package$.MODULE$.SPARK_VERSION()) && !state.equalsIgnoreCase("off");
  }

  /** The release without suffixes that vendors add. */
  private static boolean isTested(String release) {
    return TESTED_RELEASES.stream().anyMatch(tested -> release.equals(tested)
        || release.startsWith(tested + "."));
  }

  /** Suppresses the advice if the user disabled the plugin; in an untested Spark Python prints it. */
  public static void hideNotice() {
    if (isTested(package$.MODULE$.SPARK_VERSION())) {
      try {
        new File(SparkFiles.getRootDirectory(), NOTICE).createNewFile();
      } catch (IOException notWritten) {
        // The advice is printed then.
      }
    }
  }

  /** Version, digest of the sources and path of this jar, which Python compares with its own. */
  public static synchronized String identity() {
    if (identity == null) {
      CodeSource source = Plugin.class.getProtectionDomain().getCodeSource();
      String path = source == null ? "" : source.getLocation().getPath();
      try (JarFile jar = new JarFile(path)) {
        Attributes attributes = jar.getManifest().getMainAttributes();
        identity = attributes.getValue("Implementation-Version") + " "
            + attributes.getValue("Sources-Digest") + " " + path;
      } catch (IOException unreadable) {
        identity = "unknown unknown " + path;
      }
    }
    return identity;
  }
}
