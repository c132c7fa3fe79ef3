package org.pysparklance.python;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Immutable maps of options, which are case insensitive but preserve the case of names. */
public final class Options {
  /** The pattern of secret options, which the event log redacts. */
  public static final String REDACTION = "spark.redaction.regex";
  /** Set for a temporary view, in {@code AddStatementOptions}. */
  public static final String OF_VIEW = "_lance.of_view";
  /** Set for a write that creates its table, or fails if there is one. */
  public static final String CREATE = "_lance.create";
  private static final List<String> CHANGE_FEED = List.of("readChangeFeed", "readChangeData");
  public static final List<String> TIME_TRAVEL = List.of(
      "version", "versionAsOf", "timestampAsOf", "tag", "readChangeFeed", "readChangeData");

  private Options() {}

  /** {@code base} overridden with alternating names and values; null values are ignored. */
  public static CaseInsensitiveStringMap with(CaseInsensitiveStringMap base, String... pairs) {
    Map<String, String> overrides = new HashMap<>();
    for (int i = 0; i < pairs.length; i += 2) {
      if (pairs[i + 1] != null) {
        overrides.put(pairs[i], pairs[i + 1]);
      }
    }
    return merge(base, overrides);
  }

  public static CaseInsensitiveStringMap merge(CaseInsensitiveStringMap base,
      Map<String, String> overrides) {
    Map<String, String> merged = new HashMap<>(base.asCaseSensitiveMap());
    Map<String, String> entries = overrides instanceof CaseInsensitiveStringMap options
        ? options.asCaseSensitiveMap() : overrides;
    merged.keySet().removeIf(name -> entries.keySet().stream().anyMatch(name::equalsIgnoreCase));
    merged.putAll(entries);
    return new CaseInsensitiveStringMap(merged);
  }

  public static CaseInsensitiveStringMap without(CaseInsensitiveStringMap base, String name) {
    Map<String, String> remaining = new HashMap<>(base.asCaseSensitiveMap());
    remaining.keySet().removeIf(name::equalsIgnoreCase);
    return new CaseInsensitiveStringMap(remaining);
  }

  /** The option for {@code VERSION AS OF}: a number, or a tag. */
  public static Map<String, String> versionOption(String version) {
    boolean isNumber = version.chars().allMatch(Character::isDigit);
    return Map.of(isNumber ? "version" : "tag", version);
  }

  /** Whether options pin a version, which no write changes. */
  public static boolean isTimeTravel(CaseInsensitiveStringMap options) {
    return TIME_TRAVEL.stream().anyMatch(options::containsKey);
  }

  /** Whether options ask for the change feed, which has more columns than the table. */
  public static boolean isChangeFeed(CaseInsensitiveStringMap options) {
    return CHANGE_FEED.stream().anyMatch(name -> options.getBoolean(name, false));
  }

  public static boolean isSamePath(String one, String other) {
    return plainPath(one).equals(plainPath(other));
  }

  private static String plainPath(String path) {
    boolean isLocal = PathUri.scheme(path).equals("file");
    String plain = (isLocal ? path.substring(5).replaceFirst("^/+", "/") : path)
        .replaceAll("/+$", "");
    // A catalog shows the whole URI of a path that a statement gives without its scheme.
    return HadoopSettings.hasRemoteDefault() ? PathUri.withoutHost(plain) : plain;
  }

  /** The option value of a Spark timestamp in microseconds since 1970. */
  public static String formatTimestamp(long micros) {
    return Instant.EPOCH.plus(micros, ChronoUnit.MICROS).toString();
  }

  /**
   * The options of a table from Spark's properties. A catalog mixes them with the table's
   * properties; options have a prefix, and the location is the path.
   */
  public static CaseInsensitiveStringMap ofTable(CaseInsensitiveStringMap properties) {
    if (!properties.containsKey(TableCatalog.PROP_PROVIDER)) {
      return properties;
    }
    Map<String, String> tableOptions = new HashMap<>();
    properties.asCaseSensitiveMap().forEach((name, value) -> {
      if (name.startsWith(TableCatalog.OPTION_PREFIX) && !name.endsWith(REDACTION)) {
        tableOptions.put(name.substring(TableCatalog.OPTION_PREFIX.length()), value);
      }
    });
    // A plain "path" may be a property of that name, so it has the lowest priority.
    CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(tableOptions);
    String location = properties.getOrDefault(TableCatalog.PROP_LOCATION, properties.get("path"));
    return with(options, "path", options.getOrDefault("path", location));
  }
}
