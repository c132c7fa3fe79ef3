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

/** Statistics of a scan for Spark's optimizer. */
record Estimate(OptionalLong sizeInBytes, OptionalLong numRows,
    Map<NamedReference, ColumnStatistics> columnStats) implements Statistics {
  /** Statistics of the columns that Python has statistics of. */
  static Map<NamedReference, ColumnStatistics> of(StructType columns, JsonNode known) {
    Map<NamedReference, ColumnStatistics> all = new HashMap<>();
    for (StructField column : columns.fields()) {
      JsonNode one = known.path(column.name());
      if (!one.isMissingNode()) {
        all.put(FieldReference.column(column.name()), new OfColumn(
            OptionalLong.of(one.get("distinct").asLong()),
            OptionalLong.of(one.get("nulls").asLong()),
            bound(one.get("min"), column.dataType()), bound(one.get("max"), column.dataType()),
            number(one.get("average_bytes")), number(one.get("most_bytes"))));
      }
    }
    return all;
  }

  private static Optional<Object> bound(JsonNode value, DataType type) {
    return Optional.ofNullable(value.isNull() ? null : CountedValues.value(value.asText(), type));
  }

  private static OptionalLong number(JsonNode value) {
    return value.isNull() ? OptionalLong.empty() : OptionalLong.of(value.asLong());
  }

  private record OfColumn(OptionalLong distinctCount, OptionalLong nullCount, Optional<Object> min,
      Optional<Object> max, OptionalLong avgLen, OptionalLong maxLen)
      implements ColumnStatistics {}
}
