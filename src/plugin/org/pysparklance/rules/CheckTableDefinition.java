package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.plans.logical.ColumnDefinition;
import org.apache.spark.sql.catalyst.plans.logical.CreateTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTable;
import org.apache.spark.sql.catalyst.plans.logical.TableSpec;
import org.apache.spark.sql.catalyst.plans.logical.TableSpecBase;
import org.apache.spark.sql.catalyst.plans.logical.V2CreateTablePlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.pysparklance.catalog.PathCatalog;
import org.pysparklance.compat.Releases;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Refuses constraints and generated columns, with a hint: Spark would only report that the catalog
 * does not support them.
 */
final class CheckTableDefinition extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof CreateTable create) {
      check(create, create.tableSpec());
    } else if (plan instanceof ReplaceTable replace) {
      check(replace, replace.tableSpec());
    } else if (Releases.HAS_CONSTRAINTS) {
      CheckConstraints.check(plan);
    }
    return plan;
  }

  private static void check(V2CreateTablePlan command, TableSpecBase definition) {
    if (definition instanceof TableSpec spec && isLance(command, spec)) {
      if (Releases.HAS_CONSTRAINTS) {
        CheckConstraints.check(spec);
      }
      CollectionConverters.asJava(command.columns()).forEach(CheckTableDefinition::check);
    }
  }

  private static boolean isLance(V2CreateTablePlan create, TableSpec spec) {
    return spec.provider().isDefined() ? spec.provider().get().equalsIgnoreCase("lance")
        : create.name() instanceof ResolvedIdentifier name
            && name.catalog() instanceof PathCatalog;
  }

  private static void check(ColumnDefinition column) {
    if (column.generationExpression().isDefined()) {
      throw unsupported("generated columns", "compute " + column.name() + " in each write; for the "
          + "rows that are there, LanceTable.addColumns writes that column only");
    } else if (column.identityColumnSpec().isDefined()) {
      throw unsupported("identity columns",
          "each row has an id that stays, in the hidden column _rowid");
    }
  }

  static RuntimeException unsupported(String what, String hint) {
    return new UnsupportedOperationException(
        "[LANCE_UNSUPPORTED_FEATURE] Lance tables have no " + what + "\n  hint: " + hint);
  }
}
