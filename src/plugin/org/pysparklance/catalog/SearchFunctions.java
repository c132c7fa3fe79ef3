package org.pysparklance.catalog;

import java.util.List;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.classic.SparkSession;

/** The table functions that search tables. */
public final class SearchFunctions {
  private static final List<SearchFunction> ALL = List.of(
      new VectorSearch(), new TextSearch(), new HybridSearch(), new NearDuplicates());

  private SearchFunctions() {}

  /** For sessions that start with this jar. */
  public static void inject(SparkSessionExtensions extensions) {
    ALL.forEach(one -> extensions.injectTableFunction(one.registration()));
  }

  /** For a session that runs already. */
  public static void addTo(SparkSession session) { ALL.forEach(one -> one.addTo(session)); }
}
