package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.types.DataType;

/**
 * A placeholder for the bytes of a value of a blob column. Spark compares the types of values with
 * those of columns, and a blob column has the type of descriptors; so this has that type until
 * {@link BlobWrites} replaces it by the bytes in the plan of the write.
 */
public final class BlobValue extends Placeholder {
  private final DataType descriptorType;

  /** {@code descriptorType}: the type in which queries see the column. */
  public BlobValue(Expression bytes, DataType descriptorType) {
    super(bytes);
    this.descriptorType = descriptorType;
  }

  @Override public DataType dataType() { return descriptorType; }

  @Override Placeholder withChild(Expression child) { return new BlobValue(child, descriptorType); }

  @Override public int productArity() { return 2; }

  @Override public Object productElement(int number) {
    return number == 0 ? child() : descriptorType;
  }
}
