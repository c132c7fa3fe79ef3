package org.pysparklance.rules;

import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.pysparklance.catalog.PathCatalog;
import org.pysparklance.compat.PlanArguments;
import org.pysparklance.python.Options;
import org.pysparklance.python.Python;
import scala.collection.immutable.Map;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Redacts storage options in the event log when a statement creates or replaces a table. Spark logs
 * the options of such a plan and ignores the settings of the session; it only uses a pattern that is
 * itself an option, which this adds. Options of a DataFrame write become options of the new table,
 * which could not be opened without them.
 */
final class RedactTableOptions extends Rule<LogicalPlan> {
  private static final String SECRET_NAMES =
      "(?i)secret|password|token|access[.]?key|\\bstorage[.]";

  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof V2CreateTablePlan command)) {
      return plan;
    }
    boolean inCatalog = command.name() instanceof ResolvedIdentifier identifier
        && identifier.catalog() instanceof PathCatalog;
    Object[] parts = PlanArguments.replace(plan, part -> part instanceof TableSpec table
        && (inCatalog || isLance(table)) ? redactSpec(table, writeOptions(plan)) : part);
    return parts == null ? plan : plan.makeCopy(parts);
  }

  private static boolean isLance(TableSpec table) {
    return table.provider().isDefined() && Set.of("lance", Python.SOURCE.toLowerCase(Locale.ROOT))
        .contains(table.provider().get().toLowerCase(Locale.ROOT));
  }

  private static Map<String, String> writeOptions(LogicalPlan plan) {
    return plan instanceof CreateTableAsSelect create ? create.writeOptions()
        : plan instanceof ReplaceTableAsSelect replace ? replace.writeOptions() : null;
  }

  @SuppressWarnings("unchecked")
  private static Map<String, String> withStorageOptions(
      Map<String, String> options, Map<String, String> writeOptions) {
    Map<String, String> merged = options;
    if (writeOptions != null) {
      for (var option : CollectionConverters.asJava(writeOptions).entrySet()) {
        merged = isStorage(option.getKey()) ? merged.updated(option.getKey(), option.getValue())
            : merged;
      }
    }
    return merged;
  }

  private static TableSpec redactSpec(TableSpec table, Map<String, String> writeOptions) {
    Object[] parts = PlanArguments.of(table);
    for (int i = 0; i < parts.length; i++) {
      // All empty maps are the same object, so only the name distinguishes them.
      parts[i] = redactValues(table.productElementName(i).equals("options")
          ? withStorageOptions(table.options(), writeOptions) : parts[i]);
    }
    return PlanArguments.instantiate(TableSpec.class, parts);
  }

  private static Object redactValues(Object part) {
    if (!(part instanceof Map<?, ?> map)) {
      return part;
    }
    @SuppressWarnings("unchecked")
    Map<String, String> options = (Map<String, String>) map;
    return hasStorageOptions(options) && !options.contains(Options.REDACTION)
        ? options.updated(Options.REDACTION, SECRET_NAMES) : part;
  }

  static boolean hasStorageOptions(Map<String, String> options) {
    return options.keysIterator().exists(
        name -> ("." + name.toLowerCase(Locale.ROOT)).contains(".storage."));
  }

  private static boolean isStorage(String name) {
    return name.toLowerCase(Locale.ROOT).startsWith("storage.");
  }
}
