package org.pysparklance.rules;

import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.*;
import java.util.*;
import java.util.regex.Pattern;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableOrView;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.DescribeColumn;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.python.Python;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's parser, with an answer to statements of Delta and of lance-spark that it has refused, or
 * would refuse: Python knows what they are here. {@code OPTIMIZE} and {@code VACUUM} go on as calls
 * of procedures, others end in an error with the statement to write. What Spark understands, or the
 * parser of another extension, is left alone; a proxy has the methods of every release.
 */
public final class ForeignStatements implements InvocationHandler {
  /** Without one of these words, Python is not asked; it knows what is a string or a comment. */
  private static final Pattern MAY_BE_KNOWN = Pattern.compile(
      "(?i)\\b(OPTIMIZE|VACUUM|RESTORE|CONVERT|GENERATE|REORG|HISTORY|DETAIL|CLONE|TAGS?"
      + "|BRANCH(ES)?|INDEX(ES)?|INDICES|COLUMNS?|PRIMARY)\\b");

  private final SparkSession session;
  private final ParserInterface parser;

  private ForeignStatements(SparkSession session, ParserInterface parser) {
    this.session = session;
    this.parser = parser;
  }

  public static ParserInterface over(SparkSession session, ParserInterface parser) {
    return (ParserInterface) Proxy.newProxyInstance(ForeignStatements.class.getClassLoader(),
        new Class<?>[] {ParserInterface.class}, new ForeignStatements(session, parser));
  }

  @Override public Object invoke(Object proxy, Method method, Object[] given) throws Throwable {
    boolean isStatement = method.getName().startsWith("parsePlan");
    try {
      Object parsed = method.invoke(parser, given);
      if (isStatement && isNothing((LogicalPlan) parsed)) {
        here((String) given[0]);
      }
      return parsed;
    } catch (InvocationTargetException failed) {
      String instead = isStatement && failed.getCause() instanceof ParseException
          && MAY_BE_KNOWN.matcher((String) given[0]).find() ? here((String) given[0]) : null;
      if (instead == null) {
        throw failed.getCause();
      }
      return parser.parsePlan(instead);
    }
  }

  /** The statement to run in the place of {@code text}; null if nothing is known of it. */
  private static String here(String text) {
    JsonNode told = Python.call(
        "statement", CaseInsensitiveStringMap.empty(), "_lance.statement", text);
    if (told.hasNonNull("refused")) {
      throw new UnsupportedOperationException(told.path("refused").textValue());
    }
    return told.path("run").textValue();
  }

  /** Whether Spark reads {@code DESCRIBE HISTORY t} as a column, or looks for a function, in vain. */
  private boolean isNothing(LogicalPlan plan) {
    if (plan instanceof DescribeColumn column
        && column.relation() instanceof UnresolvedTableOrView table) {
      String name = only(table.multipartIdentifier());
      return Set.of("history", "detail").contains(name) && !session.catalog().tableExists(name);
    }
    return plan.exists(node -> node instanceof UnresolvedTableValuedFunction call
        && Set.of("table_changes", "table_changes_by_path").contains(only(call.name()))
        && !session.catalog().functionExists(only(call.name())));
  }

  private static String only(Seq<String> parts) {
    List<String> names = CollectionConverters.asJava(parts);
    return names.size() == 1 ? names.get(0).toLowerCase(Locale.ROOT) : "";
  }
}
