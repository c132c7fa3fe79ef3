package org.pysparklance.rules;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.types.StructField;
import org.pysparklance.write.RowChange;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Columns that an UPDATE does not set. Spark would read them and write them back unchanged; Python
 * copies them by row address. So this replaces them by a constant, and only the condition reads
 * them.
 */
public final class UnsetColumns extends Rule<LogicalPlan> {
  private static final Seq<String> NO_NAMES =
      CollectionConverters.asScala(List.<String>of()).toSeq();

  @Override public LogicalPlan apply(LogicalPlan plan) {
    return plan instanceof WriteDelta write && write.operation() instanceof RowChange change
        && change.command() == RowLevelOperation.Command.UPDATE && !change.isNarrowed()
        && write.projections().rowProjection().isDefined()
        && write.query() instanceof Project values
        ? narrowed(write, values, change) : plan;
  }

  private static LogicalPlan narrowed(WriteDelta write, Project values, RowChange change) {
    var row = write.projections().rowProjection().get();
    List<NamedExpression> all = new ArrayList<>(CollectionConverters.asJava(values.projectList()));
    List<Integer> set = new ArrayList<>();
    for (int i = 0; i < row.schema().length(); i++) {
      int place = (Integer) row.colOrdinals().apply(i);
      Expression value = (Expression) all.get(place);
      // Spark would reject null for a column that is not nullable.
      if (value.nullable() && isColumn(value, values.child(), row.schema().apply(i))) {
        NamedExpression named = all.get(place);
        all.set(place, new Alias(Literal.create(null, value.dataType()), named.name(),
            named.exprId(), NO_NAMES, Option.empty(), NO_NAMES));
      } else {
        set.add(i);
      }
    }
    change.narrow(set);
    return (LogicalPlan) write.withNewQuery(
        new Project(CollectionConverters.asScala(all).toSeq(), values.child()));
  }

  /** Whether a value is the column of the scan, possibly renamed. */
  private static boolean isColumn(Expression value, LogicalPlan below, StructField column) {
    if (value instanceof Alias alias) {
      return isColumn(alias.child(), below, column);
    }
    if (!(value instanceof Attribute attribute)) {
      return false;
    }
    if (below instanceof Project project) {
      for (NamedExpression one : CollectionConverters.asJava(project.projectList())) {
        if (one.exprId().equals(attribute.exprId())) {
          return isColumn((Expression) one, project.child(), column);
        }
      }
    }
    return attribute.name().equals(column.name()) && below.collectLeaves().head().output().exists(
        read -> read.exprId().equals(attribute.exprId()));
  }
}
