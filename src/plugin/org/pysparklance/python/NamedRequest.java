package org.pysparklance.python;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table in a request of a catalog, which Python finds by its name.
 *
 * @param options the options of the tables of the catalog, and of this request
 * @param catalog the settings of the catalog; null, as the name, if the options have a path
 * @param name the namespace and the name
 */
public record NamedRequest(CaseInsensitiveStringMap options, JsonNode catalog, List<String> name) {
  /** A table of which the options have the path. */
  public static NamedRequest of(CaseInsensitiveStringMap options) {
    return new NamedRequest(options, null, null);
  }

  /** With more options. */
  public NamedRequest with(Map<String, String> more) {
    return new NamedRequest(Options.merge(options, more), catalog, name);
  }
}
