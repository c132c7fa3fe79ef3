package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.types.DataType;

/**
 * The bytes of blobs in the place of a value of a blob column. Spark compares types of values with
 * those of columns, and a blob column shows descriptors; so this has their type until the plan of
 * the write is there, where {@link BlobWrites} puts the bytes themselves.
 */
public final class BlobValue extends Placeholder {
  private final DataType shown;

  /** {@code shown}: the type in which queries see the column. */
  public BlobValue(Expression bytes, DataType shown) {
    super(bytes);
    this.shown = shown;
  }

  @Override public DataType dataType() { return shown; }

  @Override Placeholder around(Expression other) { return new BlobValue(other, shown); }

  @Override public int productArity() { return 2; }

  @Override public Object productElement(int number) { return number == 0 ? child() : shown; }
}
