package org.pysparklance.compat;

import java.util.Arrays;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;

/** Differences between the releases of Spark, by the classes that are present. */
public final class Releases {
  /** Whether tables have constraints, and plans the commands that change them: since 4.1. */
  public static final boolean HAS_CONSTRAINTS =
      isPresent("org.apache.spark.sql.connector.catalog.constraints.Constraint");

  /** Whether Spark itself adds columns in MERGE WITH SCHEMA EVOLUTION: since 4.1, as the above. */
  public static final boolean EVOLVES_IN_MERGE = HAS_CONSTRAINTS;

  /** Whether the analyzer rewrites changes of rows before extensions' last rules: since 4.1. */
  public static final boolean REWRITES_EARLY = HAS_CONSTRAINTS;

  /** Whether rows without columns keep their number on the way from Python: since 4.1. */
  public static final boolean COUNTS_EMPTY_ROWS = HAS_CONSTRAINTS;

  /** Whether the parser replaces the parameters of statements: since 4.1. */
  static final boolean PARSES_PARAMETERS = HAS_CONSTRAINTS;

  /** Whether the parser splits texts into statements: since 4.3. */
  static final boolean SPLITS_STATEMENTS =
      isPresent("org.apache.spark.sql.catalyst.parser.SqlStatementSplitResult");

  private Releases() {}

  private static boolean isPresent(String name) {
    try {
      Class.forName(name, false, Releases.class.getClassLoader());
      return true;
    } catch (ClassNotFoundException absent) {
      return false;
    }
  }

  /** Adds the capability of constraints where Spark has it. */
  public static void addConstraints(Set<TableCatalogCapability> all) {
    Arrays.stream(TableCatalogCapability.values())
        .filter(one -> one.name().equals("SUPPORT_TABLE_CONSTRAINT")).forEach(all::add);
  }

  /** Runs some work in the context of a task; Spark has a method for that since 4.1. */
  public static <T> T inTask(TaskContext task, Supplier<T> work) {
    TaskContext$.MODULE$.setTaskContext(task);
    try {
      return work.get();
    } finally {
      TaskContext$.MODULE$.unset();
    }
  }
}
