package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.pysparklance.catalog.LanceTable;
import org.pysparklance.compat.Releases;

/** Refuses MERGE WITH SCHEMA EVOLUTION on Spark 4.0, which would add no column and raise nothing. */
final class CheckMergeEvolution extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (!Releases.EVOLVES_IN_MERGE && plan instanceof MergeIntoTable merge
        && merge.withSchemaEvolution()
        && LanceRelations.isLance(EliminateSubqueryAliases.apply(merge.targetTable()))) {
      throw new UnsupportedOperationException("[LANCE_UNSUPPORTED_FEATURE] Spark 4.0 adds no "
          + "columns in MERGE WITH SCHEMA EVOLUTION\n  hint: ALTER TABLE … ADD COLUMNS first, or "
          + "LanceTable.merge(…).withSchemaEvolution(), or use Spark 4.1 or later");
    }
    return plan;
  }
}
