package org.pysparklance.read;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.*;
import org.apache.spark.sql.connector.expressions.FieldReference;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.colstats.ColumnStatistics;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.pysparklance.python.Responses;

/** Statistics of a scan for Spark's optimizer. */
record ScanStatistics(OptionalLong sizeInBytes, OptionalLong numRows,
    Map<NamedReference, ColumnStatistics> columnStats) implements Statistics {
  /** Statistics of the columns that Python has statistics of. */
  static Map<NamedReference, ColumnStatistics> of(
      StructType columns, Map<String, Responses.ColumnEstimate> estimates) {
    Map<NamedReference, ColumnStatistics> all = new HashMap<>();
    for (StructField column : columns.fields()) {
      Responses.ColumnEstimate estimate = estimates.get(column.name());
      if (estimate != null) {
        all.put(FieldReference.column(column.name()), new OfColumn(
            OptionalLong.of(estimate.distinct()), OptionalLong.of(estimate.nulls()),
            bound(estimate.min(), column.dataType()), bound(estimate.max(), column.dataType()),
            number(estimate.averageBytes()), number(estimate.maxBytes())));
      }
    }
    return all;
  }

  private static Optional<Object> bound(JsonNode value, DataType type) {
    return Optional.ofNullable(value == null ? null : CatalystValues.parse(value.asText(), type));
  }

  private static OptionalLong number(Long value) {
    return value == null ? OptionalLong.empty() : OptionalLong.of(value);
  }

  private record OfColumn(OptionalLong distinctCount, OptionalLong nullCount, Optional<Object> min,
      Optional<Object> max, OptionalLong avgLen, OptionalLong maxLen)
      implements ColumnStatistics {}
}
