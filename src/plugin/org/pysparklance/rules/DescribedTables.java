package org.pysparklance.rules;

import java.util.function.UnaryOperator;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.plans.logical.DescribeColumn;
import org.apache.spark.sql.catalyst.plans.logical.DescribeRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ShowCreateTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.pysparklance.catalog.NamedTable;
import org.pysparklance.compat.PlanParts;

/** Shows SHOW CREATE TABLE the declared columns of a Lance table, and DESCRIBE its statistics. */
final class DescribedTables extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    UnaryOperator<NamedTable> shown = plan instanceof ShowCreateTable ? NamedTable::asStatement
        : plan instanceof DescribeRelation || plan instanceof DescribeColumn
            ? NamedTable::withStatistics : null;
    return shown == null ? plan
        : (LogicalPlan) plan.mapChildren(child -> of((LogicalPlan) child, shown));
  }

  private static LogicalPlan of(LogicalPlan child, UnaryOperator<NamedTable> shown) {
    if (child instanceof ResolvedTable resolved && resolved.table() instanceof NamedTable table) {
      Object[] parts =
          PlanParts.changed(resolved, part -> part == table ? shown.apply(table) : part);
      return parts == null ? child : (LogicalPlan) child.makeCopy(parts);
    }
    return child;
  }
}
