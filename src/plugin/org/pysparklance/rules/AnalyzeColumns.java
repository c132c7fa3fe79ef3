package org.pysparklance.rules;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.plans.logical.AnalyzeColumn;
import org.apache.spark.sql.catalyst.plans.logical.AnalyzeTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.catalog.LanceTable;
import org.pysparklance.python.Description;
import org.pysparklance.python.Python;
import org.pysparklance.python.ScanRequest;
import scala.jdk.javaapi.CollectionConverters;

/**
 * ANALYZE TABLE. Scans always report the current rows and bytes, so only columns are analysed:
 * Spark evaluates the expressions of Python, which stores the results.
 */
final class AnalyzeColumns {
  private AnalyzeColumns() {}

  /** The command of ANALYZE on a Lance table; null for other plans. */
  static Runnable command(LogicalPlan plan) {
    if (plan instanceof AnalyzeColumn columns) {
      LanceTable table = table(columns.child());
      return table == null ? null : () -> analyze(table, columns);
    }
    return plan instanceof AnalyzeTable rows && table(rows.child()) != null ? () -> {} : null;
  }

  private static LanceTable table(LogicalPlan child) {
    return child instanceof ResolvedTable resolved && resolved.table() instanceof LanceTable table
        ? table : null;
  }

  private static void analyze(LanceTable table, AnalyzeColumn command) {
    CaseInsensitiveStringMap options = table.options();
    Description description = Python.describe(options);
    List<String> names = command.columnNames().isEmpty() ? null
        : CollectionConverters.asJava(command.columnNames().get());
    ScanRequest request = ScanRequest.of(options, description);
    Dataset<Row> rows = SparkSession.active().read().format(Python.SOURCE)
        .options(options.asCaseSensitiveMap()).option("version", description.version()).load();
    List<String> results = new ArrayList<>();
    for (String expression : Python.analysis(request, names)) {
      results.add(rows.selectExpr(expression).head().getString(0));
    }
    Python.analyze(request, results);
    table.onCommitted();
  }
}
