package org.pysparklance.rules;

import java.util.List;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.pysparklance.catalog.ContainsTokens;
import org.pysparklance.catalog.SearchFunctions;
import org.pysparklance.compat.CommandStrategy;
import org.pysparklance.compat.RunningSession;
import org.pysparklance.read.LanceScan;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Installs rules, functions, and a setting in a running session. */
public final class SessionRules {
  private static final List<Rule<LogicalPlan>> RULES = List.of(
      new RedactTableOptions(), new CheckAlterTable(), new CheckTableDefinition(),
      new RepairMergeRows(),
      new PushDownLatePredicates(), new InjectIndexKeyFilter(), new InjectBroadcastKeyFilter());
  private static final CommandStrategy COMMANDS = new CommandStrategy(AnalyzeColumns::command);

  private SessionRules() {}

  /** Called when a session first resolves a Lance table or name, before it runs a plan with one. */
  public static void addToSession() {
    Option<SparkSession> session = SparkSession.getActiveSession();
    if (session.isDefined()) {
      ExperimentalMethods rules = session.get().experimental();
      synchronized (rules) {
        if (!rules.extraOptimizations().contains(RULES.get(0))) {
          @SuppressWarnings("unchecked")
          Seq<Rule<LogicalPlan>> optimizations = (Seq<Rule<LogicalPlan>>) (Seq<?>)
              rules.extraOptimizations().appendedAll(CollectionConverters.asScala(RULES));
          rules.extraOptimizations_$eq(optimizations);
          rules.extraStrategies_$eq(COMMANDS.after(rules.extraStrategies()));
        }
      }
      addAnalyzerRules(session.get());
      MarkUntranslatablePredicates.addTo(session.get().extensions());
      LanceScan.disableColumnarPythonInput(session.get().conf());
      StorageRedaction.addTo(session.get().conf());
      SearchFunctions.addTo(session.get());
      ContainsTokens.addTo(session.get());
    }
  }

  /** Adds the extensions that sessions started with the jar get from {@link SessionExtensions}. */
  private static synchronized void addAnalyzerRules(SparkSession session) {
    if (RunningSession.hasHintRule(session, InstallRulesOnCreate.class)) {
      return;
    }
    SparkSessionExtensions extensions = new SparkSessionExtensions();
    SessionExtensions.injectRules(extensions);
    try {
      RunningSession.add(session, extensions);
    } catch (ReflectiveOperationException | RuntimeException | LinkageError failure) {
      LoggerFactory.getLogger(SessionRules.class).warn("A session that runs already lacks: "
          + SessionExtensions.FEATURES + ". Start it with the jar for them.", failure);
    }
  }
}
