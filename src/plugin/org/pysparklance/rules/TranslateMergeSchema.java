package org.pysparklance.rules;

import java.util.List;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.pysparklance.catalog.LanceCatalogTable;
import org.pysparklance.compat.PlanArguments;
import scala.Tuple2;

/**
 * Translates {@code mergeSchema} of an append by name to {@code WITH SCHEMA EVOLUTION}, before
 * tables are resolved, since Spark then compares their columns at once.
 */
public final class TranslateMergeSchema extends Rule<LogicalPlan> {
  private final SparkSession session;

  public TranslateMergeSchema(SparkSession session) { this.session = session; }

  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof AppendData append
        && append.writeOptions().exists(TranslateMergeSchema::isMergeSchema)
        && isLanceTable((LogicalPlan) append.table())) {
      Object[] parts = PlanArguments.of(append);
      int ordinal = List.of(parts).indexOf(append.isByName()) + 1;
      if (parts[ordinal] instanceof Boolean) {  // not on Spark 4.1
        parts[ordinal] = true;
        return append.makeCopy(parts);
      }
    }
    return plan;
  }

  private static boolean isMergeSchema(Tuple2<?, ?> option) {
    return option._1().toString().replaceAll("[_-]", "").equalsIgnoreCase("mergeSchema")
        && option._2().toString().equalsIgnoreCase("true");
  }

  private boolean isLanceTable(LogicalPlan table) {
    LogicalPlan resolved = table instanceof UnresolvedRelation relation ? find(relation) : table;
    return resolved != null
        && resolved.collectLeaves().head() instanceof DataSourceV2Relation relation
        && relation.table() instanceof LanceCatalogTable;
  }

  /** Null for a missing table, for which Spark raises an error later. */
  private LogicalPlan find(UnresolvedRelation relation) {
    try {
      return session.table(relation.tableName()).queryExecution().analyzed();
    } catch (Exception failure) {  // those of Scala are none of the kinds that Java declares
      return null;
    }
  }
}
