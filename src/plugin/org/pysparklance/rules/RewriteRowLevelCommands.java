package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases;
import org.apache.spark.sql.catalyst.analysis.RewriteDeleteFromTable;
import org.apache.spark.sql.catalyst.analysis.RewriteMergeIntoTable;
import org.apache.spark.sql.catalyst.analysis.RewriteUpdateTable;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.pysparklance.catalog.LanceTable;
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
    LogicalPlan target = plan instanceof UpdateTable update ? update.table()
        : plan instanceof DeleteFromTable delete ? delete.table()
        : plan instanceof MergeIntoTable merge ? merge.targetTable() : null;
    return target != null
        && EliminateSubqueryAliases.apply(target) instanceof DataSourceV2Relation relation
        && relation.table() instanceof LanceTable;
  }
}
