package org.pysparklance.rules;

import java.util.List;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.pysparklance.catalog.NamedTable;
import org.pysparklance.compat.PlanParts;
import scala.Tuple2;

/**
 * Translates {@code mergeSchema} of an append by name to {@code WITH SCHEMA EVOLUTION}, before
 * tables are resolved, since Spark then compares their columns at once.
 */
public final class EvolvingWrites extends Rule<LogicalPlan> {
  private final SparkSession session;

  public EvolvingWrites(SparkSession session) { this.session = session; }

  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof AppendData append
        && append.writeOptions().exists(EvolvingWrites::isMergeSchema)
        && isOurs((LogicalPlan) append.table())) {
      Object[] parts = PlanParts.of(append);
      int evolves = List.of(parts).indexOf(append.isByName()) + 1;
      if (parts[evolves] instanceof Boolean) {  // not on Spark 4.1
        parts[evolves] = true;
        return append.makeCopy(parts);
      }
    }
    return plan;
  }

  private static boolean isMergeSchema(Tuple2<?, ?> option) {
    return option._1().toString().replaceAll("[_-]", "").equalsIgnoreCase("mergeSchema")
        && option._2().toString().equalsIgnoreCase("true");
  }

  private boolean isOurs(LogicalPlan table) {
    LogicalPlan known = table instanceof UnresolvedRelation named ? find(named) : table;
    return known != null && known.collectLeaves().head() instanceof DataSourceV2Relation relation
        && relation.table() instanceof NamedTable;
  }

  /** Null for a missing table, for which Spark raises an error later. */
  private LogicalPlan find(UnresolvedRelation named) {
    try {
      return session.table(named.tableName()).queryExecution().analyzed();
    } catch (Exception failure) {  // those of Scala are none of the kinds that Java declares
      return null;
    }
  }
}
