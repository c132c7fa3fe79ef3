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
final class AnalyzedTables {
  private AnalyzedTables() {}

  /** The work of ANALYZE of a Lance table; null for other plans. */
  static Runnable work(LogicalPlan plan) {
    if (plan instanceof AnalyzeColumn columns) {
      LanceTable table = table(columns.child());
      return table == null ? null : () -> analyze(table, columns);
    }
    return plan instanceof AnalyzeTable rows && table(rows.child()) != null ? () -> {} : null;
  }

  private static LanceTable table(LogicalPlan child) {
    return child instanceof ResolvedTable analyzed && analyzed.table() instanceof LanceTable table
        ? table : null;
  }

  private static void analyze(LanceTable table, AnalyzeColumn asked) {
    CaseInsensitiveStringMap options = table.options();
    Description found = Python.describe(options);
    List<String> names = asked.columnNames().isEmpty() ? null
        : CollectionConverters.asJava(asked.columnNames().get());
    ScanRequest all = ScanRequest.of(options, found);
    Dataset<Row> rows = SparkSession.active().read().format(Python.SOURCE)
        .options(options.asCaseSensitiveMap()).option("version", found.version()).load();
    List<String> results = new ArrayList<>();
    for (String expression : Python.analysis(all, names)) {
      results.add(rows.selectExpr(expression).head().getString(0));
    }
    Python.analyze(all, results);
    table.onCommitted();
  }
}
