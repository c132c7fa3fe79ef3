package org.pysparklance.read;

import java.util.Arrays;
import java.util.Set;
import org.apache.spark.sql.types.*;

/** Which columns Spark reads as Arrow has them. */
final class ColumnTypes {
  /** By name, as older releases of Spark lack some. */
  private static final Set<String> PLAIN = Set.of("boolean", "tinyint", "smallint", "int",
      "bigint", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz",
      "void", "variant");

  private ColumnTypes() {}

  static boolean areKnown(StructType columns) {
    return Arrays.stream(columns.fields()).allMatch(field -> isKnown(field.dataType()));
  }

  private static boolean isKnown(DataType type) {
    if (type instanceof StructType struct) {
      return areKnown(struct);
    }
    if (type instanceof ArrayType array) {
      return isKnown(array.elementType());
    }
    if (type instanceof MapType map) {
      return isKnown(map.keyType()) && isKnown(map.valueType());
    }
    if (type instanceof UserDefinedType<?> user) {
      return isKnown(user.sqlType());
    }
    return PLAIN.contains(type.simpleString()) || type instanceof StringType
        || type instanceof DecimalType || type instanceof DayTimeIntervalType
        || type instanceof YearMonthIntervalType;
  }
}
