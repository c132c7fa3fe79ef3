package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.pysparklance.compat.PlanArguments;
import scala.Option;

/**
 * Removes the group filter condition that Spark adds to the plan of a MERGE. If it names hidden
 * columns, Spark does not read them for it, and if the source is not deterministic, Spark refuses
 * it.
 */
public final class RemoveGroupFilter extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof WriteDelta write)
        || !LanceRelations.isLance(write.originalTable())
        || write.operation().command() != RowLevelOperation.Command.MERGE) {
      return plan;
    }
    Object[] parts = PlanArguments.replace(write, RemoveGroupFilter::removeCondition);
    return parts == null ? plan : write.makeCopy(parts);
  }

  private static Object removeCondition(Object part) {
    if (part instanceof Option<?> option) {
      return option.exists(one -> one instanceof Expression condition && isUnsupported(condition))
          ? Option.empty() : part;
    }
    return part instanceof Expression condition && isUnsupported(condition)
        ? Literal.TrueLiteral() : part;
  }

  private static boolean isUnsupported(Expression condition) {
    return !condition.deterministic() || hasMissingColumns(condition);
  }

  private static boolean hasMissingColumns(Expression condition) {
    return condition.exists(part -> part instanceof SubqueryExpression subquery
        && subquery.plan().exists(node -> !((LogicalPlan) node).missingInput().isEmpty()));
  }
}
