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
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy$;
import org.pysparklance.catalog.LanceTable;

/**
 * Keeps conditions with Spark that it cannot translate for sources without an assertion of its own:
 * of a comparison that is never true it makes an AND with NULL, which it takes for no condition where
 * a condition is a value, as in {@code (i16 > 32767) IS NULL}. Spark evaluates what it does not
 * translate, and it translates nothing that is marked.
 */
public final class KeptConditions extends Rule<LogicalPlan> {
  private static final Set<SparkSessionExtensions> HAVE_IT =
      Collections.newSetFromMap(new WeakHashMap<>());

  /** Sessions look at their extensions for each plan; those of one application may share them. */
  public static synchronized void addTo(SparkSessionExtensions extensions) {
    if (HAVE_IT.add(extensions)) {
      extensions.injectOptimizerRule(session -> new KeptConditions());
    }
  }

  @Override public LogicalPlan apply(LogicalPlan plan) {
    return plan.exists(KeptConditions::isOurs) ? kept(plan) : plan;
  }

  private static boolean isOurs(Object node) {
    return node instanceof DataSourceV2Relation relation && relation.table() instanceof LanceTable;
  }

  private static LogicalPlan kept(LogicalPlan plan) {
    LogicalPlan seen = (LogicalPlan) plan.mapChildren(child -> kept((LogicalPlan) child));
    if (seen instanceof Aggregate || seen instanceof Project || seen instanceof Sort) {
      return (LogicalPlan) seen.mapExpressions(KeptConditions::markedValues);
    }
    if (!(seen instanceof Filter filter)) {
      return seen;
    }
    Expression condition = marked(filter.condition());
    return condition == filter.condition() ? filter : new Filter(condition, filter.child());
  }

  /** The condition, in which each term that Spark cannot translate is marked. */
  private static Expression marked(Expression condition) {
    if (condition instanceof And both) {
      Expression left = marked(both.left());
      Expression right = marked(both.right());
      return left == both.left() && right == both.right() ? both : new And(left, right);
    }
    return isTranslatable(condition) ? condition : new KnownNullable(condition);
  }

  /** What aggregates, orders and columns between them and the scan are of: Spark translates these. */
  private static Expression markedValues(Expression expression) {
    boolean isOfOthers = expression instanceof Alias || expression instanceof SortOrder
        || expression instanceof AggregateExpression || expression instanceof AggregateFunction;
    if (isOfOthers) {
      return (Expression) expression.mapChildren(child -> markedValues((Expression) child));
    }
    return isTranslatable(new IsNull(expression)) ? expression : new KnownNullable(expression);
  }

  /** Whether Spark translates a condition, or says that it does not. */
  static boolean isTranslatable(Expression condition) {
    try {
      DataSourceV2Strategy$.MODULE$.translateFilterV2(condition);
      return true;
    } catch (AssertionError | RuntimeException error) {
      return false;
    }
  }
}
