package org.pysparklance.rules;

import org.apache.spark.sql.RuntimeConfig;

/** Makes Spark redact the values of storage options, as {@code hide_storage_options} of Python. */
final class StorageRedaction {
  /** Spark matches this with the names of options. */
  private static final String OPTIONS = "(?i)^[\\w.]*\\bstorage\\.[\\w.]+$";

  /** Spark matches this with texts of plans and statements. */
  private static final String STRINGS = "(?is)\\bstorage\\.[\\w.]+"
      + "(?: ?(?:->|=) ?(?![*]{9})|,(?! )|\\\\*['\"`]\\s+=?\\s*\\\\*['\"]|['\"]\\s+value:)"
      + ".*?(?=\\n\\n(?:[(]\\d+[)] |== )|\\z)";

  private StorageRedaction() {}

  static void addTo(RuntimeConfig settings) {
    String options = "spark.sql.redaction.options.regex";
    settings.set(options, alternation(settings.get(options, "(?i)url"), OPTIONS));
    String strings = "spark.sql.redaction.string.regex";
    String existing = settings.get(strings, settings.get("spark.redaction.string.regex", ""));
    settings.set(strings, existing.isEmpty() ? STRINGS : alternation(existing, STRINGS));
  }

  private static String alternation(String existing, String addition) {
    return existing.contains(addition) ? existing : "(?:" + existing + ")|(?:" + addition + ")";
  }
}
