package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import scala.jdk.javaapi.CollectionConverters;

/** Adds a hint for {@code _fragid} of lance-spark, if Spark finds no such column. */
public final class CheckForeignColumns extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (!plan.resolved() && plan.exists(CheckForeignColumns::hasFragmentColumn)
        && plan.exists(LanceRelations::isLance)) {
      throw new UnsupportedOperationException("[LANCE_INVALID_INPUT] there is no column _fragid\n"
          + "  hint: shiftright(_rowaddr, 32) is the number of the fragment");
    }
    return plan;
  }

  private static boolean hasFragmentColumn(Object node) {
    return CollectionConverters.asJava(((LogicalPlan) node).expressions()).stream()
        .anyMatch(one -> ((Expression) one).exists(part -> part instanceof UnresolvedAttribute name
            && name.name().equalsIgnoreCase("_fragid")));
  }
}
