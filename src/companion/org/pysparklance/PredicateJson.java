package org.pysparklance;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.*;
import java.util.*;
import org.apache.spark.sql.connector.expressions.*;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.*;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Spark's conditions as the typed JSON tree that Python reads. Only what means the same there for
 * every value is translated, and nothing that can fail on a row; the rest stays with Spark.
 */
final class PredicateJson {
  private static final JsonNodeFactory JSON = JsonNodeFactory.instance;
  private static final int MAX_DEPTH = 40;

  private final StructType columns;
  private final Description table;

  PredicateJson(StructType columns, Description table) {
    this.columns = columns;
    this.table = table;
  }

  /** All of {@code predicates} as one text; null when one of them cannot be translated. */
  String all(Predicate[] predicates) {
    ArrayNode terms = JSON.arrayNode();
    for (Predicate predicate : predicates) {
      JsonNode term = condition(predicate, 0);
      if (term == null) {
        return null;
      }
      terms.add(term);
    }
    return terms.size() == 1 ? terms.get(0).toString() : operation("AND", terms).toString();
  }

  private JsonNode condition(Expression expression, int depth) {
    if (depth > MAX_DEPTH) {
      return null;
    }
    if (expression instanceof NamedReference reference) {
      return DataTypes.BooleanType.equals(typeOf(reference)) ? column(reference) : null;
    }
    if (!(expression instanceof Predicate predicate)) {
      return null;
    }
    Expression[] children = predicate.children();
    switch (predicate.name()) {
      case "ALWAYS_TRUE", "ALWAYS_FALSE":
        return operation(predicate.name(), JSON.arrayNode());
      case "AND", "OR":
        return connection(predicate, depth);
      case "NOT":
        JsonNode term = condition(children[0], depth + 1);
        return term == null ? null : operation("NOT", JSON.arrayNode().add(term));
      case "BOOLEAN_EXPRESSION":
        return condition(children[0], depth + 1);
      case "IS_NULL", "IS_NOT_NULL":
        return children[0] instanceof NamedReference reference && typeOf(reference) != null
            ? operation(predicate.name(), JSON.arrayNode().add(column(reference))) : null;
      case "=", "<>", "<", "<=", ">", ">=", "<=>", "IN":
        return comparison(predicate);
      case "STARTS_WITH", "ENDS_WITH", "CONTAINS":
        return children[1] instanceof Literal && DataTypes.StringType.equals(typeOf(children[0]))
            ? comparison(predicate) : null;
      default:
        return null;
    }
  }

  /** AND and OR of many terms arrive as a deep tree; they leave as one node. */
  private JsonNode connection(Predicate predicate, int depth) {
    ArrayNode terms = JSON.arrayNode();
    Deque<Expression> waiting = new ArrayDeque<>();
    waiting.push(predicate);
    while (!waiting.isEmpty()) {
      Expression next = waiting.pop();
      if (next instanceof Predicate one && one.name().equals(predicate.name())) {
        waiting.push(one.children()[1]);
        waiting.push(one.children()[0]);
        continue;
      }
      JsonNode term = condition(next, depth + 1);
      if (term == null) {
        return null;
      }
      terms.add(term);
    }
    return operation(predicate.name(), terms);
  }

  /** An operation on columns and constants that all have one comparable type. */
  private JsonNode comparison(Predicate predicate) {
    Expression[] children = predicate.children();
    DataType type = typeOf(children[0]);
    ArrayNode arguments = JSON.arrayNode();
    for (Expression child : children) {
      if (!isComparable(type) || !type.equals(typeOf(child))) {
        return null;
      }
      JsonNode value = child instanceof Literal<?> literal ? literal(literal)
          : child instanceof NamedReference reference ? column(reference) : null;
      if (value == null) {
        return null;
      }
      arguments.add(value);
    }
    return operation(predicate.name(), arguments);
  }

  private static ObjectNode operation(String name, ArrayNode arguments) {
    ObjectNode node = JSON.objectNode().put("op", name);
    node.set("args", arguments);
    return node;
  }

  private DataType typeOf(Expression expression) {
    if (expression instanceof Literal<?> literal) {
      return literal.dataType();
    }
    if (!(expression instanceof NamedReference reference)
        || !table.isFilterable(reference.fieldNames()[0])) {
      return null;
    }
    DataType type = columns;
    for (String name : reference.fieldNames()) {
      if (type instanceof StructType struct && struct.getFieldIndex(name).isDefined()) {
        type = struct.fields()[struct.fieldIndex(name)].dataType();
      } else if (type == columns && table.hasLineage(name)) {
        type = DataTypes.LongType;
      } else {
        return null;
      }
    }
    return type;
  }

  private static boolean isComparable(DataType type) {
    return type instanceof IntegralType || type instanceof FloatType || type instanceof DoubleType
        || type instanceof DecimalType || type instanceof BooleanType || type instanceof DateType
        || type instanceof TimestampType || type instanceof TimestampNTZType
        || type instanceof BinaryType || DataTypes.StringType.equals(type);
  }

  private static ObjectNode column(NamedReference reference) {
    ArrayNode path = JSON.arrayNode();
    for (String name : reference.fieldNames()) {
      path.add(name);
    }
    ObjectNode node = JSON.objectNode();
    node.set("column", path);
    return node;
  }

  private static ObjectNode literal(Literal<?> literal) {
    DataType type = literal.dataType();
    Object value = literal.value();
    ObjectNode node = JSON.objectNode().put("type", type.simpleString());
    if (value == null) {
      return node.putNull("literal");
    }
    if (value instanceof Boolean flag) {
      return node.put("literal", flag);
    }
    if (value instanceof Float || value instanceof Double) {
      return node.put("literal", Double.toString(((Number) value).doubleValue()));
    }
    if (value instanceof byte[] bytes) {
      return node.put("literal", Base64.getEncoder().encodeToString(bytes));
    }
    if (type instanceof StringType) {
      String text = value.toString();
      return UTF8String.fromString(text).equals(value) ? node.put("literal", text) : null;
    }
    if (type instanceof DecimalType) {
      return node.put("literal", ((Decimal) value).toJavaBigDecimal().toPlainString());
    }
    return node.put("literal", ((Number) value).longValue());
  }
}
