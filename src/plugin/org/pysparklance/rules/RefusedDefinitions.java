package org.pysparklance.rules;

import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.plans.logical.AddCheckConstraint;
import org.apache.spark.sql.catalyst.plans.logical.AddConstraint;
import org.apache.spark.sql.catalyst.plans.logical.ColumnDefinition;
import org.apache.spark.sql.catalyst.plans.logical.CreateTable;
import org.apache.spark.sql.catalyst.plans.logical.DropConstraint;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTable;
import org.apache.spark.sql.catalyst.plans.logical.TableSpec;
import org.apache.spark.sql.catalyst.plans.logical.TableSpecBase;
import org.apache.spark.sql.catalyst.plans.logical.V2CreateTablePlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.pysparklance.catalog.LanceTable;
import org.pysparklance.catalog.PathCatalog;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Refuses constraints and generated columns, with a hint: Spark would only report that the catalog
 * does not support them.
 */
final class RefusedDefinitions extends Rule<LogicalPlan> {
  /** Hints by the names of Spark's classes, without their suffix. */
  private static final Map<String, String[]> CONSTRAINTS = Map.of(
      "Check", new String[] {"CHECK constraints",
          "NOT NULL is kept; check any other rule before writing rows, for example "
              + "by df.where(\"NOT (…)\").isEmpty()"},
      "Unique", new String[] {"UNIQUE constraints", "MERGE INTO keeps one row of each key"},
      "ForeignKey", new String[] {"FOREIGN KEY",
          "look for rows without a match before writing them, by a LEFT ANTI JOIN"});

  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof AddConstraint added && isOurs(added.table())) {
      check(added.tableConstraint());
    } else if (plan instanceof AddCheckConstraint check && check.exists(part -> part
        instanceof DataSourceV2ScanRelation read
        && read.relation().table() instanceof LanceTable)) {
      throw constraint("Check");
    } else if (plan instanceof DropConstraint dropped && isOurs(dropped.table())) {
      throw refused("constraints that can be dropped", "the primary key stays, NOT NULL is "
          + "dropped by ALTER COLUMN … DROP NOT NULL");
    } else if (plan instanceof CreateTable created) {
      check(created, created.tableSpec());
    } else if (plan instanceof ReplaceTable replaced) {
      check(replaced, replaced.tableSpec());
    }
    return plan;
  }

  private static void check(V2CreateTablePlan made, TableSpecBase definition) {
    if (definition instanceof TableSpec spec && isOurs(made, spec)) {
      for (Object one : CollectionConverters.asJava(spec.constraints())) {
        check(one);
      }
      CollectionConverters.asJava(made.columns()).forEach(RefusedDefinitions::check);
    }
  }

  private static boolean isOurs(LogicalPlan altered) {
    return altered instanceof ResolvedTable known && known.table() instanceof LanceTable;
  }

  private static boolean isOurs(V2CreateTablePlan created, TableSpec spec) {
    return spec.provider().isDefined() ? spec.provider().get().equalsIgnoreCase("lance")
        : created.name() instanceof ResolvedIdentifier name
            && name.catalog() instanceof PathCatalog;
  }

  private static void check(ColumnDefinition column) {
    if (column.generationExpression().isDefined()) {
      throw refused("generated columns", "compute " + column.name() + " in each write; for the "
          + "rows that are there, LanceTable.addColumns writes that column only");
    } else if (column.identityColumnSpec().isDefined()) {
      throw refused("identity columns",
          "each row has an id that stays, in the hidden column _rowid");
    }
  }

  private static void check(Object constraint) {
    String kind = constraint.getClass().getSimpleName();
    if (!kind.startsWith("PrimaryKey")) {  // stored, and never enforced
      throw constraint(kind);
    }
  }

  private static RuntimeException constraint(String kind) {
    for (Map.Entry<String, String[]> known : CONSTRAINTS.entrySet()) {
      if (kind.startsWith(known.getKey())) {
        return refused(known.getValue()[0], known.getValue()[1]);
      }
    }
    return refused("constraints", "NOT NULL is kept");
  }

  private static RuntimeException refused(String what, String hint) {
    return new UnsupportedOperationException(
        "[LANCE_UNSUPPORTED_FEATURE] Lance tables have no " + what + "\n  hint: " + hint);
  }
}
