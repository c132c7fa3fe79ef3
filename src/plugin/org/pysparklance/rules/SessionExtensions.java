package org.pysparklance.rules;

import java.util.function.Supplier;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension;
import org.pysparklance.catalog.ContainsTokens;
import org.pysparklance.catalog.SearchFunctions;

/** Extensions of a session that starts with this jar: a parser, analyzer rules, functions. */
public final class SessionExtensions {
  /** The features of the rules and the parser, for sessions that cannot have them. */
  static final String FEATURES = "bytes as values of blob columns in SQL, DELETE and UPDATE with "
      + "correlated conditions, mergeSchema of appends by name, times of paths that are "
      + "computed, hidden columns in the inserts of MERGE, OPTIMIZE and VACUUM";

  private SessionExtensions() {}

  /** Takes the factory of the session catalog, which is in a package above this one. */
  public static void inject(
      SparkSessionExtensions extensions, Supplier<DelegatingCatalogExtension> catalogs) {
    extensions.injectHintResolutionRule(
        session -> new SessionCatalogInPlace((SparkSession) session, catalogs));
    injectRules(extensions);
    KeptConditions.addTo(extensions);
    SearchFunctions.inject(extensions);
    ContainsTokens.inject(extensions);
  }

  /** The rules of the analyzer, and the parser, which running sessions get, too. */
  static void injectRules(SparkSessionExtensions extensions) {
    extensions.injectHintResolutionRule(session -> new FirstDefinition());
    extensions.injectHintResolutionRule(session -> new EvolvingWrites((SparkSession) session));
    extensions.injectHintResolutionRule(session -> new TimesOfPaths((SparkSession) session));
    extensions.injectHintResolutionRule(session -> new DeferredCommands((SparkSession) session));
    extensions.injectHintResolutionRule(session -> new BlobInserts((SparkSession) session));
    extensions.injectResolutionRule(session -> new StreamedStrings());
    extensions.injectResolutionRule(session -> new ChangedViews());
    extensions.injectResolutionRule(session -> new BlobAssignments());
    extensions.injectPostHocResolutionRule(session -> new DescribedTables());
    extensions.injectPostHocResolutionRule(session -> new MarkedOptions());
    extensions.injectPostHocResolutionRule(session -> new DeferredCommands.Release());
    extensions.injectPostHocResolutionRule(session -> new RefusedEvolution());
    extensions.injectPostHocResolutionRule(session -> new RewrittenCommands());
    extensions.injectPostHocResolutionRule(session -> new ValuesOnce());
    extensions.injectPostHocResolutionRule(session ->
        new CorrelatedConditions((SparkSession) session));
    extensions.injectPostHocResolutionRule(session -> new HiddenInCondition());
    extensions.injectPostHocResolutionRule(session -> new UnsetColumns());
    extensions.injectPostHocResolutionRule(session -> new BlobWrites());
    extensions.injectPostHocResolutionRule(session -> new ForeignColumns());
    extensions.injectParser(ForeignStatements::over);
  }
}
