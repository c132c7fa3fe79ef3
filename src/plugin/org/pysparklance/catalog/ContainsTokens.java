package org.pysparklance.catalog;

import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.ApplyFunctionExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import org.pysparklance.python.PredicateJson;
import scala.Tuple3;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/**
 * {@code contains_tokens(text, 'words')} of Lance: whether a text has all words of another. Scans
 * test it where they can; Spark evaluates it elsewhere.
 */
public final class ContainsTokens implements ScalarFunction<Boolean> {
  public static final String NAME = "contains_tokens";
  private static final ContainsTokens INSTANCE = new ContainsTokens();

  private static final class Builder extends AbstractFunction1<Seq<Expression>, Expression> {
    @Override public Expression apply(Seq<Expression> arguments) {
      if (arguments.size() != 2) {
        throw new UnsupportedOperationException(
            "[LANCE_INVALID_INPUT] contains_tokens does not accept " + arguments.size()
            + " arguments\n  hint: as in contains_tokens(body, 'lazy dog')");
      }
      return new ApplyFunctionExpression(INSTANCE, arguments);
    }
  }

  /** For sessions that start with this jar. */
  public static void inject(SparkSessionExtensions extensions) {
    extensions.injectFunction(new Tuple3<>(new FunctionIdentifier(NAME),
        new ExpressionInfo(ContainsTokens.class.getName(), NAME), new Builder()));
  }

  /** For a session that runs already. */
  public static void addTo(SparkSession session) {
    var registry = session.sessionState().functionRegistry();
    // Since 4.3 names are of three parts here, which none of the older releases knows.
    if (CollectionConverters.asJava(registry.listFunction()).stream()
        .noneMatch(one -> one.funcName().equals(NAME))) {
      registry.createOrReplaceTempFunction(NAME, new Builder(), "built-in");
    }
  }

  @Override public DataType[] inputTypes() {
    return new DataType[] {DataTypes.StringType, DataTypes.StringType};
  }

  @Override public DataType resultType() { return DataTypes.BooleanType; }

  @Override public String name() { return NAME; }

  @Override public String canonicalName() { return PredicateJson.CANONICAL_NAME; }

  @Override public Boolean produceResult(InternalRow row) {
    UTF8String text = row.isNullAt(0) ? null : row.getUTF8String(0);
    UTF8String words = row.isNullAt(1) ? null : row.getUTF8String(1);
    return text == null || words == null ? null
        : splitWords(text.toString()).containsAll(splitWords(words.toString()));
  }

  /** Runs of characters that are Alphabetic, or numbers. */
  private static Set<String> splitWords(String text) {
    Set<String> words = new HashSet<>();
    int start = -1;
    for (int index = 0; index <= text.length(); ) {
      int codePoint = index < text.length() ? text.codePointAt(index) : ' ';
      if (!isAlphanumeric(codePoint)) {
        if (start >= 0) {
          words.add(text.substring(start, index));
        }
        start = -1;
      } else if (start < 0) {
        start = index;
      }
      index += Character.charCount(codePoint);
    }
    return words;
  }

  private static boolean isAlphanumeric(int codePoint) {
    int category = Character.getType(codePoint);
    return Character.isAlphabetic(codePoint) || category == Character.DECIMAL_DIGIT_NUMBER
        || category == Character.OTHER_NUMBER;
  }
}
