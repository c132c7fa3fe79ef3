package org.pysparklance.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.*;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.procedures.*;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.*;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.python.Options;
import org.pysparklance.python.Python;
import org.pysparklance.python.Responses;
import org.pysparklance.read.LanceScan;
import scala.jdk.javaapi.CollectionConverters;

/**
 * {@code CALL lance.system.compact('/data/t')}: Python lists the procedures and runs them;
 * executors run their distributed work.
 */
public record LanceProcedure(Catalog catalog, String name, Responses.Procedure facts)
    implements UnboundProcedure, BoundProcedure {
  private static final String DESCRIPTION = "spark.job.description";

  /** A catalog with procedures, in the namespace {@code system}. */
  public interface Catalog extends ProcedureCatalog {
    /** The options of a table that is named by its path. */
    default CaseInsensitiveStringMap pathOptions() { return CaseInsensitiveStringMap.empty(); }

    @Override default UnboundProcedure loadProcedure(Identifier ident) {
      String name = ident.name().toLowerCase(Locale.ROOT);
      Responses.Procedure procedure = all(ident.namespace()).get(name);
      if (procedure == null) {
        // Python suggests similar names. Spark would not show the message of another error.
        Python.raiseNoProcedure(ident.toString());
      }
      return new LanceProcedure(this, name, procedure);
    }

    /** Since Spark 4.1, which has SHOW PROCEDURES. */
    default Identifier[] listProcedures(String[] namespace) {
      List<Identifier> identifiers = new ArrayList<>();
      all(namespace).keySet().forEach(
          one -> identifiers.add(Identifier.of(new String[] {"system"}, one)));
      return identifiers.toArray(Identifier[]::new);
    }

    private static Map<String, Responses.Procedure> all(String[] namespace) {
      return namespace.length == 1 && namespace[0].equalsIgnoreCase("system")
          ? Python.procedures() : Map.of();
    }
  }

  @Override public String description() { return facts.description(); }

  @Override public BoundProcedure bind(StructType arguments) { return this; }

  @Override public boolean isDeterministic() { return false; }

  @Override public ProcedureParameter[] parameters() {
    return Arrays.stream(fields()).map(one -> {
      var parameter = ProcedureParameter.in(one.name(), one.dataType());
      return (one.nullable() ? parameter.defaultValue("NULL") : parameter).build();
    }).toArray(ProcedureParameter[]::new);
  }

  private StructField[] fields() { return facts.parameters().fields(); }

  @Override public Iterator<Scan> call(InternalRow input) {
    ObjectNode arguments = Python.JSON.createObjectNode();
    for (int i = 0; i < fields().length; i++) {
      if (!input.isNullAt(i)) {
        arguments.put(fields()[i].name(), text(input, i, fields()[i].dataType()));
      }
    }
    SparkSession session = SparkSession.active();
    CaseInsensitiveStringMap tableOptions = optionsOf(session, arguments.path("table").asText());
    Responses.Result response = run(session, tableOptions, name, arguments);
    if (facts.rewrites()) {
      CachedTables.refresh(tableOptions);
    }
    DataType rows = ArrayType.apply(DataType.fromJson(response.schema()));
    Dataset<?> result = (Dataset<?>) session.range(0, 1, 1, 1).select(functions.inline(
        functions.from_json(functions.lit(response.rows()), rows)));
    return List.<Scan>of(new LanceScan.LocalRows(result.schema(),
        result.queryExecution().executedPlan().executeCollect(), name)).iterator();
  }

  /** Converts an argument to text; a list to JSON. */
  private static String text(InternalRow input, int number, DataType type) {
    if (!(type instanceof ArrayType list)) {
      return input.get(number, type).toString();
    }
    var values = Python.JSON.createArrayNode();
    for (Object value : (Object[]) input.getArray(number).toObjectArray(list.elementType())) {
      values.add(String.valueOf(value));
    }
    return values.toString();
  }

  /** Runs a procedure in Python, and its tasks on executors; returns the response. */
  static Responses.Result run(SparkSession session, CaseInsensitiveStringMap table, String name,
      JsonNode arguments) {
    Responses.Result result = Python.procedure(table, name, arguments, List.of());
    while (result.state() != null) {
      CaseInsensitiveStringMap taskOptions =
          Options.with(table, "_lance.state", result.state());
      result = Python.procedure(
          taskOptions, name, arguments, runTasks(session, taskOptions, result.title()));
    }
    return result;
  }

  /** Runs the tasks on executors, described by {@code title} unless the user described the job. */
  private static List<String> runTasks(SparkSession session, CaseInsensitiveStringMap taskOptions,
      String title) {
    SparkContext context = session.sparkContext();
    boolean isDescribed = context.getLocalProperty(DESCRIPTION) != null;
    try {
      if (!isDescribed) {
        context.setLocalProperty(DESCRIPTION, title);
      }
      return session.read().format(Python.SOURCE).options(taskOptions.asCaseSensitiveMap()).load()
          .as(Encoders.STRING()).collectAsList();
    } finally {
      if (!isDescribed) {
        context.setLocalProperty(DESCRIPTION, null);
      }
    }
  }

  /** Whether a text parses as a SQL name, whose parts may be paths in backticks. */
  private static boolean isName(SparkSession session, String text) {
    try {
      return !session.sessionState().sqlParser().parseMultipartIdentifier(text).isEmpty();
    } catch (ParseException error) {
      return false;
    }
  }

  /** The options of a table that is named by its path or its SQL name, in this catalog first. */
  private CaseInsensitiveStringMap optionsOf(SparkSession session, String table) {
    if (table.contains("/") && !isName(session, table)) {
      return Options.with(catalog.pathOptions(), "path", table);
    }
    String qualifiedName = catalog.name() + "." + table;
    boolean isInCatalog = !session.catalog().currentCatalog().equals(catalog.name())
        && session.catalog().tableExists(qualifiedName);
    LogicalPlan plan = session.table(isInCatalog ? qualifiedName : table)
        .queryExecution().analyzed();
    for (LogicalPlan leaf : CollectionConverters.asJava(plan.collectLeaves())) {
      if (leaf instanceof DataSourceV2Relation relation
          && relation.table() instanceof LanceTable lanceTable) {
        return lanceTable.options();
      }
    }
    throw new UnsupportedOperationException(
        "[LANCE_INVALID_INPUT] " + table + " is no Lance table\n  hint: name a table or its path");
  }
}
