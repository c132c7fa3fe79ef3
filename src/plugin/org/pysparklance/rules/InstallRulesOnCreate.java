package org.pysparklance.rules;

import java.util.List;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.TableSpecBase;
import org.apache.spark.sql.catalyst.plans.logical.V2CreateTablePlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.internal.SQLConf;
import org.pysparklance.compat.PlanArguments;
import scala.Product;

/**
 * Installs the rules of a session with the first {@code CREATE TABLE … USING lance}, which they
 * check before the session has used any Lance table.
 */
final class InstallRulesOnCreate extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof V2CreateTablePlan && List.of(PlanArguments.of((Product) plan)).stream()
        .anyMatch(part -> part instanceof TableSpecBase spec && isLance(spec))) {
      SessionRules.addToSession();
    }
    return plan;
  }

  private static boolean isLance(TableSpecBase spec) {
    return spec.provider().getOrElse(() -> SQLConf.get().defaultDataSourceName())
        .equalsIgnoreCase("lance");
  }
}
