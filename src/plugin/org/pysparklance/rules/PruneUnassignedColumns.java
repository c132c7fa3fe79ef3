package org.pysparklance.rules;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LeafNode;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.UnaryNode;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.types.StructField;
import org.pysparklance.write.LanceRowLevelOperation;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Columns that an UPDATE does not set. Spark would read them and write them back unchanged; Python
 * copies them by row address. So this replaces them by a constant, and only the condition reads
 * them.
 */
public final class PruneUnassignedColumns extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    return plan instanceof WriteDelta write
        && write.operation() instanceof LanceRowLevelOperation operation
        && operation.command() == RowLevelOperation.Command.UPDATE && !operation.hasAssigned()
        && write.projections().rowProjection().isDefined()
        && write.query() instanceof Project values
        ? pruneValues(write, values, operation) : plan;
  }

  private static LogicalPlan pruneValues(WriteDelta write, Project values,
      LanceRowLevelOperation operation) {
    var projection = write.projections().rowProjection().get();
    List<NamedExpression> projectList =
        new ArrayList<>(CollectionConverters.asJava(values.projectList()));
    List<Integer> assigned = new ArrayList<>();
    for (int i = 0; i < projection.schema().length(); i++) {
      int ordinal = (Integer) projection.colOrdinals().apply(i);
      Expression value = (Expression) projectList.get(ordinal);
      // Spark would reject null for a column that is not nullable.
      if (value.nullable() && isColumn(value, values.child(), projection.schema().apply(i))) {
        NamedExpression expression = projectList.get(ordinal);
        projectList.set(ordinal,
            Aliases.of(Literal.create(null, value.dataType()), expression.name(),
                expression.exprId(), Seqs.of()));
      } else {
        assigned.add(i);
      }
    }
    operation.setAssigned(assigned);
    if (isOneScan(values.child())) {
      operation.allowColumnRewrite(values.child().exists(
          one -> one instanceof Filter filter && !filter.condition().equals(Literal.TrueLiteral())));
    }
    return (LogicalPlan) write.withNewQuery(
        new Project(Seqs.from(projectList), values.child()));
  }

  /** Whether a plan is a scan below projections and filters, so that its tasks are the scan's. */
  private static boolean isOneScan(LogicalPlan plan) {
    LogicalPlan leaf = plan;
    while (leaf instanceof Project || leaf instanceof Filter) {
      leaf = ((UnaryNode) leaf).child();
    }
    return leaf instanceof LeafNode && plan.subqueriesAll().isEmpty();
  }

  /** Whether a value is the column of the scan, possibly renamed. */
  private static boolean isColumn(Expression value, LogicalPlan plan, StructField column) {
    if (value instanceof Alias alias) {
      return isColumn(alias.child(), plan, column);
    }
    if (!(value instanceof Attribute attribute)) {
      return false;
    }
    if (plan instanceof Project project) {
      for (NamedExpression projected : CollectionConverters.asJava(project.projectList())) {
        if (projected.exprId().equals(attribute.exprId())) {
          return isColumn((Expression) projected, project.child(), column);
        }
      }
    }
    return attribute.name().equals(column.name()) && plan.collectLeaves().head().output().exists(
        scanned -> scanned.exprId().equals(attribute.exprId()));
  }
}
