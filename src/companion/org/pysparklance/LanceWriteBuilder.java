package org.pysparklance;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.*;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Appends and overwrites, done by Python with the options of the table and of the write. */
final class LanceWriteBuilder implements SupportsTruncate {
  private final LanceTable table;
  private WriteBuilder python;

  LanceWriteBuilder(LanceTable table, CaseInsensitiveStringMap options, LogicalWriteInfo info) {
    this.table = table;
    this.python = Python.write(new Info(options, info.queryId(), info.schema()));
  }

  record Info(CaseInsensitiveStringMap options, String queryId, StructType schema)
      implements LogicalWriteInfo {}

  @Override
  public WriteBuilder truncate() {
    python = ((SupportsTruncate) python).truncate();
    return this;
  }

  @Override
  public Write build() {
    Write write = python.build();
    return new Write() {
      @Override
      public String description() {
        return table.name();
      }

      @Override
      public BatchWrite toBatch() {
        return new Committing(write.toBatch());
      }

      @Override
      public StreamingWrite toStreaming() {
        return write.toStreaming();
      }

      @Override
      public CustomMetric[] supportedCustomMetrics() {
        return write.supportedCustomMetrics();
      }

      @Override
      public CustomTaskMetric[] reportDriverMetrics() {
        return write.reportDriverMetrics();
      }
    };
  }

  /** Python's write; after the commit the table shows the new version. */
  private final class Committing implements BatchWrite {
    private final BatchWrite write;

    Committing(BatchWrite write) {
      this.write = write;
    }

    @Override
    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      return write.createBatchWriterFactory(info);
    }

    @Override
    public boolean useCommitCoordinator() {
      return write.useCommitCoordinator();
    }

    @Override
    public void onDataWriterCommit(WriterCommitMessage message) {
      write.onDataWriterCommit(message);
    }

    @Override
    public void commit(WriterCommitMessage[] messages) {
      write.commit(messages);
      table.forgetVersion();
    }

    @Override
    public void abort(WriterCommitMessage[] messages) {
      write.abort(messages);
    }
  }
}
