package org.pysparklance.python;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A call of a method of {@link LanceService}: the settings of the session, the user's options, and
 * parameters. Absent parameters have the default of {@code plugin_requests.py}.
 */
final class Request {
  private static final String PREFIX = "_lance.";
  /**
   * Parameters that Spark carries as options of a table, and whether their text is JSON;
   * {@code internal_keys.py} has the reasons.
   */
  private static final Map<String, Boolean> OPTION_PARAMETERS = Map.of(
      "_lance.after", true, "_lance.until", true, "_lance.of_sql", true, Options.CREATE, true,
      "_lance.cluster_by", true, "_lance.state", false);

  private final String method;
  private final Frame frame = new Frame();
  private final ObjectNode parameters = Python.JSON.createObjectNode();
  private CaseInsensitiveStringMap table = CaseInsensitiveStringMap.empty();

  Request(String method) { this.method = method; }

  /** About the table of these options. */
  Request of(CaseInsensitiveStringMap options) {
    table = options;
    return this;
  }

  /** About a table that may have its name in a catalog. */
  Request of(TableRequest table) {
    return of(table.options()).with("catalog", table.catalog()).with("name", table.name());
  }

  /** About a new table; null is ignored. */
  Request creating(TableCreation creation) {
    return creation == null ? this : with("create", creation.replaces() ? null : true)
        .with("replace", creation.replaces() ? true : null)
        .with("properties", creation.properties()).with("cluster_by", creation.clusterBy());
  }

  /** About rows of a version. */
  Request of(ScanRequest scan) {
    return of(scan.options()).with("root", scan.root()).with("version", scan.version())
        .with("base", scan.base()).with("filter", scan.filter()).with("limit", scan.limit())
        .with("top", scan.top()).with("key_columns", scan.keyColumns())
        .with("key_tasks", scan.keyTasks())
        .with("whole_fragments", scan.wholeFragments() ? true : null);
  }

  /** Adds a parameter; null is ignored. */
  Request with(String name, Object value) {
    if (value instanceof StructType columns) {
      parameters.put(name, columns.json());
    } else if (value != null) {
      parameters.set(name, Python.JSON.valueToTree(value));
    }
    return this;
  }

  /** Adds bytes, each of which may be null. */
  Request with(String name, byte[][] attachments) {
    ArrayNode nodes = parameters.putArray(name);
    for (byte[] one : attachments) {
      nodes.add(frame.attach(one));
    }
    return this;
  }

  Request with(String name, byte[] bytes) {
    parameters.set(name, frame.attach(bytes));
    return this;
  }

  JsonNode result() { return send().head().get("result"); }

  /** The response with its attachments. */
  Frame send() {
    EarlyWorkers.start(method);
    Map<String, String> options = new HashMap<>();
    table.asCaseSensitiveMap().forEach((name, value) -> {
      if (OPTION_PARAMETERS.containsKey(name)) {
        parameters.set(name.substring(PREFIX.length()), OPTION_PARAMETERS.get(name) ? json(value)
            : Python.JSON.valueToTree(value));
      } else {
        options.put(name, value);
      }
    });
    return LanceService.call(method, frame.with("session", session())
        .with("options", Python.JSON.valueToTree(options)).with("params", parameters));
  }

  private static JsonNode json(String value) {
    try {
      return Python.JSON.readTree(value);
    } catch (JsonProcessingException error) {
      throw new IllegalArgumentException(error);
    }
  }

  private ObjectNode session() {
    SQLConf conf = SQLConf.get();
    ObjectNode session = Python.JSON.createObjectNode()
        .put("application", ActiveQuery.context().applicationId()).put("plugin", Plugin.identity())
        .put("time_zone", conf.sessionLocalTimeZone()).put("ansi", conf.ansiEnabled())
        .put("case_sensitive", conf.caseSensitiveAnalysis());
    Map<String, String> hadoopSettings = HadoopSettings.of(table, parameters.has("catalog"));
    return hadoopSettings.isEmpty() ? session
        : session.set("hadoop", Python.JSON.valueToTree(hadoopSettings));
  }
}
