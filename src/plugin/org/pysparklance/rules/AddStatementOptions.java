package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.plans.logical.CreateTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.TableSpec;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.execution.datasources.CreateTempViewUsing;
import org.pysparklance.catalog.LanceCatalogTable;
import org.pysparklance.compat.PlanArguments;
import org.pysparklance.python.Options;
import org.pysparklance.python.Plugin;
import scala.collection.immutable.Map;

/**
 * Adds an option that distinguishes two statements which load a table of the source: a temporary
 * view, which follows its table, and CREATE TABLE AS SELECT, which must not find one. A catalog that
 * stages tables knows the latter.
 */
final class AddStatementOptions extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    Map<String, String> options = null;
    String name = null;
    if (plan instanceof CreateTempViewUsing view && LanceCatalogTable.isProvider(view.provider())) {
      options = view.options();
      name = Options.OF_VIEW;
    } else if (plan instanceof CreateTableAsSelect create && isUnstagedCreate(create)) {
      options = create.writeOptions();
      name = Options.CREATE;
    }
    return options == null || options.contains(name) || !Plugin.isOn() ? plan
        : withOption(plan, options, name);
  }

  private static boolean isUnstagedCreate(CreateTableAsSelect create) {
    return create.tableSpec() instanceof TableSpec spec && spec.provider().isDefined()
        && LanceCatalogTable.isProvider(spec.provider().get())
        && create.name() instanceof ResolvedIdentifier identifier
        && !(identifier.catalog() instanceof StagingTableCatalog);
  }

  private static LogicalPlan withOption(LogicalPlan plan, Map<String, String> options,
      String name) {
    @SuppressWarnings("unchecked")
    Map<String, String> marked = (Map<String, String>) options.updated(name, "true");
    return plan.makeCopy(PlanArguments.replace(plan, part -> part == options ? marked : part));
  }
}
