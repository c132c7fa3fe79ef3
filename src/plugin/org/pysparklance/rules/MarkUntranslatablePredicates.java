package org.pysparklance.rules;

import java.util.Collections;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.KnownNullable;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy$;

/**
 * Marks conditions whose translation for sources fails an assertion in Spark: it rewrites a
 * comparison that is never true to an AND with NULL, which is no predicate within another
 * expression, as in {@code (i16 > 32767) IS NULL}. Spark does not translate marked conditions, and
 * evaluates them itself.
 */
public final class MarkUntranslatablePredicates extends Rule<LogicalPlan> {
  private static final Set<SparkSessionExtensions> REGISTERED =
      Collections.newSetFromMap(new WeakHashMap<>());

  /** Shared by the sessions of an application, which check their extensions for each plan. */
  public static synchronized void addTo(SparkSessionExtensions extensions) {
    if (REGISTERED.add(extensions)) {
      extensions.injectOptimizerRule(session -> new MarkUntranslatablePredicates());
    }
  }

  @Override public LogicalPlan apply(LogicalPlan plan) {
    return plan.exists(LanceRelations::isLance) ? markNodes(plan) : plan;
  }

  private static LogicalPlan markNodes(LogicalPlan plan) {
    LogicalPlan node = (LogicalPlan) plan.mapChildren(child -> markNodes((LogicalPlan) child));
    if (node instanceof Aggregate || node instanceof Project || node instanceof Sort) {
      return (LogicalPlan) node.mapExpressions(MarkUntranslatablePredicates::markValues);
    }
    if (!(node instanceof Filter filter)) {
      return node;
    }
    Expression condition = markTerms(filter.condition());
    return condition == filter.condition() ? filter : new Filter(condition, filter.child());
  }

  /** The condition, with a mark on each term that Spark cannot translate. */
  private static Expression markTerms(Expression condition) {
    if (condition instanceof And and) {
      Expression left = markTerms(and.left());
      Expression right = markTerms(and.right());
      return left == and.left() && right == and.right() ? and : new And(left, right);
    }
    return isTranslatable(condition) ? condition : new KnownNullable(condition);
  }

  /** The expressions of aggregates, orders and projections above the scan, which Spark translates. */
  private static Expression markValues(Expression expression) {
    boolean isContainer = expression instanceof Alias || expression instanceof SortOrder
        || expression instanceof AggregateExpression || expression instanceof AggregateFunction;
    if (isContainer) {
      return (Expression) expression.mapChildren(child -> markValues((Expression) child));
    }
    return isTranslatable(new IsNull(expression)) ? expression : new KnownNullable(expression);
  }

  /** Whether Spark translates or rejects a condition without an error. */
  static boolean isTranslatable(Expression condition) {
    try {
      DataSourceV2Strategy$.MODULE$.translateFilterV2(condition);
      return true;
    } catch (AssertionError | RuntimeException error) {
      return false;
    }
  }
}
