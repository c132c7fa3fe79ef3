package org.pysparklance.python;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.alias.CredentialProviderFactory;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Hadoop's settings of the session for stores: credentials, endpoints and the like, as Parquet files
 * of the same session are opened, and the default file system, if it is not the local one. Python
 * resolves paths and translates them into storage options, which take
 * precedence. They join the options on the way to Python only, so that no plan shows them.
 */
final class HadoopSettings {
  /** Named so that Spark's default redaction hides the value wherever options are shown. */
  private static final String OPTION = "_lance.hadoop_secrets";
  private static final List<String> PREFIXES = List.of("fs.s3a.", "fs.azure.", "fs.gs.",
      "dfs.nameservices", "dfs.ha.namenodes.", "dfs.namenode.rpc-address.", "dfs.client.",
      "fs.viewfs.mounttable.", "hadoop.security.authentication", "dfs.data.transfer.protection");
  private static final Set<String> SCHEMES = Set.of(
      "s3", "s3a", "s3n", "s3+ddb", "abfs", "abfss", "az", "gcs", "gs", "hdfs", "viewfs");
  private static final String HOMES = "dfs.user.home.dir.prefix";
  private static final String PROVIDERS = "security.credential.provider.path";

  private HadoopSettings() {}

  /** {@code options} of a stream with the settings. */
  static CaseInsensitiveStringMap addTo(CaseInsensitiveStringMap options) {
    Map<String, String> found = of(options, false);
    return found.isEmpty() ? options
        : Options.with(options, OPTION, Python.JSON.valueToTree(found).toString());
  }

  /**
   * The settings, if the table is, or may be, in a store that has such.
   *
   * @param isNamed whether a catalog finds the table by its name
   */
  static Map<String, String> of(CaseInsensitiveStringMap options, boolean isNamed) {
    String path = options.get("path");
    boolean hasHost = path != null && PathUri.hasHost(path);
    boolean isResolved = !hasHost && (path != null || isNamed) && hasRemoteDefault();
    boolean mayBeRemote = path == null ? isNamed
        : isResolved || SCHEMES.contains(PathUri.scheme(path));
    if (!mayBeRemote) {
      return Map.of();
    }
    Configuration conf = SparkSession.active().sessionState().newHadoopConf();
    Map<String, String> found = read(conf);
    if (isResolved) {
      addDefaultFileSystem(conf, found);
    }
    return found;
  }

  /** Whether paths without a scheme are in another file system than the local one. */
  static boolean hasRemoteDefault() {
    // Without a copy of all settings, of which there are a thousand.
    String name = FileSystem.FS_DEFAULT_NAME_KEY;
    String uri = SQLConf.get().getConfString(name,
        ActiveQuery.context().hadoopConfiguration().get(name, ""));
    return !uri.isBlank() && !uri.trim().matches("(?i)(file|local)(:.*)?");
  }

  /** The default file system and its home folders, by which Python resolves paths. */
  private static void addDefaultFileSystem(Configuration conf, Map<String, String> found) {
    found.put(FileSystem.FS_DEFAULT_NAME_KEY, FileSystem.getDefaultUri(conf).toString());
    try {
      found.put("user.name", UserGroupInformation.getCurrentUser().getShortUserName());
    } catch (IOException unknown) {
      throw new UncheckedIOException(unknown);
    }
    String homes = conf.get(HOMES);
    if (homes != null) {
      found.put(HOMES, homes);
    }
  }

  /** The settings that differ from Hadoop's own defaults, and those of its credential files. */
  private static Map<String, String> read(Configuration conf) {
    Map<String, String> found = new TreeMap<>();
    boolean hasFiles = false;
    for (Map.Entry<String, String> one : conf) {
      String name = one.getKey();
      if (isStoreSetting(name) && isSet(conf, one)) {
        found.put(name, conf.get(name));  // with variables replaced
      }
      hasFiles |= name.endsWith(PROVIDERS) && isSet(conf, one);
    }
    if (hasFiles) {
      readCredentialFiles(conf, found);
    }
    return found;
  }

  private static boolean isStoreSetting(String name) {
    return PREFIXES.stream().anyMatch(name::startsWith);
  }

  private static boolean isSet(Configuration conf, Map.Entry<String, String> one) {
    String[] sources = conf.getPropertySources(one.getKey());
    return !one.getValue().isBlank() && (sources == null || sources.length == 0
        || !sources[sources.length - 1].endsWith("-default.xml"));
  }

  private static void readCredentialFiles(Configuration conf, Map<String, String> found) {
    try {
      for (var provider : CredentialProviderFactory.getProviders(conf)) {
        for (String alias : provider.getAliases()) {
          if (isStoreSetting(alias)) {
            found.put(alias, new String(provider.getCredentialEntry(alias).getCredential()));
          }
        }
      }
    } catch (IOException unreadable) {
      throw new UnsupportedOperationException("[LANCE_INVALID_INPUT] the credentials that "
          + "hadoop.security.credential.provider.path names cannot be read: "
          + unreadable.getMessage() + "\n  hint: set storage.* options instead", unreadable);
    }
  }
}
