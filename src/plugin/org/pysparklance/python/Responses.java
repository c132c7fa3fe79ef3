package org.pysparklance.python;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * Responses of methods that have several values; {@link Description} is another one.
 * {@code plugin_responses.py} has the same fields; a test compares them.
 */
public final class Responses {
  private Responses() {}

  /**
   * A scan after pruning by metadata.
   *
   * @param fragments the fragments to read; null if they are unknown
   * @param indices titles of the indices that pruned rows
   * @param batches the rows of a small scan, as Arrow streams; null if it is not small
   */
  public record Plan(long rows, Long fragments, List<String> indices, byte[][] batches) {
    static Plan of(Frame response) {
      JsonNode plan = response.head().get("result");
      return new Plan(plan.get("rows").asLong(),
          plan.has("fragments") ? plan.get("fragments").asLong() : null,
          names(plan.path("indices")),
          plan.has("batches") ? response.allBytes(plan.get("batches")) : null);
    }
  }

  /**
   * The partitioning key of each task.
   *
   * @param values the values of the columns in each task
   * @param tasks a digest of the tasks
   */
  public record TaskKeys(List<String> columns, JsonNode values, String tasks) {
    /** Null if tasks have no keys. */
    static TaskKeys of(JsonNode response) {
      return !response.has("columns") ? null : new TaskKeys(names(response.get("columns")),
          response.get("values"), response.get("tasks").asText());
    }
  }

  /**
   * The location of a new table.
   *
   * @param options the options that open it
   * @param isNew whether the catalog has its name since the request
   */
  public record Declared(Map<String, String> options, boolean isNew) {
    static Declared of(JsonNode response) {
      return new Declared(texts(response.get("options")), response.path("is_new").asBoolean());
    }
  }

  /** Estimates of a scan, and of those of its columns that have estimates. */
  public record Estimates(long rows, Map<String, ColumnEstimate> columns) {
    static Estimates of(JsonNode response) {
      Map<String, ColumnEstimate> columns = new HashMap<>();
      response.get("columns").fields().forEachRemaining(
          one -> columns.put(one.getKey(), ColumnEstimate.of(one.getValue())));
      return new Estimates(response.get("rows").asLong(), columns);
    }
  }

  /** Estimates of a column; each of the last four may be null. */
  public record ColumnEstimate(long distinct, long nulls, JsonNode min, JsonNode max,
      Long averageBytes, Long maxBytes) {
    static ColumnEstimate of(JsonNode one) {
      return new ColumnEstimate(one.get("distinct").asLong(), one.get("nulls").asLong(),
          one.get("min"), one.get("max"),
          one.has("average_bytes") ? one.get("average_bytes").asLong() : null,
          one.has("most_bytes") ? one.get("most_bytes").asLong() : null);
    }
  }

  /**
   * The values of a column; each may be null if it is unknown.
   *
   * @param bounds the first and the last value, each null in JSON if there is none
   */
  public record Bounds(JsonNode bounds, JsonNode count) {
    static Bounds of(JsonNode response) {
      return new Bounds(response.get("bounds"), response.get("count"));
    }
  }

  /** An index, with the path of each column. */
  public record Index(String name, String kind, String[][] columns) {
    static Index of(JsonNode one) {
      return new Index(one.get("name").asText(), one.get("kind").asText(),
          Python.JSON.convertValue(one.get("columns"), String[][].class));
    }
  }

  /** A call of a procedure. */
  public record Call(String procedure, JsonNode arguments) {
    static Call of(JsonNode response) {
      return new Call(response.get("procedure").asText(), response.get("arguments"));
    }
  }

  /**
   * A procedure.
   *
   * @param parameters those that may be left out are nullable
   * @param rewrites whether it changes the rows that a table shows
   */
  public record Procedure(String description, StructType parameters, boolean rewrites) {
    static Procedure of(JsonNode one) {
      return new Procedure(one.get("description").asText(),
          (StructType) DataType.fromJson(one.get("parameters").asText()),
          one.get("rewrites").asBoolean());
    }
  }

  /**
   * What a procedure returned.
   *
   * @param state of a procedure whose tasks are to run; null if it is done
   * @param title what these tasks do, for people
   * @param schema the columns of the result of a procedure that is done
   * @param rows the result as JSON
   */
  public record Result(String state, String title, String schema, String rows) {
    static Result of(JsonNode response) {
      return new Result(response.path("state").asText(null), response.path("title").asText(null),
          response.path("schema").asText(null), response.path("rows").asText(null));
    }
  }

  static List<String> names(JsonNode all) {
    List<String> names = new ArrayList<>();
    all.forEach(one -> names.add(one.asText()));
    return names;
  }

  static Map<String, String> texts(JsonNode all) {
    return Python.JSON.convertValue(all, new TypeReference<>() {});
  }
}
