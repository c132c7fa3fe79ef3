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
  private static final List<String> COUNTS = List.of("num_results", "limit", "k");
  /** Those that are options of a read; Python knows the others. */
  private static final List<String> OPTIONS = List.of("filter", "version", "tag", "branch");
  private static final String ROW_ID = "_rowid";

  private final String name;
  /** The names of arguments that are given by their places. */
  private final List<String> places;
  /** The option of a read that has the arguments. */
  private final String option;
  /** The column by which rows are ordered. */
  private final String score;
  private final String exampleOfNamed;
  private final String hintOfConstants;

  SearchFunction(String name, List<String> places, String option, String score,
      String exampleOfNamed, String hintOfConstants) {
    this.name = name;
    this.places = places;
    this.option = option;
    this.score = score;
    this.exampleOfNamed = exampleOfNamed;
    this.hintOfConstants = hintOfConstants;
  }

  /** The order of the answer. */
  abstract Column order(Column score);

  /** Whether rows are of one query, so that they come in order. */
  abstract boolean isOne(ObjectNode given);

  /** The columns of the answer that the table does not have. */
  List<String> added() { return List.of(score); }

  /** Adds the arguments that select the function. */
  void complete(ObjectNode given) {}

  /** For sessions that start with this jar. */
  final Tuple3<FunctionIdentifier, ExpressionInfo,
      scala.Function1<Seq<Expression>, LogicalPlan>> injected() {
    return new Tuple3<>(new FunctionIdentifier(name),
        new ExpressionInfo(getClass().getName(), name), this);
  }

  /** For a session that runs already. */
  final void addTo(SparkSession session) {
    var known = session.sessionState().tableFunctionRegistry();
    // Since 4.3 names are of three parts here, which none of the older releases knows.
    boolean isThere = CollectionConverters.asJava(known.listFunction()).stream()
        .anyMatch(one -> one.funcName().equals(name));
    if (!isThere) {
      known.createOrReplaceTempFunction(name, this, "built-in");
    }
  }

  @Override public LogicalPlan apply(Seq<Expression> arguments) {
    ObjectNode given = named(CollectionConverters.asJava(arguments));
    Map<String, String> options = new HashMap<>(Map.of("_lance.of_sql", "true"));
    String table = given.path("table").asText("");
    boolean showsIds = given.path("with_row_id").asBoolean();
    for (String name : OPTIONS) {
      if (given.has(name)) {
        options.put(name, given.get(name).asText());
      }
    }
    if (given.has("columns") && !given.get("columns").toString().equals("[\"*\"]")) {
      List<String> columns = new ArrayList<>();
      given.get("columns").forEach(one -> columns.add(one.asText()));
      showsIds |= columns.remove(ROW_ID);
      columns.removeAll(added());
      columns.replaceAll(one -> "`" + one.replace("`", "``") + "`");
      // Of a read without any column Spark would know nothing.
      options.put("columns", columns.isEmpty() ? ROW_ID : String.join(",", columns));
    }
    options.put("metadataColumns", ROW_ID);
    List.of("table", "columns", "with_row_id").forEach(given::remove);
    OPTIONS.forEach(given::remove);
    complete(given);
    options.put(option, given.toString());
    SparkSession session = SparkSession.active();
    Dataset<Row> found = session.read().format(Python.SOURCE)
        .options(Options.merge(optionsOf(session, table), options).asCaseSensitiveMap()).load();
    int count = count(given);
    if (isOne(given) && count > 0) {  // else Python refuses it
      found = found.sort(order(column(score)), column(ROW_ID)).limit(count);
    }
    return (showsIds ? found : found.drop(ROW_ID)).queryExecution().analyzed();
  }

  private static Column column(String name) { return functions.col(name); }

  private static int count(ObjectNode given) {
    return COUNTS.stream().filter(given::has).findFirst().map(one -> given.get(one).asInt())
        .orElse(10);
  }

  /** The arguments by their names, those that are NULL left out. */
  private ObjectNode named(List<Expression> arguments) {
    ObjectNode given = Python.JSON.createObjectNode();
    for (int i = 0; i < arguments.size(); i++) {
      boolean isNamed = arguments.get(i) instanceof NamedArgumentExpression;
      if (!isNamed && i >= places.size()) {
        throw wrong(this.name + " takes " + String.join(", ", places) + " by their places",
            "name the others, as in " + exampleOfNamed);
      }
      Expression value = isNamed
          ? ((NamedArgumentExpression) arguments.get(i)).value() : arguments.get(i);
      if (value instanceof Alias variable) {
        value = variable.child();
      }
      String name = isNamed
          ? ((NamedArgumentExpression) arguments.get(i)).key() : places.get(i);
      if (!value.foldable()) {
        throw wrong("the argument " + name + " of " + this.name + " is no constant",
            hintOfConstants);
      }
      JsonNode constant = json(value.eval(null), value.dataType());
      if (!constant.isNull() && given.put(name.toLowerCase(Locale.ROOT), "") != null) {
        given.set(name.toLowerCase(Locale.ROOT), constant);
      }
    }
    if (!given.path("table").isTextual()) {
      throw wrong(name + " has no table",
          "the first argument is a path, or what SQL knows the table by");
    }
    return given;
  }

  private static JsonNode json(Object value, DataType type) {
    if (value instanceof ArrayData several && type instanceof ArrayType array) {
      ArrayNode found = Python.JSON.createArrayNode();
      for (Object one : several.toObjectArray(array.elementType())) {
        found.add(json(one, array.elementType()));
      }
      return found;
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
    if (plan instanceof DataSourceV2Relation found && found.table() instanceof LanceTable own) {
      return own.options();
    }
    throw wrong(table + " is no Lance table",
        "name a table or its path; conditions of a view are the argument filter");
  }

  private static RuntimeException wrong(String what, String hint) {
    return new UnsupportedOperationException(
        "[LANCE_INVALID_INPUT] " + what + "\n  hint: " + hint);
  }
}
