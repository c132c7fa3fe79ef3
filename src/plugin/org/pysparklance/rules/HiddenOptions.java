package org.pysparklance.rules;

import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.pysparklance.catalog.PathCatalog;
import org.pysparklance.compat.PlanParts;
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
final class HiddenOptions extends Rule<LogicalPlan> {
  private static final String HIDDEN = "(?i)secret|password|token|access[.]?key|\\bstorage[.]";

  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof V2CreateTablePlan made)) {
      return plan;
    }
    boolean inCatalog = made.name() instanceof ResolvedIdentifier named
        && named.catalog() instanceof PathCatalog;
    Object[] parts = PlanParts.changed(plan, part -> part instanceof TableSpec table
        && (inCatalog || isLance(table)) ? hide(table, writeOptions(plan)) : part);
    return parts == null ? plan : plan.makeCopy(parts);
  }

  private static boolean isLance(TableSpec table) {
    return table.provider().isDefined() && Set.of("lance", Python.SOURCE.toLowerCase(Locale.ROOT))
        .contains(table.provider().get().toLowerCase(Locale.ROOT));
  }

  private static Map<String, String> writeOptions(LogicalPlan plan) {
    return plan instanceof CreateTableAsSelect made ? made.writeOptions()
        : plan instanceof ReplaceTableAsSelect other ? other.writeOptions() : null;
  }

  @SuppressWarnings("unchecked")
  private static Map<String, String> withStorage(
      Map<String, String> options, Map<String, String> written) {
    Map<String, String> all = options;
    if (written != null) {
      for (var one : CollectionConverters.asJava(written).entrySet()) {
        all = isStorage(one.getKey()) ? all.updated(one.getKey(), one.getValue()) : all;
      }
    }
    return all;
  }

  private static TableSpec hide(TableSpec table, Map<String, String> written) {
    Object[] parts = PlanParts.of(table);
    for (int i = 0; i < parts.length; i++) {
      // All empty maps are the same object, so only the name distinguishes them.
      parts[i] = hideValues(table.productElementName(i).equals("options")
          ? withStorage(table.options(), written) : parts[i]);
    }
    return PlanParts.make(TableSpec.class, parts);
  }

  private static Object hideValues(Object part) {
    if (!(part instanceof Map<?, ?> given)) {
      return part;
    }
    @SuppressWarnings("unchecked")
    Map<String, String> options = (Map<String, String>) given;
    return hasSecrets(options) && !options.contains(Options.REDACTION)
        ? options.updated(Options.REDACTION, HIDDEN) : part;
  }

  static boolean hasSecrets(Map<String, String> options) {
    return options.keysIterator().exists(
        name -> ("." + name.toLowerCase(Locale.ROOT)).contains(".storage."));
  }

  private static boolean isStorage(String name) {
    return name.toLowerCase(Locale.ROOT).startsWith("storage.");
  }
}
