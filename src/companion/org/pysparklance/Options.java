package org.pysparklance;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Immutable maps of options, with regard to the case of the names only in what they keep. */
final class Options {
  private Options() {}

  /** {@code base} with names and values in turn laid over it; null values are passed over. */
  static CaseInsensitiveStringMap with(CaseInsensitiveStringMap base, String... pairs) {
    Map<String, String> merged = new HashMap<>(base.asCaseSensitiveMap());
    for (int i = 0; i < pairs.length; i += 2) {
      if (pairs[i + 1] != null) {
        put(merged, pairs[i], pairs[i + 1]);
      }
    }
    return new CaseInsensitiveStringMap(merged);
  }

  static CaseInsensitiveStringMap merge(
      CaseInsensitiveStringMap base, CaseInsensitiveStringMap over) {
    Map<String, String> merged = new HashMap<>(base.asCaseSensitiveMap());
    over.asCaseSensitiveMap().forEach((name, value) -> put(merged, name, value));
    return new CaseInsensitiveStringMap(merged);
  }

  static CaseInsensitiveStringMap without(CaseInsensitiveStringMap base, String name) {
    Map<String, String> rest = new HashMap<>(base.asCaseSensitiveMap());
    rest.keySet().removeIf(name::equalsIgnoreCase);
    return new CaseInsensitiveStringMap(rest);
  }

  private static void put(Map<String, String> map, String name, String value) {
    map.keySet().removeIf(name::equalsIgnoreCase);
    map.put(name, value);
  }

  /**
   * The options of a table from what Spark passes on. A catalog mixes them with the table's
   * properties; those that were given as options carry a prefix, and the location is the path.
   */
  static CaseInsensitiveStringMap ofTable(CaseInsensitiveStringMap given) {
    if (!given.containsKey(TableCatalog.PROP_PROVIDER)) {
      return given;
    }
    Map<String, String> options = new HashMap<>();
    given.asCaseSensitiveMap().forEach((name, value) -> {
      if (name.startsWith(TableCatalog.OPTION_PREFIX)) {
        options.put(name.substring(TableCatalog.OPTION_PREFIX.length()), value);
      }
    });
    for (String name : new String[] {TableCatalog.PROP_LOCATION, "path"}) {
      if (given.containsKey(name)) {
        put(options, "path", given.get(name));
      }
    }
    return new CaseInsensitiveStringMap(options);
  }
}
