package org.pysparklance.rules;

import java.util.List;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.pysparklance.catalog.ContainsTokens;
import org.pysparklance.catalog.SearchFunctions;
import org.pysparklance.read.LanceScan;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Installs rules, functions, and a setting in a running session. */
public final class SessionRules {
  private static final List<Rule<LogicalPlan>> RULES = List.of(
      new HiddenOptions(), new RefusedAlter(), new RefusedDefinitions(), new AnalyzedTables(),
      new MergeRepair(), new LateFilters(), new JoinedKeys(),
      new TestedKeys());

  private SessionRules() {}

  /** Called when a session first resolves a Lance table or name, before it runs a plan with one. */
  public static void addToSession() {
    Option<SparkSession> session = SparkSession.getActiveSession();
    if (session.isDefined()) {
      ExperimentalMethods rules = session.get().experimental();
      synchronized (rules) {
        if (!rules.extraOptimizations().contains(RULES.get(0))) {
          @SuppressWarnings("unchecked")
          Seq<Rule<LogicalPlan>> more = (Seq<Rule<LogicalPlan>>) (Seq<?>)
              rules.extraOptimizations().appendedAll(CollectionConverters.asScala(RULES));
          rules.extraOptimizations_$eq(more);
        }
      }
      KeptConditions.addTo(session.get().extensions());
      LanceScan.keepBatchesFromPython(session.get().conf());
      StorageRedaction.addTo(session.get().conf());
      SearchFunctions.addTo(session.get());
      ContainsTokens.addTo(session.get());
    }
  }
}
