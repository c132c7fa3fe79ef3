package org.pysparklance.catalog;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.compat.CachedPlans;
import org.pysparklance.python.ActiveQuery;
import org.pysparklance.python.Description;
import org.pysparklance.python.Python;
import org.slf4j.LoggerFactory;

/**
 * Refreshes cached relations of tables. After a statement, Spark itself only refreshes relations
 * with the table name of the statement, and none after other writes.
 */
public final class CachedTables {
  /** The option of a read that only refreshes, after writes in a Python process. */
  public static final String REFRESH = "_lance.refresh";

  private CachedTables() {}

  /** Refreshes all cached relations of the table at a path. */
  public static void refresh(CaseInsensitiveStringMap options) {
    try {
      SparkSession session = SparkSession.active();
      var cache = session.sharedState().cacheManager();
      if (cache.isEmpty()) {
        return;
      }
      for (LogicalPlan plan : CachedPlans.of(cache)) {
        List<LanceTable> stale =
            tables(plan).stream().filter(one -> one.isChangedBy(options)).toList();
        if (!stale.isEmpty()) {
          stale.forEach(LanceTable::forgetVersion);
          cache.recacheByPlan(session, plan);
        }
      }
    } catch (Exception error) {  // those of Scala are none of the kinds that Java declares
      // The write is committed. Spark has dropped relations that cannot be refreshed.
      LoggerFactory.getLogger(CachedTables.class).warn("a cached table is not cached any more",
          error);
    }
  }

  private static List<LanceTable> tables(LogicalPlan plan) {
    List<LanceTable> tables = new ArrayList<>();
    for (LogicalPlan leaf : ActiveQuery.leaves(plan)) {
      if (leaf instanceof DataSourceV2Relation relation
          && relation.table() instanceof LanceTable table) {
        tables.add(table);
      }
    }
    return tables;
  }

  /** The empty result of a read that only refreshes. */
  public static Description emptyDescription() {
    return Description.nothing(new StructType().add("refreshed", "boolean"));
  }
}
