package org.pysparklance.read;

import java.math.BigDecimal;
import java.util.Base64;
import org.apache.spark.sql.types.*;
import org.apache.spark.unsafe.types.UTF8String;

/** Spark's internal values, of which Python sends the text. */
final class CatalystValues {
  private CatalystValues() {}

  /** Whether values of a type are supported. */
  static boolean canParse(DataType type) { return parse("0000", type) != null; }

  /** Parses a value of Python; null for unsupported types. */
  static Object parse(String text, DataType type) {
    if (type.equals(DataTypes.StringType)) {
      return UTF8String.fromString(text);
    } else if (type.equals(DataTypes.BinaryType)) {
      return Base64.getDecoder().decode(text);
    } else if (type instanceof DecimalType decimal) {
      return Decimal.apply(new BigDecimal(text), decimal.precision(), decimal.scale());
    } else if (type.equals(DataTypes.DoubleType)) {
      return parseDouble(text);
    } else if (type.equals(DataTypes.FloatType)) {
      return (float) parseDouble(text);
    } else if (type.equals(DataTypes.BooleanType)) {
      return Boolean.valueOf(text);
    } else if (type.equals(DataTypes.ByteType)) {
      return Byte.valueOf(text);
    } else if (type.equals(DataTypes.ShortType)) {
      return Short.valueOf(text);
    } else if (type.equals(DataTypes.IntegerType) || type.equals(DataTypes.DateType)) {
      return Integer.valueOf(text);
    }
    return type.equals(DataTypes.LongType) || type.equals(DataTypes.TimestampType)
        || type.equals(DataTypes.TimestampNTZType) ? Long.valueOf(text) : null;
  }

  /** Parses the format of Python. */
  private static double parseDouble(String text) {
    return switch (text) {
      case "nan" -> Double.NaN;
      case "inf" -> Double.POSITIVE_INFINITY;
      case "-inf" -> Double.NEGATIVE_INFINITY;
      default -> Double.parseDouble(text);
    };
  }
}
