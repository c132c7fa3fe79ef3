package org.pysparklance.read;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.*;
import org.apache.spark.sql.types.*;
import org.pysparklance.python.Description;
import org.pysparklance.python.Python;
import org.pysparklance.python.ScanRequest;

/** Counts of rows by value of a column, or by condition, from indices. */
final class IndexCounts {
  private IndexCounts() {}

  /** The rows of {@code SELECT DISTINCT c}, or of counts by value or condition; null if unknown. */
  static LanceScan.LocalRows localRows(Description table, StructType columns,
      ScanRequest request, Aggregation aggregation) {
    Expression[] groupBy = aggregation.groupByExpressions();
    AggregateFunc[] functions = aggregation.aggregateExpressions();
    StructField column = groupBy.length == 1 ? field(columns, groupBy[0]) : null;
    boolean isIndexed = groupBy.length == 0 ? request.filter() != null && functions.length > 0
        : column != null && table.hasValueCounts(column.name())
        && CatalystValues.canParse(column.dataType());
    if (!isIndexed || !table.hasAnyValueCounts()
        || !Arrays.stream(functions).allMatch(CountStar.class::isInstance)) {
      return null;
    }
    JsonNode rows = Python.counts(request, column == null ? null : column.name());
    return rows == null ? null : new LanceScan.LocalRows(schema(column, functions.length),
        column == null ? new InternalRow[] {totalRow(rows, functions.length)}
            : rowsByValue(rows, column.dataType(), functions.length),
        "lance " + aggregation + " of " + table.title() + ", answered from an index");
  }

  private static StructField field(StructType columns, Expression by) {
    return by instanceof NamedReference reference && reference.fieldNames().length == 1
        ? Arrays.stream(columns.fields())
            .filter(field -> field.name().equals(reference.fieldNames()[0]))
            .findFirst().orElse(null) : null;
  }

  private static StructType schema(StructField column, int counts) {
    StructType schema = column == null ? new StructType() : new StructType().add(column);
    for (int i = 0; i < counts; i++) {
      schema = schema.add("count " + i, DataTypes.LongType, false);
    }
    return schema;
  }

  private static InternalRow totalRow(JsonNode rows, int counts) {
    long sum = 0;
    for (JsonNode row : rows) {
      sum += row.get(1).asLong();
    }
    Object[] values = new Object[counts];
    Arrays.fill(values, sum);
    return new GenericInternalRow(values);
  }

  private static InternalRow[] rowsByValue(JsonNode rows, DataType type, int counts) {
    List<InternalRow> result = new ArrayList<>();
    for (JsonNode row : rows) {
      Object[] values = new Object[1 + counts];
      Arrays.fill(values, row.get(1).asLong());
      values[0] = row.get(0).isNull() ? null : CatalystValues.parse(row.get(0).asText(), type);
      result.add(new GenericInternalRow(values));
    }
    return result.toArray(InternalRow[]::new);
  }
}
