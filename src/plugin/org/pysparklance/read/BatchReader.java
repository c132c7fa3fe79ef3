package org.pysparklance.read;

import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.*;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.ForeignAllocation;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.BaseFixedWidthVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.ipc.message.ArrowDictionaryBatch;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.arrow.vector.util.DictionaryUtility;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.storage.StorageUtils;

/**
 * Reads batches that a Python worker wrote to shared memory and announces by rows. See
 * shared_batches.py. Runs on executors.
 */
final class BatchReader implements PartitionReader<ColumnarBatch> {
  private static final int ACKNOWLEDGE = 0;
  private static final int MEMORY = 1;
  private static final int LENGTH = 2;
  private static final int BYTES = 3;
  private static final int TOKEN_READ = 0xFF;

  private final CancelOnLimit python;
  private final BufferAllocator allocator =
      ArrowUtils.rootAllocator().newChildAllocator("lance batches", 0, Long.MAX_VALUE);
  private final Map<String, ByteBuffer> maps = new HashMap<>();
  private FileOutputStream acknowledgements;
  private final Map<Long, Dictionary> dictionaries = new HashMap<>();
  private ByteBuffer schemaHeader;
  private VectorSchemaRoot root;
  private BatchColumn[] columns;
  private ColumnarBatch batch;
  private int batchInUse = TOKEN_READ;
  private long rows;
  private long bytes;

  BatchReader(PartitionReader<InternalRow> python) {
    this.python = new CancelOnLimit(python, this::closeAcknowledgements);
  }

  /** The next batch with rows, which invalidates the one before. */
  @Override public boolean next() throws IOException {
    releaseBatch();
    while (python.next()) {
      InternalRow row = python.get();
      if (row.getLong(LENGTH) > 0 && receive(row)) {
        rows += batch.numRows();
        bytes += row.getLong(LENGTH);
        return true;
      }
    }
    return false;
  }

  @Override public ColumnarBatch get() { return batch; }

  /** Python's metrics, for the batches rather than the rows that announce them; at the end. */
  @Override public CustomTaskMetric[] currentMetricsValues() {
    return !python.isOver() ? new CustomTaskMetric[0]
        : Arrays.stream(python.currentMetricsValues()).map(metric -> switch (metric.name()) {
          case "pythonNumRowsReceived" -> new LanceScan.TaskMetric(metric.name(), rows);
          case "pythonDataReceived" -> new LanceScan.TaskMetric(metric.name(), bytes);
          default -> metric;
        }).toArray(CustomTaskMetric[]::new);
  }

  private boolean receive(InternalRow row) throws IOException {
    int length = Math.toIntExact(row.getLong(LENGTH));
    if (row.isNullAt(MEMORY)) {
      ArrowBuf copy = allocator.buffer(length);
      copy.setBytes(0, row.getBinary(BYTES), 0, length);
      load(copy.nioBuffer(0, length), copy);
      return true;
    }
    String file = row.getString(MEMORY);
    if (acknowledgements == null) {
      handshake(row.getString(ACKNOWLEDGE), file, Arrays.copyOf(row.getBinary(BYTES), length));
      return false;
    }
    batchInUse = Integer.parseInt(row.getString(ACKNOWLEDGE));
    ByteBuffer memory = map(file, length);
    long address = MemoryUtil.getByteBufferAddress(memory);
    load(memory, allocator.wrapForeignAllocation(new ForeignAllocation(length, address) {
      @Override protected void release0() {}  // unmapped when the task is over
    }));
    return true;
  }

  /** Responds if this process sees the worker's token; otherwise rows contain the batches. */
  private void handshake(String pipe, String file, byte[] token) {
    try {
      byte[] content = new byte[token.length];
      map(file, token.length).duplicate().get(content);
      if (Arrays.equals(content, token)) {
        acknowledgements = new FileOutputStream(pipe);
        acknowledgements.write(TOKEN_READ);
      }
    } catch (IOException | RuntimeException unreachable) {
      // Another file system or another user: continue without shared memory.
    }
  }

  private ByteBuffer map(String file, int length) throws IOException {
    ByteBuffer mapped = maps.get(file);
    if (mapped == null || mapped.capacity() < length) {
      try (FileChannel channel = FileChannel.open(Path.of(file))) {
        ByteBuffer mapping = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
        maps.put(file, mapping);
        unmap(mapped);
        mapped = mapping;
      }
    }
    return mapped;
  }

  private static void unmap(ByteBuffer mapped) {
    if (mapped != null) {
      StorageUtils.dispose(mapped);
    }
  }

  /** Loads an Arrow stream of a schema and a batch into the vectors; takes over {@code memory}. */
  private void load(ByteBuffer messages, ArrowBuf memory) throws IOException {
    ByteBuffer stream = messages.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    stream.position(0);
    while (true) {
      stream.getInt();  // a mark
      int size = stream.getInt();
      ByteBuffer header = stream.slice(stream.position(), size).order(ByteOrder.LITTLE_ENDIAN);
      stream.position(stream.position() + size);
      Message message = Message.getRootAsMessage(header);
      if (message.headerType() == MessageHeader.RecordBatch) {
        ArrowBuf arrowBody = memory.slice(stream.position(), message.bodyLength());
        try (ArrowRecordBatch arrow =
            MessageSerializer.deserializeRecordBatch(message, arrowBody)) {
          new VectorLoader(root).load(arrow);
        }
        Arrays.stream(columns).forEach(BatchColumn::update);
        batch = new ColumnarBatch(columns, root.getRowCount());
        return;
      }
      if (message.headerType() == MessageHeader.DictionaryBatch) {
        ArrowBuf arrowBody = memory.slice(stream.position(), message.bodyLength());
        memory.getReferenceManager().retain();
        try (ArrowDictionaryBatch arrow =
            MessageSerializer.deserializeDictionaryBatch(message, arrowBody)) {
          FieldVector items = dictionaries.get(arrow.getDictionaryId()).getVector();
          new VectorLoader(VectorSchemaRoot.of(items)).load(arrow.getDictionary());
        }
        stream.position(stream.position() + Math.toIntExact(message.bodyLength()));
      } else if (!header.equals(schemaHeader)) {
        createVectors(header, MessageSerializer.deserializeSchema(message));
      }
    }
  }

  /** Creates vectors for batches of a schema. Columns may be dictionaries in some batches. */
  private void createVectors(ByteBuffer header, Schema schema) {
    clear();
    dictionaries.clear();
    schemaHeader = ByteBuffer.allocate(header.capacity()).put(header.duplicate()).flip();
    List<Field> fields = schema.getFields().stream()
        .map(field -> DictionaryUtility.toMemoryFormat(field, allocator, dictionaries)).toList();
    root = VectorSchemaRoot.create(new Schema(fields), allocator);
    columns = root.getFieldVectors().stream().map(this::column).toArray(BatchColumn[]::new);
  }

  private BatchColumn column(FieldVector vector) {
    DictionaryEncoding encoding = vector.getField().getDictionary();
    return encoding == null ? new BatchColumn(vector)
        : new BatchColumn(
            dictionaries.get(encoding.getId()).getVector(), (BaseFixedWidthVector) vector);
  }

  /** Releases the memory of the vectors. */
  private void clear() {
    if (root != null) {
      root.clear();
      dictionaries.values().forEach(dictionary -> dictionary.getVector().clear());
    }
  }

  private void releaseBatch() {
    clear();
    if (batchInUse != TOKEN_READ) {
      try {
        acknowledgements.write(batchInUse);
      } catch (IOException ended) {
        // The worker has sent all batches and no longer listens.
      }
      batchInUse = TOKEN_READ;
    }
  }

  private void closeAcknowledgements() throws IOException {
    if (acknowledgements != null) {
      acknowledgements.close();
    }
  }

  @Override public void close() throws IOException {
    try (python; allocator; FileOutputStream pipe = acknowledgements) {
      clear();
    } finally {
      maps.values().forEach(BatchReader::unmap);
      maps.clear();
    }
  }
}
