package org.pysparklance;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.write.*;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;

/** An append or overwrite, done by Python; after the commit the table shows the new version. */
record LanceWrite(Write python, LanceTable table) implements Write {
  record Builder(WriteBuilder python, LanceTable table) implements SupportsTruncate {
    @Override public WriteBuilder truncate() {
      return new Builder(((SupportsTruncate) python).truncate(), table);
    }

    @Override public Write build() { return new LanceWrite(python.build(), table); }
  }

  @Override public String description() { return table.name(); }

  @Override public BatchWrite toBatch() { return new Batch(python.toBatch(), table); }

  @Override public StreamingWrite toStreaming() { return python.toStreaming(); }

  @Override public CustomMetric[] supportedCustomMetrics() {
    return python.supportedCustomMetrics();
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
