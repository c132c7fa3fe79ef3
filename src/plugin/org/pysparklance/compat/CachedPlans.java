package org.pysparklance.compat;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.CacheManager;
import org.apache.spark.sql.execution.CachedData;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The plans in Spark's cache. Spark has no list of them, and only finds plans that are equal. */
public final class CachedPlans {
  private CachedPlans() {}

  public static List<LogicalPlan> of(CacheManager cache) throws ReflectiveOperationException {
    var entries = CacheManager.class.getDeclaredMethod("cachedData");
    entries.setAccessible(true);
    List<LogicalPlan> plans = new ArrayList<>();
    for (Object entry : CollectionConverters.asJava((Seq<?>) entries.invoke(cache))) {
      plans.add(((CachedData) entry).plan());
    }
    return plans;
  }
}
