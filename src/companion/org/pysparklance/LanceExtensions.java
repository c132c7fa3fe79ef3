package org.pysparklance;

import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import scala.runtime.BoxedUnit;

/**
 * Spark runs this when it makes a session with this jar on its class path; it sets the two
 * catalogs, where the user has set no other, and repairs what Spark makes of hidden columns.
 */
public final class LanceExtensions implements SparkSessionExtensionsProvider {
  @Override public BoxedUnit apply(SparkSessionExtensions extensions) {
    SparkConf settings = SparkContext.getOrCreate().conf();
    settings.setIfMissing("spark.sql.catalog.lance", LanceCatalog.class.getName());
    settings.setIfMissing("spark.sql.catalog.spark_catalog", LanceSessionCatalog.class.getName());
    extensions.injectHintResolutionRule(
        session -> new EvolvingWrites((org.apache.spark.sql.classic.SparkSession) session));
    extensions.injectPostHocResolutionRule(session -> new HiddenInCondition());
    extensions.injectPostHocResolutionRule(session -> new UnsetColumns());
    return BoxedUnit.UNIT;
  }
}
