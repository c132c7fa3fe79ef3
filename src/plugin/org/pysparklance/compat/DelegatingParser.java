package org.pysparklance.compat;

import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.ParameterContext;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.parser.SqlStatementSplitResult;
import org.apache.spark.sql.catalyst.parser.TemporalIdentifier;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SparkSqlParser;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * Another parser, with one method for statements. Each release gets a class with the methods of its
 * parsers only: Py4J lists the methods of the session's parser, which fails if one of them names a
 * class that the release lacks. Methods that a class does not have are those of Spark's own parser.
 */
public class DelegatingParser extends SparkSqlParser {
  /** Parses statements by means of another parser. */
  public interface Statements {
    /** Parses a statement; {@code parse}: as the other parser does. */
    LogicalPlan parse(String text, Parse parse) throws ParseException;
  }

  /** One of the two methods that parse statements. */
  public interface Parse {
    LogicalPlan statement(String text) throws ParseException;
  }

  final ParserInterface parser;
  final Statements statements;

  DelegatingParser(ParserInterface parser, Statements statements) {
    this.parser = parser;
    this.statements = statements;
  }

  public static ParserInterface over(ParserInterface parser, Statements statements) {
    if (Releases.SPLITS_STATEMENTS) {
      return new Since43(parser, statements);
    }
    return Releases.PARSES_PARAMETERS
        ? new Since41(parser, statements) : new DelegatingParser(parser, statements);
  }

  @Override public LogicalPlan parsePlan(String text) {
    return unchecked(() -> statements.parse(text, parser::parsePlan));
  }

  @Override public Expression parseExpression(String text) {
    return unchecked(() -> parser.parseExpression(text));
  }

  @Override public TableIdentifier parseTableIdentifier(String text) {
    return unchecked(() -> parser.parseTableIdentifier(text));
  }

  @Override public FunctionIdentifier parseFunctionIdentifier(String text) {
    return unchecked(() -> parser.parseFunctionIdentifier(text));
  }

  @Override public Seq<String> parseMultipartIdentifier(String text) {
    return unchecked(() -> parser.parseMultipartIdentifier(text));
  }

  @Override public LogicalPlan parseQuery(String text) {
    return unchecked(() -> parser.parseQuery(text));
  }

  @Override public StructType parseRoutineParam(String text) {
    return unchecked(() -> parser.parseRoutineParam(text));
  }

  @Override public StructType parseTableSchema(String text) {
    return unchecked(() -> parser.parseTableSchema(text));
  }

  @Override public DataType parseDataType(String text) {
    return unchecked(() -> parser.parseDataType(text));
  }

  private interface Parsing<T> {
    T parse() throws ParseException;
  }

  /** Returns what is parsed; Scala's methods, which these override, declare no exceptions. */
  @SuppressWarnings("unchecked")
  private static <T, E extends Exception> T unchecked(Parsing<T> parsing) throws E {
    try {
      return parsing.parse();
    } catch (ParseException failure) {
      throw (E) failure;
    }
  }

  private static class Since41 extends DelegatingParser {
    Since41(ParserInterface parser, Statements statements) { super(parser, statements); }

    @Override public LogicalPlan parsePlanWithParameters(String text, ParameterContext parameters) {
      return unchecked(() ->
          statements.parse(text, one -> parser.parsePlanWithParameters(one, parameters)));
    }
  }

  private static final class Since43 extends Since41 {
    Since43(ParserInterface parser, Statements statements) { super(parser, statements); }

    @Override public TemporalIdentifier parseTemporalTableIdentifier(String text) {
      return unchecked(() -> parser.parseTemporalTableIdentifier(text));
    }

    @Override public SqlStatementSplitResult splitStatements(String text) {
      return parser.splitStatements(text);
    }
  }
}
