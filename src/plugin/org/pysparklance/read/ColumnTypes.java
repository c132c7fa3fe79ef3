package org.pysparklance.read;

import java.util.Arrays;
import java.util.Set;
import org.apache.spark.sql.types.*;

/** The types that Spark reads as Arrow columns, and nested projections of columns. */
final class ColumnTypes {
  /** By name, as older releases of Spark lack some. */
  private static final Set<String> PLAIN = Set.of("boolean", "tinyint", "smallint", "int",
      "bigint", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz",
      "void", "variant");

  private ColumnTypes() {}

  static boolean areKnown(StructType columns) {
    return Arrays.stream(columns.fields()).allMatch(field -> isKnown(field.dataType()));
  }

  /** The projection of Spark, but with whole maps, which cannot be read in part. */
  static StructType withWholeMaps(StructType asked, StructType own) {
    return new StructType(Arrays.stream(asked.fields()).map(field -> {
      int place = Arrays.asList(own.fieldNames()).indexOf(field.name());
      return place < 0 ? field : new StructField(field.name(),
          withWholeMaps(field.dataType(), own.fields()[place].dataType()), field.nullable(),
          field.metadata());
    }).toArray(StructField[]::new));
  }

  private static DataType withWholeMaps(DataType asked, DataType own) {
    if (asked instanceof StructType some && own instanceof StructType all) {
      return withWholeMaps(some, all);
    }
    if (asked instanceof ArrayType some && own instanceof ArrayType all) {
      return new ArrayType(withWholeMaps(some.elementType(), all.elementType()),
          some.containsNull());
    }
    return asked instanceof MapType ? own : asked;
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
