package org.pysparklance.python;

import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The parts of the text of a path, as {@code store/hadoop_options.py} separates them. */
public final class PathUri {
  // A path without a scheme may have a colon, too.
  private static final Pattern SCHEME = Pattern.compile("([A-Za-z][A-Za-z0-9+.:-]*?):(?=/)");
  private static final Pattern HOST = Pattern.compile("//[^/]+");

  private PathUri() {}

  /** The scheme in small letters, or an empty text. */
  public static String scheme(String path) {
    Matcher found = SCHEME.matcher(path);
    return found.lookingAt() ? found.group(1).toLowerCase(Locale.ROOT) : "";
  }

  /** Whether it has a host or a bucket, so that no setting changes its meaning. */
  public static boolean hasHost(String path) {
    return host(path) != null;
  }

  /** The path on its host. */
  static String withoutHost(String path) {
    Matcher host = host(path);
    return host == null ? path : path.substring(host.end());
  }

  private static Matcher host(String path) {
    Matcher scheme = SCHEME.matcher(path);
    if (!scheme.lookingAt()) {
      return null;
    }
    Matcher host = HOST.matcher(path).region(scheme.end(), path.length());
    return host.lookingAt() ? host : null;
  }
}
