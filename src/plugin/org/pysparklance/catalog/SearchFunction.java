package org.pysparklance.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.*;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.NamedArgumentExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.python.Options;
import org.pysparklance.python.Python;
import scala.Tuple3;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/** A table function that searches a table: a read with an option that has its arguments. */
abstract class SearchFunction extends AbstractFunction1<Seq<Expression>, LogicalPlan> {
  private static final List<String> COUNT_ARGUMENTS = List.of("num_results", "limit", "k");
  /** Arguments that are options of a read; Python parses the remaining ones. */
  private static final List<String> READ_OPTIONS = List.of("filter", "version", "tag", "branch");
  private static final String ROW_ID = "_rowid";

  private final String name;
  /** The names of positional arguments. */
  private final List<String> positionalArguments;
  /** The option of a read that has the arguments. */
  private final String option;
  /** The column by which rows are ordered. */
  private final String score;
  private final String namedExample;
  private final String constantsHint;

  SearchFunction(String name, List<String> positionalArguments, String option, String score,
      String namedExample, String constantsHint) {
    this.name = name;
    this.positionalArguments = positionalArguments;
    this.option = option;
    this.score = score;
    this.namedExample = namedExample;
    this.constantsHint = constantsHint;
  }

  /** The sort order of the rows. */
  abstract Column order(Column score);

  /** Whether the rows belong to one query, so that they are sorted. */
  abstract boolean isSingleQuery(ObjectNode arguments);

  /** The result columns that the table does not have. */
  List<String> addedColumns() { return List.of(score); }

  /** Adds the arguments that select the function. */
  void addArguments(ObjectNode arguments) {}

  /** For sessions that start with this jar. */
  final Tuple3<FunctionIdentifier, ExpressionInfo,
      scala.Function1<Seq<Expression>, LogicalPlan>> registration() {
    return new Tuple3<>(new FunctionIdentifier(name),
        new ExpressionInfo(getClass().getName(), name), this);
  }

  /** For a session that runs already. */
  final void addTo(SparkSession session) {
    var registry = session.sessionState().tableFunctionRegistry();
    // Since 4.3 names are of three parts here, which none of the older releases knows.
    boolean isRegistered = CollectionConverters.asJava(registry.listFunction()).stream()
        .anyMatch(one -> one.funcName().equals(name));
    if (!isRegistered) {
      registry.createOrReplaceTempFunction(name, this, "built-in");
    }
  }

  @Override public LogicalPlan apply(Seq<Expression> expressions) {
    ObjectNode arguments = argumentsByName(CollectionConverters.asJava(expressions));
    Map<String, String> options = new HashMap<>(Map.of("_lance.of_sql", "true"));
    String table = arguments.path("table").asText("");
    boolean hasRowIds = arguments.path("with_row_id").asBoolean();
    for (String name : READ_OPTIONS) {
      if (arguments.has(name)) {
        options.put(name, arguments.get(name).asText());
      }
    }
    if (arguments.has("columns") && !arguments.get("columns").toString().equals("[\"*\"]")) {
      List<String> columns = new ArrayList<>();
      arguments.get("columns").forEach(one -> columns.add(one.asText()));
      hasRowIds |= columns.remove(ROW_ID);
      columns.removeAll(addedColumns());
      columns.replaceAll(one -> "`" + one.replace("`", "``") + "`");
      // Of a read without any column Spark would know nothing.
      options.put("columns", columns.isEmpty() ? ROW_ID : String.join(",", columns));
    }
    options.put("metadataColumns", ROW_ID);
    List.of("table", "columns", "with_row_id").forEach(arguments::remove);
    READ_OPTIONS.forEach(arguments::remove);
    addArguments(arguments);
    options.put(option, arguments.toString());
    SparkSession session = SparkSession.active();
    Dataset<Row> rows = session.read().format(Python.SOURCE)
        .options(Options.merge(optionsOf(session, table), options).asCaseSensitiveMap()).load();
    int count = count(arguments);
    if (isSingleQuery(arguments) && count > 0) {  // else Python refuses it
      rows = rows.sort(order(column(score)), column(ROW_ID)).limit(count);
    }
    return (hasRowIds ? rows : rows.drop(ROW_ID)).queryExecution().analyzed();
  }

  private static Column column(String name) { return functions.col(name); }

  private static int count(ObjectNode arguments) {
    return COUNT_ARGUMENTS.stream().filter(arguments::has).findFirst()
        .map(one -> arguments.get(one).asInt())
        .orElse(10);
  }

  /** The arguments by their names, those that are NULL left out. */
  private ObjectNode argumentsByName(List<Expression> expressions) {
    ObjectNode arguments = Python.JSON.createObjectNode();
    for (int i = 0; i < expressions.size(); i++) {
      boolean isNamed = expressions.get(i) instanceof NamedArgumentExpression;
      if (!isNamed && i >= positionalArguments.size()) {
        throw invalidInput(this.name + " takes " + String.join(", ", positionalArguments)
            + " by their places",
            "name the others, as in " + namedExample);
      }
      Expression value = isNamed
          ? ((NamedArgumentExpression) expressions.get(i)).value() : expressions.get(i);
      if (value instanceof Alias variable) {
        value = variable.child();
      }
      String name = isNamed
          ? ((NamedArgumentExpression) expressions.get(i)).key() : positionalArguments.get(i);
      if (!value.foldable()) {
        throw invalidInput("the argument " + name + " of " + this.name + " is no constant",
            constantsHint);
      }
      JsonNode constant = json(value.eval(null), value.dataType());
      if (!constant.isNull() && arguments.put(name.toLowerCase(Locale.ROOT), "") != null) {
        arguments.set(name.toLowerCase(Locale.ROOT), constant);
      }
    }
    if (!arguments.path("table").isTextual()) {
      throw invalidInput(name + " has no table",
          "the first argument is a path, or what SQL knows the table by");
    }
    return arguments;
  }

  private static JsonNode json(Object value, DataType type) {
    if (value instanceof ArrayData array && type instanceof ArrayType arrayType) {
      ArrayNode nodes = Python.JSON.createArrayNode();
      for (Object one : array.toObjectArray(arrayType.elementType())) {
        nodes.add(json(one, arrayType.elementType()));
      }
      return nodes;
    }
    if (value == null || value instanceof Boolean || value instanceof Number) {
      return Python.JSON.valueToTree(value);
    }
    boolean isDecimal = value instanceof org.apache.spark.sql.types.Decimal;
    return Python.JSON.valueToTree(
        isDecimal ? new java.math.BigDecimal(value.toString()) : value.toString());
  }

  /** Of a table that is named by its path, or by what SQL knows it by. */
  private static CaseInsensitiveStringMap optionsOf(SparkSession session, String table) {
    if (table.contains("/") && !table.contains("`")) {
      return Options.with(PathCatalog.find(session, "lance").map(PathCatalog::pathOptions)
          .orElse(CaseInsensitiveStringMap.empty()), "path", table);
    }
    LogicalPlan plan = session.table(table).queryExecution().analyzed();
    while (plan instanceof SubqueryAlias || plan instanceof View) {
      plan = plan.children().head();
    }
    if (plan instanceof DataSourceV2Relation relation
        && relation.table() instanceof LanceTable lanceTable) {
      return lanceTable.options();
    }
    throw invalidInput(table + " is no Lance table",
        "name a table or its path; conditions of a view are the argument filter");
  }

  private static RuntimeException invalidInput(String what, String hint) {
    return new UnsupportedOperationException(
        "[LANCE_INVALID_INPUT] " + what + "\n  hint: " + hint);
  }
}
