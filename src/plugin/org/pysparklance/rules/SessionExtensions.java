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
        session -> new ReplaceSessionCatalog((SparkSession) session, catalogs));
    injectRules(extensions);
    MarkUntranslatablePredicates.addTo(extensions);
    SearchFunctions.inject(extensions);
    ContainsTokens.inject(extensions);
  }

  /** The rules of the analyzer, and the parser, which running sessions get, too. */
  static void injectRules(SparkSessionExtensions extensions) {
    extensions.injectHintResolutionRule(session -> new InstallRulesOnCreate());
    extensions.injectHintResolutionRule(session ->
        new TranslateMergeSchema((SparkSession) session));
    extensions.injectHintResolutionRule(session ->
        new ResolvePathTimeTravel((SparkSession) session));
    extensions.injectHintResolutionRule(session ->
        new DeferRowLevelCommands((SparkSession) session));
    extensions.injectHintResolutionRule(session -> new BlobInserts((SparkSession) session));
    extensions.injectResolutionRule(session -> new ReplaceCharVarcharInStreams());
    extensions.injectResolutionRule(session -> new ResolveViewTargets());
    extensions.injectResolutionRule(session -> new BlobAssignments());
    extensions.injectPostHocResolutionRule(session -> new DescribeTables());
    extensions.injectPostHocResolutionRule(session -> new AddStatementOptions());
    extensions.injectPostHocResolutionRule(session -> new DeferRowLevelCommands.Release());
    extensions.injectPostHocResolutionRule(session -> new CheckMergeEvolution());
    extensions.injectPostHocResolutionRule(session -> new RewriteRowLevelCommands());
    extensions.injectPostHocResolutionRule(session -> new PullOutNondeterministicValues());
    extensions.injectPostHocResolutionRule(session ->
        new RewriteCorrelatedConditions((SparkSession) session));
    extensions.injectPostHocResolutionRule(session -> new RemoveGroupFilter());
    extensions.injectPostHocResolutionRule(session -> new PruneUnassignedColumns());
    extensions.injectPostHocResolutionRule(session -> new BlobWrites());
    extensions.injectPostHocResolutionRule(session -> new CheckForeignColumns());
    extensions.injectParser(ForeignStatements::over);
  }
}
