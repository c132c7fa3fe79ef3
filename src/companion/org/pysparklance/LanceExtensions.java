package org.pysparklance;

import org.apache.spark.SparkConf;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import org.pysparklance.catalog.VectorSearch;
import org.pysparklance.rules.ForeignColumns;
import org.pysparklance.rules.ForeignStatements;
import org.pysparklance.python.Running;
import org.pysparklance.rules.BlobAssignments;
import org.pysparklance.rules.BlobWrites;
import org.pysparklance.rules.ChangedViews;
import org.pysparklance.rules.CorrelatedConditions;
import org.pysparklance.rules.EvolvingWrites;
import org.pysparklance.rules.HeldCommands;
import org.pysparklance.rules.HiddenInCondition;
import org.pysparklance.rules.KeptConditions;
import org.pysparklance.rules.TimesOfPaths;
import org.pysparklance.rules.UnsetColumns;
import org.pysparklance.rules.ValuesOnce;
import scala.runtime.BoxedUnit;

/**
 * Spark runs this when it makes a session with this jar on its class path; it sets the two
 * catalogs, where the user has set no other, and repairs what Spark makes of hidden columns.
 */
public final class LanceExtensions implements SparkSessionExtensionsProvider {
  @Override public BoxedUnit apply(SparkSessionExtensions extensions) {
    SparkConf settings = Running.context().conf();
    settings.setIfMissing("spark.sql.catalog.lance", LanceCatalog.class.getName());
    settings.setIfMissing("spark.sql.catalog.spark_catalog", LanceSessionCatalog.class.getName());
    extensions.injectHintResolutionRule(
        session -> new EvolvingWrites((org.apache.spark.sql.classic.SparkSession) session));
    extensions.injectHintResolutionRule(
        session -> new TimesOfPaths((org.apache.spark.sql.classic.SparkSession) session));
    extensions.injectHintResolutionRule(session -> new HeldCommands());
    extensions.injectResolutionRule(session -> new ChangedViews());
    extensions.injectResolutionRule(session -> new BlobAssignments());
    extensions.injectPostHocResolutionRule(session -> new ValuesOnce());
    extensions.injectPostHocResolutionRule(session ->
        new CorrelatedConditions((org.apache.spark.sql.classic.SparkSession) session));
    extensions.injectPostHocResolutionRule(session -> new HiddenInCondition());
    extensions.injectPostHocResolutionRule(session -> new UnsetColumns());
    extensions.injectPostHocResolutionRule(session -> new BlobWrites());
    extensions.injectPostHocResolutionRule(session -> new ForeignColumns());
    KeptConditions.addTo(extensions);
    extensions.injectTableFunction(VectorSearch.injected());
    extensions.injectParser(ForeignStatements::over);
    return BoxedUnit.UNIT;
  }
}
