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
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * Another parser, with one method for statements. It has the methods of all releases: older ones
 * lack the last three, and never call them.
 */
public abstract class DelegatingParser implements ParserInterface {
  protected final ParserInterface parser;

  protected DelegatingParser(ParserInterface parser) { this.parser = parser; }

  /** One of the two methods that parse statements. */
  protected interface Parse {
    LogicalPlan statement(String text) throws ParseException;
  }

  /** Parses a statement; {@code parse}: as the other parser does. */
  protected abstract LogicalPlan parse(String text, Parse parse) throws ParseException;

  @Override public LogicalPlan parsePlan(String text) throws ParseException {
    return parse(text, parser::parsePlan);
  }

  @Override public Expression parseExpression(String text) throws ParseException {
    return parser.parseExpression(text);
  }

  @Override public TableIdentifier parseTableIdentifier(String text) throws ParseException {
    return parser.parseTableIdentifier(text);
  }

  @Override public FunctionIdentifier parseFunctionIdentifier(String text) throws ParseException {
    return parser.parseFunctionIdentifier(text);
  }

  @Override public Seq<String> parseMultipartIdentifier(String text) throws ParseException {
    return parser.parseMultipartIdentifier(text);
  }

  @Override public LogicalPlan parseQuery(String text) throws ParseException {
    return parser.parseQuery(text);
  }

  @Override public StructType parseRoutineParam(String text) throws ParseException {
    return parser.parseRoutineParam(text);
  }

  @Override public StructType parseTableSchema(String text) throws ParseException {
    return parser.parseTableSchema(text);
  }

  @Override public DataType parseDataType(String text) throws ParseException {
    return parser.parseDataType(text);
  }

  /** Since 4.1. */
  @Override public LogicalPlan parsePlanWithParameters(String text, ParameterContext parameters)
      throws ParseException {
    return parse(text, one -> parser.parsePlanWithParameters(one, parameters));
  }

  /** Since 4.3. */
  @Override public TemporalIdentifier parseTemporalTableIdentifier(String text)
      throws ParseException {
    return parser.parseTemporalTableIdentifier(text);
  }

  /** Since 4.3. */
  @Override public SqlStatementSplitResult splitStatements(String text) {
    return parser.splitStatements(text);
  }
}
