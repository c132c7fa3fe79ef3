package org.pysparklance.rules;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.plans.logical.AnalyzeColumn;
import org.apache.spark.sql.catalyst.plans.logical.AnalyzeTable;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.catalog.LanceTable;
import org.pysparklance.python.Description;
import org.pysparklance.python.Python;
import org.pysparklance.python.ScanRequest;
import org.pysparklance.python.Running;
import scala.jdk.javaapi.CollectionConverters;

/**
 * ANALYZE TABLE. Scans always report the current rows and bytes, so only columns are analysed:
 * Spark evaluates the expressions of Python, which stores the results.
 */
final class AnalyzedTables extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof AnalyzeColumn columns && table(columns.child()) != null) {
      if (!Running.isCalledBy("ExplainCommand")) {
        analyze(table(columns.child()), columns);
      }
      return nothing(plan);
    }
    return plan instanceof AnalyzeTable rows && table(rows.child()) != null ? nothing(plan) : plan;
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
    for (JsonNode expression : Python.analysis(all, names)) {
      results.add(rows.selectExpr(expression.asText()).head().getString(0));
    }
    Python.analyze(all, results);
    table.onCommitted();
  }

  private static LogicalPlan nothing(LogicalPlan plan) {
    return LocalRelation.fromExternalRows(
        plan.output(), CollectionConverters.asScala(List.<Row>of()).toSeq());
  }
}
