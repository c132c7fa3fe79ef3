package org.pysparklance.rules;

import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.plans.logical.AddCheckConstraint;
import org.apache.spark.sql.catalyst.plans.logical.AddConstraint;
import org.apache.spark.sql.catalyst.plans.logical.DropConstraint;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.TableSpec;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.pysparklance.catalog.LanceTable;
import scala.jdk.javaapi.CollectionConverters;

/** Refuses constraints but the primary key. Spark 4.0 has none, and lacks classes of this one. */
final class CheckConstraints {
  /** Hints by the names of Spark's classes, without their suffix. */
  private static final Map<String, String[]> CONSTRAINTS = Map.of(
      "Check", new String[] {"CHECK constraints",
          "NOT NULL is kept; check any other rule before writing rows, for example "
              + "by df.where(\"NOT (…)\").isEmpty()"},
      "Unique", new String[] {"UNIQUE constraints", "MERGE INTO keeps one row of each key"},
      "ForeignKey", new String[] {"FOREIGN KEY",
          "look for rows without a match before writing them, by a LEFT ANTI JOIN"});

  private CheckConstraints() {}

  static void check(LogicalPlan plan) {
    if (plan instanceof AddConstraint add && isLanceTable(add.table())) {
      check(add.tableConstraint());
    } else if (plan instanceof AddCheckConstraint check && check.exists(part -> part
        instanceof DataSourceV2ScanRelation scan
        && scan.relation().table() instanceof LanceTable)) {
      throw unsupportedConstraint("Check");
    } else if (plan instanceof DropConstraint drop && isLanceTable(drop.table())) {
      throw CheckTableDefinition.unsupported("constraints that can be dropped",
          "the primary key stays, "
          + "NOT NULL is dropped by ALTER COLUMN … DROP NOT NULL");
    }
  }

  static void check(TableSpec table) {
    for (Object one : CollectionConverters.asJava(table.constraints())) {
      check(one);
    }
  }

  private static boolean isLanceTable(LogicalPlan altered) {
    return altered instanceof ResolvedTable hint && hint.table() instanceof LanceTable;
  }

  private static void check(Object constraint) {
    String kind = constraint.getClass().getSimpleName();
    if (!kind.startsWith("PrimaryKey")) {  // stored, and never enforced
      throw unsupportedConstraint(kind);
    }
  }

  private static RuntimeException unsupportedConstraint(String kind) {
    for (Map.Entry<String, String[]> hint : CONSTRAINTS.entrySet()) {
      if (kind.startsWith(hint.getKey())) {
        return CheckTableDefinition.unsupported(hint.getValue()[0], hint.getValue()[1]);
      }
    }
    return CheckTableDefinition.unsupported("constraints", "NOT NULL is kept");
  }
}
