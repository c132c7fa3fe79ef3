package org.pysparklance.rules;

import java.util.List;
import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.pysparklance.catalog.LanceTable;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Lets {@code UPDATE}, {@code DELETE} and {@code MERGE} change the table of a plain view, which
 * Spark only resolves below aliases, and explains the error for other views. A view lacks the
 * capability to add columns, without which Spark would leave out new ones silently.
 */
public final class ResolveViewTargets extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    LogicalPlan target = LanceRelations.target(plan);
    LogicalPlan table = target == null ? null : removeViews(target);
    if (table == target) {
      return plan;
    }
    if (plan instanceof MergeIntoTable merge && merge.withSchemaEvolution()) {
      throw new UnsupportedOperationException("[LANCE_UNSUPPORTED_FEATURE] MERGE WITH SCHEMA "
          + "EVOLUTION adds no columns to the table of a view\n  hint: merge into the table itself, "
          + tableOf(table));
    }
    List<LogicalPlan> children = CollectionConverters.asJava(plan.children()).stream()
        .map(child -> child == target ? table : child).toList();
    return (LogicalPlan) plan.withNewChildren(Seqs.from(children));
  }

  private static String tableOf(LogicalPlan plan) {
    return EliminateSubqueryAliases.apply(plan) instanceof DataSourceV2Relation relation
        ? relation.table().name() : plan.toString();
  }

  private static LogicalPlan removeViews(LogicalPlan plan) {
    if (plan instanceof View view) {
      LogicalPlan child = removeViews(view.child());
      if (child instanceof DataSourceV2Relation) {
        return child;
      }
      checkView(view);
      return plan;
    }
    if (plan instanceof SubqueryAlias alias) {
      LogicalPlan child = removeViews(alias.child());
      return child == alias.child() ? plan
          : (LogicalPlan) alias.withNewChildren(
          Seqs.of(child));
    }
    return plan;
  }

  private static void checkView(View view) {
    var leaves = CollectionConverters.asJava(view.collectLeaves());
    if (leaves.size() == 1 && leaves.get(0) instanceof DataSourceV2Relation relation
        && relation.table() instanceof LanceTable table) {
      throw new UnsupportedOperationException("[LANCE_UNSUPPORTED_FEATURE] the view "
          + view.desc().identifier().table()
          + " is a query, which cannot be changed\n  hint: change "
          + "the table itself, " + table.name());
    }
  }
}
