package org.pysparklance.rules;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.pysparklance.catalog.LanceTable;
import org.pysparklance.compat.PlanArguments;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * DELETE and UPDATE with a subquery that is correlated by more than equalities. For these Spark
 * reads the table a second time, and then fails since it finds the table twice. So this moves the
 * condition to a separate query, which returns the row addresses.
 */
public final class RewriteCorrelatedConditions extends Rule<LogicalPlan> {
  private final SparkSession session;

  public RewriteCorrelatedConditions(SparkSession session) { this.session = session; }

  @Override public LogicalPlan apply(LogicalPlan plan) {
    return plan instanceof WriteDelta write
        && write.originalTable() instanceof DataSourceV2Relation table
        && table.table() instanceof LanceTable
        && write.operation().command() != RowLevelOperation.Command.MERGE
        ? (LogicalPlan) write.mapChildren(query -> rewriteCondition((LogicalPlan) query, table))
        : plan;
  }

  /** The changed rows, by address if their condition reads the table. */
  private LogicalPlan rewriteCondition(LogicalPlan query, DataSourceV2Relation table) {
    if (query instanceof Filter filter && filter.child() instanceof DataSourceV2Relation target) {
      return readsTableTwice(filter.condition())
          ? filter.copy(addressCondition(target, table, filter.condition()), target) : filter;
    }
    query.expressions().foreach(value -> {
      if (readsTableTwice(value)) {
        throw new UnsupportedOperationException("[LANCE_UNSUPPORTED_FEATURE] UPDATE cannot set a "
            + "column to a subquery that more than equal values relate to the table\n  hint: use "
            + "MERGE INTO with a source that computes the values, or LanceTable.merge");
      }
      return null;
    });
    return (LogicalPlan) query.mapChildren(child -> rewriteCondition((LogicalPlan) child, table));
  }

  private static boolean readsTableTwice(Expression expression) {
    return expression.resolved()
        && expression.exists(part -> part instanceof SubqueryExpression subquery
        && subquery.isCorrelated() && readsTableTwice(subquery));
  }

  /** A plain EXISTS or IN becomes a join, and needs no second read. */
  private static boolean readsTableTwice(SubqueryExpression subquery) {
    boolean isPlain = !(subquery instanceof ScalarSubquery) && !subquery.plan().exists(
        node -> !(node instanceof Project || node instanceof Filter || node instanceof LeafNode
            || node instanceof SubqueryAlias || node instanceof View));
    return !isPlain && subquery.plan().exists(node -> node.expressions().exists(
        part -> !(node instanceof Filter) ? hasOuter(part)
        : PushDownLatePredicates.splitConjuncts(part).stream().anyMatch(
            one -> hasOuter(one) && !isEquiPredicate(one))));
  }

  private static boolean hasOuter(Expression part) {
    return part.exists(one -> one instanceof OuterReference);
  }

  private static boolean isEquiPredicate(Expression condition) {
    return condition instanceof EqualTo equal
        && (isColumn(equal.left()) && isOuter(equal.right())
            || isColumn(equal.right()) && isOuter(equal.left()));
  }

  /** A column of the subquery, also as a wider type: distinct values stay distinct. */
  private static boolean isColumn(Expression part) {
    return part instanceof Attribute || part instanceof Cast cast
        && cast.child() instanceof Attribute column
        && Cast.canUpCast(column.dataType(), cast.dataType());
  }

  private static boolean isOuter(Expression part) {
    return hasOuter(part) && !part.exists(one -> one instanceof Attribute);
  }

  /** A condition on the addresses of the rows that match {@code condition}. */
  private Expression addressCondition(
      DataSourceV2Relation target, DataSourceV2Relation table, Expression condition) {
    Map<String, AttributeReference> secondColumns = new HashMap<>();
    DataSourceV2Relation secondRead = (DataSourceV2Relation)
        ((DataSourceV2Relation) table.withMetadataColumns()).newInstance();
    secondRead.output().foreach(column -> secondColumns.put(column.name(), column));
    Map<ExprId, AttributeReference> columns = new HashMap<>();
    AttributeReference address = null;
    for (AttributeReference column : CollectionConverters.asJava(target.output())) {
      columns.put(column.exprId(), secondColumns.get(column.name()));
      address = column.name().equals("_rowaddr") ? column : address;
    }
    Expression secondCondition = AnalysisHelper$.MODULE$.allowInvokingTransformsInAnalyzer(
        () -> (Expression) condition.transform(new SecondReadColumns(columns)));
    LogicalPlan addresses =
        new Project(Seqs.of(secondColumns.get("_rowaddr")),
        new Filter(secondCondition, secondRead));
    try {
      InSubquery in = (InSubquery) session.sessionState().sqlParser()
          .parseExpression("address IN (SELECT 1)");
      ListQuery query = (ListQuery) in.query().withNewPlan(addresses);
      Object[] parts = PlanArguments.replace(query, part -> part.equals(query.numCols()) ? 1
          : part);
      return in.copy(Seqs.of(address), parts == null ? query : (ListQuery) query.makeCopy(parts));
    } catch (ParseException error) {
      throw new IllegalStateException(error);
    }
  }

  /** Replaces columns of the target by those of a second read of the table. */
  private static final class SecondReadColumns extends AbstractPartialFunction<Expression, Expression> {
    private final Map<ExprId, AttributeReference> columns;

    SecondReadColumns(Map<ExprId, AttributeReference> columns) { this.columns = columns; }

    @Override public boolean isDefinedAt(Expression part) {
      return part instanceof SubqueryExpression
          || part instanceof AttributeReference column && columns.containsKey(column.exprId())
          || part instanceof OuterReference outer && columns.containsKey(outer.exprId());
    }

    @Override public Expression apply(Expression part) {
      return part instanceof SubqueryExpression subquery
          ? (Expression) subquery.withNewPlan(
              (LogicalPlan) subquery.plan().transformAllExpressions(this))
          : part instanceof OuterReference outer
              ? outer.copy(columns.get(outer.exprId()))
              : columns.get(((AttributeReference) part).exprId());
    }
  }
}
