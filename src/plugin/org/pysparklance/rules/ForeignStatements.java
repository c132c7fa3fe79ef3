package org.pysparklance.rules;

import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableOrView;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.DescribeColumn;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.pysparklance.compat.DelegatingParser;
import org.pysparklance.python.Python;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Wraps Spark's parser for statements of Delta and lance-spark that it cannot parse: Python
 * translates them. {@code OPTIMIZE} and {@code VACUUM} become calls of procedures; others raise an
 * error with the statement to use. Statements that Spark, or the parser of another extension,
 * can parse are unchanged.
 */
public final class ForeignStatements implements DelegatingParser.Statements {
  /**
   * Words of the statements that {@code foreign_statements.py} knows, which a test compares.
   * Python parses the statement, but is only called for texts with one of them: an error
   * in the SQL of other sources must not start its process.
   */
  private static final Set<String> KEYWORDS = Set.of(
      "BRANCH", "BRANCHES", "CLONE", "COLUMN", "COLUMNS", "CONVERT", "DETAIL", "GENERATE",
      "HISTORY", "INDEX", "INDEXES", "INDICES", "OPTIMIZE", "PRIMARY", "REORG", "RESTORE", "TAG",
      "TAGS", "VACUUM");

  private final SparkSession session;
  private final ParserInterface parser;

  private ForeignStatements(SparkSession session, ParserInterface parser) {
    this.session = session;
    this.parser = parser;
  }

  public static ParserInterface over(SparkSession session, ParserInterface parser) {
    return DelegatingParser.over(parser, new ForeignStatements(session, parser));
  }

  @Override public LogicalPlan parse(String text, DelegatingParser.Parse parse)
      throws ParseException {
    LogicalPlan plan;
    try {
      plan = parse.statement(text);
    } catch (ParseException failure) {
      String translated = hasKeyword(text) ? Python.statement(text) : null;
      if (translated == null) {
        throw failure;
      }
      return parser.parsePlan(translated);
    }
    if (isMisparsed(plan)) {
      Python.statement(text);
    }
    return plan;
  }

  private static boolean hasKeyword(String text) {
    int start = 0;
    for (int end = 0; end <= text.length(); end++) {
      if (end == text.length() || !isWordCharacter(text.charAt(end))) {
        if (KEYWORDS.contains(text.substring(start, end).toUpperCase(Locale.ROOT))) {
          return true;
        }
        start = end + 1;
      }
    }
    return false;
  }

  private static boolean isWordCharacter(char character) {
    return Character.isLetterOrDigit(character) || character == '_';
  }

  /** Whether Spark parses {@code DESCRIBE HISTORY t} as a column, or a call of an unknown function. */
  private boolean isMisparsed(LogicalPlan plan) {
    if (plan instanceof DescribeColumn column
        && column.relation() instanceof UnresolvedTableOrView table) {
      String name = singleName(table.multipartIdentifier());
      return Set.of("history", "detail").contains(name) && !session.catalog().tableExists(name);
    }
    return plan.exists(node -> node instanceof UnresolvedTableValuedFunction call
        && Set.of("table_changes", "table_changes_by_path").contains(singleName(call.name()))
        && !session.catalog().functionExists(singleName(call.name())));
  }

  private static String singleName(Seq<String> parts) {
    List<String> names = CollectionConverters.asJava(parts);
    return names.size() == 1 ? names.get(0).toLowerCase(Locale.ROOT) : "";
  }
}
