package org.pysparklance;

import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;

/**
 * Beside the plan of a MERGE, Spark keeps a condition by which sources that write whole groups of
 * rows anew leave some out. This one does not; and hidden columns are missing in the condition.
 */
final class HiddenInCondition extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof WriteDelta write)
        || !(write.originalTable() instanceof DataSourceV2Relation relation)
        || !(relation.table() instanceof LanceTable)
        || write.operation().command() != RowLevelOperation.Command.MERGE
        || write.condition() instanceof Literal) {
      return plan;
    }
    Object[] parts = HiddenOptions.parts(write);
    for (int i = 0; i < parts.length; i++) {
      if (parts[i] == write.condition()) {
        parts[i] = Literal.TrueLiteral();
      }
    }
    return write.makeCopy(parts);
  }
}
