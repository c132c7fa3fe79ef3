package org.pysparklance.rules;

import java.util.function.UnaryOperator;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.plans.logical.DescribeColumn;
import org.apache.spark.sql.catalyst.plans.logical.DescribeRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ShowCreateTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.pysparklance.catalog.LanceCatalogTable;
import org.pysparklance.compat.PlanArguments;

/** Shows SHOW CREATE TABLE the declared columns of a Lance table, and DESCRIBE its statistics. */
final class DescribeTables extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    UnaryOperator<LanceCatalogTable> change = plan instanceof ShowCreateTable
        ? LanceCatalogTable::asCreateStatement
        : plan instanceof DescribeRelation || plan instanceof DescribeColumn
            ? LanceCatalogTable::withStatistics : null;
    return change == null ? plan
        : (LogicalPlan) plan.mapChildren(child -> of((LogicalPlan) child, change));
  }

  private static LogicalPlan of(LogicalPlan child, UnaryOperator<LanceCatalogTable> change) {
    if (child instanceof ResolvedTable resolved
        && resolved.table() instanceof LanceCatalogTable table) {
      Object[] parts =
          PlanArguments.replace(resolved, part -> part == table ? change.apply(table) : part);
      return parts == null ? child : (LogicalPlan) child.makeCopy(parts);
    }
    return child;
  }
}
