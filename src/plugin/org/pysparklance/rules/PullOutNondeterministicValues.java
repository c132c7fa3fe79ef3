package org.pysparklance.rules;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.write.RowLevelOperation.Command;
import org.pysparklance.catalog.LanceTable;
import org.pysparklance.compat.PlanArguments;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * MERGE, UPDATE and DELETE with nondeterministic expressions. Those in the clauses of a MERGE
 * become columns of the joined rows, so that they are evaluated once per row. Those in other
 * conditions are refused with a hint, as Spark cannot evaluate them once.
 */
public final class PullOutNondeterministicValues extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof WriteDelta write)
        || !LanceRelations.isLance(write.originalTable())) {
      return plan;
    }
    Command command = write.operation().command();
    if (command == Command.MERGE) {
      return pullOut(plan);
    }
    if (!write.condition().deterministic()) {
      throw new UnsupportedOperationException("[LANCE_UNSUPPORTED_FEATURE] "
          + write.condition().sql() + " gives another value each time, which the condition of "
          + command + " cannot in SQL\n  hint: use LanceTable."
          + (command == Command.DELETE ? "delete" : "update") + ", which evaluates it once");
    }
    return plan;
  }

  private static LogicalPlan pullOut(LogicalPlan plan) {
    if (!(plan instanceof MergeRows rows)) {
      return (LogicalPlan) plan.mapChildren(child -> pullOut((LogicalPlan) child));
    }
    List<NamedExpression> columns =
        new ArrayList<>(CollectionConverters.asJava(rows.child().output()));
    int inputColumns = columns.size();
    Object[] parts = PlanArguments.replace(rows, part -> part instanceof Seq<?> instructions
        && !instructions.isEmpty() && instructions.head() instanceof MergeRows.Instruction
        ? instructions.map(instruction -> ((Expression) instruction).mapChildren(
            value -> pullOutValue((Expression) value, columns))) : part);
    if (columns.size() == inputColumns) {
      return rows;
    }
    LogicalPlan child = new Project(Seqs.from(columns), rows.child());
    return (LogicalPlan) ((LogicalPlan) rows.makeCopy(parts)).withNewChildren(
        Seqs.of(child));
  }

  private static Expression pullOutValue(Expression value, List<NamedExpression> columns) {
    if (value.deterministic()) {
      return value;
    }
    Alias column = Aliases.of(value, "__lance_value_" + columns.size());
    columns.add(column);
    return column.toAttribute();
  }
}
