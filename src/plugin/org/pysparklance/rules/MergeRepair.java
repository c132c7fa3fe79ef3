package org.pysparklance.rules;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.MetadataAttribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.pysparklance.catalog.LanceTable;
import org.pysparklance.compat.PlanParts;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Repairs a MERGE that names hidden columns. Spark adds an extra value for each of them to rows
 * that it keeps: once as an assigned column, and once as a metadata column.
 */
final class MergeRepair extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    return plan instanceof WriteDelta write
        && write.originalTable() instanceof DataSourceV2Relation relation
        && relation.table() instanceof LanceTable ? repair(plan) : plan;
  }

  private static LogicalPlan repair(LogicalPlan plan) {
    if (!(plan instanceof MergeRows rows)) {
      return (LogicalPlan) plan.mapChildren(child -> repair((LogicalPlan) child));
    }
    List<Attribute> output = CollectionConverters.asJava(rows.output());
    int first = 0;
    while (first < output.size() && !MetadataAttribute.isValid(output.get(first).metadata())) {
      first++;
    }
    int from = first;
    Object[] parts = PlanParts.changed(rows, part -> part instanceof Seq<?> some
        && !some.isEmpty() && some.head() instanceof MergeRows.Instruction
        ? some.map(one -> repaired((Expression) one, from, output.size())) : part);
    return parts == null ? rows : rows.makeCopy(parts);
  }

  /** Removes the extra values from {@code first} on. */
  private static Expression repaired(Expression instruction, int first, int width) {
    Object[] parts = PlanParts.changed(instruction, part -> {
      if (!(part instanceof Seq<?> values) || values.size() <= width) {
        return part;
      }
      List<Object> kept = new ArrayList<>(CollectionConverters.asJava(values));
      kept.subList(first, first + values.size() - width).clear();
      return CollectionConverters.asScala(kept).toSeq();
    });
    return parts == null ? instruction : instruction.makeCopy(parts);
  }
}
