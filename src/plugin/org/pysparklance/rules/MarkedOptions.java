package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.plans.logical.CreateTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.TableSpec;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.execution.datasources.CreateTempViewUsing;
import org.pysparklance.catalog.NamedTable;
import org.pysparklance.compat.PlanParts;
import org.pysparklance.python.Options;
import org.pysparklance.python.Plugin;
import scala.collection.immutable.Map;

/**
 * Adds an option to statements that load a table of the source as others do: a temporary view,
 * which follows its table, and CREATE TABLE AS SELECT, which must not find one. A catalog that
 * stages tables knows the latter.
 */
final class MarkedOptions extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    Map<String, String> options = null;
    String mark = null;
    if (plan instanceof CreateTempViewUsing view && NamedTable.isProvider(view.provider())) {
      options = view.options();
      mark = Options.OF_VIEW;
    } else if (plan instanceof CreateTableAsSelect made && isCreatedBySource(made)) {
      options = made.writeOptions();
      mark = Options.CREATE;
    }
    return options == null || options.contains(mark) || !Plugin.isOn() ? plan
        : marked(plan, options, mark);
  }

  private static boolean isCreatedBySource(CreateTableAsSelect made) {
    return made.tableSpec() instanceof TableSpec spec && spec.provider().isDefined()
        && NamedTable.isProvider(spec.provider().get())
        && made.name() instanceof ResolvedIdentifier named
        && !(named.catalog() instanceof StagingTableCatalog);
  }

  private static LogicalPlan marked(LogicalPlan plan, Map<String, String> options, String mark) {
    @SuppressWarnings("unchecked")
    Map<String, String> more = (Map<String, String>) options.updated(mark, "true");
    return plan.makeCopy(PlanParts.changed(plan, part -> part == options ? more : part));
  }
}
