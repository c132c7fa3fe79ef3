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
import org.pysparklance.compat.PlanArguments;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Repairs a MERGE that names hidden columns. Spark adds an extra value for each of them to rows
 * that it keeps: once as an assigned column, and once as a metadata column.
 */
final class RepairMergeRows extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    return plan instanceof WriteDelta write
        && LanceRelations.isLance(write.originalTable()) ? repairRows(plan) : plan;
  }

  private static LogicalPlan repairRows(LogicalPlan plan) {
    if (!(plan instanceof MergeRows rows)) {
      return (LogicalPlan) plan.mapChildren(child -> repairRows((LogicalPlan) child));
    }
    List<Attribute> output = CollectionConverters.asJava(rows.output());
    int first = 0;
    while (first < output.size() && !MetadataAttribute.isValid(output.get(first).metadata())) {
      first++;
    }
    int firstMetadata = first;
    Object[] parts = PlanArguments.replace(rows, part -> part instanceof Seq<?> instructions
        && !instructions.isEmpty() && instructions.head() instanceof MergeRows.Instruction
        ? instructions.map(instruction ->
        removeExtraValues((Expression) instruction, firstMetadata, output.size())) : part);
    return parts == null ? rows : rows.makeCopy(parts);
  }

  /** Removes the extra values from {@code first} on. */
  private static Expression removeExtraValues(Expression instruction, int first, int width) {
    Object[] parts = PlanArguments.replace(instruction, part -> {
      if (!(part instanceof Seq<?> values) || values.size() <= width) {
        return part;
      }
      List<Object> remaining = new ArrayList<>(CollectionConverters.asJava(values));
      remaining.subList(first, first + values.size() - width).clear();
      return Seqs.from(remaining);
    });
    return parts == null ? instruction : instruction.makeCopy(parts);
  }
}
