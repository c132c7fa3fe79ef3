package org.pysparklance;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.write.*;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;

/** An append or overwrite, done by Python; after the commit the table shows the new version. */
record LanceWrite(WriteBuilder python, LanceTable table) implements SupportsTruncate, Write {
  @Override public LanceWrite truncate() {
    return new LanceWrite(((SupportsTruncate) python).truncate(), table);
  }

  @Override public Write build() { return this; }

  @Override public String description() { return table.name(); }

  @Override public BatchWrite toBatch() { return new Batch(python.build().toBatch(), table); }

  @Override public StreamingWrite toStreaming() { return python.build().toStreaming(); }

  @Override public CustomMetric[] supportedCustomMetrics() {
    return python.build().supportedCustomMetrics();
  }

  static class Batch implements BatchWrite {
    protected final BatchWrite python;
    private final LanceTable table;

    Batch(BatchWrite python, LanceTable table) {
      this.python = python;
      this.table = table;
    }

    @Override public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      return python.createBatchWriterFactory(info);
    }

    @Override public boolean useCommitCoordinator() { return python.useCommitCoordinator(); }

    @Override public void commit(WriterCommitMessage[] messages) {
      python.commit(messages);
      table.forgetVersion();
    }

    @Override public void abort(WriterCommitMessage[] messages) { python.abort(messages); }
  }
}
