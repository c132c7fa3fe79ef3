package org.pysparklance.rules;

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
import org.pysparklance.python.Python;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Wraps Spark's parser for statements of Delta and lance-spark that it cannot parse: Python
 * translates them. {@code OPTIMIZE} and {@code VACUUM} become calls of procedures; others raise an
 * error with the statement to use. Statements that Spark, or the parser of another extension,
 * can parse are unchanged. The proxy has the methods of every release.
 */
public final class ForeignStatements implements InvocationHandler {
  /** Python is only called for texts with one of these words; it handles strings and comments. */
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
        Python.statement((String) given[0]);
      }
      return parsed;
    } catch (InvocationTargetException failed) {
      String instead = isStatement && failed.getCause() instanceof ParseException
          && MAY_BE_KNOWN.matcher((String) given[0]).find() ? Python.statement((String) given[0]) : null;
      if (instead == null) {
        throw failed.getCause();
      }
      return parser.parsePlan(instead);
    }
  }

  /** Whether Spark parses {@code DESCRIBE HISTORY t} as a column, or a call of an unknown function. */
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
