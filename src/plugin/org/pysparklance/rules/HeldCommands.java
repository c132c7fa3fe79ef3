package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.plans.logical.WithCTE;
import org.apache.spark.sql.catalyst.rules.Rule;
import scala.Option;

/** Holds every UPDATE and MERGE back for {@link BlobAssignments}, before tables are looked up. */
public final class HeldCommands extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof WithCTE) {
      return (LogicalPlan) plan.mapChildren(child -> apply((LogicalPlan) child));
    }
    if (plan instanceof UpdateTable update && !update.resolved() && !isHeld(update.condition())) {
      Expression condition = update.condition().getOrElse(() -> Literal.TrueLiteral());
      return update.makeCopy(PlanParts.changed(update, part ->
          part == update.condition() ? Option.apply(new HeldCondition(condition)) : part));
    }
    if (plan instanceof MergeIntoTable merge && !merge.resolved()) {
      Object[] parts = PlanParts.changed(merge, part -> part == merge.mergeCondition()
          && !(part instanceof HeldCondition) ? new HeldCondition((Expression) part) : part);
      return parts == null ? merge : merge.makeCopy(parts);
    }
    return plan;
  }

  private static boolean isHeld(Option<Expression> condition) {
    return condition.exists(HeldCondition.class::isInstance);
  }
}
