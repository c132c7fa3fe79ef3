package org.pysparklance.python;

import static java.nio.ByteOrder.LITTLE_ENDIAN;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.*;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.function.Function;
import org.apache.spark.sql.connector.expressions.*;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.*;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Spark's conditions as the typed JSON tree that Python reads. Only expressions that have the same
 * result in Python for every value, and cannot fail on a row, are translated; the rest stays with
 * Spark.
 */
public record PredicateJson(Description table) {
  private static final JsonNodeFactory JSON = JsonNodeFactory.instance;
  private static final int MAX_DEPTH = 40;
  private static final int MAX_JSON_KEYS = 20;
  /** LIKE with a text, a pattern and an escape character, for which Spark has no name. */
  public static final String LIKE = "LIKE";
  public static final String CONTAINS_TOKENS = "CONTAINS_TOKENS";
  /** Of the function, where Spark translates it. */
  public static final String CANONICAL_NAME = "pysparklance.contains_tokens";

  private static final class Untranslatable extends RuntimeException {
    static final Untranslatable INSTANCE = new Untranslatable();

    private Untranslatable() { super("a condition for Spark", null, false, false); }
  }

  /** The conjunction of {@code predicates}; null if one of them cannot be translated. */
  public String all(Predicate... predicates) {
    try {
      ArrayNode terms = translateAll(Arrays.asList(predicates), one -> condition(one, 0));
      return (terms.size() == 1 ? terms.get(0) : operation("AND", terms)).toString();
    } catch (Untranslatable untranslatable) {
      return null;
    }
  }

  private static ArrayNode translateAll(
      List<? extends Expression> terms, Function<Expression, JsonNode> translate) {
    ArrayNode nodes = JSON.arrayNode();
    terms.forEach(term -> nodes.add(translate.apply(term)));
    return nodes;
  }

  private JsonNode condition(Expression expression, int depth) {
    if (expression instanceof NamedReference && "boolean".equals(typeOf(expression))) {
      return value(expression);
    }
    if (expression instanceof UserDefinedScalarFunc call
        && call.canonicalName().equals(CANONICAL_NAME)) {
      return operation(CONTAINS_TOKENS, valuesWithConstant(Arrays.asList(call.children())));
    }
    if (!(expression instanceof Predicate predicate) || depth > MAX_DEPTH) {
      throw Untranslatable.INSTANCE;
    }
    List<Expression> children = Arrays.asList(predicate.children());
    if (predicate.name().equals("IN") && children.size() == 1) {
      return operation("ALWAYS_FALSE", JSON.arrayNode());  // a join with nothing
    }
    if (predicate.name().equals(LIKE)) {
      return like(children);
    }
    if (predicate.name().equals("IN") && children.size() > MAX_JSON_KEYS) {
      return membershipOfMany(children);
    }
    ArrayNode arguments = switch (predicate.name()) {
      case "ALWAYS_TRUE", "ALWAYS_FALSE", "NOT", "BOOLEAN_EXPRESSION" ->
          translateAll(children, child -> condition(child, depth + 1));
      case "AND", "OR" -> translateAll(flatten(predicate), term -> condition(term, depth + 1));
      case "IS_NULL", "IS_NOT_NULL" -> translateAll(children, this::value);
      case "=", "<>", "<", "<=", ">", ">=", "<=>", "IN" -> valuesOfOneType(children);
      case "STARTS_WITH", "ENDS_WITH", "CONTAINS", CONTAINS_TOKENS -> valuesWithConstant(children);
      default -> throw Untranslatable.INSTANCE;
    };
    return operation(predicate.name(), arguments);
  }

  /** Many constants, as of a join: for numbers, their bytes. */
  private ObjectNode membershipOfMany(List<Expression> children) {
    List<Expression> keys = children.subList(1, children.size());
    ByteBuffer keyBytes = ByteBuffer.allocate(Long.BYTES * keys.size()).order(LITTLE_ENDIAN);
    DataType type = keys.get(0) instanceof Literal<?> first ? first.dataType() : null;
    for (Expression key : keys) {
      if (!(key instanceof Literal<?> one && one.dataType().equals(type)
          && isIntegral(one.value()))) {
        return operation("IN", valuesOfOneType(children));
      }
      keyBytes.putLong(((Number) one.value()).longValue());
    }
    ArrayNode nodes = valuesOfOneType(children.subList(0, 2));
    return operation("IN", JSON.arrayNode().add(nodes.get(0)))
        .put("type", nodes.get(1).get("type").asText()).put("values", keyBytes.array());
  }

  private static boolean isIntegral(Object value) {
    return value instanceof Long || value instanceof Integer || value instanceof Short
        || value instanceof Byte;
  }

  /** A valid pattern: Spark raises the error of an invalid one when it evaluates a row. */
  private ObjectNode like(List<Expression> children) {
    ArrayNode sides = valuesOfOneType(children.subList(0, 2));
    String pattern = sides.remove(1).path("literal").textValue();
    String escape = String.valueOf(((Literal<?>) children.get(2)).value());
    if (pattern == null || pattern.replace(escape + escape, "").replace(escape + "_", "")
        .replace(escape + "%", "").contains(escape)) {
      throw Untranslatable.INSTANCE;
    }
    return operation(LIKE, sides).put("pattern", pattern).put("escape", escape);
  }

  /** The terms of AND or OR, flattened, as many of them are a deep tree. */
  private static List<Expression> flatten(Predicate predicate) {
    List<Expression> terms = new ArrayList<>();
    Deque<Expression> pending = new ArrayDeque<>(List.of(predicate));
    while (!pending.isEmpty()) {
      Expression next = pending.pop();
      if (next instanceof Predicate one && one.name().equals(predicate.name())) {
        pending.push(one.children()[1]);
        pending.push(one.children()[0]);
      } else {
        terms.add(next);
      }
    }
    return terms;
  }

  private ArrayNode valuesWithConstant(List<Expression> children) {
    return valuesOfOneType(children.get(1) instanceof Literal ? children : List.of());
  }

  private ArrayNode valuesOfOneType(List<Expression> expressions) {
    Set<String> types = new HashSet<>();
    expressions.forEach(one -> types.add(typeOf(one)));
    if (types.size() != 1 || types.contains(null)) {
      throw Untranslatable.INSTANCE;
    }
    return translateAll(expressions, this::value);
  }

  /** The name of the type of a constant or a comparable column. */
  private String typeOf(Expression expression) {
    return expression instanceof Literal<?> literal ? literal.dataType().simpleString()
        : expression instanceof NamedReference column
            ? table.typeOf(column.fieldNames()).textValue() : isPrefix(expression) ? "string"
            : null;
  }

  /** Whether it is a prefix of a string column with a constant length. */
  private boolean isPrefix(Expression expression) {
    return expression instanceof GeneralScalarExpression call && call.name().equals("SUBSTRING")
        && call.children()[0] instanceof NamedReference text && "string".equals(typeOf(text))
        && Arrays.stream(call.children()).skip(1).allMatch(bound ->
            bound instanceof Literal<?> number && number.value() instanceof Integer at && at > 0);
  }

  private JsonNode value(Expression expression) {
    if (expression instanceof Literal<?> literal) {
      return JSON.objectNode().put("type", literal.dataType().simpleString())
          .set("literal", literalOf(literal.value()));
    }
    if (expression instanceof NamedReference column
        && !table.typeOf(column.fieldNames()).isMissingNode()) {
      return JSON.objectNode().set("column", Python.JSON.valueToTree(column.fieldNames()));
    }
    if (isPrefix(expression)) {
      GeneralScalarExpression prefix = (GeneralScalarExpression) expression;
      return operation(prefix.name(), translateAll(Arrays.asList(prefix.children()), this::value));
    }
    throw Untranslatable.INSTANCE;
  }

  private static JsonNode literalOf(Object value) {
    if (value instanceof Float || value instanceof Double) {
      return JSON.textNode(Double.toString(((Number) value).doubleValue()));
    }
    if (value instanceof Decimal decimal) {
      return JSON.textNode(decimal.toJavaBigDecimal().toPlainString());
    }
    if (value instanceof UTF8String text) {
      if (!UTF8String.fromString(text.toString()).equals(text)) {
        throw Untranslatable.INSTANCE;
      }
      return JSON.textNode(text.toString());
    }
    return Python.JSON.valueToTree(value);  // bytes as base64
  }

  private static ObjectNode operation(String name, ArrayNode arguments) {
    return JSON.objectNode().put("op", name).set("args", arguments);
  }
}
