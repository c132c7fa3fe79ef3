package org.pysparklance.read;

import java.util.Arrays;
import java.util.Set;
import org.apache.spark.sql.types.*;

/** The types that Spark reads as Arrow columns, and nested projections of columns. */
final class ColumnTypes {
  /** By name, as older releases of Spark lack some. */
  private static final Set<String> ATOMIC_TYPES = Set.of("boolean", "tinyint", "smallint", "int",
      "bigint", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz",
      "void", "variant");

  private ColumnTypes() {}

  static boolean areSupported(StructType columns) {
    return Arrays.stream(columns.fields()).allMatch(field -> isSupported(field.dataType()));
  }

  /** Spark's projection, but with complete maps, which cannot be pruned. */
  static StructType withWholeMaps(StructType required, StructType full) {
    return new StructType(Arrays.stream(required.fields()).map(field -> {
      int index = Arrays.asList(full.fieldNames()).indexOf(field.name());
      return index < 0 ? field : new StructField(field.name(),
          withWholeMaps(field.dataType(), full.fields()[index].dataType()), field.nullable(),
          field.metadata());
    }).toArray(StructField[]::new));
  }

  private static DataType withWholeMaps(DataType required, DataType full) {
    if (required instanceof StructType requiredType && full instanceof StructType fullType) {
      return withWholeMaps(requiredType, fullType);
    }
    if (required instanceof ArrayType requiredType && full instanceof ArrayType fullType) {
      return new ArrayType(withWholeMaps(requiredType.elementType(), fullType.elementType()),
          requiredType.containsNull());
    }
    return required instanceof MapType ? full : required;
  }

  private static boolean isSupported(DataType type) {
    if (type instanceof StructType struct) {
      return areSupported(struct);
    }
    if (type instanceof ArrayType array) {
      return isSupported(array.elementType());
    }
    if (type instanceof MapType map) {
      return isSupported(map.keyType()) && isSupported(map.valueType());
    }
    if (type instanceof UserDefinedType<?> user) {
      return isSupported(user.sqlType());
    }
    return ATOMIC_TYPES.contains(type.simpleString()) || type instanceof StringType
        || type instanceof DecimalType || type instanceof DayTimeIntervalType
        || type instanceof YearMonthIntervalType;
  }
}
