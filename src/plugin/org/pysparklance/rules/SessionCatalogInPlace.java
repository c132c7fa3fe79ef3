package org.pysparklance.rules;

import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension;
import org.pysparklance.catalog.SessionCatalogs;

/** Replaces Spark's catalog by ours before a session resolves its first name. */
final class SessionCatalogInPlace extends Rule<LogicalPlan> {
  private final SparkSession session;
  private final Supplier<DelegatingCatalogExtension> made;
  private boolean isDone;

  SessionCatalogInPlace(SparkSession session, Supplier<DelegatingCatalogExtension> made) {
    this.session = session;
    this.made = made;
  }

  @Override public synchronized LogicalPlan apply(LogicalPlan plan) {
    if (!isDone) {
      isDone = true;
      SessionCatalogs.put(made.get(), session.sessionState().catalogManager(),
          session.sessionState().conf());
    }
    return plan;
  }
}
