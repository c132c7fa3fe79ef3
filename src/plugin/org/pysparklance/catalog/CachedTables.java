package org.pysparklance.catalog;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CacheManager;
import org.apache.spark.sql.execution.CachedData;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.python.Description;
import org.pysparklance.python.Python;
import org.pysparklance.python.Running;
import org.slf4j.LoggerFactory;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What Spark has cached of tables. Spark itself reads anew, after a statement, what it knows by the
 * name in the statement; not what is known by other names, and nothing after other writes.
 */
public final class CachedTables {
  /** Asks for nothing but {@code refresh}: for writes that happen in a Python process. */
  public static final String REFRESH = "_lance.refresh";

  private CachedTables() {}

  /** Has everything read anew, when it is next asked for, that follows the table at a path. */
  public static void refresh(CaseInsensitiveStringMap written) {
    try {
      SparkSession session = SparkSession.active();
      CacheManager cache = session.sharedState().cacheManager();
      if (cache.isEmpty()) {
        return;
      }
      for (LogicalPlan plan : plans(cache)) {
        List<LanceTable> stale = tables(plan).stream().filter(one -> one.shows(written)).toList();
        if (!stale.isEmpty()) {
          stale.forEach(LanceTable::forgetVersion);
          cache.recacheByPlan(session, plan);
        }
      }
    } catch (Exception error) {  // those of Scala are none of the kinds that Java declares
      // The write is done. Spark has dropped from the cache what cannot be read anew.
      LoggerFactory.getLogger(CachedTables.class).warn("a cached table is not cached any more",
          error);
    }
  }

  /** Spark tells nobody what it has cached, and finds plans only by what is equal to them. */
  private static List<LogicalPlan> plans(CacheManager cache) throws ReflectiveOperationException {
    var entries = CacheManager.class.getDeclaredMethod("cachedData");
    entries.setAccessible(true);
    List<LogicalPlan> found = new ArrayList<>();
    for (Object one : CollectionConverters.asJava((Seq<?>) entries.invoke(cache))) {
      found.add(((CachedData) one).plan());
    }
    return found;
  }

  private static List<LanceTable> tables(LogicalPlan plan) {
    List<LanceTable> found = new ArrayList<>();
    for (LogicalPlan leaf : Running.leaves(plan)) {
      if (leaf instanceof DataSourceV2Relation relation
          && relation.table() instanceof LanceTable table) {
        found.add(table);
      }
    }
    return found;
  }

  /** What a read that asks for a refresh finds: nothing. */
  public static Description nothing() {
    var facts = Python.JSON.createObjectNode();
    facts.set("lineage", Python.JSON.createObjectNode());
    return new Description(new StructType().add("refreshed", "boolean"), facts);
  }
}
