package org.pysparklance.python;

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
 * @param facts the other fields of the response
 * @param options the options that open the table, if a request had its name in a catalog
 * @param isExternal whether dropping that name keeps the files
 */
public record Description(StructType schema, JsonNode facts, Map<String, String> options,
    boolean isExternal) {
  /** Spark adds eight bytes per row; with this value, TPC-H queries were faster. */
  private static final double ROW_BYTES = 4;
  /** The limit of a broadcast is ten of these. */
  private static final long BLOB_BYTES = 1 << 20;

  static Description of(JsonNode facts) {
    return of(facts, Python.JSON.createObjectNode(), false);
  }

  static Description of(JsonNode facts, JsonNode options, boolean isExternal) {
    return new Description((StructType) DataType.fromJson(facts.get("schema").asText()), facts,
        options.isObject() ? Responses.texts(options) : Map.of(), isExternal);
  }

  /** Of a read without rows, and without a table. */
  public static Description nothing(StructType schema) {
    return new Description(schema, Python.JSON.createObjectNode(), Map.of(), false);
  }

  /** The root of the table or branch. */
  public String root() { return facts.get("root").asText(); }

  public String version() { return facts.get("version").asText(); }

  /** Distinguishes the version from the same number in a table that replaced this one; may be null. */
  public String base() { return facts.path("base").asText(null); }

  /** The columns as declared: with defaults, lengths of strings, NOT NULL, comments. */
  public StructType declaredSchema() {
    JsonNode text = facts.get("declared");
    return text == null ? schema : (StructType) DataType.fromJson(text.asText());
  }

  /** The declared columns, blob columns with the types that writes accept for them. */
  public StructType writeSchema() {
    Map<String, DataType> blobs = blobs();
    return new StructType(Arrays.stream(declaredSchema().fields())
        .map(one -> new StructField(one.name(), blobs.getOrDefault(one.name(), one.dataType()),
            one.nullable(), one.metadata()))
        .toArray(StructField[]::new));
  }

  /** The properties that the table stores. */
  public Map<String, String> properties() { return Responses.texts(facts.get("properties")); }

  /** The columns of the primary key, in its order. */
  public List<String> primaryKey() { return Responses.names(facts.path("primary_key")); }

  /** The clustering columns. */
  public List<String> clusterBy() { return Responses.names(facts.path("cluster_by")); }

  /** The columns by which rows have been sorted. */
  public List<String> keys() { return Responses.names(facts.path("keys")); }

  /** The columns whose values have separate files. */
  public List<String> split() { return Responses.names(facts.path("split")); }

  /** The hidden columns. */
  public List<String> lineageColumns() { return Responses.names(facts.path("lineage")); }

  /** Whether a join can prune by a column at run time. */
  public boolean isPrunable(String column) { return has(facts.path("prunable"), column); }

  /** Whether indices know the first values of a column. */
  public boolean hasBounds(String column) { return has(facts.path("ordered"), column); }

  /** Whether an index knows the number of rows of each value of a column. */
  public boolean hasValueCounts(String column) { return has(facts.path("counted"), column); }

  /** Whether there is an index as for {@code hasValueCounts}. */
  public boolean hasAnyValueCounts() { return !facts.path("counted").isEmpty(); }

  /** Whether the version certainly has no indices. */
  public boolean hasNoIndices() { return facts.path("num_indices").asInt(1) == 0; }

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
  public Description withBinaryBlobs(Collection<String> columns) {
    Map<String, DataType> types = blobs();
    StructField[] fields = Arrays.stream(schema.fields())
        .map(one -> columns.contains(one.name()) ? new StructField(one.name(),
            types.get(one.name()), one.nullable(), one.metadata()) : one)
        .toArray(StructField[]::new);
    ObjectNode copy = facts.deepCopy();
    for (String column : columns) {
      copy.withObject("/widths").put(column, BLOB_BYTES);
      copy.withObject("/stored").put(column, BLOB_BYTES);
    }
    return new Description(new StructType(fields), copy, options, isExternal);
  }

  /** The title in EXPLAIN. */
  public String title() { return facts.get("title").asText(); }

  /** Live rows; -1 if the manifest is not enough to count them. */
  public long rows() { return facts.get("rows").asLong(); }

  public long fragments() { return facts.get("fragments").asLong(); }

  /** A scan of all rows. */
  public Responses.Plan wholePlan() {
    return new Responses.Plan(
        rows(), facts.has("fragments") ? fragments() : null, List.of(), null);
  }

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
  public long rowBytes(StructType columns) {
    return 8 + (long) bytes(columns, facts.path("widths"));
  }

  /**
   * Estimated bytes of rows in files, as for Spark's file sources. As there, each row adds some
   * bytes: sorted numbers take almost no space in files, but are rows in memory when broadcast.
   */
  public long storedBytes(StructType columns, long rows) {
    JsonNode stored = facts.path("stored");
    double compressed = Math.min(1, sum(stored) / Math.max(1, sum(facts.path("widths"))));
    return Math.max(1,
        (long) (rows * Math.max(1, ROW_BYTES * compressed + bytes(columns, stored))));
  }

  private static double sum(JsonNode numbers) {
    double sum = 0;
    for (JsonNode one : numbers) {
      sum += one.asDouble();
    }
    return sum;
  }

  private double bytes(StructType columns, JsonNode widths) {
    double sum = 0;
    for (StructField column : columns.fields()) {
      double columnBytes = widths.path(column.name()).asDouble(8);
      boolean isTopLevel = schema.getFieldIndex(column.name()).isDefined();
      long fullSize = isTopLevel ? schema.apply(column.name()).dataType().defaultSize() : 0;
      long prunedSize = column.dataType().defaultSize();
      sum += prunedSize < fullSize ? Math.max(1, columnBytes * prunedSize / fullSize) : columnBytes;
    }
    return sum;
  }

  private static boolean has(JsonNode names, String name) {
    for (JsonNode one : names) {
      if (one.asText().equals(name)) {
        return true;
      }
    }
    return false;
  }
}
