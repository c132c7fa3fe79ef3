package org.pysparklance.rules;

import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension;
import org.pysparklance.catalog.SessionCatalogs;

/** Replaces Spark's catalog by ours before a session resolves its first name. */
final class ReplaceSessionCatalog extends Rule<LogicalPlan> {
  private final SparkSession session;
  private final Supplier<DelegatingCatalogExtension> catalogs;
  private boolean isReplaced;

  ReplaceSessionCatalog(SparkSession session, Supplier<DelegatingCatalogExtension> catalogs) {
    this.session = session;
    this.catalogs = catalogs;
  }

  @Override public synchronized LogicalPlan apply(LogicalPlan plan) {
    if (!isReplaced) {
      isReplaced = true;
      SessionCatalogs.install(catalogs.get(), session.sessionState().catalogManager(),
          session.sessionState().conf());
    }
    return plan;
  }
}
