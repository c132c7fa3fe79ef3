package org.pysparklance.compat;

import java.util.List;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.RefreshTableExec;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

/**
 * Plans commands on a table that Spark cannot plan, as the plan of REFRESH TABLE with their work.
 * Spark runs it when it executes the plan, and EXPLAIN only shows it.
 */
public final class CommandStrategy extends SparkStrategy {
  private final Function<LogicalPlan, Runnable> commands;

  /** @param commands the work of a command; null for plans that it does not know */
  public CommandStrategy(Function<LogicalPlan, Runnable> commands) { this.commands = commands; }

  @Override public Seq<SparkPlan> apply(LogicalPlan plan) {
    Runnable command = commands.apply(plan);
    if (command == null) {
      return seq(List.of());
    }
    ResolvedTable table = (ResolvedTable) plan.children().head();
    return seq(List.of(new RefreshTableExec(table.catalog(), table.identifier(), () -> {
      command.run();
      return BoxedUnit.UNIT;
    })));
  }

  /** The strategies of a session with this one as the last. */
  @SuppressWarnings("unchecked")
  public Seq<SparkStrategy> after(Seq<SparkStrategy> strategies) {
    return (Seq<SparkStrategy>) (Seq<?>) strategies.appendedAll(seq(List.of(this)));
  }

  private static <T> Seq<T> seq(List<T> all) { return CollectionConverters.asScala(all).toSeq(); }
}
