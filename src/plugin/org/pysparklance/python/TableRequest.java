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
public record TableRequest(CaseInsensitiveStringMap options, JsonNode catalog, List<String> name) {
  /** A table of which the options have the path. */
  public static TableRequest of(CaseInsensitiveStringMap options) {
    return new TableRequest(options, null, null);
  }

  /** With more options. */
  public TableRequest with(Map<String, String> overrides) {
    return new TableRequest(Options.merge(options, overrides), catalog, name);
  }
}
