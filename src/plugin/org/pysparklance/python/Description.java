package org.pysparklance.python;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Python's description of one version of a table.
 *
 * @param schema the columns that the options of the read select
 * @param facts root, version, title, rows, fragments, lineage columns, widths, stored bytes and types of
 *     columns
 */
public record Description(StructType schema, JsonNode facts) {
  /** Spark adds eight bytes per row; with this value, TPC-H queries were faster. */
  private static final double ROW_BYTES = 4;
  /** The limit of a broadcast is ten of these. */
  private static final long BLOB_BYTES = 1 << 20;

  public static Description of(JsonNode facts) {
    return new Description((StructType) DataType.fromJson(facts.get("schema").asText()), facts);
  }

  /** The root of the table or branch. */
  public String root() { return facts.get("root").asText(); }

  public String version() { return facts.get("version").asText(); }

  /** Distinguishes the version from the same number in a table that replaced this one; may be null. */
  public String base() { return facts.path("base").asText(null); }

  /** The columns as declared: with defaults, lengths of strings, NOT NULL, comments. */
  public StructType declared() {
    JsonNode text = facts.get("declared");
    return text == null ? schema : (StructType) DataType.fromJson(text.asText());
  }

  /** The declared columns, blob columns with the types that writes accept for them. */
  public StructType written() {
    Map<String, DataType> blobs = blobs();
    return new StructType(Arrays.stream(declared().fields())
        .map(one -> new StructField(one.name(), blobs.getOrDefault(one.name(), one.dataType()),
            one.nullable(), one.metadata()))
        .toArray(StructField[]::new));
  }

  /** The properties that the table stores. */
  public Map<String, String> properties() {
    return facts.has("properties")
        ? Python.JSON.convertValue(facts.get("properties"), new TypeReference<>() {}) : Map.of();
  }

  /** The columns of the primary key, in its order. */
  public List<String> primaryKey() { return names("primary_key"); }

  /** The clustering columns. */
  public List<String> clusterBy() { return names("cluster_by"); }

  /** The columns by which rows have been sorted. */
  public List<String> keys() { return names("keys"); }

  /** The columns whose values have separate files. */
  public List<String> split() { return names("split"); }

  /** The columns with blobs, and the types that writes accept for them. */
  public Map<String, DataType> blobs() {
    Map<String, DataType> all = new HashMap<>();
    facts.path("blobs").fields().forEachRemaining(
        one -> all.put(one.getKey(), DataType.fromJson(one.getValue().asText())));
    return all;
  }

  /**
   * The same version with blob columns as binary. The lengths of blobs in separate files are not
   * known, so estimates are high.
   */
  public Description withBytes(Collection<String> columns) {
    Map<String, DataType> written = blobs();
    StructField[] fields = Arrays.stream(schema.fields())
        .map(one -> columns.contains(one.name()) ? new StructField(one.name(),
            written.get(one.name()), one.nullable(), one.metadata()) : one)
        .toArray(StructField[]::new);
    ObjectNode known = facts.deepCopy();
    for (String column : columns) {
      known.withObject("/widths").put(column, BLOB_BYTES);
      known.withObject("/stored").put(column, BLOB_BYTES);
    }
    return new Description(new StructType(fields), known);
  }

  /** The title in EXPLAIN. */
  public String title() { return facts.get("title").asText(); }

  /** Live rows; -1 if the manifest is not enough to count them. */
  public long rows() { return facts.get("rows").asLong(); }

  public long fragments() { return facts.get("fragments").asLong(); }

  /** The hidden columns, by name. */
  public JsonNode lineage() { return facts.get("lineage"); }

  /**
   * The type of a column for which conditions in Python mean the same as in Spark: its name, an
   * object for a struct, or a missing node.
   */
  public JsonNode typeOf(String[] column) {
    JsonNode found = facts.get("types");
    for (String name : column) {
      found = found.path(name);
    }
    return found;
  }

  /** Bytes of one row of the given columns in memory, roughly. */
  public long rowBytes(StructType columns) { return 8 + (long) bytes(columns, "widths"); }

  /**
   * Estimated bytes of rows in files, as for Spark's file sources. As there, each row adds some
   * bytes: sorted numbers take almost no space in files, but are rows in memory when broadcast.
   */
  public long storedBytes(StructType columns, long rows) {
    double compressed = Math.min(1, sum("stored") / Math.max(1, sum("widths")));
    return Math.max(1,
        (long) (rows * Math.max(1, ROW_BYTES * compressed + bytes(columns, "stored"))));
  }

  private double sum(String fact) {
    double sum = 0;
    for (JsonNode one : facts.path(fact)) {
      sum += one.asDouble();
    }
    return sum;
  }

  private double bytes(StructType columns, String fact) {
    double sum = 0;
    for (StructField column : columns.fields()) {
      double whole = facts.path(fact).path(column.name()).asDouble(8);
      boolean isOwn = schema.getFieldIndex(column.name()).isDefined();
      long all = isOwn ? schema.apply(column.name()).dataType().defaultSize() : 0;
      long some = column.dataType().defaultSize();
      sum += some < all ? Math.max(1, whole * some / all) : whole;
    }
    return sum;
  }

  private List<String> names(String fact) {
    return facts.has(fact)
        ? Python.JSON.convertValue(facts.get(fact), new TypeReference<>() {}) : List.of();
  }
}
