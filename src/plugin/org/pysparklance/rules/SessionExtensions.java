package org.pysparklance.rules;

import java.util.function.Supplier;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension;
import org.pysparklance.catalog.VectorSearch;

/** What a session gets that starts with this jar: its parser, rules of its analysis, a function. */
public final class SessionExtensions {
  private SessionExtensions() {}

  /** With what makes the catalog of a session, which is above this package. */
  public static void inject(
      SparkSessionExtensions extensions, Supplier<DelegatingCatalogExtension> catalogs) {
    extensions.injectHintResolutionRule(
        session -> new SessionCatalogInPlace((SparkSession) session, catalogs));
    extensions.injectHintResolutionRule(session -> new FirstDefinition());
    extensions.injectHintResolutionRule(session -> new EvolvingWrites((SparkSession) session));
    extensions.injectHintResolutionRule(session -> new TimesOfPaths((SparkSession) session));
    extensions.injectHintResolutionRule(session -> new HeldCommands((SparkSession) session));
    extensions.injectHintResolutionRule(session -> new BlobInserts((SparkSession) session));
    extensions.injectResolutionRule(session -> new ChangedViews());
    extensions.injectResolutionRule(session -> new BlobAssignments());
    extensions.injectPostHocResolutionRule(session -> new HeldCommands.Release());
    extensions.injectPostHocResolutionRule(session -> new ValuesOnce());
    extensions.injectPostHocResolutionRule(session ->
        new CorrelatedConditions((SparkSession) session));
    extensions.injectPostHocResolutionRule(session -> new HiddenInCondition());
    extensions.injectPostHocResolutionRule(session -> new UnsetColumns());
    extensions.injectPostHocResolutionRule(session -> new BlobWrites());
    extensions.injectPostHocResolutionRule(session -> new ForeignColumns());
    KeptConditions.addTo(extensions);
    extensions.injectTableFunction(VectorSearch.injected());
    extensions.injectParser(ForeignStatements::over);
  }
}
