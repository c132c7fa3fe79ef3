package org.pysparklance.python;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The methods of the service: all calls to Python, except for reads and writes, which
 * {@link PythonRead} and {@link PythonWrite} plan. {@code methods.py} has the same methods with the
 * same parameters and responses; a test compares them.
 */
public final class Python {
  /** The class of {@code format("lance")}, which identifies it for reads. */
  public static final String SOURCE = "org.pysparklance.LanceSource";
  public static final ObjectMapper JSON = new ObjectMapper();

  private Python() {}

  /** Names, in the syntax of an option. */
  public static String json(List<String> names) { return JSON.valueToTree(names).toString(); }

  // Tables.

  /** Describes the version that options select; fails if there is none. */
  public static Description describe(CaseInsensitiveStringMap table) {
    return describe(TableRequest.of(table), null);
  }

  /** The same, of a table that may have its name in a catalog. */
  public static Description describe(TableRequest table) { return describe(table, null); }

  /** The same, and checks the user's own schema. */
  public static Description describe(CaseInsensitiveStringMap table, StructType schema) {
    return describe(TableRequest.of(table), schema);
  }

  private static Description describe(TableRequest table, StructType schema) {
    return Description.of(new Request("describe").of(table).with("schema", schema).result());
  }

  /** As {@code describe}; null if there is no table. */
  public static Description find(CaseInsensitiveStringMap table) {
    return find(TableRequest.of(table));
  }

  /** Of a table that may have its name in a catalog. */
  public static Description find(TableRequest table) {
    JsonNode found = new Request("find").of(table).result();
    return found.has("table") ? Description.of(found.get("table"), found.path("options"),
        found.path("is_external").asBoolean()) : null;
  }

  public static boolean exists(CaseInsensitiveStringMap table) {
    return new Request("exists").of(table).result().get("exists").asBoolean();
  }

  /** Fails if there is a table. */
  public static void checkAbsent(CaseInsensitiveStringMap table) {
    new Request("absent").of(table).send();
  }

  /** The options with which a new table gets the columns of this one. */
  public static Map<String, String> newTableOptions(CaseInsensitiveStringMap table) {
    return Responses.texts(
        new Request("new_table_options").of(table).result().get("properties"));
  }

  /** Creates an empty table, or replaces one. */
  public static void create(
      CaseInsensitiveStringMap table, StructType columns, TableCreation creation) {
    new Request("create").of(table).creating(creation).with("schema", columns).send();
  }

  public static void alter(TableRequest table, JsonNode changes) {
    new Request("alter").of(table).with("changes", changes).send();
  }

  /** Deletes rows on the driver; {@code text} is the condition as the history shows it. */
  public static void delete(CaseInsensitiveStringMap table, String filter, String text) {
    new Request("delete").of(table).with("filter", filter).with("text", text).send();
  }

  public static List<Responses.Index> indices(CaseInsensitiveStringMap table) {
    List<Responses.Index> found = new ArrayList<>();
    new Request("indices").of(table).result().get("indices").forEach(
        one -> found.add(Responses.Index.of(one)));
    return found;
  }

  /** The call of the procedure that creates an index. */
  public static Responses.Call createIndex(CaseInsensitiveStringMap table, String index,
      List<String[]> columns, boolean isColumnOption, Map<String, String> options) {
    return Responses.Call.of(new Request("create_index").of(table).with("index", index)
        .with("columns", columns).with("of_column", isColumnOption).with("index_options", options)
        .result());
  }

  // Scans.

  /**
   * The remaining fragments and rows.
   *
   * @param smallBytes scans of at most this many bytes are read at once; 0 for none
   */
  public static Responses.Plan plan(
      ScanRequest scan, StructType columns, String mode, long smallBytes) {
    return Responses.Plan.of(
        new Request("plan").of(scan).with("columns", smallBytes > 0 ? columns : null)
            .with("transfer_mode", mode).with("small_bytes", smallBytes).send());
  }

  /** The key of each task; null if tasks have none. */
  public static Responses.TaskKeys taskKeys(ScanRequest scan, StructType columns) {
    return Responses.TaskKeys.of(
        new Request("task_keys").of(scan).with("columns", columns).result());
  }

  public static Responses.Estimates statistics(ScanRequest scan, StructType columns) {
    return Responses.Estimates.of(
        new Request("statistics").of(scan).with("columns", columns).result());
  }

  /**
   * Whether an UPDATE of some columns rewrites columns rather than rows.
   *
   * @param changed the number of changed rows by fragment; null for all rows
   */
  public static boolean rewritesColumns(
      ScanRequest scan, List<String> columns, Map<Long, Long> changed) {
    return new Request("choose_rewrite").of(scan).with("columns", columns)
        .with("changed", changed).result().get("by_columns").asBoolean();
  }

  public static Responses.Bounds bounds(ScanRequest scan, String column) {
    return Responses.Bounds.of(new Request("bounds").of(scan).with("column", column).result());
  }

  /** Counts of rows, by value if a column is given; null without such an index. */
  public static JsonNode counts(ScanRequest scan, String column) {
    return new Request("counts").of(scan).with("column", column).result().get("rows");
  }

  /** A condition of the first rows in the order of a column; null if it is unknown. */
  public static String firstRowsPredicate(ScanRequest scan, String column, int rows,
      boolean descending) {
    return new Request("first").of(scan).with("column", column).with("rows", rows)
        .with("descending", descending).result().path("filter").asText(null);
  }

  /** The expressions of ANALYZE TABLE; {@code columns} may be null for all. */
  public static List<String> analysis(ScanRequest scan, List<String> columns) {
    return Responses.names(new Request("analysis").of(scan).with("columns", columns).result()
        .get("expressions"));
  }

  public static void analyze(ScanRequest scan, List<String> results) {
    new Request("analyze").of(scan).with("results", results).send();
  }

  // Procedures and statements.

  /** All procedures by name. */
  public static Map<String, Responses.Procedure> procedures() {
    Map<String, Responses.Procedure> all = new LinkedHashMap<>();
    new Request("procedures").result().get("procedures").fields().forEachRemaining(
        one -> all.put(one.getKey(), Responses.Procedure.of(one.getValue())));
    return all;
  }

  /** Fails, and names the procedures that there are. */
  public static void raiseNoProcedure(String procedure) {
    new Request("no_procedure").with("procedure", procedure).send();
  }

  /** Runs a procedure, or continues one with the results of its tasks. */
  public static Responses.Result procedure(CaseInsensitiveStringMap table, String procedure,
      JsonNode arguments, List<String> results) {
    return Responses.Result.of(new Request("procedure").of(table).with("procedure", procedure)
        .with("arguments", arguments).with("results", results).result());
  }

  /**
   * The statement to run instead of one that Spark cannot parse; null if it is unknown.
   *
   * @throws UnsupportedOperationException the statement is known, and refused
   */
  public static String statement(String statement) {
    JsonNode response = new Request("statement").with("statement", statement).result();
    if (response.has("refused")) {
      throw new UnsupportedOperationException(response.get("refused").textValue());
    }
    return response.path("run").textValue();
  }

  // Catalogs.

  /** The location of a new table. */
  public static Responses.Declared declare(TableRequest table, String location,
      String[] namespace) throws NoSuchNamespaceException {
    return Responses.Declared.of(resultIn(namespace,
        new Request("declare").of(table).with("location", location)));
  }

  /** Removes the name of a table that was not created. */
  public static void undeclare(TableRequest table) { new Request("undeclare").of(table).send(); }

  public static void register(TableRequest table, String location) {
    new Request("register").of(table).with("location", location).send();
  }

  public static boolean drop(TableRequest table) {
    return new Request("drop").of(table).result().get("dropped").asBoolean();
  }

  public static void rename(TableRequest table, List<String> newName) {
    new Request("rename").of(table).with("new_name", newName).send();
  }

  public static Identifier[] tables(JsonNode catalog, String[] namespace)
      throws NoSuchNamespaceException {
    JsonNode found = resultIn(namespace,
        new Request("tables").with("catalog", catalog).with("namespace", namespace));
    String[] own = Responses.names(found.get("namespace")).toArray(String[]::new);
    return Responses.names(found.get("tables")).stream()
        .map(name -> Identifier.of(own, name)).toArray(Identifier[]::new);
  }

  /** The last names of the namespaces in a namespace. */
  public static List<String> namespaces(JsonNode catalog, String[] namespace)
      throws NoSuchNamespaceException {
    return Responses.names(resultIn(namespace,
        new Request("namespaces").with("catalog", catalog).with("namespace", namespace))
        .get("namespaces"));
  }

  /** The properties of a namespace. */
  public static Map<String, String> namespace(JsonNode catalog, String[] namespace)
      throws NoSuchNamespaceException {
    return Responses.texts(resultIn(namespace,
        new Request("namespace").with("catalog", catalog).with("namespace", namespace))
        .get("properties"));
  }

  /** Returns false if the namespace exists. */
  public static boolean createNamespace(
      JsonNode catalog, String[] namespace, Map<String, String> properties) {
    return new Request("create_namespace").with("catalog", catalog).with("namespace", namespace)
        .with("properties", properties).result().get("done").asBoolean();
  }

  public static void alterNamespace(JsonNode catalog, String[] namespace,
      Map<String, String> properties) throws NoSuchNamespaceException {
    resultIn(namespace, new Request("alter_namespace").with("catalog", catalog)
        .with("namespace", namespace).with("properties", properties));
  }

  public static boolean dropNamespace(JsonNode catalog, String[] namespace, boolean cascade)
      throws NoSuchNamespaceException, NonEmptyNamespaceException {
    JsonNode response = resultIn(namespace, new Request("drop_namespace").with("catalog", catalog)
        .with("namespace", namespace).with("cascade", cascade));
    if (response.has("not_empty")) {
      throw new NonEmptyNamespaceException(namespace);
    }
    return response.get("done").asBoolean();
  }

  private static JsonNode resultIn(String[] namespace, Request request)
      throws NoSuchNamespaceException {
    JsonNode response = request.result();
    if (response.has("no_namespace")) {
      throw new NoSuchNamespaceException(namespace);
    }
    return response;
  }
}
