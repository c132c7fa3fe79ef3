package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases;
import org.apache.spark.sql.catalyst.analysis.RewriteDeleteFromTable;
import org.apache.spark.sql.catalyst.analysis.RewriteMergeIntoTable;
import org.apache.spark.sql.catalyst.analysis.RewriteUpdateTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.pysparklance.compat.Releases;

/**
 * Runs Spark's own rewrite of DELETE, UPDATE and MERGE before the rules that change its result:
 * Spark 4.0 has it after all rules of extensions, and later releases before these.
 */
final class RewriteRowLevelCommands extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    return !Releases.REWRITES_EARLY && plan.resolved()
        && plan.exists(RewriteRowLevelCommands::isLanceCommand)
        ? RewriteMergeIntoTable.apply(RewriteUpdateTable.apply(RewriteDeleteFromTable.apply(plan)))
        : plan;
  }

  private static boolean isLanceCommand(LogicalPlan plan) {
    LogicalPlan target = LanceRelations.target(plan);
    return target != null && LanceRelations.isLance(EliminateSubqueryAliases.apply(target));
  }
}
