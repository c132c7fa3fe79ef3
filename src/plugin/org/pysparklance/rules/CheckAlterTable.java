package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SetTableProperties;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.pysparklance.catalog.LanceTable;

/** Refuses storage options in ALTER TABLE, as a table must not store secrets. */
final class CheckAlterTable extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof SetTableProperties command
        && command.table() instanceof ResolvedTable resolved
        && resolved.table() instanceof LanceTable
        && RedactTableOptions.hasStorageOptions(command.properties())) {
      throw new UnsupportedOperationException(
          "[LANCE_INVALID_INPUT] ALTER TABLE cannot change storage options\n"
              + "  hint: give them to reads and writes, to spark.sql.catalog.<name>.storage.*, or "
              + "by the environment of the store");
    }
    return plan;
  }
}
