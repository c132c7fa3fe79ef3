package org.pysparklance.read;

import java.util.Arrays;
import org.apache.arrow.vector.BaseFixedWidthVector;
import org.apache.arrow.vector.DecimalVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.NullVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.complex.MapVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column of the current batch. Arrow's own getters check bounds and nulls of each value through
 * several objects; Spark knows the number of rows and checks nulls first, so this reads plain
 * values directly from memory.
 */
final class BatchColumn extends ArrowColumnVector {
  private final FieldVector vector;
  private final FieldVector items;
  private final int indexBytes;
  private final BatchColumn[] children;
  private boolean hasNulls;
  private long validity;
  private long offsets;
  private long values;
  private long indices;
  private UTF8String[] strings;
  private byte[] textBytes = {};
  private int textOffset;  // where the text begins in Arrow's buffer

  BatchColumn(FieldVector vector) { this(vector, vector, 0); }

  /** A dictionary of {@code items} and the {@code indices} of each row into them. */
  BatchColumn(FieldVector items, BaseFixedWidthVector indices) {
    this(items, indices, indices.getTypeWidth());
  }

  private BatchColumn(FieldVector items, FieldVector vector, int indexBytes) {
    super(items);
    this.vector = vector;
    this.items = items;
    this.indexBytes = indexBytes;
    if (vector instanceof ListVector list && !(vector instanceof MapVector)) {
      children = new BatchColumn[] {new BatchColumn(list.getDataVector())};
    } else if (vector instanceof StructVector struct) {
      children = new BatchColumn[struct.size()];
      Arrays.setAll(children,
          i -> new BatchColumn((FieldVector) super.getChild(i).getValueVector()));
    } else {
      children = new BatchColumn[0];
    }
  }

  /** Switches to the data that was loaded into the vector. */
  void update() {
    hasNulls = vector.getNullCount() > 0;
    validity = vector instanceof NullVector ? 0 : vector.getValidityBufferAddress();
    offsets = items instanceof VarCharVector || items instanceof ListVector
        ? items.getOffsetBufferAddress() : 0;
    values = items instanceof VarCharVector || items instanceof BaseFixedWidthVector
        ? items.getDataBufferAddress() : 0;
    if (items instanceof VarCharVector && items.getValueCount() > 0) {
      copyStrings();
    }
    if (indexBytes > 0) {
      indices = vector.getDataBufferAddress();
      strings = new UTF8String[items.getValueCount()];
    }
    Arrays.stream(children).forEach(BatchColumn::update);
  }

  /**
   * Copies strings to byte arrays, as Spark's own strings are. With off-heap strings in a session,
   * the JIT compiler generates code for both, which is slower than a copy.
   */
  private void copyStrings() {
    textOffset = readOffset(0);
    int length = readOffset(items.getValueCount()) - textOffset;
    if (textBytes.length < length) {
      textBytes = new byte[length + length / 4];
    }
    Platform.copyMemory(null, values + textOffset, textBytes, Platform.BYTE_ARRAY_OFFSET, length);
  }

  /** Does nothing: Spark closes the columns of a batch, but these are reused for the next one. */
  @Override public void close() {}

  @Override public boolean hasNull() { return hasNulls; }

  @Override public boolean isNullAt(int row) {
    return hasNulls && (validity == 0
        || (Platform.getByte(null, validity + (row >> 3)) >> (row & 7) & 1) == 0);
  }

  @Override public byte getByte(int row) { return Platform.getByte(null, values + row); }

  @Override public short getShort(int row) { return Platform.getShort(null, values + 2L * row); }

  @Override public int getInt(int row) { return Platform.getInt(null, values + 4L * row); }

  @Override public long getLong(int row) { return Platform.getLong(null, values + 8L * row); }

  @Override public float getFloat(int row) { return Platform.getFloat(null, values + 4L * row); }

  @Override public double getDouble(int row) { return Platform.getDouble(null, values + 8L * row); }

  /** Arrow's getter creates a BigInteger for each value; this avoids it for 64 bits. */
  @Override public Decimal getDecimal(int row, int precision, int scale) {
    if (!(items instanceof DecimalVector)) {
      return super.getDecimal(row, precision, scale);
    }
    if (isNullAt(row)) {
      return null;
    }
    long low = Platform.getLong(null, values + 16L * row);
    if (precision <= Decimal.MAX_LONG_DIGITS()) {
      return Decimal.createUnsafe(low, precision, scale);
    }
    boolean isLong = Platform.getLong(null, values + 16L * row + 8) == low >> 63;
    return isLong ? Decimal.apply(low, precision, scale) : super.getDecimal(row, precision, scale);
  }

  @Override public UTF8String getUTF8String(int row) {
    if (offsets == 0) {
      return super.getUTF8String(row);
    }
    if (isNullAt(row)) {
      return null;
    }
    return indexBytes == 0 ? readString(row) : decode(readIndex(row));
  }

  private UTF8String readString(int index) {
    return UTF8String.fromBytes(textBytes, readOffset(index) - textOffset,
        readOffset(index + 1) - readOffset(index));
  }

  private UTF8String decode(int index) {
    UTF8String string = strings[index];
    return string != null ? string : (strings[index] = readString(index));
  }

  private int readIndex(int row) {
    return switch (indexBytes) {
      case 1 -> Platform.getByte(null, indices + row) & 0xFF;
      case 2 -> Platform.getShort(null, indices + 2L * row) & 0xFFFF;
      default -> Platform.getInt(null, indices + 4L * row);
    };
  }

  @Override public ColumnarArray getArray(int row) {
    if (children.length == 0 || isNullAt(row)) {
      return super.getArray(row);
    }
    return new ColumnarArray(children[0], readOffset(row), readOffset(row + 1) - readOffset(row));
  }

  private int readOffset(int row) { return Platform.getInt(null, offsets + 4L * row); }

  @Override public ArrowColumnVector getChild(int ordinal) {
    return ordinal < children.length ? children[ordinal] : super.getChild(ordinal);
  }
}
