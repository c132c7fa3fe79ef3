package org.pysparklance.python;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkContext$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** The query that this thread runs. */
public final class ActiveQuery {
  private ActiveQuery() {}

  /**
   * The active context. Never creates a new one, which would outlive {@code spark.stop()} and
   * prevent new sessions.
   */
  public static SparkContext context() {
    Option<SparkContext> active = SparkContext$.MODULE$.getActive();
    if (active.isEmpty()) {
      throw new UnsupportedOperationException("[LANCE_INVALID_INPUT] the Spark session of this "
          + "query was stopped\n  hint: create the DataFrame again with the active session");
    }
    return active.get();
  }

  /** The id of the query's execution; null if there is none. */
  public static String executionId() {
    return context().getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
  }

  public static QueryExecution execution() {
    return SQLExecution.getQueryExecution(Long.parseLong(executionId()));
  }

  /** The V2 scans of an optimized plan, including subqueries. */
  public static List<Scan> scans(LogicalPlan plan) {
    List<Scan> found = new ArrayList<>();
    for (LogicalPlan leaf : leaves(plan)) {
      if (leaf instanceof DataSourceV2ScanRelation relation) {
        found.add(relation.scan());
      }
    }
    return found;
  }

  /** The leaves of a plan and of its subqueries. */
  public static List<LogicalPlan> leaves(LogicalPlan plan) {
    List<LogicalPlan> plans = new ArrayList<>(CollectionConverters.asJava(plan.subqueriesAll()));
    plans.add(plan);
    List<LogicalPlan> found = new ArrayList<>();
    plans.forEach(one -> found.addAll(CollectionConverters.asJava(one.collectLeaves())));
    return found;
  }
}
